"""Ours: the simplex code of 6 sites in and out, one network.

Command: labelmapping reproduce republic --rows joint-simplex-6 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 11 min
The paper's value: none, a row of our own
"""

from ...republic import SIMPLEX, lstm
from ...rows import Row

ROW = Row(
    name="joint-simplex-6",
    title="joint simplex 6→6",
    run="joint-simplex-6",
    recipe=lstm(SIMPLEX, SIMPLEX, joint=True),
)
