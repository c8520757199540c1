"""Tables 1 and 2, one-hot with negative sampling: ten uniform draws a row.

Command: labelmapping reproduce cjk --rows negative-sampling --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 6 min; paper needs a GPU
The paper's value: .0004 .0007 .0019 .0031 after 20, 40, 60, 80 epochs
"""

from ...cjk import network, one_hot
from ...rows import Row

ROW = Row(
    name="negative-sampling",
    title="one-hot, negative sampling 10:1",
    run="negative-sampling",
    paper={20: 0.0004, 40: 0.0007, 60: 0.0019, 80: 0.0031},
    recipe=network(
        one_hot, head="negative-sampling", options={"n_negatives": 10, "noise": "uniform"}
    ),
)
