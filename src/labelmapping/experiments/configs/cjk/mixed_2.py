"""Table 2, mixed code of 2 sites: modulo 149 and 151.

Command: labelmapping reproduce cjk --rows mixed-2 --profile cpu
Time on 2 CPU cores: quick 1 min, cpu 10 min; paper needs a GPU
The paper's value: .0081 .6130 .7629 .8757 after 20, 40, 60, 80 epochs
"""

from ...cjk import mixed, network
from ...rows import Row

ROW = Row(
    name="mixed-2",
    title="mixed 2 sites",
    run="mixed",
    n_sites=2,
    paper={20: 0.0081, 40: 0.6130, 60: 0.7629, 80: 0.8757},
    recipe=network(mixed),
)
