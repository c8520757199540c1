"""Linear learners on synthetic classes: arbitrary codes, learnt ones, one-hot, and label trees.

Classes are random unit vectors in 64 dimensions, rows are those with normal noise of 0.09 a
coordinate, five to train and one to test a class. Without structure to find, and with learners
that cannot memorise, it shows what a code asks of them.

Every row runs in its own process, so its peak of memory is its own, with one thread.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sympy
from numpy.typing import NDArray

from labelmapping.experiments.tables import machine, markdown_table

WIDTH, ROWS, NOISE = 64, 5, 0.09
# Alphabets of learnt codes.
ALPHABETS = {2000: (101,), 10_000: (256,), 100_000: (512, 800)}
# CPU seconds and bytes that a row may take.
LIMIT, MEMORY = 900, 10 * 2**30
HERE = Path(__file__).parent
OURS = HERE / "linear_row.py"


class Rival(NamedTuple):
    """A peer: the script that runs it, and its settings by the name of their row."""

    script: Path
    settings: Mapping[str, Mapping[str, Any]]


# "tuned": the best of the search in rivals/README.md.
RIVALS = {
    "omikuji": Rival(
        HERE / "rivals" / "omikuji_row.py",
        {
            "omikuji": {},
            "omikuji, tuned": {"linear_loss_type": 1},  # logistic
        },
    ),
    "napkinxc": Rival(
        HERE / "rivals" / "napkinxc_row.py",
        {
            "napkinXC PLT": {},
            "napkinXC HSM": {"model": "HSM"},
            "napkinXC, tuned": {"ensemble": 3},
        },
    ),
    "pecos": Rival(
        HERE / "rivals" / "pecos_row.py",
        {
            "PECOS XLinear": {},
            "PECOS XLinear, tuned": {
                "index": {"max_leaf_size": 400},
                "train": {"threshold": 0.0, "Cp": 100.0},
            },
        },
    ),
}
HEADER = [
    "classes", "seed", "row", "sites", "q", "weights", "held out", "fit s", "train s", "predict s",
    "all s", "start MiB", "peak MiB",
]  # fmt: skip


class Row(NamedTuple):
    """What one process is asked for."""

    name: str
    python: str
    script: Path
    settings: Mapping[str, Any]


def run(
    *,
    sizes: Sequence[int],
    sites: Sequence[int],
    seeds: Sequence[int],
    rivals: Mapping[str, str],
    csv_path: Path | None,
) -> None:
    """Print a table; with `csv_path`, write it as CSV too. `rivals` has a Python for each."""
    for name, python in rivals.items():
        if name not in RIVALS or not python:
            raise SystemExit(
                f"--rival must be NAME=PYTHON, NAME of {', '.join(RIVALS)}; got {name!r}"
            )
    print(f"{machine()}; one thread a row; seconds are CPU seconds\n")  # noqa: T201
    for name in RIVALS:
        if name not in rivals:
            print(f"{name} is left out: no --rival {name}=PYTHON")  # noqa: T201
    lines: list[list[str]] = []
    versions = {}
    for n_classes in sizes:
        for seed in seeds:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                write(folder, n_classes, seed, text="omikuji" in rivals)
                for row in planned(n_classes, seed, sites, rivals):
                    result = measured(row, folder)
                    if result is not None and "version" in result:
                        versions[row.name] = result["version"]
                    lines.append(line(row, n_classes, seed, result))
                    print(" | ".join(lines[-1]), flush=True)  # noqa: T201
                    if csv_path is not None:  # at once: a run takes hours
                        with csv_path.open("w", encoding="utf-8", newline="") as file:
                            csv.writer(file, lineterminator="\n").writerows([HEADER, *lines])
    print("\n" + markdown_table((HEADER, lines)))  # noqa: T201
    for name, version in versions.items():
        print(f"{name}: version {version}")  # noqa: T201


def draw(
    n_classes: int, seed: int, *, width: int = WIDTH, rows_each: int = ROWS, noise: float = NOISE
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
    """Training rows with their ids (`rows_each` a class in a row), and a held-out row a class."""
    rng = np.random.default_rng([seed, n_classes])
    centres = rng.normal(size=(n_classes, width))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    ids = np.repeat(np.arange(n_classes), rows_each)
    rows = centres[ids] + noise * rng.normal(size=(ids.size, width))
    held_out = centres + noise * rng.normal(size=centres.shape)
    return rows.astype(np.float32), ids, held_out.astype(np.float32)


def write(folder: Path, n_classes: int, seed: int, *, text: bool) -> None:
    """data.npz, and with `text` train.txt and held_out.txt in the format of the XC repository."""
    rows, ids, held_out = draw(n_classes, seed)
    np.savez(folder / "data.npz", rows=rows, ids=ids, held_out=held_out)
    if not text:
        return
    form = "%d " + " ".join(f"{i}:%.8g" for i in range(WIDTH)) + "\n"
    for name, some, labels in (
        ("train.txt", rows, ids),
        ("held_out.txt", held_out, np.arange(n_classes)),
    ):
        with (folder / name).open("w", encoding="utf-8") as file:
            file.write(f"{len(some)} {WIDTH} {n_classes}\n")
            file.writelines(form % (i, *row) for i, row in zip(labels, some, strict=True))


def planned(
    n_classes: int, seed: int, sites: Sequence[int], rivals: Mapping[str, str]
) -> Iterator[Row]:
    """The rows of one data set."""

    def ours(code: str, n_sites: int, q: int) -> Row:
        settings = {"code": code, "sites": n_sites, "q": q, "seed": seed}
        return Row(code, sys.executable, OURS, settings)

    sizes = ALPHABETS.get(n_classes, (round(2.5 * n_classes**0.5),))
    yield ours("one-hot", 1, n_classes)
    for n_sites in sites:
        yield ours("simplex", n_sites, int(sympy.nextprime(sizes[0] - 1)))
        for size in sizes:
            yield ours("learned", n_sites, size)
    for name, python in rivals.items():
        rival = RIVALS[name]
        for row, settings in rival.settings.items():
            yield Row(row, python, rival.script, settings)


def measured(row: Row, folder: Path, limit: int | None = None) -> dict[str, Any] | None:
    """What a row's process says of itself; None where it passed a limit (`limit` CPU seconds)."""
    seconds = LIMIT if limit is None else limit
    threads = ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")
    process = subprocess.Popen(
        [row.python, str(row.script), str(folder), json.dumps(row.settings)],
        env=os.environ | {f"{name}_NUM_THREADS": "1" for name in threads},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, seconds))
    resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
    out, errors = process.communicate()
    if process.returncode < 0 or "MemoryError" in errors:
        return None
    if process.returncode > 0:
        raise RuntimeError(f"{row.name} failed:\n{errors[-2000:]}")
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def line(row: Row, n_classes: int, seed: int, result: Mapping[str, Any] | None) -> list[str]:
    """A line of the table."""
    start = [f"{n_classes:,}", str(seed), row.name]
    start += [str(row.settings.get(name, "-")) for name in ("sites", "q")]
    if result is None:
        return [*start, "-", "did not finish", *["-"] * 6]
    seconds = [result.get(name, 0.0) for name in ("fit", "train", "predict")]
    return [
        *start,
        f"{result['weights']:,}" if "weights" in result else "-",
        f"{100 * result['held_out']:.1f}",
        *(f"{value:.1f}" for value in (*seconds, sum(seconds))),
        *(f"{result[name]:.0f}" for name in ("start_mib", "peak_mib")),
    ]
