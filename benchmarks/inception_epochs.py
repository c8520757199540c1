"""``python -m benchmarks.inception_epochs MINUTES``: epochs that the key CJK rows can have.

Times training steps of the paper's network on the GPU, and counts what is trained.
"""

from __future__ import annotations

import sys
import time

import torch

from labelmapping import SimplexMapping
from labelmapping.nn import InceptionV3, LabelMappingHead

BATCH, SIDE, STEPS_PER_EPOCH, EPOCHS = 128, 139, 100, 80
# One-hot, three sites, one joint network, and one that begins with a first phase.
NETWORKS = 1 + 3 + 1 + 1.25
# Beside the steps: checkpoints, held-out rows after each epoch, measuring.
OVERHEAD = 1.3
WARM_UP, STEPS = 5, 20


def step_seconds(device: str) -> float:
    """Of one step of Adam on one site."""
    trunk = InceptionV3().to(device)
    head = LabelMappingHead(trunk.out_features, SimplexMapping(20901, 3), sites=[0], device=device)
    optimizer = torch.optim.Adam([*trunk.parameters(), *head.parameters()])
    images = torch.randint(256, (BATCH, SIDE, SIDE), dtype=torch.uint8, device=device)
    ids = torch.randint(20901, (BATCH,), device=device)
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            torch.cuda.synchronize()
            started = time.perf_counter()
        head(trunk(images), ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / STEPS


def epochs_within(minutes: float, seconds_a_step: float) -> int:
    """A multiple of four, since the learnt row's first phase takes a quarter; 4 to 80."""
    epoch = seconds_a_step * OVERHEAD * STEPS_PER_EPOCH * NETWORKS
    return min(EPOCHS, max(4, int(60 * minutes / epoch) // 4 * 4))


if __name__ == "__main__":
    print(epochs_within(float(sys.argv[1]), step_seconds("cuda")))  # noqa: T201
