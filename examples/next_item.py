"""A next-item model whose items are coded on the way in and on the way out, with one table.

The log is made here: 2,000 items, each with three that may follow it. `read_sequences` reads
files of this form, a line a user. The table has a row for each symbol of the code in place of
one for each item, and the head's last layer is that table again.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from labelmapping import SimplexMapping
from labelmapping.datasets.sequences import PADDING, read_sequences
from labelmapping.nn import LabelMappingEmbedding, LabelMappingHead

N_ITEMS, N_USERS, WIDTH = 2000, 3000, 64
torch.manual_seed(0)
generator = np.random.default_rng(0)

followers = generator.integers(N_ITEMS, size=(N_ITEMS, 3))
walks = [generator.permutation(N_ITEMS).repeat(2)[:N_USERS]]
for _ in range(9):
    walks.append(followers[walks[-1], generator.integers(3, size=N_USERS)])
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "log.txt"
    rows = np.column_stack([np.arange(N_USERS), np.stack(walks, axis=1) + 1])
    path.write_text("\n".join(" ".join(map(str, row)) for row in rows.tolist()))
    log = read_sequences(path)


class NextItem(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        mapping = SimplexMapping(log.n_items, 4)
        self.head = LabelMappingHead(WIDTH, mapping, hidden=WIDTH)
        self.embedding = LabelMappingEmbedding(
            mapping, WIDTH, padding_idx=PADDING, tied_to=self.head
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, histories: Tensor) -> Tensor:
        states, _ = self.gru(self.norm(self.embedding(histories)))
        return states[:, -1]


network = NextItem()
n_table = network.embedding.weight.numel()
print(f"table of both ends: {n_table:,} parameters, one-hot: {log.n_items * WIDTH:,}")

histories, items = map(torch.from_numpy, log.windows("train", 5))
optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
for epoch in range(8):
    total = 0.0
    for rows in torch.randperm(len(items)).split(256):
        loss = network.head(network(histories[rows]), items[rows]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    print(f"epoch {epoch + 1}: loss {total / len(items):.2f}")

network.eval()
histories, items = map(torch.from_numpy, log.windows("test", 5))
with torch.no_grad():
    best = network.head.topk(network(histories), 10).ids
hits = (best == items[:, None]).any(dim=1).float().mean().item()
print(f"hit rate at 10: {hits:.1%}, by chance {10 / log.n_items:.1%}")
