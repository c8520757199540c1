"""Table 1, simplex code of 6 sites: p = 181.

Command: labelmapping reproduce cjk --rows simplex-6 --profile cpu
Time on 2 CPU cores: quick 4 min, cpu 30 min less what simplex-5 has trained; paper needs a GPU
The paper's value: .0640 .9878 .9968 .9988 after 20, 40, 60, 80 epochs
"""

from ...cjk import network, simplex
from ...rows import Row

ROW = Row(
    name="simplex-6",
    title="simplex 6 sites",
    run="simplex",
    n_sites=6,
    paper={20: 0.0640, 40: 0.9878, 60: 0.9968, 80: 0.9988},
    recipe=network(simplex(6)),
)
