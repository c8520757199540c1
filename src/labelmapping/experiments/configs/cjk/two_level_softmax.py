"""Ours: hierarchical softmax of two levels, 144 clusters.

Command: labelmapping reproduce cjk --rows two-level-softmax --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 6 min; paper needs a GPU
The paper's value: none, a row of our own
"""

from ...cjk import network, one_hot
from ...rows import Row

ROW = Row(
    name="two-level-softmax",
    title="hierarchical softmax, two levels",
    run="two-level-softmax",
    recipe=network(one_hot, head="hierarchical-two-level"),
)
