"""Figure 5, simplex code of 5 sites: p = 11.

Command: labelmapping reproduce cifar100 --rows simplex-5 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 5 min, cpu 35 min, paper 3.0 h; less what simplex-4 has trained
The paper's value: curves only, no numbers
"""

from ...cifar100 import SIMPLEX, simple_cnn
from ...rows import Row

ROW = Row(
    name="simplex-5",
    title="simplex 5 sites",
    run="simplex",
    n_sites=5,
    recipe=simple_cnn(SIMPLEX),
)
