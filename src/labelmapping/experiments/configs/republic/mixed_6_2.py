"""Table 4, mixed code of 6 sites in, 2 sites out.

Command: labelmapping reproduce republic --rows mixed-6-2 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 22 min
The paper's value: .1331 .1402 .1366 .1358 .1189 after 2, 4, 6, 8, 10 epochs
"""

from ...republic import MIXED, lstm
from ...rows import Row

ROW = Row(
    name="mixed-6-2",
    title="mixed 6→2",
    run="mixed",
    n_sites=2,
    paper={2: 0.1331, 4: 0.1402, 6: 0.1366, 8: 0.1358, 10: 0.1189},
    recipe=lstm(MIXED, MIXED),
)
