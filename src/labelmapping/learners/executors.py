"""Runs the learners' function over the sites. So far one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytorch_lightning as pl

from .data import LearningData
from .recipe import LearnerRecipe, Site
from .run import RunFolder
from .site import train_learner

__all__ = ["train"]

logger = logging.getLogger(__name__)


def train(
    recipe: LearnerRecipe,
    data: LearningData,
    run_folder: str | Path,
    *,
    seed: int = 0,
    learners: Sequence[Site] | None = None,
    accelerator: str = "auto",
    callbacks: Callable[[Site], Sequence[pl.Callback]] | None = None,
) -> RunFolder:
    """Train what is missing in a run folder; finished learners keep their bytes.

    Parameters
    ----------
    learners : sequence of int or "all", optional
        Which of ``recipe.learners()``. Default all of them.
    callbacks : function of a learner, optional
        Lightning callbacks for its training.

    Raises
    ------
    RunMismatchError
        The folder was made with other settings or data, or finished weights are altered.
    DivergedError
        From the learner that diverged; the ones before it are finished and stay.
    """
    run = RunFolder.create(run_folder, recipe, seed, data)
    for learner in recipe.learners() if learners is None else learners:
        if learner in run.finished():
            logger.info("%s: %s is finished", run.path, learner)
            run.check_weights(learner)
        report = train_learner(
            recipe,
            learner,
            seed,
            data,
            run.path,
            accelerator=accelerator,
            callbacks=() if callbacks is None else callbacks(learner),
        )
        run.record(learner, report)
    return run
