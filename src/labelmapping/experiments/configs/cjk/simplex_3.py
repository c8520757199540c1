"""Table 1, simplex code of 3 sites: p = 181.

Command: labelmapping reproduce cjk --rows simplex-3 --profile cpu
Time on 2 CPU cores: quick 2 min, cpu 15 min less what simplex-2 has trained; paper needs a GPU
The paper's value: .0318 .9373 .9840 .9920 after 20, 40, 60, 80 epochs
"""

from ...cjk import network, simplex
from ...rows import Row

ROW = Row(
    name="simplex-3",
    title="simplex 3 sites",
    run="simplex",
    n_sites=3,
    paper={20: 0.0318, 40: 0.9373, 60: 0.9840, 80: 0.9920},
    recipe=network(simplex(6)),
)
