"""Ours: one learnt code of 6 sites in and out, one network.

From which words stand near which others in the training part; alphabets of 127.

Command: labelmapping reproduce republic --rows joint-learned-6 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 11 min
The paper's value: none, a row of our own
"""

from ...republic import TO_LEARN, learn_codes, lstm
from ...rows import Row

ROW = Row(
    name="joint-learned-6",
    title="joint learned 6→6",
    run="joint-learned-6",
    recipe=lstm(TO_LEARN, TO_LEARN, joint=True),
    fit=learn_codes,
)
