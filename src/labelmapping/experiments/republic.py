"""Table 4 of the paper: the next word in Plato's "Republic".

A row of the table is some sites of one run: the paper's learners are separate
networks, so the row with two sites has the same first two learners as the row
with six, and each is trained once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from ..arguments import as_integer, check_choice
from ..datasets.republic import Republic, load_republic
from ..errors import ArgumentError
from ..learners import Ensemble, LearnerRecipe, LearningData, RunFolder, train
from ..learners.recipe import Site
from ..mappings import LabelMapping, MixedMapping, SimplexMapping
from .evaluation import accuracy, answer, sample_rows
from .plots import save_curves
from .tables import machine, write_results

__all__ = ["PROFILES", "ROWS", "Profile", "Row", "learner_recipe", "reproduce_republic"]

logger = logging.getLogger(__name__)

N_WORDS = 7409
PRIMES = (107, 109, 113, 127, 131, 137)
FIELD_ORDER = 127
# The length of the six-site n-hot code: 107 + 109 + 113 + 127 + 131 + 137.
CUTOFF = sum(PRIMES)
PAPER_EPOCHS = (2, 4, 6, 8, 10)


@dataclass(frozen=True)
class Row:
    """A row of table 4: `n_sites` learners of a run, and the paper's accuracies."""

    name: str
    title: str
    run: str
    n_sites: int
    paper: tuple[float, ...]


ROWS = {
    row.name: row
    for row in (
        Row("one-hot", "one-hot softmax", "one-hot", 1, (0.0946, 0.1265, 0.1379, 0.1471, 0.1540)),
        Row(
            "negative-sampling",
            "one-hot, negative sampling 10:1",
            "negative-sampling",
            1,
            (0.048, 0.058, 0.058, 0.058, 0.058),
        ),
        Row("cut-off", "724 cut-off", "cut-off", 1, (0.0589, 0.1076, 0.1245, 0.1272, 0.1321)),
        Row("mixed-6-2", "mixed 6→2", "mixed", 2, (0.1331, 0.1402, 0.1366, 0.1358, 0.1189)),
        Row("mixed-6-4", "mixed 6→4", "mixed", 4, (0.1609, 0.1722, 0.1795, 0.1836, 0.1845)),
        Row("mixed-6-6", "mixed 6→6", "mixed", 6, (0.1590, 0.1731, 0.1812, 0.1849, 0.1865)),
        Row("simplex-6-2", "simplex 6→2", "simplex", 2, (0.1453, 0.1505, 0.1531, 0.1522, 0.1444)),
        Row("simplex-6-4", "simplex 6→4", "simplex", 4, (0.1586, 0.1685, 0.1759, 0.1805, 0.1832)),
        Row("simplex-6-6", "simplex 6→6", "simplex", 6, (0.1575, 0.1694, 0.1776, 0.1814, 0.1851)),
    )
}


@dataclass(frozen=True)
class Profile:
    """How long to train, which epochs to report, and which rows."""

    epochs: int
    report: tuple[int, ...]
    rows: tuple[str, ...]


PROFILES = {
    "quick": Profile(2, (1, 2), ("one-hot", "mixed-6-2", "mixed-6-4")),
    # The rivals and the smaller rows first: an interrupted run has whole rows.
    "paper": Profile(
        10,
        PAPER_EPOCHS,
        (
            "one-hot",
            "mixed-6-2",
            "simplex-6-2",
            "cut-off",
            "negative-sampling",
            "mixed-6-4",
            "simplex-6-4",
            "mixed-6-6",
            "simplex-6-6",
        ),
    ),
}


def learner_recipe(run: str, profile: Profile) -> LearnerRecipe:
    """The recipe of a run: the paper's LSTM with the run's input code, output code and head."""
    mixed = MixedMapping(N_WORDS, PRIMES)
    simplex = SimplexMapping(N_WORDS, 6, field_order=FIELD_ORDER)
    one_hot = MixedMapping.one_hot(N_WORDS)
    inputs: dict[str, LabelMapping] = {
        "mixed": mixed,
        "simplex": simplex,
        "cut-off": MixedMapping.one_hot(CUTOFF),
    }
    outputs: dict[str, LabelMapping] = {"mixed": mixed, "simplex": simplex}
    heads: dict[str, dict[str, Any]] = {
        "cut-off": {"n_symbols": CUTOFF},
        "negative-sampling": {"n_negatives": 10, "noise": "unigram"},
    }
    trunk_options: dict[str, Any] = {"input_mapping": inputs.get(run, one_hot).to_config()}
    if run == "cut-off":
        trunk_options["cutoff"] = True
    return LearnerRecipe(
        mapping=outputs.get(run, one_hot),
        trunk="labelmapping.nn:NextWordLstm",
        trunk_options=trunk_options,
        head=run if run in heads else "label-mapping",
        head_options=heads.get(run, {}),
        epochs=profile.epochs,
        batch_size=128,
        learning_rate=1e-3,
        keep_epochs=profile.report,
    )


def learning_data(text: Republic) -> LearningData:
    """Windows of 50 words and the next one; the tail's windows are held out."""
    contexts, targets, tail = text.windows()
    rows, words = torch.from_numpy(contexts), torch.from_numpy(targets)
    held_out = torch.from_numpy(tail)
    return LearningData(
        rows[~held_out], words[~held_out], rows[held_out], words[held_out], text.vocabulary
    )


def reproduce_republic(
    data_dir: str | Path | None,
    run_dir: str | Path,
    *,
    profile: str = "quick",
    rows: Sequence[str] | None = None,
    epochs: int | None = None,
    seed: int = 0,
    accelerator: str = "auto",
    callbacks: Callable[[str, Site], Sequence[pl.Callback]] | None = None,
) -> dict[str, Any]:
    """Train what is missing for some rows of table 4, and write the table after each row.

    Parameters
    ----------
    data_dir : path
        Has the text; see `load_republic`.
    run_dir : path
        A run folder for each run, and ``results.json``, ``.csv``, ``.md``, ``curves.png``.
    profile : {"quick", "paper"}
    rows : sequence of str, optional
        Names of rows. Default: the profile's.
    epochs : int, optional
        Instead of the profile's; reports the profile's epochs up to it, and the last.
    accelerator : str
        Lightning's: "auto", "cpu", "gpu".
    callbacks : function of (row name, learner), optional
        Lightning callbacks.

    Returns
    -------
    dict
        What ``results.json`` holds.
    """
    chosen = PROFILES[check_choice("profile", profile, PROFILES)]
    if epochs is not None:
        last = as_integer("epochs", epochs, 1)
        report = tuple(sorted({e for e in chosen.report if e < last} | {last}))
        chosen = Profile(last, report, chosen.rows)
    names = chosen.rows if rows is None else tuple(rows)
    if not names:
        raise ArgumentError("rows must name at least one row")
    for name in names:
        check_choice("rows", name, ROWS)
    as_integer("seed", seed, 0)
    text = load_republic(data_dir)
    data = learning_data(text)
    share = held_out_share_of_most_frequent(data)
    run_dir = Path(run_dir)
    for run_name in {ROWS[name].run for name in names}:
        RunFolder.check(run_dir / run_name, learner_recipe(run_name, chosen), seed, data)
    entries: list[dict[str, Any]] = []
    for name in names:
        row = ROWS[name]
        run = train(
            learner_recipe(row.run, chosen),
            data,
            run_dir / row.run,
            seed=seed,
            learners=range(row.n_sites),
            accelerator=accelerator,
            callbacks=None if callbacks is None else lambda site, n=name: callbacks(n, site),  # type: ignore[misc]
        )
        entries.append(_entry(row, chosen, run, data))
        results = {
            "experiment": "republic",
            "profile": profile,
            "seed": seed,
            "split": f"first {text.n_train_words} of {len(text.ids)} words for training; "
            f"{len(data.held_out_ids)} windows whose next word lies in the tail are held out",
            "train_rows_scored": min(len(data.held_out_ids), len(data.train_ids)),
            "most_frequent_word_share": share,
            "machine": machine(),
            "rows": entries,
        }
        write_results(run_dir, results, table_4(results))
        save_curves(run_dir / "curves.png", *_curves(results))
    return results


def table_4(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of the table: ours at each epoch, training / held out / paper."""
    epochs = sorted({int(e) for row in results["rows"] for e in row["by_epoch"]})
    header = ["row", "parameters", "seconds"]
    for epoch in epochs:
        header += [f"train @{epoch}", f"held out @{epoch}", f"paper @{epoch}"]
    lines = []
    for row in results["rows"]:
        line = [row["title"], f"{row['parameters']:,}", f"{row['seconds']:.0f}"]
        for epoch in epochs:
            ours, paper = row["by_epoch"][str(epoch)], row["paper"].get(str(epoch))
            line += [f"{ours['train_accuracy']:.4f}", f"{ours['held_out_accuracy']:.4f}"]
            line.append("" if paper is None else f"{paper:.4f}")
        lines.append(line)
    return header, lines


def _curves(results: dict[str, Any]) -> tuple[str, str, dict[str, dict[int, float]]]:
    curves = {
        row["title"]: {int(e): v["held_out_accuracy"] for e, v in row["by_epoch"].items()}
        for row in results["rows"]
    }
    return "Next word in Plato's Republic, held-out tail", "epoch", curves


def held_out_share_of_most_frequent(data: LearningData) -> float:
    """Accuracy on held-out rows of always answering the most frequent training word."""
    return float((data.held_out_ids == data.class_counts().argmax()).float().mean())


def _entry(row: Row, profile: Profile, run: RunFolder, data: LearningData) -> dict[str, Any]:
    """A row's figures, from the weights kept at each epoch."""
    sites = tuple(range(row.n_sites))
    sample = sample_rows(len(data.train_ids), len(data.held_out_ids), run.seed)
    by_epoch = {}
    for epoch in profile.report:
        ensemble = Ensemble.load(run.path, learners=sites, epoch=epoch)
        held_out = answer(ensemble, data.held_out_inputs, data.held_out_ids)
        by_epoch[str(epoch)] = {
            "train_accuracy": accuracy(ensemble, data.train_inputs[sample], data.train_ids[sample]),
            "held_out_accuracy": held_out.accuracy(),
            "held_out_site_accuracies": held_out.site_accuracies(),
        }
        logger.info("%s after epoch %d: %s", row.name, epoch, by_epoch[str(epoch)])
    return {
        "name": row.name,
        "title": row.title,
        "parameters": ensemble.parameters,
        "seconds": round(sum(run.report(site).seconds for site in sites), 1),
        "paper": {str(e): a for e, a in zip(PAPER_EPOCHS, row.paper, strict=True)},
        "by_epoch": by_epoch,
    }
