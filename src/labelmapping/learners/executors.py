"""Runs the learners' function over the sites. So far one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytorch_lightning as pl
import torch

from ..errors import ArgumentError
from .data import LearningData
from .recipe import LearnerRecipe, Site
from .run import RunFolder
from .site import read_trunk, start_from, train_learner

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
    trunk_weights: str | Path | None = None,
) -> RunFolder:
    """Train what is missing in a run folder; finished learners keep their bytes.

    Parameters
    ----------
    learners : sequence of int or "all", optional
        Which of ``recipe.learners()``. Default all of them.
    callbacks : function of a learner, optional
        Lightning callbacks for its training.
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
        From the learner that diverged; the ones before it are finished and stay.
    """
    wanted = recipe.learners() if learners is None else tuple(learners)
    unknown = [learner for learner in wanted if learner not in recipe.learners()]
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
    run = RunFolder.create(run_folder, recipe, seed, data)
    for learner in wanted:
        if run.is_recorded(learner):
            logger.info("%s: %s is finished", run.path, learner)
            run.check_weights(learner)
            continue
        report = train_learner(
            recipe,
            learner,
            seed,
            data,
            run.path,
            accelerator=accelerator,
            callbacks=() if callbacks is None else callbacks(learner),
            trunk=trunk,
        )
        run.record(learner, report)
    return run
