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
# One-hot, three sites, one joint network, and one whose code is learnt anew on the way.
NETWORKS = 1 + 3 + 1 + 1
# Beside the steps: checkpoints, held-out rows after each epoch, the features that the code is
# learnt from, measuring.
OVERHEAD = 1.3
WARM_UP, STEPS, IMAGES = 5, 20, 1024


def step_seconds(device: str, batch: int = BATCH, steps: int = STEPS) -> float:
    """Of one step of Adam on one site; images are gathered on the CPU, as in training."""
    trunk = InceptionV3().to(device)
    head = LabelMappingHead(trunk.out_features, SimplexMapping(20901, 3), sites=[0], device=device)
    optimizer = torch.optim.Adam([*trunk.parameters(), *head.parameters()])
    images = torch.randint(256, (IMAGES, SIDE, SIDE), dtype=torch.uint8)
    ids = torch.randint(20901, (IMAGES,))
    warm_up = min(WARM_UP, steps)
    for step in range(warm_up + steps):
        if step == warm_up:
            _finish(device)
            started = time.perf_counter()
        rows = torch.randint(IMAGES, (batch,))
        pixels, wanted = (all_of.index_select(0, rows).to(device) for all_of in (images, ids))
        head(trunk(pixels), wanted).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    _finish(device)
    return (time.perf_counter() - started) / steps


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def epochs_within(minutes: float, seconds_a_step: float) -> int:
    """A multiple of four, since the learnt row's first phase takes a quarter; 4 to 80."""
    epoch = seconds_a_step * OVERHEAD * STEPS_PER_EPOCH * NETWORKS
    return min(EPOCHS, max(4, int(60 * minutes / epoch) // 4 * 4))


def main(minutes: float, device: str) -> int:
    """The epochs; on stderr what they rest on."""
    seconds = step_seconds(device)
    epochs = epochs_within(minutes, seconds)
    rest = epochs * seconds * OVERHEAD * STEPS_PER_EPOCH * NETWORKS / 60
    print(  # noqa: T201
        f"{1000 * seconds:.1f} ms a step: {epochs} epochs, some {rest:.0f} of {minutes:g} minutes",
        file=sys.stderr,
    )
    return epochs


if __name__ == "__main__":
    print(main(float(sys.argv[1]), "cuda"))  # noqa: T201
