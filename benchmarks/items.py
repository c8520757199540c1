"""Does it pay that symbols follow what is bought together? Codes with equal heads on next items.

One trunk, equal steps, and heads of one size; only which items share a symbol differs, and
one-hot at its own size. Then linear learners on fixed features of a history, and the most
popular items. Everything that is fitted, prototypes too, sees the training part alone: the
test is each user's last item, settings and epochs are chosen by the one before. Hit rate and
NDCG at 10 rank all items, those of the history among them. Interrupted runs go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sympy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labelmapping import (
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
    decode_topk,
)
from labelmapping.datasets.sequences import (
    CHECKSUMS,
    PADDING,
    ItemSequences,
    load_sequences,
    read_sequences,
)
from labelmapping.experiments.tables import machine, write_results
from labelmapping.learners import (
    Ensemble,
    LearnerRecipe,
    LearningData,
    RunFolder,
    train,
    train_with_refit,
)
from labelmapping.learners.recipe import count_parameters
from labelmapping.mappings.cooccurrence import cooccurrence_factors
from labelmapping.nn import NextItemAttention

SITES, TOP, ROWS, COMPONENTS = 4, 10, 2048, 64
# Items of a history that are read; 4 % of Beauty's users have more.
LENGTH = 20
# Weight of an item in a history's mean beside that of the item after it.
DECAY = 0.5
HEADER = [
    "code", "seed", "parameters", "of the head", "sites", "validation HR@10", "HR@10", "NDCG@10",
    "epoch", "seconds", "fit s",
]  # fmt: skip


class Row(NamedTuple):
    """A line of the table."""

    code: str
    sites: int = SITES
    linear: bool = False
    refit: bool = False
    # Alphabets are the first prime from this times the root of N.
    room: float = 1.25


CODES = {
    "one-hot": Row("one-hot"),
    "simplex": Row("simplex"),
    "random": Row("random"),
    "hashed": Row("hashed"),
    "learned": Row("learned"),
    "learned, refit": Row("learned", refit=True),
    "linear one-hot": Row("one-hot", linear=True),
    "linear simplex": Row("simplex", linear=True),
    "linear learned": Row("learned", linear=True),
    "linear simplex, 8 sites": Row("simplex", 8, linear=True, room=1.5),
    "linear learned, 8 sites": Row("learned", 8, linear=True, room=1.5),
}


class Settings(NamedTuple):
    """What was chosen by validation on Beauty: for one-hot, and for the coded rows alike."""

    hidden: int
    learning_rate: float
    dropout: float = 0.0


# By (linear, one-hot).
SETTINGS = {
    (False, True): Settings(0, 3e-3, 0.2),
    (False, False): Settings(1024, 1e-2, 0.2),
    (True, True): Settings(0, 1e-2),
    (True, False): Settings(0, 1e-2),
}


class Features(nn.Module):
    """The trunk of linear learners: none."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out_features = width

    def forward(self, features: Tensor) -> Tensor:
        """What came in."""
        return features


def run(
    *,
    data_set: str,
    epochs: int,
    seeds: Sequence[int],
    rows: Sequence[str] | None,
    folder: Path | None,
    data_dir: Path | None = None,
) -> None:
    """Train what is missing, print a table, and write it into the run folder.

    `data_set` is the name of a known log or the path of another one.
    """
    for name in rows or ():
        if name not in CODES:
            raise SystemExit(f"--rows must be among {', '.join(map(repr, CODES))}; got {name!r}")
    log = (
        load_sequences(data_set, data_dir=data_dir)
        if data_set in CHECKSUMS
        else read_sequences(data_set)
    )
    folder = folder or Path(f"runs/items-{log.name}-{epochs}")
    components = min(COMPONENTS, log.n_items // 2)
    prototypes = cooccurrence_factors(log.train, log.n_items, n_components=components)
    entries = [popularity(log)]
    print(" | ".join(_line(entries[0])), flush=True)  # noqa: T201
    data = {
        linear: learning_data(log, prototypes if linear else None)
        for linear in {CODES[name].linear for name in rows or CODES}
    }
    for seed in seeds:
        for name in rows or CODES:
            learning, test = data[CODES[name].linear]
            entry = _trained(name, log, learning, test, prototypes, seed, epochs, folder)
            entries.append(entry)
            print(" | ".join(_line(entry)), flush=True)  # noqa: T201
    results = {
        "experiment": f"{log.name}: {log.n_items} items, {len(log.sequences)} users; the last item "
        f"of each is the test, all items are ranked, those of the history too; {epochs} epochs",
        "machine": machine(),
        "rows": entries,
    }
    write_results(folder, results, (HEADER, [_line(entry) for entry in entries]))


def popularity(log: ItemSequences) -> dict[str, Any]:
    """The same answer for all: the items that occur most in the training part."""
    counts = np.bincount(np.concatenate(log.train), minlength=log.n_items)
    best = np.argsort(-counts, kind="stable")[:TOP]
    entry = {"code": "most popular", "parameters": 0, "head_parameters": 0}
    for part, items in (("validation", log.validation), ("test", log.test)):
        entry |= figures(part, np.broadcast_to(best, (len(items), best.size)), items)
    return entry


def figures(part: str, answers: NDArray[np.int64], items: NDArray[np.int64]) -> dict[str, float]:
    """Hit rate and NDCG of ranked answers (n, k), with one right item (n,) each."""
    hits = answers == items[:, None]
    gains = hits / np.log2(np.arange(answers.shape[1]) + 2)
    return {
        f"{part}_hit_rate": float(hits.any(axis=1).mean()),
        f"{part}_ndcg": float(gains.sum(axis=1).mean()),
    }


def history_features(
    histories: NDArray[np.int64], prototypes: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The prototypes of a history's items, averaged with falling weight, and the last item's.

    Histories (n, length) with -1 to the left of short ones, prototypes (N, d), to (n, 2 d).
    """
    ages = np.arange(histories.shape[1])[::-1]
    weights = np.where(histories == PADDING, 0, DECAY**ages).astype(np.float32)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
    # The row that padding, -1, stands for.
    table = np.vstack([prototypes, np.zeros_like(prototypes[:1])])
    means = np.zeros((len(histories), table.shape[1]), np.float32)
    for weight, items in zip(weights.T, histories.T, strict=True):
        means += weight[:, None] * table[items]
    return np.hstack([means, table[histories[:, -1]]])


def learning_data(
    log: ItemSequences, prototypes: NDArray[np.float32] | None
) -> tuple[LearningData, Tensor]:
    """Training and validation rows, and the test's inputs: histories, or features of them.

    An item that never follows another in the training part gets one row without a history:
    learning a code anew asks for a row of every class.
    """
    histories, items = log.windows("train", LENGTH)
    alone = np.setdiff1d(np.arange(log.n_items), items)
    histories = np.concatenate([histories, np.full((alone.size, LENGTH), PADDING)])
    inputs: list[NDArray[Any]] = [
        histories,
        *(log.windows(part, LENGTH)[0] for part in ("validation", "test")),
    ]
    if prototypes is not None:
        inputs = [history_features(part, prototypes) for part in inputs]
        scale = np.maximum(inputs[0].std(axis=0), 1e-9)
        inputs = [part / scale for part in inputs]
    train_inputs, held_out, test = map(torch.from_numpy, inputs)
    data = LearningData(
        train_inputs,
        torch.from_numpy(np.concatenate([items, alone])),
        held_out,
        torch.from_numpy(log.validation),
        [str(item + 1) for item in range(log.n_items)],
    )
    return data, test


def code(row: Row, prototypes: NDArray[np.float32]) -> LabelMapping:
    """The code of a row."""
    n = len(prototypes)
    size = int(sympy.nextprime(math.ceil(row.room * n**0.5) - 1))
    if row.code == "one-hot":
        return MixedMapping.one_hot(n)
    if row.code == "simplex":
        return SimplexMapping(n, row.sites, field_order=size)
    if row.code == "random":
        return RandomMapping(n, row.sites, size)
    if row.code == "hashed":
        return HashedMapping(n, row.sites, size)
    return LearnedMapping.fit(prototypes, row.sites, alphabet_size=size)


def _recipe(row: Row, mapping: LabelMapping, width: int, epochs: int) -> LearnerRecipe:
    settings = SETTINGS[row.linear, row.code == "one-hot"]
    trunk: dict[str, Any] = {"width": width}
    if not row.linear:
        trunk = {
            "input_mapping": MixedMapping.one_hot(mapping.n_classes).to_config(),
            "length": LENGTH,
            "blocks": 1,
            "dropout": settings.dropout,
        }
    return LearnerRecipe(
        mapping=mapping,
        trunk="benchmarks.items:Features" if row.linear else "labelmapping.nn:NextItemAttention",
        trunk_options=trunk,
        head_options={"hidden": settings.hidden},
        joint=True,
        epochs=epochs,
        batch_size=512,
        learning_rate=settings.learning_rate,
        schedule="one-cycle",
        keep_epochs=tuple(range(1, epochs + 1)),
    )


def _trained(
    name: str,
    log: ItemSequences,
    data: LearningData,
    test: Tensor,
    prototypes: NDArray[np.float32],
    seed: int,
    epochs: int,
    folder: Path,
) -> dict[str, Any]:
    """Train a row, or read what is there; its figures at the epoch best in validation."""
    row = CODES[name]
    started = time.perf_counter()
    mapping = code(row, prototypes)
    fitted = time.perf_counter() - started
    recipe = _recipe(row, mapping, data.train_inputs.shape[1], epochs)
    place = folder / f"{name.replace(' ', '-').replace(',', '')}-seed{seed}"
    first = max(1, epochs // 3) if row.refit else 0
    if row.refit:
        done = train_with_refit(recipe, data, place, first_epochs=first, seed=seed)
    else:
        done = train(recipe, data, place, seed=seed)
    trunk = Features if row.linear else NextItemAttention
    best: dict[str, Any] = {"validation_hit_rate": -1.0}
    for epoch in done.recipe.keep_epochs:
        ensemble = Ensemble.load(done.path, epoch=epoch, trunk_class=trunk)
        answers, _ = _answers(ensemble, data.held_out_inputs, log.validation)
        found = figures("validation", answers, log.validation)
        if found["validation_hit_rate"] > best["validation_hit_rate"]:
            best = {**found, "epoch": epoch}
    ensemble = Ensemble.load(done.path, epoch=best["epoch"], trunk_class=trunk)
    answers, site_accuracies = _answers(ensemble, test, log.test)
    seconds = done.report("all").seconds
    if row.refit:
        seconds += RunFolder.load(place / "first").report("all").seconds
    return {
        "code": name,
        "seed": seed,
        "parameters": ensemble.parameters,
        "head_parameters": ensemble.parameters - count_parameters(ensemble.trunk),
        "site_accuracies": site_accuracies,
        **best,
        **figures("test", answers, log.test),
        "epoch": first + best["epoch"],
        "seconds": seconds,
        "fit_seconds": fitted,
    }


def _answers(
    ensemble: Ensemble, inputs: Tensor, items: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[float]]:
    """The ten best items of each row, and the share of rows whose symbol each site gets right."""
    mapping, best = ensemble.mapping, []
    right = np.zeros(mapping.n_sites)
    for start in range(0, len(inputs), ROWS):
        rows = slice(start, start + ROWS)
        log_probs = ensemble.site_log_probs(inputs[rows])
        best.append(decode_topk(mapping, log_probs, TOP).ids)
        symbols = mapping.encode(items[rows])
        right += [(p.argmax(axis=1) == symbols[:, i]).sum() for i, p in enumerate(log_probs)]
    return np.concatenate(best), list(right / len(inputs))


def _line(entry: dict[str, Any]) -> list[str]:
    rates = [entry[name] for name in ("validation_hit_rate", "test_hit_rate", "test_ndcg")]
    known = "epoch" in entry
    return [
        entry["code"],
        str(entry["seed"]) if known else "-",
        f"{entry['parameters']:,}",
        f"{entry['head_parameters']:,}",
        " ".join(f"{100 * a:.1f}" for a in entry["site_accuracies"]) if known else "-",
        *(f"{100 * rate:.2f}" for rate in rates),
        str(entry["epoch"]) if known else "-",
        f"{entry['seconds']:.0f}" if known else "-",
        f"{entry['fit_seconds']:.1f}" if known else "-",
    ]
