"""Table 1, simplex code of 5 sites: p = 181.

Command: labelmapping reproduce cjk --rows simplex-5 --profile cpu
Time on 2 CPU cores: quick 4 min, cpu 25 min less what simplex-4 has trained; paper needs a GPU
The paper's value: .0585 .9865 .9964 .9984 after 20, 40, 60, 80 epochs
"""

from ...cjk import network, simplex
from ...rows import Row

ROW = Row(
    name="simplex-5",
    title="simplex 5 sites",
    run="simplex",
    n_sites=5,
    paper={20: 0.0585, 40: 0.9865, 60: 0.9964, 80: 0.9984},
    recipe=network(simplex(6)),
)
