"""Ours: a learnt code of 4 sites on one network, learnt anew after a quarter of the epochs.

First from class means of the images, then from those of the trunk's features. Each phase has a
schedule of its own: compare its last epoch.
The hashed code only gives its size.

Command: labelmapping reproduce cjk --rows learned-4 --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 6 min; paper needs a GPU
The paper's value: none, a row of our own
"""

from ...cjk import hashed, learn_code, network
from ...rows import Row

ROW = Row(
    name="learned-4",
    title="joint learned 4 sites, anew after a quarter",
    run="learned-4",
    recipe=network(hashed, joint=True),
    fit=learn_code,
    refit=True,
)
