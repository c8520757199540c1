"""Table 4, simplex code of 6 sites in, 4 sites out.

Command: labelmapping reproduce republic --rows simplex-6-4 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 2 min, cpu and paper 44 min, less what simplex-6-2 has trained
The paper's value: .1586 .1685 .1759 .1805 .1832 after 2, 4, 6, 8, 10 epochs
"""

from ...republic import SIMPLEX, lstm
from ...rows import Row

ROW = Row(
    name="simplex-6-4",
    title="simplex 6→4",
    run="simplex",
    n_sites=4,
    paper={2: 0.1586, 4: 0.1685, 6: 0.1759, 8: 0.1805, 10: 0.1832},
    recipe=lstm(SIMPLEX, SIMPLEX),
)
