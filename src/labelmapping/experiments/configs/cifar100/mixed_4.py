"""Figure 6, mixed code of 4 sites: modulo 11, 13, 17 and 19.

Command: labelmapping reproduce cifar100 --rows mixed-4 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 4 min, cpu 28 min, paper 2.4 h; less what mixed-3 has trained
The paper's value: curves only, no numbers
"""

from ...cifar100 import MIXED, simple_cnn
from ...rows import Row

ROW = Row(
    name="mixed-4",
    title="mixed 4 sites",
    run="mixed",
    n_sites=4,
    recipe=simple_cnn(MIXED),
)
