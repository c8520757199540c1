"""Ours: hierarchical softmax on a Huffman tree, all classes equally frequent.

Command: labelmapping reproduce cjk --rows huffman-softmax --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 6 min; paper needs a GPU
The paper's value: none, a row of our own
"""

from ...cjk import network, one_hot
from ...rows import Row

ROW = Row(
    name="huffman-softmax",
    title="hierarchical softmax, Huffman",
    run="huffman-softmax",
    recipe=network(one_hot, head="hierarchical-huffman"),
)
