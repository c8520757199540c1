"""Figures 5 and 7, simplex code of 3 sites: p = 11.

Command: labelmapping reproduce cifar100 --rows simplex-3 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 3 min, cpu 21 min, paper 1.8 h
The paper's value: curves only, no numbers
"""

from ...cifar100 import SIMPLEX, simple_cnn
from ...rows import Row

ROW = Row(
    name="simplex-3",
    title="simplex 3 sites",
    run="simplex",
    n_sites=3,
    recipe=simple_cnn(SIMPLEX),
)
