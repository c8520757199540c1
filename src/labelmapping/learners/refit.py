"""A code learnt from the network that is being trained: a first phase, then its features.

After re-partitioning in IRLI (Gupta et al., 2021): symbols that are natural in feature space
are what heads can separate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from ..arguments import as_integer
from ..errors import ArgumentError
from ..mappings import LabelMapping, LearnedMapping
from ..mappings.prototypes import ClassStatistics, class_statistics
from ..storage import as_folder
from .data import LearningSource
from .ensemble import Ensemble
from .recipe import LearnerRecipe, Site
from .run import RunFolder
from .site import answering_device, weights_file
from .training import train

__all__ = ["feature_statistics", "train_with_refit"]

ROWS = 1024


def feature_statistics(
    run: RunFolder,
    data: LearningSource,
    *,
    trunk_class: Callable[..., nn.Module] | None = None,
    device: str = "cpu",
) -> ClassStatistics:
    """Each class's mean feature vector, and how rows scatter about it, in a finished joint run.

    Over the training rows; features are the trunk's, (B, out_features), computed on `device`.
    """
    ensemble = Ensemble.load(run.path, learners=["all"], trunk_class=trunk_class, device=device)
    trunk = ensemble.trunk

    @torch.no_grad()
    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, ids in data.rows(ROWS):
            features, known = trunk(inputs.to(device)).cpu(), ids >= 0
            yield features.reshape(len(features), -1).float()[known], ids[known]

    return class_statistics(batches(), data.n_classes)


def train_with_refit(
    recipe: LearnerRecipe,
    data: LearningSource,
    run_folder: str | Path,
    *,
    first_epochs: int,
    alphabet_size: int | None = None,
    seed: int = 0,
    accelerator: str = "auto",
    callbacks: Callable[[Site], Sequence[pl.Callback]] | None = None,
) -> RunFolder:
    """Train for a while, learn the code anew from the trunk's own features, and train on.

    The first phase is ``run_folder/first``: the recipe with its mapping for `first_epochs`.
    Then the class means of the trunk's features, measured by how rows scatter about them, are
    the prototypes of a new `LearnedMapping` with as many sites and the same dimension. The
    second phase, ``run_folder/second``, keeps the trunk and trains it on with new heads for
    the rest of the epochs, with a schedule of its own. Interrupted, it goes on like `train`;
    a second phase that was begun keeps its code.

    Parameters
    ----------
    run_folder : str, Path or UPath
        As of `train`.
    recipe : LearnerRecipe
        Joint. `epochs` counts both phases; `keep_epochs` count from the start.
    first_epochs : int
        At least 1 and less than ``recipe.epochs``.
    alphabet_size : int, optional
        Of the new code. Default: the largest of the old one.

    Returns
    -------
    RunFolder
        Of the second phase.

    Raises
    ------
    ArgumentError
        The recipe is not joint, or `first_epochs` leaves no second phase.
    """
    first_epochs = as_integer("first_epochs", first_epochs, 1)
    if first_epochs >= recipe.epochs:
        raise ArgumentError(
            f"first_epochs must be below the {recipe.epochs} epochs of the recipe, "
            f"got {first_epochs}"
        )
    if not recipe.joint:
        raise ArgumentError("recipe must be joint: its one trunk gives the features")
    folder = as_folder(run_folder)
    begun = train(
        replace(
            recipe,
            epochs=first_epochs,
            keep_epochs=tuple(e for e in recipe.keep_epochs if e <= first_epochs),
        ),
        data,
        folder / "first",
        seed=seed,
        accelerator=accelerator,
        callbacks=callbacks,
    )
    size = alphabet_size or max(recipe.mapping.alphabet_sizes)
    mapping = _known_mapping(folder / "second", begun, recipe.mapping, size)
    if mapping is None:
        features = feature_statistics(begun, data, device=answering_device(accelerator))
        mapping = LearnedMapping.fit(
            features.means,
            recipe.mapping.n_sites,
            covariance=features.covariance,
            alphabet_size=size,
            dimension=recipe.mapping.dimension,
            seed=seed,
        )
    return train(
        replace(
            recipe,
            mapping=mapping,
            epochs=recipe.epochs - first_epochs,
            keep_epochs=tuple(e - first_epochs for e in recipe.keep_epochs if e > first_epochs),
            trunk_sha256=begun.check_weights("all"),
        ),
        data,
        folder / "second",
        seed=seed,
        accelerator=accelerator,
        callbacks=callbacks,
        trunk_weights=weights_file(begun.learner_folder("all")),
    )


def _known_mapping(
    place: Path, first: RunFolder, wanted: LabelMapping, alphabet_size: int
) -> LabelMapping | None:
    """The code of a second phase that went on from this first one, or None.

    Learnt once more it could be another, with other threads or on another machine.
    """
    if not (place / "run.json").exists():
        return None
    recipe = RunFolder.load(place).recipe
    known = recipe.mapping
    same = (known.n_sites, known.dimension) == (wanted.n_sites, wanted.dimension)
    if not same or max(known.alphabet_sizes) != alphabet_size:
        return None
    return known if recipe.trunk_sha256 == first.check_weights("all") else None
