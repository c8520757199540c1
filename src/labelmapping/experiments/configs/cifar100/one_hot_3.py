"""Ours: three one-hot networks, their log-probabilities summed, beside figures 5 to 7.

What as many networks as a code has do without a code.

Command: labelmapping reproduce cifar100 --rows one-hot-3 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 3 min, cpu 21 min, paper 1.8 h, as one-hot's networks take
The paper's value: none, a row of our own
"""

from ...cifar100 import REPEATED, simple_cnn
from ...rows import Row

ROW = Row(
    name="one-hot-3",
    title="one-hot, three networks",
    run="one-hots",
    n_sites=3,
    recipe=simple_cnn(REPEATED),
)
