"""Results of an experiment as a record, a table and pictures; see README.md in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..learners import LearnerRecipe
from .plots import save_curves
from .rows import Profile, Row
from .scores import TOP
from .tables import Table

__all__ = [
    "SPREAD",
    "results_numbers",
    "results_table",
    "row_entry",
    "save_figures",
    "save_results_figure",
    "training_words",
]

PERPLEXITIES = {"perplexity": "perplexity", "calibrated_perplexity": "calibrated perplexity"}
SPREAD = "where there are several seeds: mean (smallest - largest)"


def results_table(results: Mapping[str, Any], epochs: Sequence[int] | None = None) -> Table:
    """Header and lines of the table in ``results.json``, at some of the reported epochs or all.

    Training and held-out accuracy and the paper's at each, perplexity where it was measured, as
    the sites answer and at a fitted temperature, and the right class among the best ten at the
    last. Of several seeds the mean, and the smallest and largest.
    """
    epochs = results["report"] if epochs is None else epochs
    held_out, last = results["held_out"], str(epochs[-1])
    of_classes = [
        (figure, words)
        for figure, words in PERPLEXITIES.items()
        if any(figure in row["by_epoch"][last] for row in results["rows"])
    ]
    header = ["row", "parameters", "seconds", "seeds"]
    for epoch in epochs:
        header += [f"train @{epoch}", f"{held_out} @{epoch}", f"paper @{epoch}"]
    header.append(f"{held_out} top-{TOP} @{last}")
    header += [f"{words} @{epoch}" for _, words in of_classes for epoch in epochs]
    lines = []
    for row in results["rows"]:
        line = [row["title"], f"{row['parameters']:,}", f"{row['seconds']:,.0f}"]
        line.append(str(len(row["seeds"])))
        for epoch in epochs:
            ours, paper = row["by_epoch"][str(epoch)], row["paper"].get(str(epoch))
            line += [_shown(ours["train_accuracy"]), _shown(ours["held_out_accuracy"])]
            line.append("" if paper is None else f"{paper:.4f}")
        line.append(_shown(row["by_epoch"][last]["held_out_top10"]))
        for figure, _ in of_classes:
            there = [row["by_epoch"][str(epoch)].get(figure) for epoch in epochs]
            line += ["" if found is None else _shown(found, 1) for found in there]
        lines.append(line)
    return header, lines


def results_numbers(results: Mapping[str, Any]) -> Table:
    """Every figure of ``results.json`` as a line of plain numbers, for programs and spreadsheets.

    One line a row, epoch and figure: its mean, smallest and largest over seeds, and the paper's
    accuracy on the line of the held-out one. Each line says what was held out.
    """
    header = (
        "name", "title", "parameters", "seconds", "seeds", "epoch", "figure", "mean", "min",
        "max", "paper", "held out",
    )  # fmt: skip
    lines = []
    for row in results["rows"]:
        of_row = [row["name"], row["title"], str(row["parameters"]), f"{row['seconds']:.1f}"]
        of_row.append(str(len(row["seeds"])))
        for epoch, figures in row["by_epoch"].items():
            for name, value in figures.items():
                paper = row["paper"].get(epoch) if name == "held_out_accuracy" else None
                numbers = [value["mean"], value["min"], value["max"], paper]
                shown = ["" if number is None else repr(number) for number in numbers]
                lines.append([*of_row, epoch, name, *shown, results["held_out"]])
    return header, lines


def _shown(figure: Mapping[str, float], digits: int = 4) -> str:
    mean = f"{figure['mean']:.{digits}f}"
    if figure["min"] == figure["max"]:
        return mean
    return f"{mean} ({figure['min']:.{digits}f} - {figure['max']:.{digits}f})"


def training_words(recipe: LearnerRecipe, profile: Profile) -> str:
    """The settings that all rows share, in words."""
    steps = "as many steps as the rows need" if profile.steps is None else f"{profile.steps} steps"
    rate = f"{recipe.learning_rate:g}"
    schedule = "constant at" if recipe.schedule == "constant" else "one-cycle to"
    return (
        f"{profile.epochs} epochs of {steps}, batch {recipe.batch_size}, Adam, {schedule} {rate}; "
        f"trunk {recipe.trunk.partition(':')[2]}, {recipe.precision}"
    )


def row_entry(row: Row, of_seed: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """A row of ``results.json``: its seeds, and mean, smallest and largest over them."""
    first = next(iter(of_seed.values()))
    by_epoch: dict[str, dict[str, dict[str, float]]] = {}
    for epoch, figures in first["by_epoch"].items():
        by_epoch[epoch] = {}
        for name, value in figures.items():
            if isinstance(value, list):
                continue
            values = [entry["by_epoch"][epoch][name] for entry in of_seed.values()]
            by_epoch[epoch][name] = {
                "mean": float(np.mean(values)),
                "min": min(values),
                "max": max(values),
            }
    return {
        "name": row.name,
        "title": row.title,
        "run": row.run,
        "parameters": first["parameters"],
        "seconds": float(np.mean([entry["seconds"] for entry in of_seed.values()])),
        "paper": {str(epoch): value for epoch, value in row.paper.items()},
        "by_epoch": by_epoch,
        "seeds": [{"seed": seed, **entry} for seed, entry in of_seed.items()],
    }


def save_figures(run_dir: Path, results: Mapping[str, Any]) -> None:
    """Each figure of the results that has a row, as ``NAME.png`` and ``NAME.svg``."""
    for figure in results["figures"]:
        for ending in ("png", "svg"):
            save_results_figure(run_dir / f"{figure['name']}.{ending}", figure, results)


def save_results_figure(path: Path, figure: Mapping[str, Any], results: Mapping[str, Any]) -> bool:
    """Draw one of the figures by its entry; whether there was a row to draw."""
    there = {row["name"]: row for row in results["rows"]}
    rows = [there[name] for name in figure["rows"] if name in there]
    if not rows:
        return False
    held_out = {
        row["title"]: {
            int(epoch): figures["held_out_accuracy"] for epoch, figures in row["by_epoch"].items()
        }
        for row in rows
    }
    save_curves(
        path,
        f"{figure['title']}; {results['held_out']}",
        "epoch",
        {t: {e: v["mean"] for e, v in points.items()} for t, points in held_out.items()},
        ranges={
            t: {e: (v["min"], v["max"]) for e, v in points.items()}
            for t, points in held_out.items()
        },
        published={
            row["title"]: {
                int(epoch): value
                for epoch, value in row["paper"].items()
                if int(epoch) <= max(results["report"])
            }
            for row in rows
        },
    )
    return True
