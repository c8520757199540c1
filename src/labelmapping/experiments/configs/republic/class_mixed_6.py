"""Ours: the mixed code of 6 sites in and out, one network, trained by one softmax over the words.

The sites' logits are learnt together, so their sum is a log-probability and not only an order.

Command: labelmapping reproduce republic --rows class-mixed-6 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 15 min (products in bfloat16)
The paper's value: none, a row of our own
"""

from ...republic import MIXED, lstm
from ...rows import Row

ROW = Row(
    name="class-mixed-6",
    title="joint mixed 6→6, softmax over words",
    run="class-mixed-6",
    recipe=lstm(MIXED, MIXED, joint=True, head_options={"normalization": "class"}),
)
