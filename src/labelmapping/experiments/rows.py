"""What an experiment is made of: rows of a table, profiles, figures, and the data they share."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ..arguments import as_integer, check_choice
from ..learners import LearnerRecipe, LearningData
from ..learners.recipe import Site

__all__ = ["Experiment", "Figure", "Profile", "Row", "Task", "load_experiment"]

NAMES = ("cifar100", "cjk", "republic")


@dataclass(frozen=True, eq=False)
class Task:
    """The data of an experiment.

    Attributes
    ----------
    data : LearningData
    facts : dict of str
        What a table must say of it: how it was split, what was held out.
    held_out : str
        What the held-out part is called in tables.
    """

    data: LearningData
    facts: Mapping[str, Any] = field(default_factory=dict)
    held_out: str = "held out"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How long to train, what to report, and which rows.

    Attributes
    ----------
    epochs : int
    report : tuple of int
        Epochs in the table.
    rows : tuple of str
        Default rows, in the order in which they are trained.
    keep : tuple of int
        Epochs on the curves; default those of `report`.
    steps : int, optional
        Of an epoch; default one pass over the training rows.
    learning_rate : float
        Of every row.
    precision : str
        As of a recipe.
    options : dict
        What else the experiment has in its profiles.
    """

    epochs: int
    report: tuple[int, ...]
    rows: tuple[str, ...]
    keep: tuple[int, ...] = ()
    steps: int | None = None
    learning_rate: float = 1e-3
    precision: str = "32-true"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[int, ...]:
        """All epochs whose weights are kept and measured."""
        return tuple(sorted({*self.keep, *self.report}))

    def changed(
        self,
        epochs: int | None = None,
        steps: int | None = None,
        learning_rate: float | None = None,
        precision: str | None = None,
    ) -> Profile:
        """The profile with other settings where they are given; of its epochs those that are left.

        The rate and the precision are checked by the recipes made from it.
        """
        changed = self
        if learning_rate is not None:
            changed = replace(changed, learning_rate=learning_rate)
        if precision is not None:
            changed = replace(changed, precision=precision)
        if epochs is not None:
            last = as_integer("epochs", epochs, 1)
            report, keep = (tuple(e for e in some if e < last) for some in (self.report, self.keep))
            changed = replace(changed, epochs=last, report=(*report, last), keep=keep)
        if steps is not None:
            changed = replace(changed, steps=as_integer("steps", steps, 1))
        return changed


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table: the first `n_sites` sites of a run, and what the paper has for it.

    Attributes
    ----------
    name, title : str
        The name is that of the config file.
    run : str
        Rows of one run share its recipe and its learners.
    n_sites : int, optional
        Default all of the code's.
    paper : dict of int to float
        The paper's accuracy by epoch; none for rows of our own.
    recipe : function of a profile
    fit : function of (recipe, task, seed), optional
        Puts a code that is fitted to the task into the recipe, as its mapping or as an option
        of its trunk. A run that was begun keeps the one it has.
    refit : bool
        The code is learnt anew from the trunk's features after a quarter of the epochs.
    """

    name: str
    title: str
    run: str
    n_sites: int | None = None
    paper: Mapping[int, float] = field(default_factory=dict)
    recipe: Callable[[Profile], LearnerRecipe]
    fit: Callable[[LearnerRecipe, Task, int], LearnerRecipe] | None = None
    refit: bool = False

    def learners(self, recipe: LearnerRecipe) -> tuple[Site, ...]:
        """The learners of the row."""
        return recipe.learners()[: self.n_sites]


@dataclass(frozen=True)
class Figure:
    """A picture of curves: ``NAME.png`` and ``NAME.svg`` with these rows, as far as they ran."""

    name: str
    title: str
    rows: tuple[str, ...]


class Loader(Protocol):
    """Reads an experiment's data: (profile, folder or None), and tells how far drawing is."""

    def __call__(
        self,
        profile: Profile,
        data_dir: Path | None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Task: ...


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One of the paper's experiments.

    Attributes
    ----------
    name, title : str
    table : tuple of str
        All rows, in the table's order: each is ``configs/EXPERIMENT/ROW.py`` with its ``ROW``.
    profiles : dict of Profile
        "quick", "cpu" and "paper".
    load : Loader
    figures : tuple of Figure
    paper : str
        What the paper's figures are of: network, data, steps.
    perplexity : bool
        Whether it is measured on the held-out rows.
    train_rows : int, optional
        Training rows that are scored, drawn with the seed; default as many as are held out.
    plain_seed_0 : bool
        The runs of seed 0 lie in ``RUN``, those of the others in ``RUN-seed1``, ...; else
        ``RUN-seed0`` too.
    """

    name: str
    title: str
    table: tuple[str, ...]
    profiles: Mapping[str, Profile]
    load: Loader
    figures: tuple[Figure, ...]
    paper: str
    perplexity: bool = False
    train_rows: int | None = None
    plain_seed_0: bool = False

    def row(self, name: str) -> Row:
        """The row that a config file describes."""
        check_choice("rows", name, self.table)
        row: Row = _config(self.name, name).ROW
        return row

    def summary(self, name: str) -> str:
        """The first line of a config file: which table, which row."""
        return (_config(self.name, name).__doc__ or "").partition("\n")[0]

    def folder(self, run: str, seed: int) -> str:
        """The name of a run's folder."""
        return run if self.plain_seed_0 and seed == 0 else f"{run}-seed{seed}"


def _config(experiment: str, row: str) -> Any:
    module = row.replace("-", "_")
    return importlib.import_module(f"{__package__}.configs.{experiment}.{module}")


def load_experiment(name: str) -> Experiment:
    """The experiment "cifar100", "cjk" or "republic"."""
    check_choice("experiment", name, NAMES)
    experiment: Experiment = importlib.import_module(f"{__package__}.{name}").EXPERIMENT
    return experiment
