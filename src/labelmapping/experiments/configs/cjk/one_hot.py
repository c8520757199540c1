"""Tables 1 and 2, one-hot with softmax: N symbols on the last layer.

Command: labelmapping reproduce cjk --rows one-hot --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 10 min; paper needs a GPU
The paper's value: .0325 .5152 .9399 .9854 after 20, 40, 60, 80 epochs
"""

from ...cjk import network, one_hot
from ...rows import Row

ROW = Row(
    name="one-hot",
    title="one-hot softmax",
    run="one-hot",
    paper={20: 0.0325, 40: 0.5152, 60: 0.9399, 80: 0.9854},
    recipe=network(one_hot, head="one-hot"),
)
