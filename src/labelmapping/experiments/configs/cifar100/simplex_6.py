"""Figure 5, simplex code of 6 sites: p = 11.

Command: labelmapping reproduce cifar100 --rows simplex-6 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 6 min, cpu 42 min, paper 3.6 h; less what simplex-5 has trained
The paper's value: curves only, no numbers
"""

from ...cifar100 import SIMPLEX, simple_cnn
from ...rows import Row

ROW = Row(
    name="simplex-6",
    title="simplex 6 sites",
    run="simplex",
    n_sites=6,
    recipe=simple_cnn(SIMPLEX),
)
