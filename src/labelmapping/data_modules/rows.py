"""What the ready-made data modules have in common: numbered rows, parts of them, loaders.

Knows no file format. A module says how rows are read; which are held out, in what order they
come and what a run is recognised by is said here.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..arguments import as_integer
from ..errors import ArgumentError, ArgumentTypeError, DataNotFoundError
from ..learners.data import EpochBatches

__all__ = ["LearningRows", "Rows", "RowsModule", "TrainingRows", "find_files", "warn_of_unseen"]

SHOWN = 5
# The id of a label of a test that training never saw.
UNSEEN = -1


class Rows(Protocol):
    """Rows that are read where they lie: numbers of some to a batch of them."""

    def __len__(self) -> int: ...
    def __getitem__(self, numbers: Tensor) -> Any: ...


class TrainingRows(Rows, Protocol):
    """Rows that can be told from others."""

    def contents(self) -> Iterable[bytes | memoryview]:
        """What the rows are recognised by, beside their ids."""


@dataclass(frozen=True, eq=False)
class LearningRows:
    """The rows of a training: a batch is (inputs, int64 ids).

    Attributes
    ----------
    labels : list of str
        In the order of the class ids.
    rows : TrainingRows
    ids : int64 array (n,)
        The class of each row.
    train, held_out : int64 array
        Numbers of rows.
    """

    labels: list[str]
    rows: TrainingRows
    ids: NDArray[np.int64] = field(repr=False)
    train: NDArray[np.int64] = field(repr=False)
    held_out: NDArray[np.int64] = field(repr=False)


class RowsModule(pl.LightningDataModule):
    """Base of the data modules: subclasses read, this one splits and deals rows out.

    Training batches are drawn by `EpochBatches` from the seed and the epoch, and are always
    full; an epoch is as many as it takes for every row to come. Held-out rows come in an order
    drawn from the seed, the same each time, so that any first part is a fair sample; rows
    to test and to predict come as they lie in the files.
    """

    def __init__(self, held_out: float, batch_size: int, seed: int, num_workers: int) -> None:
        super().__init__()
        if isinstance(held_out, bool) or not isinstance(held_out, (int, float)):
            raise ArgumentTypeError(f"held_out must be a number, got {held_out!r}")
        if not 0.0 <= held_out < 1.0:
            raise ArgumentError(f"held_out must lie in [0, 1), got {held_out}")
        self.held_out = float(held_out)
        self.batch_size = as_integer("batch_size", batch_size, 1)
        self.seed = as_integer("seed", seed, 0)
        self.num_workers = as_integer("num_workers", num_workers, 0)
        self._labels: list[str] | None = None
        self._learning: LearningRows | None = None
        self._answering: dict[str, Rows] = {}
        self._watched: DataLoader[Any] | None = None

    @abstractmethod
    def _read_learning(self) -> LearningRows:
        """The rows to train on and to hold out."""

    @abstractmethod
    def _read_test(self) -> tuple[list[str], Rows]:
        """The labels of training, and rows whose ids are -1 where a label is none of them."""

    @abstractmethod
    def _read_predict(self) -> tuple[list[str] | None, Rows]:
        """Rows without ids; the labels of training where they were read for that."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """The settings, as JSON values, that decide what a row is and which are trained on."""

    def setup(self, stage: str | None = None) -> None:
        """Read what a stage needs: "fit" (also None), "validate", "test" or "predict"."""
        stage = {None: "fit", "validate": "fit"}.get(stage, stage)
        if stage == "fit" and self._learning is None:
            learning = self._read_learning()
            if len(learning.train) < 2:
                raise ArgumentError(
                    f"{type(self).__name__} must find at least 2 rows to train on, "
                    f"got {len(learning.train)}"
                )
            self._learning, self._labels = learning, learning.labels
        elif stage == "test" and "test" not in self._answering:
            self._labels, self._answering["test"] = self._read_test()
        elif stage == "predict" and "predict" not in self._answering:
            labels, self._answering["predict"] = self._read_predict()
            self._labels = labels or self._labels

    @property
    def labels(self) -> list[str]:
        """The label of each class id, after ``setup("fit")`` or ``setup("test")``."""
        if self._labels is None:  # what getattr and hasattr ask for
            raise AttributeError('labels are there after setup("fit") or setup("test")')
        return self._labels

    @property
    def learning(self) -> LearningRows:
        """The rows of the training, after ``setup("fit")``."""
        if self._learning is None:
            raise ArgumentError('rows to train on are there after setup("fit")')
        return self._learning

    def class_counts(self) -> Tensor:
        """How often each class occurs in the training rows; int64 (N,)."""
        learning = self.learning
        counts = np.bincount(learning.ids[learning.train], minlength=len(learning.labels))
        return torch.from_numpy(counts.astype(np.int64, copy=False))

    def fingerprint(self) -> str:
        """Checksum of the settings that decide batches, of the labels and of the rows.

        Where the files lie is no part of it, nor are files to test and to predict.
        """
        settings = {
            "module": type(self).__name__,
            "held_out": self.held_out,
            "batch_size": self.batch_size,
            "seed": self.seed,
            **self._settings(),
        }
        learning = self.learning
        head = json.dumps([settings, learning.labels, len(learning.ids)], sort_keys=True)
        digest = hashlib.sha256(head.encode())
        for part in (learning.ids, learning.train, learning.held_out):
            digest.update(part.data)
        for content in learning.rows.contents():
            digest.update(content)
        return digest.hexdigest()

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches (inputs, ids), drawn from the seed and the epoch that `set_epoch` names."""
        train = self.learning.train
        sampler = EpochBatches(len(train), self.batch_size, None, self.seed)
        return self._loader(_Part(self.learning.rows, torch.from_numpy(train)), sampler)

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches (inputs, ids) of the held-out rows; an empty list where there are none."""
        held_out = self.learning.held_out
        if not len(held_out):
            return []
        if self._watched is None:  # kept, so that its worker processes live on between epochs
            order = np.random.default_rng([self.seed, 1]).permutation(held_out)
            part = _Part(self.learning.rows, torch.from_numpy(order))
            self._watched = self._in_order(part)
        return self._watched

    def test_dataloader(self) -> DataLoader[Any]:
        """Batches (inputs, ids) in the order of the files; ids of labels never trained are -1."""
        return self._answers("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """Batches of inputs in the order of the files."""
        return self._answers("predict")

    def _answers(self, stage: str) -> DataLoader[Any]:
        if stage not in self._answering:
            raise ArgumentError(f'rows to {stage} are there after setup("{stage}")')
        return self._in_order(self._answering[stage])

    def _in_order(self, rows: Rows) -> DataLoader[Any]:
        return self._loader(rows, torch.split(torch.arange(len(rows)), self.batch_size))

    def _loader(self, rows: Rows, sampler: Iterable[Tensor]) -> DataLoader[Any]:
        # As in `learners.data.batches`: a generator of its own leaves the global one alone.
        dataset: Any = rows
        return DataLoader(
            dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            generator=torch.Generator(),
        )

    def _stratified(self, ids: NDArray[np.int64], n_classes: int) -> tuple[NDArray[np.int64], ...]:
        """Row numbers to train on and to hold out, a share of every class that can spare it.

        The share of all rows is met to the row as far as each class of c rows can keep one:
        classes take turns in an order drawn from the seed, and a share of less than a row is
        carried on to the next. A class of one row stays in training, with one warning for all.
        """
        counts = np.bincount(ids, minlength=n_classes)
        alone = int((counts == 1).sum())
        if alone and self.held_out:
            warnings.warn(
                f"{alone} of {n_classes} classes have a single row; it is trained on and none of "
                "theirs is held out",
                stacklevel=4,
            )
        random = np.random.default_rng([self.seed, 0])
        turn = random.permutation(n_classes)
        due = np.rint(np.cumsum(np.where(counts > 1, counts * self.held_out, 0.0)[turn]))
        quota = np.empty(n_classes, np.int64)
        quota[turn] = np.diff(due, prepend=0.0)
        quota = np.minimum(quota, np.maximum(counts - 1, 0))
        order = random.permutation(len(ids))
        order = order[np.argsort(ids[order], kind="stable")]
        rank = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = rank < quota[ids[order]]
        return np.sort(order[~chosen]), np.sort(order[chosen])


class _Part(Dataset[Any]):
    """Some of the rows, numbered from 0."""

    def __init__(self, rows: Rows, numbers: Tensor) -> None:
        self.rows, self.numbers = rows, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, places: Tensor) -> Any:
        return self.rows[self.numbers[places]]


def find_files(name: str, files: str | Sequence[str] | None) -> list[str]:
    """Paths that `files` names: files, or patterns with ``*``, ``?``, ``**``; each once.

    Patterns give their files in ascending order. A name that is a file is taken as it is.

    Raises
    ------
    DataNotFoundError
        A file is missing, or a pattern matches none.
    ArgumentError
        A folder, or no file is named.
    """
    names = [files] if isinstance(files, (str, os.PathLike)) else files
    if not names:
        raise ArgumentError(f"{name} must name at least one file, got {files!r}")
    found: dict[str, None] = {}
    for one in names:
        if not isinstance(one, (str, os.PathLike)):
            raise ArgumentTypeError(
                f"{name} must be paths, got {one!r} of type {type(one).__name__}"
            )
        path = os.fspath(one)
        if os.path.isdir(path):
            raise ArgumentError(f"{name} must be files, and {path} is a folder; say {path}/*")
        if os.path.exists(path):
            found[path] = None
            continue
        matches = [p for p in sorted(glob.glob(path, recursive=True)) if os.path.isfile(p)]
        if not matches:
            raise DataNotFoundError(f"{name} must be there, no file is called or matches {path}")
        found |= dict.fromkeys(matches)
    return list(found)


def warn_of_unseen(labels: Iterable[str], rows: int) -> None:
    """One warning where a test has labels that training never saw."""
    unseen = list(labels)
    if rows:
        shown = ", ".join(repr(label) for label in unseen[:SHOWN])
        more = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
        warnings.warn(
            f"{rows} rows of the test have labels that were not trained on, and count as "
            f"errors: {shown}{more}",
            stacklevel=4,
        )
