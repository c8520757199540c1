"""Figure 6, mixed code of 2 sites: modulo 11 and 13.

Command: labelmapping reproduce cifar100 --rows mixed-2 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 2 min, cpu 14 min, paper 1.2 h
The paper's value: curves only, no numbers
"""

from ...cifar100 import MIXED, simple_cnn
from ...rows import Row

ROW = Row(
    name="mixed-2",
    title="mixed 2 sites",
    run="mixed",
    n_sites=2,
    recipe=simple_cnn(MIXED),
)
