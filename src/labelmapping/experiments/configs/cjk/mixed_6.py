"""Table 2, mixed code of 6 sites: modulo 149, 151, 157, 163, 167 and 173.

Command: labelmapping reproduce cjk --rows mixed-6 --profile cpu
Time on 2 CPU cores: quick 4 min, cpu 30 min less what mixed-5 has trained; paper needs a GPU
The paper's value: .0585 .9851 .9967 .9982 after 20, 40, 60, 80 epochs
"""

from ...cjk import mixed, network
from ...rows import Row

ROW = Row(
    name="mixed-6",
    title="mixed 6 sites",
    run="mixed",
    n_sites=6,
    paper={20: 0.0585, 40: 0.9851, 60: 0.9967, 80: 0.9982},
    recipe=network(mixed),
)
