"""Does it pay that symbols follow how classes look, with few drawings a class? Omniglot.

Networks (one trunk, joint heads, equal steps, about equal parameters) and linear softmaxes
on gradient histograms; one-hot at its own size. Drawers 0-13 train, 14 and 15 choose each
row's dropout, 16-19 are held out. Interrupted runs go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sympy
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

from labelmapping import (
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
)
from labelmapping.datasets.omniglot import Omniglot, load_omniglot
from labelmapping.experiments.evaluation import accuracy, answer, sample_rows
from labelmapping.experiments.tables import machine, write_results
from labelmapping.learners import (
    Ensemble,
    LearnerRecipe,
    LearningData,
    RunFolder,
    train,
    train_with_refit,
)
from labelmapping.mappings import (
    ClassStatistics,
    class_statistics,
    natural_order,
    product_quantisation,
)
from labelmapping.nn import SmallCnn

VALIDATION = (14, 15)
DROPOUTS = (0.0, 0.2)
HIDDEN, FEATURES, EPOCHS, BATCH = 512, 128, 8, 64
LEARNING_RATES = {"network": 3e-3, "linear": 1e-2}
ROWS = 4096
CELL, DIRECTIONS = 4, 8
HEADER = [
    "learner", "code", "seed", "hidden", "dropout", "parameters", "sites", "validation top-1",
    "train top-1", "top-1", "top-10", "seconds", "fit s",
]  # fmt: skip


class Row(NamedTuple):
    """What is trained: a kind of learner, a code, its sites, and whether it is learnt anew."""

    learner: str
    code: str
    n_sites: int
    refit: bool = False


NETWORKS = {
    "one-hot": Row("network", "one-hot", 1),
    "simplex": Row("network", "simplex", 4),
    "simplex, natural order": Row("network", "natural", 4),
    "mixed": Row("network", "mixed", 4),
    "random": Row("network", "random", 4),
    "hashed": Row("network", "hashed", 4),
    "product quantisation": Row("network", "quantised", 4),
    "learned plain": Row("network", "plain", 4),
    "learned": Row("network", "learned", 4),
    "learned, refit": Row("network", "learned", 4, refit=True),
    "learned wide": Row("network", "wide", 4),
    "learned wide, refit": Row("network", "wide", 4, refit=True),
}
LINEAR = {
    f"linear {name}" + f", {n_sites} sites" * (n_sites > 1): Row("linear", code, n_sites)
    for name, code, sites in (
        ("one-hot", "one-hot", (1,)),
        ("simplex", "simplex", (4, 8)),
        ("simplex in natural order", "natural", (4, 8)),
        ("product quantisation", "quantised", (4, 8)),
        ("learned plain", "plain", (4, 8)),
        ("learned", "learned", (4, 8)),
        ("learned wide", "wide", (4, 8)),
        ("product quantisation wide", "quantised wide", (4, 8)),
    )
    for n_sites in sites
}
CODES = NETWORKS | LINEAR


class Features(nn.Module):
    """Features computed before, with dropout: a linear learner's trunk."""

    def __init__(self, out_features: int, dropout: float) -> None:
        super().__init__()
        self.out_features, self.dropout = out_features, dropout

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, out_features), as they are but for dropout in training."""
        return F.dropout(features, self.dropout, self.training)


class DropoutCnn(SmallCnn):
    """The networks' trunk with dropout behind it, for a head without a hidden layer."""

    def __init__(self, side: int, dropout: float) -> None:
        super().__init__(side)
        self.dropout = dropout

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, side, side) to features (B, out_features)."""
        return F.dropout(super().forward(images), self.dropout, self.training)


class Task(NamedTuple):
    """Training and validation rows, held-out rows, and what codes may know of the first."""

    data: LearningData
    held_out_inputs: Tensor
    held_out_ids: Tensor
    seen: ClassStatistics


TRUNKS = {f"{__name__}:{trunk.__name__}": trunk for trunk in (Features, DropoutCnn)}


def run(
    *,
    steps: int,
    seeds: Sequence[int],
    rows: Sequence[str] | None,
    folder: Path | None,
    data_dir: Path | None = None,
) -> None:
    """Train what is missing, print a table, and write it into the run folder.

    A row's dropout is chosen at the first seed that trains it.
    """
    for name in rows or ():
        if name not in CODES:
            raise SystemExit(f"--rows must be among {', '.join(map(repr, CODES))}; got {name!r}")
    if steps < EPOCHS or steps % EPOCHS:
        raise SystemExit(f"--steps must be a multiple of {EPOCHS}, got {steps}")
    folder = folder or Path(f"runs/omniglot-{steps}")
    drawings = load_omniglot(data_dir=data_dir)
    tasks = make_tasks(drawings)
    entries, lines, chosen = [], [], dict[str, float]()
    for seed in seeds:
        for name in rows or CODES:
            dropouts = (chosen[name],) if name in chosen else DROPOUTS
            entry = measure(name, tasks[CODES[name].learner], steps, seed, dropouts, folder)
            chosen[name] = entry["dropout"]
            entries.append(entry)
            lines.append(_line(entry))
            print(" | ".join(lines[-1]), flush=True)  # noqa: T201
    held_out = sorted(set(drawings.held_out_drawers.tolist()))
    results = {
        "experiment": f"Omniglot: {len(drawings.labels)} classes; drawers {held_out} are held out, "
        f"{list(VALIDATION)} choose the dropout among {list(DROPOUTS)}, the others train",
        "training": f"{steps} steps of batch {BATCH}, Adam, one-cycle; peaks {LEARNING_RATES}",
        "machine": machine(),
        "rows": entries,
    }
    write_results(folder, results, (HEADER, lines))


def make_tasks(drawings: Omniglot) -> dict[str, Task]:
    """What the two kinds of learners see: images, and standardised gradient histograms.

    Codes for networks are learnt from images blurred by a pixel.
    """
    training = ~np.isin(drawings.train_drawers, VALIDATION)
    ids = drawings.train_ids

    def task(inputs: NDArray[Any], held_out: NDArray[Any], views: NDArray[np.float32]) -> Task:
        kept, others = (
            (torch.from_numpy(inputs[rows]), torch.from_numpy(ids[rows]))
            for rows in (training, ~training)
        )
        data = LearningData(*kept, *others, drawings.labels)
        seen = class_statistics([(views[training], ids[training])], data.n_classes)
        return Task(data, torch.from_numpy(held_out), torch.from_numpy(drawings.held_out_ids), seen)

    images = drawings.train_images
    histograms, held_out = map(gradient_histograms, (images, drawings.held_out_images))
    centre = histograms[training].mean(axis=0)
    spread = histograms[training].std(axis=0) + np.float32(1e-3)
    histograms, held_out = ((rows - centre) / spread for rows in (histograms, held_out))
    return {
        "network": task(images, drawings.held_out_images, blurred(images, 1.0)),
        "linear": task(histograms, held_out, histograms),
    }


def measure(
    name: str, task: Task, steps: int, seed: int, dropouts: Sequence[float], folder: Path
) -> dict[str, Any]:
    """One row: trained with each dropout, measured where validation is best."""
    row, data = CODES[name], task.data
    started = time.perf_counter()
    mapping = make_mapping(row.code, row.n_sites, task.seen, seed)
    fitted = time.perf_counter() - started
    trials: list[tuple[float, float, Ensemble, float]] = []
    for dropout in dropouts:
        recipe = make_recipe(row.learner, mapping, dropout, steps, data.train_inputs.shape[-1])
        place = folder / f"{name.replace(' ', '-').replace(',', '')}-seed{seed}-dropout{dropout}"
        if row.refit:
            done = train_with_refit(recipe, data, place, first_epochs=EPOCHS // 4, seed=seed)
            seconds = RunFolder.load(place / "first").report("all").seconds
        else:
            done, seconds = train(recipe, data, place, seed=seed), 0.0
        ensemble = Ensemble.load(done.path, trunk_class=TRUNKS.get(recipe.trunk))
        validation = accuracy(ensemble, data.held_out_inputs, data.held_out_ids)
        trials.append((validation, dropout, ensemble, seconds + done.report("all").seconds))
    validation, dropout, ensemble, seconds = max(trials, key=lambda trial: trial[0])
    answers = answer(ensemble, task.held_out_inputs, task.held_out_ids)
    sample = sample_rows(len(data.train_ids), ROWS, 0)
    return {
        "learner": row.learner,
        "code": name,
        "seed": seed,
        "hidden": recipe.head_options["hidden"],
        "dropout": dropout,
        "parameters": ensemble.parameters,
        "site_accuracies": answers.site_accuracies(),
        "validation_top1": {str(trial[1]): trial[0] for trial in trials},
        "train_top1": accuracy(ensemble, data.train_inputs[sample], data.train_ids[sample]),
        "top1": answers.accuracy(),
        "top10": answers.accuracy(10),
        "seconds": seconds,
        "fit_seconds": fitted,
    }


def make_recipe(
    learner: str, mapping: LabelMapping, dropout: float, steps: int, width: int
) -> LearnerRecipe:
    """Dropout always comes right before the output layer."""
    hidden = 0 if learner == "linear" or mapping.n_sites == 1 else hidden_width(mapping)
    if learner == "linear":
        trunk = f"{__name__}:Features", {"out_features": width, "dropout": dropout}
    elif hidden:
        trunk = "labelmapping.nn:SmallCnn", {"side": width}
    else:
        trunk = f"{__name__}:DropoutCnn", {"side": width, "dropout": dropout}
    return LearnerRecipe(
        mapping=mapping,
        trunk=trunk[0],
        trunk_options=trunk[1],
        head_options={"hidden": hidden, "dropout": dropout if hidden else 0.0},
        joint=True,
        epochs=EPOCHS,
        steps_per_epoch=steps // EPOCHS,
        batch_size=BATCH,
        learning_rate=LEARNING_RATES[learner],
        schedule="one-cycle",
    )


def hidden_width(mapping: LabelMapping) -> int:
    """The hidden layer that gives a head the parameters of 512 units and four least alphabets."""
    outputs, least = sum(mapping.alphabet_sizes), 4 * least_alphabet(mapping.n_classes)
    budget = HIDDEN * (FEATURES + 2 + least) + least
    return round((budget - outputs) / (FEATURES + 2 + outputs))


def least_alphabet(n_classes: int) -> int:
    """The least prime from 1.25 √N on, so that N fills at most 0.64 of its square."""
    return int(sympy.nextprime(math.ceil(1.25 * n_classes**0.5) - 1))


def make_mapping(code: str, n_sites: int, seen: ClassStatistics, seed: int) -> LabelMapping:
    """One of the codes, by name.

    Learnt codes know how the rows of a class scatter, but for "plain" ones; "wide" ones have
    alphabets twice as large.
    """
    n = len(seen.means)
    q = least_alphabet(n)
    makers: dict[str, Callable[[], LabelMapping]] = {
        "one-hot": lambda: MixedMapping.one_hot(n),
        "simplex": lambda: SimplexMapping(n, n_sites, field_order=q),
        "natural": lambda: SimplexMapping(
            n,
            n_sites,
            field_order=q,
            points=["infinity", *range(n_sites - 1)],
            order=natural_order(seen.means, q, seed=seed),
        ),
        "mixed": lambda: MixedMapping(n, primes_around(q, n_sites)),
        "random": lambda: RandomMapping(n, n_sites, q, seed=seed),
        "hashed": lambda: HashedMapping(n, n_sites, q, seed=seed),
        "quantised": lambda: product_quantisation(seen.means, n_sites, alphabet_size=q, seed=seed),
        "quantised wide": lambda: product_quantisation(
            seen.means, n_sites, alphabet_size=2 * q, seed=seed
        ),
        "plain": lambda: LearnedMapping.fit(seen.means, n_sites, alphabet_size=q, seed=seed),
        "learned": lambda: LearnedMapping.fit(
            seen.means, n_sites, alphabet_size=q, covariance=seen.covariance, seed=seed
        ),
        "wide": lambda: LearnedMapping.fit(
            seen.means, n_sites, alphabet_size=2 * q, covariance=seen.covariance, seed=seed
        ),
    }
    return makers[code]()


def primes_around(q: int, count: int) -> list[int]:
    """`count` neighbouring primes, half of them below `q`."""
    least = q
    for _ in range(count // 2):
        least = int(sympy.prevprime(least))
    return [int(p) for p in [least, *(sympy.nextprime(least, i) for i in range(1, count))]]


def gradient_histograms(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """How strongly ink changes in each of 8 directions, in cells of 4x4 pixels; square roots.

    After the histograms of oriented gradients of Dalal and Triggs ("Histograms of oriented
    gradients for human detection", 2005), without their blocks. Images (B, side, side) to
    features (B, (side // 4)² · 8), each at least 0.
    """
    side = images.shape[1] // CELL
    found = np.empty((len(images), side, side, DIRECTIONS), np.float32)
    for start in range(0, len(images), ROWS):
        # Blurred first: black and white drawings have gradients in few directions.
        ink = blurred(images[start : start + ROWS, : side * CELL, : side * CELL], 0.7)
        down, right = np.gradient(ink, axis=(1, 2))
        turn = np.arctan2(down, right) * np.float32(DIRECTIONS / np.pi)
        for direction in range(DIRECTIONS):
            # A gradient between two directions is shared between them; opposite ones are one.
            away = abs((turn - direction + DIRECTIONS / 2) % DIRECTIONS - DIRECTIONS / 2)
            part = np.hypot(down, right) * np.clip(1 - away, 0, None)
            cells = part.reshape(-1, side, CELL, side, CELL).sum(axis=(2, 4))
            found[start : start + ROWS, ..., direction] = np.sqrt(cells)
    return found.reshape(len(images), -1)


def _line(entry: dict[str, Any]) -> list[str]:
    sites = " ".join(f"{100 * a:.0f}" for a in entry["site_accuracies"])
    return [
        entry["learner"],
        entry["code"],
        str(entry["seed"]),
        str(entry["hidden"]),
        str(entry["dropout"]),
        f"{entry['parameters']:,}",
        sites,
        f"{100 * entry['validation_top1'][str(entry['dropout'])]:.1f}",
        f"{100 * entry['train_top1']:.1f}",
        f"{100 * entry['top1']:.1f}",
        f"{100 * entry['top10']:.1f}",
        f"{entry['seconds']:.0f}",
        f"{entry['fit_seconds']:.1f}",
    ]


def blurred(images: NDArray[np.uint8], pixels: float) -> NDArray[np.float32]:
    """Grey values in 0..1 after a Gaussian of so many pixels: strokes a little aside are alike."""
    found: NDArray[np.float32] = gaussian_filter(images / np.float32(255), (0, pixels, pixels))
    return found
