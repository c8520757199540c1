"""Linear learners on synthetic classes: an arbitrary code beside a learnt one, and one-hot.

Classes are random unit vectors in 64 dimensions, rows are those with normal noise of 0.09 a
coordinate, five to train and one to test a class. Without structure to find, and with learners
that cannot memorise, it shows what a code asks of them.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sympy
import torch
from numpy.typing import NDArray

from labelmapping import LabelMapping, LearnedMapping, MixedMapping, SimplexMapping, decode_topk
from labelmapping.experiments.tables import machine, markdown_table
from labelmapping.nn import LabelMappingHead

WIDTH, ROWS, NOISE = 64, 5, 0.09
EPOCHS, BATCH, LEARNING_RATES = 30, 512, (0.01, 0.03)
# Alphabets of the trials.
ALPHABETS = {2000: 101, 10_000: 256, 100_000: 512}
HEADER = ["classes", "seed", "code", "sites", "q", "weights", "train", "held out", "fit s", "s"]


def run(
    *, sizes: Sequence[int], sites: Sequence[int], seeds: Sequence[int], csv_path: Path | None
) -> None:
    """Print a table; with `csv_path`, write it as CSV too."""
    print(f"{machine()}\n")  # noqa: T201
    lines = []
    for n_classes in sizes:
        for seed in seeds:
            rows, ids, held_out = draw(n_classes, seed)
            size = ALPHABETS.get(n_classes, round(2.5 * n_classes**0.5))
            lines.append(
                measure("one-hot", MixedMapping.one_hot(n_classes), rows, ids, held_out, seed, 0.0)
            )
            print(" | ".join(lines[-1]), flush=True)  # noqa: T201
            for n_sites in sites:
                # The class means of the training rows stand for the classes.
                prototypes = rows.reshape(n_classes, ROWS, WIDTH).mean(axis=1)
                started = time.perf_counter()
                learned = LearnedMapping.fit(prototypes, n_sites, alphabet_size=size, seed=seed)
                fitted = time.perf_counter() - started
                order = int(sympy.nextprime(size - 1))
                simplex = SimplexMapping(n_classes, n_sites, field_order=order)
                for name, mapping, seconds in (
                    ("simplex", simplex, 0.0),
                    ("learned", learned, fitted),
                ):
                    lines.append(measure(name, mapping, rows, ids, held_out, seed, seconds))
                    print(" | ".join(lines[-1]), flush=True)  # noqa: T201
    print("\n" + markdown_table((HEADER, lines)))  # noqa: T201
    if csv_path is not None:
        with csv_path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *lines])


def draw(
    n_classes: int, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """Training rows with their ids (ROWS a class in a row), and a held-out row a class."""
    rng = np.random.default_rng([seed, n_classes])
    centres = rng.normal(size=(n_classes, WIDTH))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    ids = np.repeat(np.arange(n_classes), ROWS)
    rows = centres[ids] + NOISE * rng.normal(size=(ids.size, WIDTH))
    held_out = centres + NOISE * rng.normal(size=centres.shape)
    return rows.astype(np.float32), ids, held_out.astype(np.float32)


def measure(
    name: str,
    mapping: LabelMapping,
    rows: NDArray[np.float32],
    ids: NDArray[np.int64],
    held_out: NDArray[np.float32],
    seed: int,
    fitted: float,
) -> list[str]:
    """One line: linear softmaxes by Adam, at the learning rate that fits training rows better."""
    best: tuple[float, float] = (-1.0, -1.0)
    started = time.perf_counter()
    for rate in LEARNING_RATES:
        head = fit(mapping, rows, ids, seed, rate)
        train = score(head, mapping, rows[:: ROWS + 2], ids[:: ROWS + 2])
        best = max(best, (train, score(head, mapping, held_out, np.arange(mapping.n_classes))))
    seconds = (time.perf_counter() - started) / len(LEARNING_RATES)
    weights = (WIDTH + 1) * sum(mapping.alphabet_sizes)
    return [
        f"{mapping.n_classes:,}", str(seed), name, str(mapping.n_sites),
        str(mapping.alphabet_sizes[0]), f"{weights:,}", f"{100 * best[0]:.1f}",
        f"{100 * best[1]:.1f}", f"{fitted:.1f}", f"{seconds:.0f}",
    ]  # fmt: skip


def fit(
    mapping: LabelMapping,
    rows: NDArray[np.float32],
    ids: NDArray[np.int64],
    seed: int,
    learning_rate: float,
) -> LabelMappingHead:
    """One linear layer for all sites."""
    torch.manual_seed(seed)
    head = LabelMappingHead(WIDTH, mapping)
    inputs, target = torch.from_numpy(rows), torch.from_numpy(ids)
    optimizer = torch.optim.Adam(head.parameters(), lr=learning_rate)
    steps = EPOCHS * -(-len(target) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)
    for _ in range(EPOCHS):
        order = torch.randperm(len(target))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            optimizer.zero_grad()
            head(inputs[batch], target[batch]).loss.backward()
            optimizer.step()
            schedule.step()
    return head


@torch.no_grad()
def score(
    head: LabelMappingHead,
    mapping: LabelMapping,
    rows: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> float:
    """Share of rows answered rightly."""
    hits = 0
    for start in range(0, len(rows), 1024):
        log_probs = head.site_log_probs(torch.from_numpy(rows[start : start + 1024]))
        top = decode_topk(mapping, log_probs, 1).ids[:, 0]
        hits += int((top == ids[start : start + 1024]).sum())
    return hits / len(rows)
