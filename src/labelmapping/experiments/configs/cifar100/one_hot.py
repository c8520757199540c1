"""Figures 5 to 7, one-hot: one softmax over the 100 classes.

Command: labelmapping reproduce cifar100 --rows one-hot --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu 7 min, paper 0.6 h
The paper's value: curves only, no numbers
"""

from ...cifar100 import ONE_HOT, simple_cnn
from ...rows import Row

ROW = Row(
    name="one-hot",
    title="one-hot",
    run="one-hot",
    recipe=simple_cnn(ONE_HOT),
)
