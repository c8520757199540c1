"""Table 1, simplex code of 4 sites: p = 181.

Command: labelmapping reproduce cjk --rows simplex-4 --profile cpu
Time on 2 CPU cores: quick 3 min, cpu 20 min less what simplex-3 has trained; paper needs a GPU
The paper's value: .0604 .9812 .9943 .9978 after 20, 40, 60, 80 epochs
"""

from ...cjk import network, simplex
from ...rows import Row

ROW = Row(
    name="simplex-4",
    title="simplex 4 sites",
    run="simplex",
    n_sites=4,
    paper={20: 0.0604, 40: 0.9812, 60: 0.9943, 80: 0.9978},
    recipe=network(simplex(6)),
)
