"""Table 1, simplex code of 2 sites: p = 181.

Command: labelmapping reproduce cjk --rows simplex-2 --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 10 min; paper needs a GPU
The paper's value: .0118 .6657 .8172 .8684 after 20, 40, 60, 80 epochs
"""

from ...cjk import network, simplex
from ...rows import Row

ROW = Row(
    name="simplex-2",
    title="simplex 2 sites",
    run="simplex",
    n_sites=2,
    paper={20: 0.0118, 40: 0.6657, 60: 0.8172, 80: 0.8684},
    recipe=network(simplex(6)),
)
