"""Ours: the simplex code of 4 sites on one network, p = 181.

Command: labelmapping reproduce cjk --rows joint-simplex-4 --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 6 min; paper needs a GPU
The paper's value: none, a row of our own
"""

from ...cjk import network, simplex
from ...rows import Row

ROW = Row(
    name="joint-simplex-4",
    title="joint simplex 4 sites",
    run="joint-simplex-4",
    recipe=network(simplex(4), joint=True),
)
