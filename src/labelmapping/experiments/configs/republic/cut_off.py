"""Table 4, cut-off at 724: the 723 most frequent words, and one symbol for the rest.

Command: labelmapping reproduce republic --rows cut-off --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 9 min
The paper's value: .0589 .1076 .1245 .1272 .1321 after 2, 4, 6, 8, 10 epochs
"""

from ....mappings import MixedMapping
from ...republic import CUTOFF, ONE_HOT, lstm
from ...rows import Row

ROW = Row(
    name="cut-off",
    title="724 cut-off",
    run="cut-off",
    n_sites=1,
    paper={2: 0.0589, 4: 0.1076, 6: 0.1245, 8: 0.1272, 10: 0.1321},
    recipe=lstm(
        MixedMapping.one_hot(CUTOFF),
        ONE_HOT,
        head="cut-off",
        head_options={"n_symbols": CUTOFF},
        cutoff=True,
    ),
)
