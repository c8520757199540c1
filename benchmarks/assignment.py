"""Does it pay that symbols follow how classes look? Codes with equal heads on CJK characters.

One trunk, equal steps, about equal parameters; only which classes share a symbol differs, and
one-hot at its own size. Prototypes are means over the training faces alone. Interrupted runs go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from labelmapping import (
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
)
from labelmapping.atomic import write_json
from labelmapping.datasets.cjk import load_cjk
from labelmapping.experiments.demo import learning_data
from labelmapping.experiments.evaluation import accuracy, answer, sample_rows
from labelmapping.experiments.plots import save_curves
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

SITES, CURVE_POINTS, ROWS = 4, 12, 4096
# A curve is measured on one in so many held-out characters.
THINNED = 16
HEADER = [
    "code", "seed", "hidden", "parameters", "sites", "train top-1", "top-1", "top-10", "steps",
    "seconds", "fit s",
]  # fmt: skip
# From the number of classes, what was seen of them, and the seed.
Maker = Callable[[int, ClassStatistics, int], LabelMapping]


def _ordered(n_classes: int, seen: ClassStatistics, seed: int) -> LabelMapping:
    order = natural_order(seen.means, 181, seed=seed)
    return SimplexMapping(
        n_classes, SITES, field_order=181, points=["infinity", 0, 1, 2], order=order
    )


def _product(_: int, seen: ClassStatistics, seed: int) -> LabelMapping:
    return product_quantisation(seen.means, SITES, alphabet_size=181, seed=seed)


def _learned(size: int, n_sites: int = SITES) -> Maker:
    return lambda _, seen, seed: LearnedMapping.fit(
        seen.means, n_sites, alphabet_size=size, covariance=seen.covariance, seed=seed
    )


def _plain(size: int) -> Maker:
    return lambda _, seen, seed: LearnedMapping.fit(
        seen.means, SITES, alphabet_size=size, seed=seed
    )


class Row(NamedTuple):
    """A code, the width of its head's hidden layer, and of fewer features than the trunk's 128.

    With `refit` the code is learnt anew from the trunk's features after a quarter of the steps,
    which count. `normalization` is the head's: a softmax a site, or one over the classes. `shift`
    moves training images by up to so many pixels.
    """

    mapping: Maker
    hidden: int = 0
    features: int | None = None
    refit: bool = False
    normalization: str = "site"
    shift: int = 0


# "Plain" codes do not know how the training faces scatter.
CODES = {
    "one-hot": Row(lambda n, *_: MixedMapping.one_hot(n)),
    "one-hot, shifted": Row(lambda n, *_: MixedMapping.one_hot(n), shift=1),
    "one-hot d=64, shifted": Row(lambda n, *_: MixedMapping.one_hot(n), features=64, shift=1),
    "one-hot d=64": Row(lambda n, *_: MixedMapping.one_hot(n), features=64),
    "one-hot d=32": Row(lambda n, *_: MixedMapping.one_hot(n), features=32),
    "simplex q=181": Row(lambda n, *_: SimplexMapping(n, SITES, field_order=181), 1024),
    "ordered simplex q=181": Row(_ordered, 1024),
    "mixed 173-191": Row(lambda n, *_: MixedMapping(n, [173, 179, 181, 191]), 1024),
    "random q=181": Row(lambda n, _, seed: RandomMapping(n, SITES, 181, seed=seed), 1024),
    "hashed q=181": Row(lambda n, _, seed: HashedMapping(n, SITES, 181, seed=seed), 1024),
    "product q=181": Row(_product, 1024),
    "learned q=181, plain": Row(_plain(181), 1024),
    "learned q=181": Row(_learned(181), 1024),
    "learned q=256": Row(_learned(256), 768),
    "learned q=181, refit": Row(_learned(181), 1024, refit=True),
    "learned q=256, refit": Row(_learned(256), 768, refit=True),
    "learned q=256, 8 sites, refit": Row(_learned(256, 8), 580, refit=True),
    "learned q=256, 8 sites, refit, shifted": Row(_learned(256, 8), 580, refit=True, shift=1),
    "simplex q=181, class": Row(
        lambda n, *_: SimplexMapping(n, SITES, field_order=181), 1024, normalization="class"
    ),
    "learned q=181, class": Row(_learned(181), 1024, normalization="class"),
    "learned q=181, linear": Row(_learned(181)),
    "learned q=181, linear, class": Row(_learned(181), normalization="class"),
    "learned q=256, refit, class": Row(_learned(256), 768, refit=True, normalization="class"),
    "learned q=256, 8 sites, refit, class": Row(
        _learned(256, 8), 580, refit=True, normalization="class"
    ),
    "learned q=256, 8 sites, refit, class, shifted": Row(
        _learned(256, 8), 580, refit=True, normalization="class", shift=1
    ),
}


def run(
    *,
    class_set: str,
    steps: int,
    seeds: Sequence[int],
    rows: Sequence[str] | None,
    folder: Path | None,
) -> None:
    """Train what is missing, print a table, and write it with a picture into the run folder."""
    for name in rows or ():
        if name not in CODES:
            raise SystemExit(f"--rows must be among {', '.join(map(repr, CODES))}; got {name!r}")
    folder = folder or Path(f"runs/assignment-{class_set}-{steps}")
    characters = load_cjk(class_set)
    data = learning_data(characters)
    size = 4096
    images, ids = characters.train_images, characters.train_ids
    seen = class_statistics(
        (
            (_blurred(images[start : start + size]), ids[start : start + size])
            for start in range(0, len(ids), size)
        ),
        data.n_classes,
    )
    entries = []
    for seed in seeds:
        for name in rows or CODES:
            place = folder / f"{name.replace(' ', '-').replace(',', '')}-seed{seed}"
            entry = _row(name, seed, seen, data, steps, place)
            entries.append(entry)
            print(" | ".join(_line(entry)), flush=True)  # noqa: T201
    curves = {
        entry["code"]: {int(step): share for step, share in entry["curve"].items()}
        for entry in entries
        if entry["seed"] == seeds[0]
    }
    results = {
        "experiment": f"{class_set}: {data.n_classes} classes, held-out face "
        f"{characters.test_face}; prototypes from {len(characters.train_faces)} training faces",
        "machine": machine(),
        "rows": entries,
    }
    write_results(folder, results, (HEADER, [_line(entry) for entry in entries]))
    save_curves(folder / "curves.png", f"Held-out top-1, {class_set}", "step", curves)


def _row(
    name: str, seed: int, seen: ClassStatistics, data: LearningData, steps: int, place: Path
) -> dict[str, Any]:
    """Train and measure a row, or read what an earlier start measured."""
    measured = place / "measured.json"
    if measured.is_file():
        known: dict[str, Any] = json.loads(measured.read_text(encoding="utf-8"))
        return known
    row = CODES[name]
    started = time.perf_counter()
    mapping = row.mapping(data.n_classes, seen, seed)
    fitted = time.perf_counter() - started
    recipe = _recipe(mapping, row, steps)
    first = 0
    if row.refit:
        first = recipe.epochs // 4
        done = train_with_refit(recipe, data, place, first_epochs=first, seed=seed)
    else:
        done = train(recipe, data, place, seed=seed)
    sample = sample_rows(len(data.train_ids), ROWS, 0)
    ensemble = Ensemble.load(done.path)
    answers = answer(ensemble, data.held_out_inputs, data.held_out_ids)
    entry = {
        "code": name,
        "seed": seed,
        "hidden": row.hidden,
        "parameters": ensemble.parameters,
        "site_accuracies": answers.site_accuracies(),
        "train_top1": accuracy(ensemble, data.train_inputs[sample], data.train_ids[sample]),
        "top1": answers.accuracy(),
        "top10": answers.accuracy(10),
        "steps": steps,
        "seconds": done.report("all").seconds
        + (RunFolder.load(place / "first").report("all").seconds if first else 0.0),
        "fit_seconds": fitted,
        "curve": {
            (first + epoch) * steps // recipe.epochs: accuracy(
                Ensemble.load(done.path, epoch=epoch),
                data.held_out_inputs[::THINNED],
                data.held_out_ids[::THINNED],
            )
            for epoch in done.recipe.keep_epochs
        },
    }
    write_json(measured, entry)
    return entry


def _blurred(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Grey values in 0..1, blurred by a pixel: strokes a little aside are then alike."""
    blurred: NDArray[np.float32] = gaussian_filter(images / np.float32(255), (0, 1, 1))
    return blurred


def _recipe(mapping: LabelMapping, row: Row, steps: int) -> LearnerRecipe:
    epochs = next(e for e in range(CURVE_POINTS, 0, -1) if steps % e == 0)
    return LearnerRecipe(
        mapping=mapping,
        trunk="labelmapping.nn:SmallCnn",
        trunk_options={"side": 24}
        | ({"out_features": row.features} if row.features else {})
        | ({"shift": row.shift} if row.shift else {}),
        head_options={"hidden": row.hidden}
        | ({} if row.normalization == "site" else {"normalization": row.normalization}),
        joint=True,
        epochs=epochs,
        steps_per_epoch=steps // epochs,
        batch_size=128,
        learning_rate=3e-3,
        schedule="one-cycle",
        keep_epochs=tuple(range(1, epochs + 1)),
    )


def _line(entry: dict[str, Any]) -> list[str]:
    sites = " ".join(f"{100 * a:.0f}" for a in entry["site_accuracies"])
    return [
        entry["code"],
        str(entry["seed"]),
        str(entry["hidden"]),
        f"{entry['parameters']:,}",
        sites,
        f"{100 * entry['train_top1']:.1f}",
        f"{100 * entry['top1']:.1f}",
        f"{100 * entry['top10']:.1f}",
        f"{entry['steps']:,}",
        f"{entry['seconds']:.0f}",
        f"{entry['fit_seconds']:.1f}",
    ]
