"""Table 4, mixed code of 6 sites in, 6 sites out.

Command: labelmapping reproduce republic --rows mixed-6-6 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 3 min, cpu and paper 66 min, less what mixed-6-4 has trained
The paper's value: .1590 .1731 .1812 .1849 .1865 after 2, 4, 6, 8, 10 epochs
"""

from ...republic import MIXED, lstm
from ...rows import Row

ROW = Row(
    name="mixed-6-6",
    title="mixed 6→6",
    run="mixed",
    n_sites=6,
    paper={2: 0.1590, 4: 0.1731, 6: 0.1812, 8: 0.1849, 10: 0.1865},
    recipe=lstm(MIXED, MIXED),
)
