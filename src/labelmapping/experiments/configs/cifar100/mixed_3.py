"""Figures 6 and 7, mixed code of 3 sites: modulo 11, 13 and 17.

Command: labelmapping reproduce cifar100 --rows mixed-3 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 3 min, cpu 21 min, paper 1.8 h; less what mixed-2 has trained
The paper's value: curves only, no numbers
"""

from ...cifar100 import MIXED, simple_cnn
from ...rows import Row

ROW = Row(
    name="mixed-3",
    title="mixed 3 sites",
    run="mixed",
    n_sites=3,
    recipe=simple_cnn(MIXED),
)
