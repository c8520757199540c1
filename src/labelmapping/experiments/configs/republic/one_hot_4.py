"""Ours: four one-hot networks, their log-probabilities summed, beside table 4.

What as many networks as mixed 6→4 has do without a code.

Command: labelmapping reproduce republic --rows one-hot-4 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 4 min, cpu and paper 44 min, as one-hot's networks take
The paper's value: none, a row of our own
"""

from ...republic import ONE_HOT, REPEATED, lstm
from ...rows import Row

ROW = Row(
    name="one-hot-4",
    title="one-hot softmax, four networks",
    run="one-hots",
    recipe=lstm(ONE_HOT, REPEATED),
)
