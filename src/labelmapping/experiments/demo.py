"""The demo: one-hot against two codes, joint heads on one small CNN, on CJK characters.

Decoded with all sites, and with sites left out: what a lost learner costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray

from ..arguments import as_integer
from ..datasets.cjk import CjkCharacters, load_cjk
from ..datasets.cjk import characters as characters_of
from ..errors import ArgumentError
from ..learners import Ensemble, LearnerRecipe, LearningData, RunFolder, train
from ..mappings import LabelMapping, MixedMapping, SimplexMapping
from .evaluation import SiteAnswers, accuracy, answer, sample_rows
from .plots import save_curves, save_glyph_sheet
from .tables import Table, machine, write_results

__all__ = ["DemoSettings", "demo_table", "run_demo"]

# Points on the accuracy curve at most; a training goes on from the last one.
CURVE_POINTS = 20
SHEET_ROWS = 10
MOST_SITES = 8


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What to draw and how to train; the defaults are those of ``make demo``.

    Attributes
    ----------
    class_set : str
        See `labelmapping.datasets.cjk.CLASS_SETS`.
    steps, batch_size : int
    learning_rate : float
        Peak of Adam's one-cycle schedule.
    hidden : int
        Width of the codes' hidden layer; one-hot has none.
    n_sites : int
        Of both codes.
    field_order : int, optional
        Of the simplex code. Default: the smallest prime that fits.
    alphabet_sizes : tuple of int, optional
        Of the mixed code, `n_sites` of them. Default: the smallest primes that fit.
    side : int
        Pixels.
    faces, test_face : optional
        See `load_cjk`.
    """

    class_set: str = "gb2312-1"
    steps: int = 2000
    batch_size: int = 128
    learning_rate: float = 3e-3
    hidden: int = 512
    n_sites: int = 4
    field_order: int | None = None
    alphabet_sizes: tuple[int, ...] | None = None
    side: int = 24
    faces: tuple[str, ...] | None = None
    test_face: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        as_integer("steps", self.steps, 1)
        as_integer("hidden", self.hidden, 1)
        as_integer("seed", self.seed, 0)
        # Beyond it, the choices of sites to leave out are too many to try them all.
        if as_integer("n_sites", self.n_sites, 2) > MOST_SITES:
            raise ArgumentError(f"n_sites must be at most {MOST_SITES}, got {self.n_sites}")

    def mappings(self) -> dict[str, LabelMapping]:
        """What is compared, by name."""
        n_classes = len(characters_of(self.class_set))
        return {
            "one-hot": MixedMapping.one_hot(n_classes),
            "simplex": SimplexMapping(n_classes, self.n_sites, field_order=self.field_order),
            "mixed": MixedMapping(n_classes, self.alphabet_sizes, n_sites=self.n_sites),
        }

    def recipe(self, mapping: LabelMapping) -> LearnerRecipe:
        """One network for all sites of a code."""
        epochs = next(e for e in range(CURVE_POINTS, 0, -1) if self.steps % e == 0)
        return LearnerRecipe(
            mapping=mapping,
            trunk="labelmapping.nn:SmallCnn",
            trunk_options={"side": self.side},
            head_options={"hidden": self.hidden if mapping.n_sites > 1 else 0},
            joint=True,
            epochs=epochs,
            steps_per_epoch=self.steps // epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            schedule="one-cycle",
            keep_epochs=tuple(range(1, epochs + 1)),
        )


def run_demo(
    settings: DemoSettings,
    run_dir: str | Path,
    *,
    accelerator: str = "auto",
    callbacks: Callable[[str], Sequence[pl.Callback]] | None = None,
    rendering: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Train what is missing, decode, and write tables and pictures.

    Parameters
    ----------
    run_dir : path
        A run folder for each mapping; ``results.json``, ``.csv``, ``.md``,
        ``curves.png`` and ``sheet.png``.
    accelerator : str
        Lightning's: "auto", "cpu", "gpu".
    callbacks : function of a mapping's name, optional
        Lightning callbacks for its training.
    rendering : function of (face, done, total), optional
        Called while characters are drawn.

    Returns
    -------
    dict
        What ``results.json`` holds.
    """
    # All that can be refused is, before anything is drawn or written.
    recipes = {name: settings.recipe(mapping) for name, mapping in settings.mappings().items()}
    characters = load_cjk(
        settings.class_set,
        side=settings.side,
        faces=settings.faces,
        test_face=settings.test_face,
        progress=rendering,
    )
    data = learning_data(characters)
    run_dir = Path(run_dir)
    for name, recipe in recipes.items():
        RunFolder.check(run_dir / name, recipe, settings.seed, data)
    sample = sample_rows(len(data.train_ids), len(data.held_out_ids), settings.seed)
    rows, curves = [], {}
    for name, recipe in recipes.items():
        run = train(
            recipe,
            data,
            run_dir / name,
            seed=settings.seed,
            accelerator=accelerator,
            callbacks=None if callbacks is None else lambda _, n=name: callbacks(n),  # type: ignore[misc]
        )
        ensemble = Ensemble.load(run.path)
        answers = answer(ensemble, data.held_out_inputs, data.held_out_ids)
        rows.append(
            {
                "name": name,
                "mapping": recipe.mapping.to_config(),
                "parameters": ensemble.parameters,
                "site_accuracies": answers.site_accuracies(),
                "top1_by_sites_left": _top1_by_sites_left(answers),
                "top10": answers.accuracy(10),
                "train_top1": accuracy(ensemble, data.train_inputs[sample], data.train_ids[sample]),
                "seconds": round(run.report("all").seconds, 1),
            }
        )
        if name == "simplex":
            best = answers.topk(5)
        del answers  # one-hot's have N columns
        curves[name] = {
            epoch * settings.steps // recipe.epochs: accuracy(
                Ensemble.load(run.path, epoch=epoch), data.held_out_inputs, data.held_out_ids
            )
            for epoch in recipe.keep_epochs
        }
    results = {
        "experiment": f"CJK characters, {settings.class_set}: {data.n_classes} classes, "
        f"{settings.side} pixels",
        "training": f"{settings.steps} steps of batch {settings.batch_size}, Adam, one-cycle "
        f"to {settings.learning_rate}",
        "seed": settings.seed,
        "training faces": ", ".join(characters.train_faces),
        "held-out face": characters.test_face,
        "chance": 1 / data.n_classes,
        "train_rows_scored": len(sample),
        "machine": machine(),
        "rows": rows,
    }
    write_results(run_dir, results, demo_table(results))
    title = f"{settings.class_set}, held-out face {characters.test_face}"
    save_curves(run_dir / "curves.png", f"Top-1, {title}", "step", curves)
    _save_sheet(run_dir / "sheet.png", title, characters, best, settings.seed)
    return results


def learning_data(characters: CjkCharacters) -> LearningData:
    """Glyphs as training and held-out rows; the labels are the characters."""
    return LearningData(
        torch.from_numpy(characters.train_images),
        torch.from_numpy(characters.train_ids),
        torch.from_numpy(characters.test_images),
        torch.from_numpy(characters.test_ids),
        characters.labels,
    )


def demo_table(results: dict[str, Any]) -> Table:
    """One line a mapping, accuracies in percent.

    With sites left out: the mean over all choices of sites, and the worst choice.
    """
    fewer = sorted({int(n) for row in results["rows"] for n in row["top1_by_sites_left"]})[1:-1]
    header = ["mapping", "parameters", "sites", "train top-1", "top-1", "top-10"]
    header += [f"top-1, {n} sites (worst)" for n in reversed(fewer)] + ["seconds"]
    lines = []
    for row in results["rows"]:
        top1 = {int(n): value for n, value in row["top1_by_sites_left"].items()}
        line = [
            row["name"],
            f"{row['parameters']:,}",
            " ".join(f"{100 * accuracy:.0f}" for accuracy in row["site_accuracies"]),
            f"{100 * row['train_top1']:.1f}",
            f"{100 * top1[max(top1)]['mean']:.1f}",
            f"{100 * row['top10']:.1f}",
        ]
        for n in reversed(fewer):
            left = top1.get(n)
            line.append(f"{100 * left['mean']:.1f} ({100 * left['min']:.1f})" if left else "-")
        lines.append([*line, f"{row['seconds']:.0f}"])
    return header, lines


def _top1_by_sites_left(answers: SiteAnswers) -> dict[str, dict[str, float]]:
    """Accuracy with m sites, over every choice of m from all down to the dimension."""
    table = {}
    for left in range(len(answers.sites), answers.mapping.dimension - 1, -1):
        found = [answers.accuracy(1, sites) for sites in combinations(answers.sites, left)]
        table[str(left)] = {"mean": float(np.mean(found)), "min": min(found), "max": max(found)}
    return table


def _save_sheet(
    path: Path,
    title: str,
    characters: CjkCharacters,
    best: tuple[NDArray[np.int64], NDArray[np.float32]],
    seed: int,
) -> None:
    """Half the sheet are glyphs answered wrongly, as far as there are such; the rest any."""
    ids, scores = best
    truth = characters.test_ids
    order = np.random.default_rng(seed).permutation(len(ids))
    wrong = ids[order, 0] != truth[order]
    rows = np.concatenate([order[wrong][: SHEET_ROWS // 2], order[~wrong]])[:SHEET_ROWS]
    save_glyph_sheet(
        path,
        f"simplex, {title}: up to {SHEET_ROWS // 2} wrong answers first; scores are "
        "sums of log-probs",
        characters.test_images[rows],
        ids[rows],
        scores[rows],
        truth[rows],
        characters.train_images[: len(characters.labels)],
        [f"U+{ord(label):04X}" for label in characters.labels],
    )
