"""Figure 7, ECOC of 7 bits: the binary representation of the class id.

Command: labelmapping reproduce cifar100 --rows ecoc-7 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 7 min, cpu 49 min, paper 4.2 h
The paper's value: curves only, no numbers
"""

from ...cifar100 import ECOC, simple_cnn
from ...rows import Row

ROW = Row(
    name="ecoc-7",
    title="ECOC 7 bits",
    run="ecoc",
    recipe=simple_cnn(ECOC),
)
