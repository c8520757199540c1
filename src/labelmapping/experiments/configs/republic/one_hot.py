"""Table 4, one-hot input and output, softmax.

The paper prints 2.9E6 parameters; its architecture has 2,050,559.

Command: labelmapping reproduce republic --rows one-hot --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 11 min
The paper's value: .0946 .1265 .1379 .1471 .1540 after 2, 4, 6, 8, 10 epochs
"""

from ...republic import ONE_HOT, lstm
from ...rows import Row

ROW = Row(
    name="one-hot",
    title="one-hot softmax",
    run="one-hot",
    n_sites=1,
    paper={2: 0.0946, 4: 0.1265, 6: 0.1379, 8: 0.1471, 10: 0.1540},
    recipe=lstm(ONE_HOT, ONE_HOT),
)
