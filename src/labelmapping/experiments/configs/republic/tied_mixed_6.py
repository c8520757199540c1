"""Ours: the mixed code of 6 sites in and out, one network, its embedding the last layer.

The embedding is as wide as the last layer: 100, not 150.

Command: labelmapping reproduce republic --rows tied-mixed-6 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 11 min
The paper's value: none, a row of our own
"""

from ...republic import MIXED, lstm
from ...rows import Row

ROW = Row(
    name="tied-mixed-6",
    title="joint mixed 6→6, tied",
    run="tied-mixed-6",
    recipe=lstm(MIXED, MIXED, joint=True, tied=True, embedding_dim=100),
)
