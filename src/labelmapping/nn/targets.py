"""Targets of a loss: ids checked before any kernel sees them, rows left out, weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ..arguments import as_integer, check_choice
from ..errors import ArgumentError, ArgumentTypeError

__all__ = [
    "Targets",
    "as_int64",
    "check_class_numbers",
    "check_ids",
    "check_reduction",
    "checked_ids",
]

REDUCTIONS = ("mean", "sum", "none")


def as_int64(name: str, ids: Tensor) -> Tensor:
    """Integers of any width as int64, before anything is compared with them.

    Torch wraps the other side of a comparison into a narrow type: to a uint8
    tensor -100 is 156.

    Raises
    ------
    ArgumentTypeError
        `ids` is a float, complex or bool tensor.
    """
    if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
        raise ArgumentTypeError(f"{name} must be integers, got {ids.dtype}")
    return ids.long()


def check_ids(name: str, ids: Tensor, n_classes: int) -> None:
    """Refuse ids that are no integers or lie outside 0..n_classes-1, before any kernel sees them.

    An unchecked id has a legal residue at every site: it would train, or embed,
    some other class without a word.

    Raises
    ------
    ArgumentTypeError
        `ids` is a float, complex or bool tensor.
    ArgumentError
        With the first bad value, its place and the range.
    """
    ids = as_int64(name, ids)
    if ids.numel() == 0:
        return
    low, high = torch.aminmax(ids)
    if int(low) >= 0 and int(high) < n_classes:
        return
    place = torch.nonzero((ids < 0) | (ids >= n_classes))[0]
    where = ", ".join(str(int(i)) for i in place)
    found = f"{name}[{where}] is" if where else "got"
    raise ArgumentError(
        f"{name} must lie in 0..{n_classes - 1} (ids are 0-based, {n_classes} in all); "
        f"{found} {int(ids[tuple(place)])}"
    )


@torch.library.custom_op("labelmapping::checked_ids", mutates_args=())
def _checked(ids: Tensor, name: str, n_classes: int) -> Tensor:
    check_ids(name, ids, n_classes)
    return ids.clone()  # an operator may not give back what it was given


@_checked.register_fake
def _(ids: Tensor, name: str, n_classes: int) -> Tensor:
    return torch.empty_like(ids)


def checked_ids(name: str, ids: Tensor, n_classes: int) -> Tensor:
    """The int64 ids, once `check_ids` has seen them; one operator in a compiled graph.

    The check reads the ids on the host, so it waits for a GPU.
    """
    if torch.compiler.is_compiling():
        return cast(Tensor, _checked(ids, name, n_classes))
    check_ids(name, ids, n_classes)
    return ids


def check_class_numbers(name: str, values: Sequence[float] | Tensor, n_classes: int) -> Tensor:
    """A number for each class, float64 (N,); refused where one is negative, not finite or missing.

    Raises
    ------
    ArgumentError
    """
    numbers = torch.as_tensor(values, dtype=torch.float64)
    if numbers.shape != (n_classes,):
        raise ArgumentError(f"{name} must be {n_classes} numbers, got shape {tuple(numbers.shape)}")
    bad = torch.nonzero(~(torch.isfinite(numbers) & (numbers >= 0)))
    if len(bad):
        place = int(bad[0])
        raise ArgumentError(
            f"{name} must be finite and at least 0, {name}[{place}] is {numbers[place].item()}"
        )
    return numbers


def _check_weights(name: str, values: Tensor | None) -> None:
    """Refuse weights below 0 or not finite; not in a compiled graph, which cannot ask."""
    if values is None or torch.compiler.is_compiling() or values.numel() == 0:
        return
    low, high = torch.aminmax(values.detach())
    if not (float(low) >= 0 and float(high) < math.inf):
        raise ArgumentError(
            f"{name} must be finite and at least 0, got values from {float(low)} to {float(high)}"
        )


@dataclass(frozen=True)
class Targets:
    """Targets as rows of entries: one entry a row, or several true classes.

    Attributes
    ----------
    ids : int64 Tensor (R, T)
        Class ids; 0 where an entry is left out.
    kept : bool Tensor (R, T)
    weights : float Tensor (R, T)
        What an entry counts in the loss: 0 where it is left out, class weight times sample
        weight over the row's number of kept entries elsewhere.
    shape : tuple of int
        Of the target as it was given.
    rows : tuple of int
        Leading shape of the features.
    """

    ids: Tensor
    kept: Tensor
    weights: Tensor
    shape: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(
        cls,
        target: Tensor,
        rows: tuple[int, ...],
        n_classes: int,
        dtype: torch.dtype,
        *,
        ignore_index: int = -100,
        weight: Tensor | None = None,
        sample_weight: Tensor | None = None,
        check: bool = True,
    ) -> Targets:
        """Read targets of shape `rows`, or (*rows, T) where a row has several true classes.

        `dtype` is that of the losses, for the weights.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            A shape does not fit, or an id is out of range or no integer.
        """
        shape = tuple(target.shape)
        if shape != rows and shape[:-1] != rows:
            raise ArgumentError(
                f"target must have shape {rows} or, with T true classes a row, "
                f"{(*rows, 'T')}; got {shape}".replace("'T'", "T")
            )
        if sample_weight is not None and tuple(sample_weight.shape) != rows:
            raise ArgumentError(
                f"sample_weight must have shape {rows}, got {tuple(sample_weight.shape)}"
            )
        if weight is not None and tuple(weight.shape) != (n_classes,):
            raise ArgumentError(f"weight must have shape ({n_classes},), got {tuple(weight.shape)}")
        target = as_int64("target", target)
        kept = target != as_integer("ignore_index", ignore_index)
        ids = torch.where(kept, target, 0)
        if check:
            ids = checked_ids("target", ids, n_classes)
            for name, values in (("weight", weight), ("sample_weight", sample_weight)):
                _check_weights(name, values)
        multiple = shape != rows
        weights = kept.to(dtype)
        if multiple:
            weights = weights / kept.sum(dim=-1, keepdim=True).clamp(min=1)
        if weight is not None:
            weights = weights * weight.to(ids.device, dtype)[ids]
        if sample_weight is not None:
            factors = sample_weight.to(ids.device, dtype)
            weights = weights * (factors.unsqueeze(-1) if multiple else factors)
        n_entries = shape[-1] if multiple else 1
        n_rows = 1
        for size in rows:
            n_rows *= size
        flat = (n_rows, n_entries)
        return cls(ids.reshape(flat), kept.reshape(flat), weights.reshape(flat), shape, rows)

    def counted(self, rows: Tensor) -> Tensor:
        """Rows (R, d) without what does not count and would come back in gradients, as 0 x NaN.

        Ignored rows become 0, and so does what is not finite in rows whose weights are 0.
        """
        idle = (self.weights == 0).all(dim=1, keepdim=True)
        # Asked on a CPU only: elsewhere, and in a compiled graph, the answer would be waited for.
        known = idle.device.type == "cpu" and not torch.compiler.is_compiling()
        if known and not bool(idle.any()):
            return rows
        ignored = ~self.kept.any(dim=1, keepdim=True)
        return rows.masked_fill(ignored | (idle & ~rows.isfinite()), 0)

    def reduce(self, losses: Tensor, reduction: str) -> Tensor:
        """The loss of entries (R, T), weighted: a scalar, or shape `rows` with "none".

        "mean" divides by the sum of the weights: 0.0 where that is 0.
        """
        # What does not count may be infinite, and 0 times that is no number.
        weighted = losses.masked_fill(self.weights == 0, 0) * self.weights
        if reduction == "none":
            return weighted.sum(dim=1).reshape(self.rows)
        if reduction == "sum":
            return weighted.sum()
        total = self.weights.sum()
        return weighted.sum() / torch.where(total == 0, 1, total)


def check_reduction(reduction: str) -> str:
    """One of "mean", "sum" and "none"."""
    return check_choice("reduction", reduction, REDUCTIONS)
