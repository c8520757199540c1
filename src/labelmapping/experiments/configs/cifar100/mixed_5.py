"""Figure 6, mixed code of 5 sites: modulo 11, 13, 17, 19 and 23.

Command: labelmapping reproduce cifar100 --rows mixed-5 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 5 min, cpu 35 min, paper 3.0 h; less what mixed-4 has trained
The paper's value: curves only, no numbers
"""

from ...cifar100 import MIXED, simple_cnn
from ...rows import Row

ROW = Row(
    name="mixed-5",
    title="mixed 5 sites",
    run="mixed",
    n_sites=5,
    recipe=simple_cnn(MIXED),
)
