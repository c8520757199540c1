"""Figure 5, simplex code of 4 sites: p = 11.

Command: labelmapping reproduce cifar100 --rows simplex-4 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 4 min, cpu 28 min, paper 2.4 h; less what simplex-3 has trained
The paper's value: curves only, no numbers
"""

from ...cifar100 import SIMPLEX, simple_cnn
from ...rows import Row

ROW = Row(
    name="simplex-4",
    title="simplex 4 sites",
    run="simplex",
    n_sites=4,
    recipe=simple_cnn(SIMPLEX),
)
