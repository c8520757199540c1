"""Rows of a LightningDataModule, the user's or a ready-made one, for learners."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..arguments import as_integer
from ..errors import ArgumentError, ArgumentTypeError
from .loaders import checked, drawing_from
from .recipe import load_class

__all__ = ["ModuleData"]

# What a trainer calls on a data module that it holds itself.
TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
# The head's default for targets that are left out.
IGNORED = -100


class ModuleData:
    """Training data that a LightningDataModule reads, wherever learners are trained.

    Each process that trains makes the module itself, then calls ``prepare_data()`` and
    ``setup("fit")``, which must do no harm when called again. Only the class's path and its
    options travel to workers, never rows. After the setup the module must have

    - ``labels``: strings in the order of the class ids; or ``n_classes``: an int, and the
      labels are "0", "1", ...
    - ``train_dataloader()``: batches (inputs, int64 ids) of any shape that the trunk takes;
      tuples and dicts of tensors too. An id of -100 stands for no class. Without a length (of an
      ``IterableDataset``) the recipe needs `steps_per_epoch`.
    - optionally ``val_dataloader()``, of which 2,048 rows are watched; ``class_counts()``,
      int64 (N,), else one pass counts where a head asks; ``fingerprint()``, a str.

    The size of batches is the loader's: the recipe's `batch_size` is not used.

    Parameters
    ----------
    module : class, or "package.module:Class"
        A subclass of LightningDataModule; from either of Lightning's packages.
    options : mapping, optional
        Keyword arguments as JSON values.
    fingerprint : str, optional
        What a run is recognised by, instead of the module's own. Without either it is a checksum
        of class path, options and labels, which sees neither rows nor code: whoever changes
        them says so here, or gets a run of both.

    Notes
    -----
    A training that was stopped goes on with the rows it would have had: at each epoch's start
    the samplers' `set_epoch` is called and the global generators of torch, numpy and Python are
    seeded from the learner's seed and the epoch, so a plain ``DataLoader(shuffle=True)`` is
    enough, with or without worker processes. That cannot hold for what keeps a random state of
    its own from epoch to epoch: a ``generator=`` that shuffles, ``persistent_workers`` beside
    anything random, a sampler or a data set with its own generator and no `set_epoch`.
    Construction and setup draw from a fixed seed, so splits are the same in every process.

    A batch of one row cannot be trained where the network has batch norm over rows: give the
    loader ``drop_last=True`` or another batch size. With several processes each reads its rows of
    every batch, and an ``IterableDataset`` has to divide its rows itself.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        When it is made: `options` are no JSON values. When it is first read: the class cannot be
        imported, `options` do not fit it, or it lacks what is said above.
    """

    def __init__(
        self,
        module: Callable[..., Any] | str,
        options: Mapping[str, Any] | None = None,
        *,
        fingerprint: str | None = None,
    ) -> None:
        self.module = module
        self.options = dict(options or {})
        self._given_fingerprint = fingerprint
        if not isinstance(fingerprint, str | None):
            raise ArgumentTypeError(f"fingerprint must be a str, got {fingerprint!r}")
        try:
            json.dumps(self.options, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(f"options must be JSON values: {error}") from error
        self._forget()

    def _forget(self) -> None:
        self._made: Any = None
        self._labels: list[str] | None = None
        self._counts: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The class and its options alone: what a worker makes the module of."""
        kept = ("module", "options", "_given_fingerprint")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __repr__(self) -> str:
        return f"ModuleData({self.module!r}, {self.options!r})"

    @property
    def labels(self) -> Sequence[str]:
        """The label of each class id."""
        if self._labels is None:
            self._labels = self.labels_of(self._read())
            if self._labels is None:
                raise ArgumentError(
                    f'{self._name} must have labels or n_classes after setup("fit"), got neither'
                )
        return self._labels

    @property
    def n_classes(self) -> int:
        """N, the number of labels."""
        return len(self.labels)

    def class_counts(self) -> Tensor:
        """How often each class occurs: the module's own, else counted by one pass; int64 (N,)."""
        if self._counts is None:
            self._counts = self._count()
        return self._counts

    def fingerprint(self) -> str:
        """Given, or the module's, or a checksum of class path, options and labels."""
        if self._given_fingerprint is not None:
            return self._given_fingerprint
        module = self._read()
        if callable(getattr(module, "fingerprint", None)):
            with self._calling("fingerprint"):
                found = module.fingerprint()
            if not isinstance(found, str):
                raise ArgumentTypeError(f"{self._name}.fingerprint() must be a str, got {found!r}")
            return found
        kind = type(module)
        content = [f"{kind.__module__}:{kind.__qualname__}", self.options, list(self.labels)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def rows(self, batch_size: int) -> Iterator[tuple[Any, Tensor]]:
        """One pass over the training loader, under a fixed seed; its batches are its own.

        Global generators are put back at its end.
        """
        with drawing_from(0):
            loader = self.training(batch_size, None, 0)
            try:
                len(loader)  # type: ignore[arg-type]
            except TypeError:
                raise ArgumentError(
                    f"{self._name} must have a training loader with a length, or class_counts() if "
                    "it is they that a pass is for"
                ) from None
            for batch in loader:
                yield checked(batch, self.n_classes, IGNORED)

    def training(self, batch_size: int, steps: int | None, seed: int) -> Iterable[Any]:
        """The module's ``train_dataloader()``, made under `seed`; the module sets batches."""
        module = self._read()
        with drawing_from(seed), self._calling("train_dataloader"):
            loader: Iterable[Any] = module.train_dataloader()
        if not isinstance(loader, Iterable) or isinstance(loader, Iterator):
            raise ArgumentTypeError(
                f"{self._name}.train_dataloader() must be a loader that can be passed over again, "
                f"got a {type(loader).__name__}"
            )
        return loader

    def watched(self) -> Iterable[Any] | None:
        """The module's ``val_dataloader()``; None where it has none."""
        module = self._read()
        if not _is_own(module, "val_dataloader"):
            return None
        with drawing_from(0), self._calling("val_dataloader"):
            loader: Iterable[Any] | None = module.val_dataloader()
        return loader

    @property
    def _name(self) -> str:
        return self.module if isinstance(self.module, str) else self.module.__qualname__

    @contextmanager
    def _calling(self, method: str) -> Iterator[None]:
        """What goes wrong is the module's own error, with a note of where."""
        try:
            yield
        except Exception as error:
            error.add_note(f"in {self._name}.{method}()")
            raise

    def _read(self) -> Any:
        """The module, made and set up when it is first needed."""
        if self._made is None:
            self._made = self.module_for("fit")
        return self._made

    def module_for(self, stage: str) -> Any:
        """The module anew, set up for a stage ("fit", "test", "predict") under the fixed seed.

        A split that ``setup`` draws is therefore the one that was trained with.
        """
        made = self._make()
        with drawing_from(0):
            with self._calling("prepare_data"):
                made.prepare_data()
            with self._calling("setup"):
                made.setup(stage)
        return made

    def _make(self) -> Any:
        kind = load_class(self.module, "module") if isinstance(self.module, str) else self.module
        try:
            inspect.signature(kind).bind(**self.options)
        except TypeError as error:
            raise ArgumentError(f"options of {self._name}: {error}") from error
        with drawing_from(0), self._calling("__init__"):
            made = kind(**self.options)
        for method in ("prepare_data", "setup", "train_dataloader"):
            if not callable(getattr(made, method, None)):
                raise ArgumentTypeError(
                    f"module must be a LightningDataModule, and {self._name} has no {method}()"
                )
        for hook in TRANSFER_HOOKS:
            if _is_own(made, hook):
                raise ArgumentError(
                    f"{self._name} must not have its own {hook}(), which would not be called: "
                    "do it in the data set, the collate function or the trunk"
                )
        return made

    def labels_of(self, module: Any) -> list[str] | None:
        """The labels that a module has, checked; "0", "1", ... of one with a number of classes."""
        labels = getattr(module, "labels", None)
        if labels is None:
            n_classes = getattr(module, "n_classes", None)
            if n_classes is None:
                return None
            return [str(i) for i in range(as_integer(f"{self._name}.n_classes", n_classes, 1))]
        if isinstance(labels, str):
            raise ArgumentTypeError(
                f"{self._name}.labels must be many strings, got one: {labels!r}"
            )
        for label in labels:
            if not isinstance(label, str):
                raise ArgumentTypeError(
                    f"{self._name}.labels must be strings, got {label!r} of type "
                    f"{type(label).__name__}"
                )
        return [str(label) for label in labels]

    def _count(self) -> Tensor:
        module = self._read()
        if callable(getattr(module, "class_counts", None)):
            with drawing_from(0), self._calling("class_counts"):
                counts = torch.as_tensor(module.class_counts())
            if counts.shape != (self.n_classes,) or counts.dtype != torch.int64:
                raise ArgumentError(
                    f"{self._name}.class_counts() must be int64 of shape ({self.n_classes},), "
                    f"got {counts.dtype} of shape {tuple(counts.shape)}"
                )
            return counts
        counts = torch.zeros(self.n_classes, dtype=torch.int64)
        for _, ids in self.rows(1):
            counts += torch.bincount(ids[ids != IGNORED], minlength=self.n_classes)
        return counts


def _is_own(module: Any, method: str) -> bool:
    """Whether a data module has a method of its own, and not only Lightning's."""
    found = getattr(type(module), method, None)
    package = getattr(found, "__module__", "").partition(".")[0]
    return found is not None and package not in {"pytorch_lightning", "lightning"}
