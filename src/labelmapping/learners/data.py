"""The rows a learner trains on, held in memory, and the order they come in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from ..errors import ArgumentError, ArgumentTypeError

__all__ = ["EpochBatches", "LearningData"]

Batch = tuple[Tensor, Tensor]


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
        return self.inputs[rows], self.ids[rows]


def batches(inputs: Tensor, ids: Tensor, sampler: Sampler[Tensor]) -> DataLoader[Batch]:
    """A loader that yields whole batches as the sampler names them."""
    # Without a generator of its own the loader draws from the global one, and only
    # in epochs that it begins: a resumed training would go on from other draws.
    generator = torch.Generator()
    return DataLoader(_Rows(inputs, ids), sampler=sampler, batch_size=None, generator=generator)
