"""Table 3, ECOC of 15 bits: the binary representation of the class id.

Command: labelmapping reproduce cjk --rows ecoc-15 --profile cpu
Time on 2 CPU cores: quick 10 min, cpu 65 min; paper needs a GPU
The paper's value: .0069 .0795 .3660 .5740 after 20, 40, 60, 80 epochs
"""

from ...cjk import ecoc, network
from ...rows import Row

ROW = Row(
    name="ecoc-15",
    title="ECOC 15 bits",
    run="ecoc",
    paper={20: 0.0069, 40: 0.0795, 60: 0.3660, 80: 0.5740},
    recipe=network(ecoc),
)
