"""Ours: one-hot input and output, softmax, the embedding is the last layer.

The embedding is as wide as the last layer: 100, not 150.

Command: labelmapping reproduce republic --rows tied-one-hot --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 11 min
The paper's value: none, a row of our own
"""

from ...republic import ONE_HOT, lstm
from ...rows import Row

ROW = Row(
    name="tied-one-hot",
    title="one-hot softmax, tied",
    run="tied-one-hot",
    recipe=lstm(ONE_HOT, ONE_HOT, tied=True, embedding_dim=100),
)
