"""A learner's batches as Lightning asks for them: checked, bounded, the same after a stop.

Knows loaders and random states; no network and no file.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Sampler

from ..errors import ArgumentError, ArgumentTypeError
from ..nn.targets import check_ids
from .data import WATCHED_ROWS, EpochBatches, LearningSource, kept_on
from .recipe import LearnerRecipe, derive_seed

__all__ = ["TrainingBatches", "WatchedBatches", "checked", "drawing_from"]


def seed_global(seed: int) -> None:
    """Let torch, Python and numpy's global generator draw from `seed`."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - data sets of others draw from it


@contextmanager
def drawing_from(seed: int, devices: Iterable[int] = ()) -> Iterator[None]:
    """Global generators draw from `seed` in the block, and go on as before after it.

    Parameters
    ----------
    devices : iterable of int
        CUDA devices whose generators are put back too.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=list(devices)):
            seed_global(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def checked(batch: Any, n_classes: int, ignore_index: int | None = None) -> tuple[Any, Tensor]:
    """The inputs and ids of a batch.

    Parameters
    ----------
    ignore_index : int, optional
        An id that stands for none; by default there is no such id.

    Raises
    ------
    ArgumentTypeError
        It is no pair, or the ids are no int64 tensor.
    ArgumentError
        An id lies outside 0..N-1: it would train some other class without a word.
    """
    if not isinstance(batch, Sequence) or len(batch) != 2:
        size = f" of {len(batch)}" if isinstance(batch, Sequence) else ""
        raise ArgumentTypeError(
            f"a batch must be a pair (inputs, ids), got a {type(batch).__name__}{size}"
        )
    inputs, ids = batch
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or not ids.ndim:
        what = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
        raise ArgumentTypeError(f"ids of a batch must be an int64 tensor (B,), got {what}")
    known = ids if ignore_index is None else ids.masked_fill(ids == ignore_index, 0)
    check_ids("ids of a batch", known, n_classes)
    return inputs, ids


class TrainingBatches:
    """The batches of an epoch: a pass draws from the seed and the epoch alone.

    Lightning makes the first iterator of a training before it says which epoch begins, and the
    others after. So a pass does nothing before its first batch is asked for: then the samplers
    are told the epoch, global generators get its seed, and the loader is begun, worker
    processes and all. A resumed training therefore sees what an unbroken one sees.

    With several processes each takes its rows of every batch, so that all together take the
    batches of one process. They agree on the order, as long as a sampler draws it whole at its
    start; what a network draws after the first batch is each process's own, and what worker
    processes of their loaders draw is the same in each.

    Parameters
    ----------
    seed : int
        Of the learner.
    ignore_index : int
        An id that stands for none.

    Attributes
    ----------
    epoch : int
        Of the next pass.
    """

    def __init__(
        self, source: LearningSource, recipe: LearnerRecipe, seed: int, ignore_index: int
    ) -> None:
        self.source = source
        self.recipe = recipe
        self.seed = seed
        self.ignore_index = ignore_index
        self.epoch = self.rank = 0
        self.n_processes = 1
        self.device = torch.device("cpu")
        self._loader: Any = None

    def share(self, rank: int, n_processes: int, device: torch.device | None = None) -> None:
        """Take the rows of process `rank` of each batch, which trains on `device`."""
        self.rank, self.n_processes = rank, n_processes
        self.device = device or self.device
        self._loader = None

    @property
    def loader(self) -> Any:
        """The source's loader, made when it is first needed, in the process that reads it."""
        if self._loader is None:
            recipe = self.recipe
            loader = self.source.training(recipe.batch_size, recipe.steps_per_epoch, self.seed)
            if self.n_processes > 1:
                loader = _share(loader, self.rank, self.n_processes)
            self._loader = kept_on(loader, self.device)
        return self._loader

    def __len__(self) -> int:
        steps, loader = self.recipe.steps_per_epoch, self.loader
        try:
            length = len(loader)
        except TypeError:
            if steps is None:
                raise ArgumentError(
                    "steps_per_epoch must be given: the training loader has no length"
                ) from None
            return steps
        if not length:
            raise ArgumentError("the training loader must have at least one batch, got none")
        return length if steps is None else min(length, steps)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        n_steps, done = len(self), 0
        _set_epoch(self.loader, self.epoch)
        seed_global(derive_seed(self.seed, "epoch", self.epoch))
        for batch in islice(self.loader, n_steps):
            if self.rank and not done:
                seed_global(derive_seed(self.seed, "epoch", self.epoch, "rank", self.rank))
            done += 1
            yield checked(batch, self.source.n_classes, self.ignore_index)
        if done < n_steps:
            raise ArgumentError(
                f"an epoch must have {n_steps} batches, and the training loader ended after {done}"
            )


class WatchedBatches:
    """Held-out batches, as many whole ones as there are in 2,048 rows, and at least one."""

    def __init__(self, source: LearningSource, ignore_index: int) -> None:
        self.source = source
        self.ignore_index = ignore_index

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        rows = 0
        watched = self.source.watched()
        for batch in () if watched is None else watched:
            inputs, ids = checked(batch, self.source.n_classes, self.ignore_index)
            if rows and rows + len(ids) > WATCHED_ROWS:
                return
            rows += len(ids)
            yield inputs, ids


class _RowsOfProcess(Sampler[Any]):
    """A process's rows of every batch; a last one that cannot be divided is filled up."""

    def __init__(self, batches: Any, rank: int, n_processes: int) -> None:
        self.batches = batches
        self.sampler = getattr(batches, "sampler", None)  # which may want to know the epoch
        self.rank = rank
        self.n_processes = n_processes

    def set_epoch(self, epoch: int) -> None:
        if callable(told := getattr(self.batches, "set_epoch", None)):
            told(epoch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for rows in self.batches:
            missing = -len(rows) % self.n_processes
            whole = [*rows, *islice(cycle(rows), missing)] if missing else rows
            yield whole[self.rank :: self.n_processes]


def _share(loader: Any, rank: int, n_processes: int) -> Any:
    """The loader of one process's rows."""
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return loader
    slot = "sampler" if getattr(loader, "batch_sampler", None) is None else "batch_sampler"
    whole = getattr(loader, slot, None)
    if not isinstance(loader, DataLoader) or (
        slot == "sampler" and not isinstance(whole, EpochBatches)
    ):
        raise ArgumentError(
            "devices must be 1 unless the training loader is a torch DataLoader that makes "
            f"batches of rows itself, got a {type(loader).__name__}"
        )
    size = getattr(whole, "batch_size", None)
    if size is not None and size % n_processes:
        raise ArgumentError(
            f"batch_size must be divisible by the number of processes, {n_processes}; got {size}"
        )
    shared = copy.copy(loader)
    # Torch's own way to replace it makes a new loader, of which a subclass may have more to say.
    object.__setattr__(shared, slot, _RowsOfProcess(whole, rank, n_processes))
    return shared


def _set_epoch(loader: Any, epoch: int) -> None:
    """Tell the samplers of a loader which epoch begins, where they ask."""
    batches = getattr(loader, "batch_sampler", None)
    samplers = (getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    for sampler in samplers:
        if callable(told := getattr(sampler, "set_epoch", None)):
            told(epoch)
