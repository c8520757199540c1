"""Ours: one-hot input, adaptive softmax.

Command: labelmapping reproduce republic --rows adaptive-softmax --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 12 min
The paper's value: none, a row of our own
"""

from ...republic import ONE_HOT, lstm
from ...rows import Row

ROW = Row(
    name="adaptive-softmax",
    title="one-hot, adaptive softmax",
    run="adaptive-softmax",
    recipe=lstm(ONE_HOT, ONE_HOT, head="adaptive-softmax"),
)
