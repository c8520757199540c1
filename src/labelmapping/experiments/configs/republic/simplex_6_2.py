"""Table 4, simplex code of 6 sites in, 2 sites out.

Command: labelmapping reproduce republic --rows simplex-6-2 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 1 min, cpu and paper 22 min
The paper's value: .1453 .1505 .1531 .1522 .1444 after 2, 4, 6, 8, 10 epochs
"""

from ...republic import SIMPLEX, lstm
from ...rows import Row

ROW = Row(
    name="simplex-6-2",
    title="simplex 6→2",
    run="simplex",
    n_sites=2,
    paper={2: 0.1453, 4: 0.1505, 6: 0.1531, 8: 0.1522, 10: 0.1444},
    recipe=lstm(SIMPLEX, SIMPLEX),
)
