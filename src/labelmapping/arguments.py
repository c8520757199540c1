"""Checks of what a caller hands in. Each names the argument, the rule and the value.

Knows the errors and numpy only; every layer above may use it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, ArgumentTypeError

__all__ = [
    "as_class_ids",
    "as_integer",
    "as_integers",
    "check_choice",
    "check_range",
    "without_torch",
]


def as_integer(name: str, value: object, minimum: int | None = None) -> int:
    """`value` as a Python int, exactly; floats, strings and bools are refused.

    Raises
    ------
    ArgumentTypeError
        `value` is not an integer.
    ArgumentError
        `value` is below `minimum`.
    """
    if isinstance(value, (bool, np.bool_)):
        raise ArgumentTypeError(f"{name} must be an integer, got the bool {value}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(
            f"{name} must be an integer, got {value!r} of type {type(value).__name__}"
        ) from None
    if minimum is not None and number < minimum:
        raise ArgumentError(f"{name} must be at least {minimum}, got {number}")
    return number


def as_integers(name: str, values: object, minimum: int | None = None) -> tuple[int, ...]:
    """A non-empty sequence of integers as a tuple of Python ints."""
    if (
        isinstance(values, (str, bytes))
        or not isinstance(values, (Sequence, np.ndarray, range))
        or (isinstance(values, np.ndarray) and values.ndim != 1)
    ):
        raise ArgumentTypeError(f"{name} must be a sequence of integers, got {values!r}")
    if len(values) == 0:
        raise ArgumentError(f"{name} must not be empty")
    return tuple(as_integer(f"{name}[{i}]", v, minimum) for i, v in enumerate(values))


def check_choice(name: str, value: str, choices: Collection[str]) -> str:
    """`value` where it is one of `choices`; else an error that lists them."""
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return value


def check_range(name: str, values: NDArray[np.integer], limit: int) -> None:
    """Refuse integers outside 0..limit-1, naming the first bad one and where it is.

    `values` has any shape. An unchecked id would take a legal residue modulo
    every alphabet and so become some other class.
    """
    if values.size == 0 or (values.min() >= 0 and values.max() < limit):
        return
    where = np.unravel_index(int(np.argmax((values < 0) | (values >= limit))), values.shape)
    place = ", ".join(str(int(i)) for i in where)
    raise ArgumentError(
        f"{name} must lie in 0..{limit - 1} (ids are 0-based, {limit} in all); "
        f"{name}[{place}] is {int(values[where])}"
        if place
        else f"{name} must lie in 0..{limit - 1} (ids are 0-based, {limit} in all); "
        f"got {int(values[where])}"
    )


def as_class_ids(name: str, ids: ArrayLike, n_classes: int) -> NDArray[np.integer]:
    """Class ids as an integer array of any shape, each checked to lie in 0..n_classes-1.

    Raises
    ------
    ArgumentTypeError
        The values are not integers: floats may already have merged two ids.
    ArgumentError
        An id is out of range; the message has its value, its place and the range.
    """
    array = np.asarray(ids)
    if array.size == 0 and array.dtype == np.float64 and not isinstance(ids, np.ndarray):
        array = array.astype(np.int64)  # numpy reads an empty list as floats
    if not np.issubdtype(array.dtype, np.integer):
        raise ArgumentTypeError(f"{name} must be integers, got an array of {array.dtype}")
    check_range(name, array, n_classes)
    return array


def without_torch(values: Any) -> Any:
    """A torch tensor as an array; bfloat16, which numpy has not, in float32. Others as they are."""
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
