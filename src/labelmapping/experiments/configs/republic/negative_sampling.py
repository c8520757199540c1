"""Table 4, one-hot input and output, negative sampling 10:1.

Noise by frequency, with the log-Q correction: the method's best known form.

Command: labelmapping reproduce republic --rows negative-sampling --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 10 min
The paper's value: .0480 .0580 .0580 .0580 .0580 after 2, 4, 6, 8, 10 epochs
"""

from ...republic import ONE_HOT, lstm
from ...rows import Row

ROW = Row(
    name="negative-sampling",
    title="one-hot, negative sampling 10:1",
    run="negative-sampling",
    n_sites=1,
    paper={2: 0.0480, 4: 0.0580, 6: 0.0580, 8: 0.0580, 10: 0.0580},
    recipe=lstm(
        ONE_HOT,
        ONE_HOT,
        head="negative-sampling",
        head_options={"n_negatives": 10, "noise": "unigram"},
    ),
)
