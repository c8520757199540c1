"""Table 2, mixed code of 7 sites: modulo 149, 151, 157, 163, 167, 173 and 179.

Command: labelmapping reproduce cjk --rows mixed-7 --profile cpu
Time on 2 CPU cores: quick 5 min, cpu 35 min less what mixed-6 has trained; paper needs a GPU
The paper's value: .0926 .9903 .9974 .9987 after 20, 40, 60, 80 epochs
"""

from ...cjk import mixed, network
from ...rows import Row

ROW = Row(
    name="mixed-7",
    title="mixed 7 sites",
    run="mixed",
    n_sites=7,
    paper={20: 0.0926, 40: 0.9903, 60: 0.9974, 80: 0.9987},
    recipe=network(mixed),
)
