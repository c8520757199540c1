"""Does it pay that symbols follow how classes look? Codes with equal heads on CJK characters.

One trunk, equal steps, about equal parameters; only which classes share a symbol differs, and
one-hot at its own size. Prototypes are means over the training faces alone. Interrupted runs go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelmapping import (
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
)
from labelmapping.datasets.cjk import load_cjk
from labelmapping.experiments.demo import learning_data
from labelmapping.experiments.evaluation import accuracy, answer, sample_rows
from labelmapping.experiments.plots import save_curves
from labelmapping.experiments.tables import machine, write_results
from labelmapping.learners import Ensemble, LearnerRecipe, RunFolder, train, train_with_refit
from labelmapping.mappings.prototypes import class_means

SITES, CURVE_POINTS, ROWS = 4, 12, 4096
HEADER = [
    "code", "seed", "hidden", "parameters", "sites", "train top-1", "top-1", "top-10", "steps",
    "seconds", "fit s",
]  # fmt: skip
Maker = Callable[[int, np.ndarray], LabelMapping]
# Name: the code, and the width of its head's hidden layer. Rows that end in "refit" learn the code
# anew from the trunk's features after a quarter of the steps, which count.
CODES: dict[str, tuple[Maker, int]] = {
    "one-hot": (lambda n, _: MixedMapping.one_hot(n), 0),
    "simplex q=181": (lambda n, _: SimplexMapping(n, SITES, field_order=181), 1024),
    "mixed 173-191": (lambda n, _: MixedMapping(n, [173, 179, 181, 191]), 1024),
    "random q=181": (lambda n, _: RandomMapping(n, SITES, 181), 1024),
    "hashed q=181": (lambda n, _: HashedMapping(n, SITES, 181), 1024),
    "learned q=181": (lambda _, p: LearnedMapping.fit(p, SITES, alphabet_size=181), 1024),
    "learned q=256": (lambda _, p: LearnedMapping.fit(p, SITES, alphabet_size=256), 768),
    "learned wide": (lambda _, p: LearnedMapping.fit(p, SITES, alphabet_size=256), 1090),
    "learned q=181, refit": (lambda _, p: LearnedMapping.fit(p, SITES, alphabet_size=181), 1024),
    "learned q=256, refit": (lambda _, p: LearnedMapping.fit(p, SITES, alphabet_size=256), 768),
    "learned wide, refit": (
        lambda _, p: LearnedMapping.fit(p, SITES, alphabet_size=256),
        1090,
    ),
    "learned q=256, 8 sites": (lambda _, p: LearnedMapping.fit(p, 8, alphabet_size=256), 580),
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
    prototypes = class_means(
        (
            (images[start : start + size] / np.float32(255), ids[start : start + size])
            for start in range(0, len(ids), size)
        ),
        data.n_classes,
    )
    sample = sample_rows(len(data.train_ids), ROWS, 0)
    lines, entries, curves = [], [], {}
    for seed in seeds:
        for name in rows or CODES:
            maker, hidden = CODES[name]
            started = time.perf_counter()
            mapping = maker(data.n_classes, prototypes)
            fitted = time.perf_counter() - started
            recipe = _recipe(mapping, hidden, steps)
            place = folder / f"{name.replace(' ', '-').replace(',', '')}-seed{seed}"
            if name.endswith("refit"):
                first = recipe.epochs // 4
                done = train_with_refit(recipe, data, place, first_epochs=first, seed=seed)
            else:
                first, done = 0, train(recipe, data, place, seed=seed)
            ensemble = Ensemble.load(done.path)
            answers = answer(ensemble, data.held_out_inputs, data.held_out_ids)
            entry: dict[str, Any] = {
                "code": name,
                "seed": seed,
                "hidden": hidden,
                "parameters": ensemble.parameters,
                "site_accuracies": answers.site_accuracies(),
                "train_top1": accuracy(ensemble, data.train_inputs[sample], data.train_ids[sample]),
                "top1": answers.accuracy(),
                "top10": answers.accuracy(10),
                "steps": steps,
                "seconds": done.report("all").seconds
                + (RunFolder.load(place / "first").report("all").seconds if first else 0.0),
                "fit_seconds": fitted,
            }
            del answers
            entries.append(entry)
            lines.append(_line(entry))
            print(" | ".join(lines[-1]), flush=True)  # noqa: T201
            if seed == seeds[0]:
                curves[name] = {
                    (first + epoch) * steps // recipe.epochs: accuracy(
                        Ensemble.load(done.path, epoch=epoch),
                        data.held_out_inputs[::8],
                        data.held_out_ids[::8],
                    )
                    for epoch in done.recipe.keep_epochs
                }
    results = {
        "experiment": f"{class_set}: {data.n_classes} classes, held-out face "
        f"{characters.test_face}; prototypes from {len(characters.train_faces)} training faces",
        "machine": machine(),
        "rows": entries,
        "curves": {name: {str(k): v for k, v in points.items()} for name, points in curves.items()},
    }
    write_results(folder, results, (HEADER, lines))
    save_curves(folder / "curves.png", f"Held-out top-1, {class_set}", "step", curves)


def _recipe(mapping: LabelMapping, hidden: int, steps: int) -> LearnerRecipe:
    epochs = next(e for e in range(CURVE_POINTS, 0, -1) if steps % e == 0)
    return LearnerRecipe(
        mapping=mapping,
        trunk="labelmapping.nn:SmallCnn",
        trunk_options={"side": 24},
        head_options={"hidden": hidden},
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
