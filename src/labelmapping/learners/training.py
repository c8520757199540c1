"""Trains what is missing in a run folder, on an executor, and tries again what failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytorch_lightning as pl
import torch

from ..arguments import as_integer
from ..errors import ArgumentError, DivergedError, LearnersFailedError, RunMismatchError
from .data import LearningData
from .executors import Executor, LearnerTask, SerialExecutor
from .recipe import LearnerRecipe, Site
from .run import RunFolder
from .site import learner_name, read_trunk, start_from

__all__ = ["train"]

logger = logging.getLogger(__name__)
# What would end the same way when tried again; these name their learner.
CERTAIN = (DivergedError, ArgumentError, RunMismatchError)


def train(
    recipe: LearnerRecipe,
    data: LearningData,
    run_folder: str | Path,
    *,
    seed: int = 0,
    learners: Sequence[Site] | None = None,
    executor: Executor | None = None,
    retries: int = 2,
    accelerator: str = "auto",
    callbacks: Callable[[Site], Sequence[pl.Callback]] | None = None,
    trunk_weights: str | Path | None = None,
) -> RunFolder:
    """Train what is missing in a run folder; finished learners keep their bytes.

    Parameters
    ----------
    learners : sequence of int or "all", optional
        Which of ``recipe.learners()``. Default all of them.
    executor : Executor, optional
        `SerialExecutor` (the default), `ProcessExecutor` or `RayExecutor`. The weights are the
        same bits on all of them, and on any number of workers.
    retries : int, default 2
        How often a learner that failed is tried again, from its last whole epoch. One that
        diverged, or whose checkpoint is damaged, is not: it would end the same way.
    callbacks : function of a learner, optional
        Lightning callbacks for its training, with the `SerialExecutor` only.
    trunk_weights : path, optional
        The weights file whose trunk the learners start from; needed where the recipe has a
        `trunk_sha256`, and not otherwise.

    Raises
    ------
    ArgumentError
        The recipe does not fit the data or cannot be built; nothing is written.
    RunMismatchError
        The folder was made with other settings or data, or finished weights are altered.
    DivergedError
        All that failed diverged. As with any failure the other learners are finished and stay,
        and the next start trains exactly what is missing.
    LearnersFailedError
        Some learners failed for good; names each and its cause.
    """
    wanted = recipe.learners() if learners is None else tuple(dict.fromkeys(learners))
    unknown = [s for s in wanted if s not in recipe.learners() or isinstance(s, bool)]
    if unknown:
        raise ArgumentError(f"learners must be among {recipe.learners()}, got {unknown}")
    if recipe.mapping.n_classes != data.n_classes:
        raise ArgumentError(
            f"mapping must have as many classes as the data have labels, {data.n_classes}; "
            f"got {recipe.mapping.n_classes}"
        )
    if (trunk_weights is None) != (recipe.trunk_sha256 is None):
        raise ArgumentError(
            "trunk_weights must be given where the recipe has a trunk_sha256, and only there; got "
            f"{trunk_weights} and {recipe.trunk_sha256}"
        )
    trunk = None
    if trunk_weights is not None and recipe.trunk_sha256 is not None:
        trunk = read_trunk(Path(trunk_weights), recipe.trunk_sha256)
    with torch.random.fork_rng(devices=[]):
        network = recipe.build(recipe.learners()[0], data.class_counts())
        if trunk is not None:
            start_from(network, trunk)
    # What cannot be built was refused before any file.
    if callbacks is not None and not isinstance(executor, SerialExecutor | None):
        raise ArgumentError("callbacks must be None with an executor of other processes")
    as_integer("retries", retries, 0)
    run = RunFolder.create(run_folder, recipe, seed, data)
    missing = []
    for learner in wanted:
        if run.is_recorded(learner):
            logger.info("%s: %s is finished", run.path, learner)
            run.check_weights(learner)
        else:
            missing.append(learner)
    tasks = [
        LearnerTask(
            recipe,
            learner,
            seed,
            run.path,
            accelerator,
            trunk,
            callbacks=() if callbacks is None else callbacks(learner),
        )
        for learner in missing
    ]
    _run_all(run, tasks, data, SerialExecutor() if executor is None else executor, retries)
    return run


def _run_all(
    run: RunFolder,
    tasks: Sequence[LearnerTask],
    data: LearningData,
    executor: Executor,
    retries: int,
) -> None:
    """Run all tasks, and again those that failed; a learner's end is recorded as it comes."""
    failures: dict[Site, Exception] = {}
    for attempt in range(retries + 1):
        again = []
        for task, outcome in executor.run(tasks, data) if tasks else ():
            if not isinstance(outcome, Exception):
                failures.pop(task.learner, None)
                run.record(task.learner, outcome)
                continue
            failures[task.learner] = outcome
            run.record_failure(task.learner, outcome)
            logger.warning(
                "%s: %s failed at attempt %d of %d: %s",
                run.path,
                learner_name(task.learner),
                attempt + 1,
                retries + 1,
                outcome,
            )
            if not isinstance(outcome, CERTAIN):
                again.append(task)
        tasks = again
    if not failures:
        return
    causes = [f"{learner_name(s)}: {type(e).__name__}: {e}" for s, e in failures.items()]
    first = next(iter(failures.values()))
    if len(failures) == 1 and isinstance(first, CERTAIN):
        raise first
    if all(isinstance(error, DivergedError) for error in failures.values()):
        raise DivergedError("; ".join(str(error) for error in failures.values())) from first
    raise LearnersFailedError(
        f"{len(failures)} learners failed, and all others are finished: {'; '.join(causes)}",
        failures,
    ) from first
