"""Runs rows of the paper's tables: trains what is missing, measures, writes tables and curves.

Rows that are parts of one code share a run: separate learners do not know of each other, so
simplex with two sites is the first two learners of simplex with six. Knows no data set.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from ..arguments import as_integers, check_choice
from ..atomic import write_json
from ..errors import ArgumentError, DataNotFoundError, RunMismatchError
from ..learners import Ensemble, LearnerRecipe, RunFolder, train, train_with_refit
from ..learners.recipe import Site
from ..learners.site import answering_device, check_accelerator, check_precision
from .evaluation import sample_rows
from .results import (
    SPREAD,
    results_numbers,
    results_table,
    row_entry,
    save_figures,
    training_words,
)
from .rows import Experiment, Profile, Row, Task
from .scores import TOP, Scores
from .tables import machine, write_results

__all__ = ["reproduce"]

logger = logging.getLogger(__name__)


def reproduce(
    experiment: Experiment,
    run_dir: str | Path,
    *,
    data_dir: str | Path | None = None,
    profile: str = "quick",
    rows: Sequence[str] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    precision: str | None = None,
    seeds: Sequence[int] = (0,),
    accelerator: str = "auto",
    callbacks: Callable[[str, int, Site], Sequence[pl.Callback]] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Train what is missing for some rows of an experiment, and write the table after each row.

    Rows and seeds that the folder has already with the same settings are in the table too.

    Parameters
    ----------
    run_dir : path
        Gets a run folder for each run and seed, ``measured`` (what each row's weights came
        to), ``results.json``, ``.csv``, ``.md`` and the figures as ``.png`` and ``.svg``.
    data_dir : path, optional
        What the experiment's loader reads.
    profile : {"quick", "cpu", "paper"}
    rows : sequence of str, optional
        Names in ``experiment.table``. Default: the profile's.
    epochs, steps : int, optional
        Instead of the profile's; reported are the profile's epochs up to it, and the last.
    learning_rate : float, optional
        Instead of the profile's.
    precision : {"32-true", "bf16-mixed", "16-mixed"}, optional
        Of training, as of a `LearnerRecipe`; what is measured is measured without it.
    seeds : sequence of int
        All rows of the first seed come before those of the next.
    accelerator : str
        Lightning's: "auto", "cpu", "gpu".
    callbacks : function of (row name, seed, learner), optional
        Lightning callbacks.
    progress : function of (name, done, total), optional
        Told while data are made.

    Returns
    -------
    dict
        What ``results.json`` holds; see experiments/README.md.

    Raises
    ------
    ArgumentError
        An argument breaks its rule; nothing is read or written.
    RunMismatchError
        A row that is in the folder was made with other settings or data; nothing is trained.
    """
    chosen = experiment.profiles[check_choice("profile", profile, experiment.profiles)]
    chosen = chosen.changed(epochs, steps, learning_rate, precision)
    names = chosen.rows if rows is None else tuple(dict.fromkeys(rows))
    if not names:
        raise ArgumentError("rows must name at least one row")
    picked = [experiment.row(name) for name in names]
    check_accelerator(accelerator, here=True)
    for row in picked:
        check_precision(row.recipe(chosen), accelerator)  # and the recipe checks the settings
        if row.refit and chosen.epochs < 2:
            raise ArgumentError(f"epochs must be at least 2 for {row.name}, got {chosen.epochs}")
    seeds = tuple(dict.fromkeys(as_integers("seeds", tuple(seeds), 0)))
    task = experiment.load(chosen, None if data_dir is None else Path(data_dir), progress)
    work = _Work(experiment, chosen, task, Path(run_dir), accelerator, callbacks)
    for seed in seeds:
        for row in picked:
            work.check(row, seed)
    # In the table's order, whatever the order of training.
    found = work.known()
    facts = {**task.facts, "the paper's figures": experiment.paper}
    results: dict[str, Any] = {}
    for seed in seeds:
        for row in picked:
            work.train(row, seed)
            work.measure([r for r in picked if r.run == row.run], seed)
            found[row.name][seed] = work.measured(row, seed)
            results = {
                "experiment": experiment.name,
                "title": experiment.title,
                "profile": profile,
                "training": training_words(row.recipe(chosen), chosen),
                "seeds": ", ".join(map(str, sorted({s for of in found.values() for s in of}))),
                "spread": SPREAD,
                **facts,
                "train rows scored": work.n_train_rows,
                "machine": " | ".join(
                    dict.fromkeys(e["machine"] for of in found.values() for e in of.values())
                ),
                "held_out": task.held_out,
                "facts": list(facts),
                "report": list(chosen.report),
                "table": list(experiment.table),
                "figures": [
                    {"name": f.name, "title": f.title, "rows": list(f.rows)}
                    for f in experiment.figures
                ],
                "rows": [
                    row_entry(experiment.row(name), dict(sorted(entries.items())))
                    for name, entries in found.items()
                    if entries
                ],
            }
            write_results(
                work.run_dir, results, results_table(results), numbers=results_numbers(results)
            )
            save_figures(work.run_dir, results)
    return results


def _read(file: Path) -> dict[str, Any]:
    """What `_Work.measure` wrote."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not {"key", "entry"} <= content.keys():
            raise ValueError("it has no key and entry")
        if not {"parameters", "seconds", "by_epoch"} <= content["entry"].keys():
            raise ValueError("its entry has not parameters, seconds and by_epoch")
        # Runs of earlier versions did not note the machine.
        content["entry"].setdefault("machine", "not noted")
    except (AttributeError, ValueError) as error:
        raise RunMismatchError(
            f"{file} cannot be read: {error}; remove it, and the row is measured again"
        ) from error
    return dict(content)


def _perplexities(scores: Scores, name: str) -> dict[str, float]:
    temperature, calibrated = scores.calibrated(name)
    return {
        "perplexity": scores.perplexity(name),
        "calibrated_perplexity": calibrated,
        "temperature": temperature,
    }


@dataclass(frozen=True)
class _Part:
    """Weights of a row's learners after an epoch: where they lie, and under which number."""

    folder: Path
    epoch: int


class _Work:
    """Trains and measures rows of one experiment in one folder."""

    def __init__(
        self,
        experiment: Experiment,
        profile: Profile,
        task: Task,
        run_dir: Path,
        accelerator: str,
        callbacks: Callable[[str, int, Site], Sequence[pl.Callback]] | None,
    ) -> None:
        self.experiment = experiment
        self.profile = profile
        self.task = task
        self.run_dir = run_dir
        self.accelerator = accelerator
        self.callbacks = callbacks
        self.device = answering_device(accelerator)
        wanted = experiment.train_rows or len(task.data.held_out_ids)
        self.n_train_rows = min(wanted, len(task.data.train_ids))
        self.fingerprint = task.data.fingerprint()

    def place(self, row: Row, seed: int) -> Path:
        return self.run_dir / self.experiment.folder(row.run, seed)

    def first_epochs(self, row: Row) -> int:
        """Of the first phase, where the code is learnt anew; else all are."""
        return max(1, self.profile.epochs // 4) if row.refit else self.profile.epochs

    def begun(self, row: Row, seed: int) -> Path:
        """The file that is there once a run has begun."""
        return self.place(row, seed) / ("first" if row.refit else "") / "run.json"

    def known_recipe(self, row: Row, seed: int) -> LearnerRecipe | None:
        """The row's recipe; None where it has a code that is still to be fitted."""
        recipe = row.recipe(self.profile)
        if row.fit is None:
            return recipe
        begun = self.begun(row, seed)
        if not begun.exists():
            return None
        known = RunFolder.load(begun.parent).recipe
        return replace(recipe, mapping=known.mapping, trunk_options=known.trunk_options)

    def recipe(self, row: Row, seed: int) -> LearnerRecipe:
        """The row's recipe; its code is fitted where no run has begun with one."""
        known = self.known_recipe(row, seed)
        if known is not None or row.fit is None:
            return row.recipe(self.profile) if known is None else known
        started = time.perf_counter()
        fitted = row.fit(row.recipe(self.profile), self.task, seed)
        logger.info("%s: code fitted in %.1f s", row.name, time.perf_counter() - started)
        return fitted

    def check(self, row: Row, seed: int) -> None:
        """Refuse what was made with something else, before anything is trained."""
        place, recipe = self.place(row, seed), self.known_recipe(row, seed)
        if recipe is not None and row.refit:
            self._check_second(row, recipe, seed)
            recipe, place = self._first_phase(recipe, self.first_epochs(row)), place / "first"
        if recipe is not None:
            RunFolder.check(place, recipe, seed, self.task.data)

    def _check_second(self, row: Row, recipe: LearnerRecipe, seed: int) -> None:
        """The second phase, as far as its settings do not come from the first one's weights."""
        place, first = self.place(row, seed) / "second", self.first_epochs(row)
        if not (place / "run.json").exists():
            return
        begun = RunFolder.load(place).recipe
        wanted = replace(
            recipe,
            mapping=begun.mapping,
            trunk_sha256=begun.trunk_sha256,
            epochs=recipe.epochs - first,
            keep_epochs=tuple(e - first for e in recipe.keep_epochs if e > first),
        )
        RunFolder.check(place, wanted, seed, self.task.data)

    def known(self) -> dict[str, dict[int, dict[str, Any]]]:
        """What was measured in this folder with these settings: of each row, by seed."""
        found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in self.experiment.table}
        for file in (self.run_dir / "measured").glob("*-seed*.json"):
            name, _, seed = file.stem.rpartition("-seed")
            if name not in found or not seed.isdecimal():
                continue
            row = self.experiment.row(name)
            if not self.begun(row, int(seed)).exists():
                continue
            self.check(row, int(seed))  # a folder has one setting
            try:
                known = self._measured(row, int(seed))
            except (ArgumentError, DataNotFoundError, RunMismatchError) as error:
                logger.info("%s, seed %s, is not in the table: %s", name, seed, error)
                continue
            if known is not None:
                found[name][int(seed)] = known
        return found

    @staticmethod
    def _first_phase(recipe: LearnerRecipe, epochs: int) -> LearnerRecipe:
        kept = tuple(epoch for epoch in recipe.keep_epochs if epoch <= epochs)
        return replace(recipe, epochs=epochs, keep_epochs=kept)

    def train(self, row: Row, seed: int) -> None:
        """Train the learners of a row that are missing."""
        recipe = self.recipe(row, seed)
        place = self.place(row, seed)
        callbacks = self.callbacks
        of_learner = None
        if callbacks is not None:
            of_learner = lambda learner: callbacks(row.name, seed, learner)  # noqa: E731
        if not row.refit:
            train(
                recipe,
                self.task.data,
                place,
                seed=seed,
                learners=row.learners(recipe),
                accelerator=self.accelerator,
                callbacks=of_learner,
            )
        else:
            train_with_refit(
                recipe,
                self.task.data,
                place,
                first_epochs=self.first_epochs(row),
                seed=seed,
                accelerator=self.accelerator,
                callbacks=of_learner,
            )

    def _parts(self, row: Row, seed: int) -> list[_Part]:
        """Where the weights after each measured epoch lie."""
        place, first = self.place(row, seed), self.first_epochs(row)
        if not row.refit:
            return [_Part(place, epoch) for epoch in self.profile.measured]
        return [
            _Part(place / "first", epoch)
            if epoch <= first
            else _Part(place / "second", epoch - first)
            for epoch in self.profile.measured
        ]

    def _file(self, row: Row, seed: int) -> Path:
        return self.run_dir / "measured" / f"{row.name}-seed{seed}.json"

    def _key(self, row: Row, seed: int) -> dict[str, Any]:
        """What a measurement rests on: the weights' checksums, and which rows were scored."""
        weights = {}
        for epoch, part in zip(self.profile.measured, self._parts(row, seed), strict=True):
            run = RunFolder.load(part.folder)
            weights[str(epoch)] = [
                run.check_weights(learner, part.epoch) for learner in row.learners(run.recipe)
            ]
        return {
            "weights": weights,
            "data": self.fingerprint,
            "train_rows": self.n_train_rows,
            "report": list(self.profile.report),
            # What was measured before there were temperatures is measured again.
            **({"calibrated": True} if self.experiment.perplexity else {}),
        }

    def measured(self, row: Row, seed: int) -> dict[str, Any]:
        """What was measured of a row, as `measure` wrote it."""
        entry: dict[str, Any] = _read(self._file(row, seed))["entry"]
        return entry

    def _measured(self, row: Row, seed: int) -> dict[str, Any] | None:
        """The same, or None where it was not, or not with the weights that are there now."""
        file = self._file(row, seed)
        if not file.exists():
            return None
        known = _read(file)["key"] == self._key(row, seed)
        return self.measured(row, seed) if known else None

    def measure(self, rows: Sequence[Row], seed: int) -> None:
        """Measure those rows of one run whose learners are finished and that are not measured.

        The networks run once for all of them.
        """
        due: list[tuple[Row, dict[str, Any]]] = []
        for row in rows:
            last = self._parts(row, seed)[-1].folder
            run = RunFolder.load(last)
            if not all(run.is_recorded(learner) for learner in row.learners(run.recipe)):
                continue
            if self._measured(row, seed) is None:
                due.append((row, self._key(row, seed)))
        if not due:
            return
        widest = max((row for row, _ in due), key=lambda row: row.n_sites or 10**9)
        by_epoch: dict[str, dict[str, dict[str, Any]]] = {row.name: {} for row, _ in due}
        parts = self._parts(widest, seed)
        for epoch, part in zip(self.profile.measured, parts, strict=True):
            recipe = RunFolder.load(part.folder).recipe
            ensemble = Ensemble.load(
                part.folder,
                learners=widest.learners(recipe),
                epoch=part.epoch,
                device=self.device,
            )
            sizes = {row.name: row.n_sites or recipe.mapping.n_sites for row, _ in due}
            found = self._figures(ensemble, sizes, seed, with_train=epoch in self.profile.report)
            for name, figures in found.items():
                by_epoch[name][str(epoch)] = figures
                logger.info("%s, seed %d, after epoch %d: %s", name, seed, epoch, figures)
        for row, key in due:
            entry = {
                "parameters": self._parameters(row, seed),
                "seconds": round(self._seconds(row, seed), 1),
                "machine": machine(self.device),
                "by_epoch": by_epoch[row.name],
            }
            write_json(self._file(row, seed), {"key": key, "entry": entry})

    def _parameters(self, row: Row, seed: int) -> int:
        run = RunFolder.load(self._parts(row, seed)[-1].folder)
        return sum(run.report(learner).parameters for learner in row.learners(run.recipe))

    def _seconds(self, row: Row, seed: int) -> float:
        seconds = 0.0
        for folder in dict.fromkeys(part.folder for part in self._all_parts(row, seed)):
            run = RunFolder.load(folder)
            seconds += sum(run.report(learner).seconds for learner in row.learners(run.recipe))
        return seconds

    def _all_parts(self, row: Row, seed: int) -> list[_Part]:
        parts = self._parts(row, seed)
        return [_Part(self.place(row, seed) / "first", 0), *parts] if row.refit else parts

    def _figures(
        self, ensemble: Ensemble, sizes: Mapping[str, int], seed: int, *, with_train: bool
    ) -> dict[str, dict[str, Any]]:
        """For each row (a name, and how many of the first sites it has) its figures."""
        data = self.task.data
        held_out = Scores(ensemble.mapping, sizes, perplexity=self.experiment.perplexity)
        held_out.add_all(ensemble, data.held_out_inputs, data.held_out_ids)
        figures = {
            name: {
                "held_out_accuracy": held_out.accuracy(name, 1),
                "held_out_top10": held_out.accuracy(name, TOP),
                "held_out_site_accuracies": held_out.site_accuracies(name),
                **(_perplexities(held_out, name) if self.experiment.perplexity else {}),
            }
            for name in sizes
        }
        if with_train:
            sample = sample_rows(len(data.train_ids), self.n_train_rows, seed)
            trained = Scores(ensemble.mapping, sizes)
            trained.add_all(ensemble, data.train_inputs[sample], data.train_ids[sample])
            for name in sizes:
                figures[name]["train_accuracy"] = trained.accuracy(name, 1)
        return figures
