"""Table 4, simplex code of 6 sites in, 6 sites out.

Command: labelmapping reproduce republic --rows simplex-6-6 --profile cpu --data-dir DIR
Time on 2 CPU cores: quick 3 min, cpu and paper 66 min, less what simplex-6-4 has trained
The paper's value: .1575 .1694 .1776 .1814 .1851 after 2, 4, 6, 8, 10 epochs
"""

from ...republic import SIMPLEX, lstm
from ...rows import Row

ROW = Row(
    name="simplex-6-6",
    title="simplex 6→6",
    run="simplex",
    n_sites=6,
    paper={2: 0.1575, 4: 0.1694, 6: 0.1776, 8: 0.1814, 10: 0.1851},
    recipe=lstm(SIMPLEX, SIMPLEX),
)
