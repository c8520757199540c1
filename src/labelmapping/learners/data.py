"""The rows a learner trains on: what any source of them offers, those in memory, their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from ..errors import ArgumentError, ArgumentTypeError

__all__ = ["WATCHED_ROWS", "EpochBatches", "LearningData", "LearningSource"]

Batch = tuple[Tensor, Tensor]
# Held-out rows looked at after each epoch, to see a learner that does not learn.
WATCHED_ROWS = 2048


class LearningSource(Protocol):
    """What learners are trained on: rows in memory (`LearningData`), or a `ModuleData`.

    Batches are pairs (inputs, int64 ids). Whoever iterates a loader checks them.
    """

    @property
    def labels(self) -> Sequence[str]:
        """The label of each class id."""
        ...

    @property
    def n_classes(self) -> int:
        """N, the number of labels."""
        ...

    def class_counts(self) -> Tensor:
        """How often each class occurs in the training rows; int64 (N,)."""
        ...

    def fingerprint(self) -> str:
        """Checksum that a run belongs to."""
        ...

    def rows(self, batch_size: int) -> Iterator[tuple[Any, Tensor]]:
        """The training rows once, in batches of any size; draws nothing from global generators."""
        ...

    def training(self, batch_size: int, steps: int | None, seed: int) -> Iterable[Any]:
        """A loader of training batches: a pass is an epoch."""
        ...

    def watched(self) -> Iterable[Any] | None:
        """A loader of held-out batches, of which 2,048 rows are looked at after each epoch."""
        ...


@dataclass(frozen=True, eq=False)
class LearningData:
    """Training rows, and held-out rows that are watched but never trained on.

    Attributes
    ----------
    train_inputs : Tensor, shape (n, ...)
        Of any dtype that the trunk takes.
    train_ids : int64 Tensor, shape (n,)
        Class ids.
    held_out_inputs, held_out_ids : Tensor
        The same for the held-out rows.
    labels : sequence of str
        The label of each class id.
    """

    train_inputs: Tensor
    train_ids: Tensor
    held_out_inputs: Tensor
    held_out_ids: Tensor
    labels: Sequence[str] = field(repr=False)

    def __post_init__(self) -> None:
        for label in self.labels:
            if not isinstance(label, str):
                raise ArgumentTypeError(
                    f"labels must be strings, got {label!r} of type {type(label).__name__}"
                )
        for name in ("train", "held_out"):
            inputs, ids = getattr(self, f"{name}_inputs"), getattr(self, f"{name}_ids")
            for field_name, value in ((f"{name}_inputs", inputs), (f"{name}_ids", ids)):
                if not isinstance(value, Tensor) or value.device.type != "cpu" or not value.ndim:
                    raise ArgumentTypeError(
                        f"{field_name} must be a torch tensor of rows on the CPU, "
                        f"got {type(value).__name__}"
                    )
            if ids.dtype != torch.int64 or ids.ndim != 1:
                raise ArgumentTypeError(
                    f"{name}_ids must be int64 of shape (n,), got {ids.dtype} of shape "
                    f"{tuple(ids.shape)}"
                )
            if len(inputs) != len(ids):
                raise ArgumentError(
                    f"{name}_ids must have one id a row, {len(inputs)}; got {len(ids)}"
                )
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(self.labels):
                raise ArgumentError(
                    f"{name}_ids must lie in 0..{len(self.labels) - 1}, "
                    f"got {int(ids.min())}..{int(ids.max())}"
                )
        if len(self.train_ids) < 2:
            raise ArgumentError(
                f"train_inputs must have at least 2 rows, got {len(self.train_ids)}"
            )

    @property
    def n_classes(self) -> int:
        """N, the number of labels."""
        return len(self.labels)

    def class_counts(self) -> Tensor:
        """How often each class occurs in the training rows; int64 (N,)."""
        return torch.bincount(self.train_ids, minlength=self.n_classes)

    def rows(self, batch_size: int) -> Iterator[Batch]:
        """The training rows once, in order."""
        return zip(
            torch.split(self.train_inputs, batch_size),
            torch.split(self.train_ids, batch_size),
            strict=True,
        )

    def training(self, batch_size: int, steps: int | None, seed: int) -> DataLoader[Batch]:
        """Batches drawn from `seed` and the epoch; a pass is an epoch."""
        sampler = EpochBatches(len(self.train_ids), batch_size, steps, seed)
        return batches(self.train_inputs, self.train_ids, sampler)

    def watched(self) -> DataLoader[Batch] | None:
        """The first 2,048 held-out rows in order; None where there are none."""
        rows = torch.arange(min(WATCHED_ROWS, len(self.held_out_ids)))
        if not len(rows):
            return None
        return batches(self.held_out_inputs, self.held_out_ids, torch.split(rows, 512))

    def fingerprint(self) -> str:
        """Checksum of all rows, ids and labels: a run belongs to one."""
        digest = hashlib.sha256()
        for name in ("train_inputs", "train_ids", "held_out_inputs", "held_out_ids"):
            tensor = getattr(self, name).contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.view(torch.uint8).numpy().data if tensor.numel() else b"")
        digest.update("\0".join(self.labels).encode())
        return digest.hexdigest()


class EpochBatches(Sampler[Tensor]):
    """Batches of row numbers, drawn from the seed and the epoch's number alone.

    A resumed training therefore sees the rows that an unbroken one sees. An
    epoch takes as many permutations of the rows as its steps need, one behind
    the other, so a batch is always full.

    Parameters
    ----------
    n_rows, batch_size : int
        A batch larger than the set is cut to it.
    steps : int, optional
        Batches an epoch. Default: just enough for every row.
    seed : int
    """

    def __init__(self, n_rows: int, batch_size: int, steps: int | None, seed: int) -> None:
        self.n_rows = n_rows
        self.batch_size = min(batch_size, n_rows)
        self.steps = -(-n_rows // self.batch_size) if steps is None else steps
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this at each epoch's start."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Tensor]:
        random = np.random.default_rng([self.seed, self.epoch])
        size = self.steps * self.batch_size
        rounds = [random.permutation(self.n_rows) for _ in range(-(-size // self.n_rows))]
        yield from torch.split(torch.from_numpy(np.concatenate(rounds)[:size]), self.batch_size)


class _Rows(Dataset[Batch]):
    """Row numbers of a batch to its inputs and ids."""

    def __init__(self, inputs: Tensor, ids: Tensor) -> None:
        self.inputs, self.ids = inputs, ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: Tensor) -> Batch:
        # Indexing with brackets takes seven times as long for images of 139 pixels.
        inputs = self.inputs.index_select(0, rows.to(self.inputs.device))
        return inputs, self.ids.index_select(0, rows)


def batches(inputs: Tensor, ids: Tensor, sampler: Iterable[Tensor]) -> DataLoader[Batch]:
    """A loader that yields whole batches as the sampler names them."""
    # Without a generator of its own the loader draws from the global one, and only
    # in epochs that it begins: a resumed training would go on from other draws.
    generator = torch.Generator()
    return DataLoader(_Rows(inputs, ids), sampler=sampler, batch_size=None, generator=generator)


def kept_on(loader: Any, device: torch.device) -> Any:
    """The loader with its inputs moved to a GPU once, instead of batch by batch.

    That is of rows in memory, where they take at most a quarter of what is free on the GPU; any
    other loader is given back as it is. Ids stay here, where they are checked.
    """
    rows = getattr(loader, "dataset", None)
    if not isinstance(rows, _Rows) or 4 * rows.inputs.nbytes > _free_bytes(device):
        return loader
    return batches(rows.inputs.to(device), rows.ids, loader.sampler)


def _free_bytes(device: torch.device) -> int:
    """Of a GPU's own memory; 0 where the inputs lie where they are needed."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
