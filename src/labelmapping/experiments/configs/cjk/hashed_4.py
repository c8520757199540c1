"""Ours: a hashed code of 4 sites on one network, as many symbols as simplex.

Command: labelmapping reproduce cjk --rows hashed-4 --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 6 min; paper needs a GPU
The paper's value: none, a row of our own
"""

from ...cjk import hashed, network
from ...rows import Row

ROW = Row(
    name="hashed-4",
    title="joint hashed 4 sites",
    run="hashed-4",
    recipe=network(hashed, joint=True),
)
