"""Ours: six one-hot networks, their log-probabilities summed, beside figures 5 to 7.

What as many networks as a code has do without a code.

Command: labelmapping reproduce cifar100 --rows one-hot-6 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 6 min, cpu 42 min, paper 3.6 h, as one-hot's networks take
The paper's value: none, a row of our own
"""

from ...cifar100 import REPEATED, simple_cnn
from ...rows import Row

ROW = Row(
    name="one-hot-6",
    title="one-hot, six networks",
    run="one-hots",
    n_sites=6,
    recipe=simple_cnn(REPEATED),
)
