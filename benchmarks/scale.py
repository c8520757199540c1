"""How fitting a learnt code grows with N: seconds, memory, and how natural its symbols are.

Prototypes are float32: random unit vectors ("random"), or 50 classes about each of N/50
normal centres ("clusters"). Each size has a process of its own, whose largest memory counts.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelmapping import LearnedMapping

from .usage import peak_mib

HEADER = ["data", "classes", "width", "sites", "q", "s", "CPU s", "MiB before", "peak MiB", "sum"]
HEADER.append("naturalness of each site, %")
EACH, NOISE = 50, 0.5


def run(
    *,
    sizes: Sequence[int],
    width: int,
    n_sites: int,
    alphabet_size: int | None,
    data: str,
    seed: int,
    csv_path: Path | None,
) -> None:
    """Print a table; with `csv_path`, write it as CSV too."""
    # Here, since torch comes with it, which would count as memory in the processes.
    from labelmapping.experiments.tables import machine, markdown_table

    print(f"{machine()}\n")  # noqa: T201
    lines = []
    for n_classes in sizes:
        setting = {
            "n_classes": n_classes, "width": width, "n_sites": n_sites,
            "alphabet_size": alphabet_size, "data": data, "seed": seed,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale", json.dumps(setting)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        lines.append(json.loads(done.stdout))
        print(" | ".join(lines[-1]), flush=True)  # noqa: T201
    print("\n" + markdown_table((HEADER, lines)))  # noqa: T201
    if csv_path is not None:
        with csv_path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *lines])


def draw(data: str, n_classes: int, width: int, seed: int) -> NDArray[np.float32]:
    """Prototypes, float32 (N, width)."""
    rng = np.random.default_rng([seed, n_classes])
    rows = rng.standard_normal((n_classes, width), np.float32)
    if data == "random":
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    else:
        centres = rng.standard_normal((max(2, n_classes // EACH), width), np.float32)
        rows *= np.float32(NOISE)
        rows += centres[rng.integers(len(centres), size=n_classes)]
    return rows


def measure(
    *,
    n_classes: int,
    width: int,
    n_sites: int,
    alphabet_size: int | None,
    data: str,
    seed: int,
) -> list[str]:
    """One line of the table."""
    # Loads and compiles what is loaded and compiled once.
    LearnedMapping.fit(draw(data, 200, width, seed), n_sites, seed=seed)
    prototypes = draw(data, n_classes, width, seed)
    before = peak_mib()
    started, worked = time.perf_counter(), time.process_time()
    mapping = LearnedMapping.fit(prototypes, n_sites, alphabet_size=alphabet_size, seed=seed)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    peak = peak_mib()
    shares = mapping.naturalness(prototypes)
    return [
        data, f"{n_classes:,}", str(width), str(n_sites), str(mapping.alphabet_sizes[0]),
        f"{seconds:.3g}", f"{cpu:.3g}", f"{before:.0f}", f"{peak:.0f}", f"{sum(shares):.4f}",
        " ".join(f"{100 * share:.2f}" for share in shares),
    ]  # fmt: skip


if __name__ == "__main__":
    setting: dict[str, Any] = json.loads(sys.argv[1])
    print(json.dumps(measure(**setting)))  # noqa: T201
