"""What stands for each class when a code is learnt: means of rows, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_class_ids, as_integer, without_torch
from ..errors import ArgumentError, ArgumentTypeError

__all__ = ["ClassStatistics", "as_prototypes", "class_means", "class_statistics"]

# Prototypes up to this: their squares, and a recipe's float32, stay far from overflow.
LARGEST = 1e30
# Rows that are looked at at a time.
CHECKED = 4096
# Columns of rows whose covariance is computed: 134 MB.
WIDEST = 4096


class ClassStatistics(NamedTuple):
    """What `class_statistics` gives.

    Attributes
    ----------
    means : float32 array (N, d)
        The mean row of each class.
    covariance : float64 array (d, d)
        Of the rows about the means of their classes, over all rows (maximum likelihood); about
        zero where every class has one row.
    """

    means: NDArray[np.float32]
    covariance: NDArray[np.float64]


def class_means(
    batches: Iterable[tuple[Any, Any]],
    n_classes: int,
    *,
    n_components: int | None = None,
    seed: int = 0,
) -> NDArray[np.float32]:
    """The mean row of each class, for `LearnedMapping.fit`.

    Parameters
    ----------
    batches : iterable of (rows, ids)
        Rows of shape (B, ...), flattened: numpy arrays, torch tensors, or scipy sparse
        matrices; class ids int (B,). A data loader will do.
    n_classes : int
        N.
    n_components : int, optional
        Project rows to so many dimensions by random signs (Achlioptas, 2003), drawn a
        column at a time as they come: for wide sparse rows, whose means would not fit.
    seed : int, default 0
        Of the projection.

    Returns
    -------
    float32 array (N, d)

    Raises
    ------
    ArgumentError
        Batches differ in width, an id is out of range, or a class has no row (the first
        such class, and how many).

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]])
    >>> class_means([(rows, [0, 0, 1])], 2).tolist()
    [[2.0, 0.0], [0.0, 5.0]]
    """
    return _moments(batches, n_classes, n_components, seed, squares=False)[0]


def class_statistics(
    batches: Iterable[tuple[Any, Any]],
    n_classes: int,
    *,
    n_components: int | None = None,
    seed: int = 0,
) -> ClassStatistics:
    """The mean row of each class, and how rows scatter about it, in one pass.

    Where classes have several rows, their scatter tells `LearnedMapping.fit` which differences
    between means are large beside the noise (as in linear discriminant analysis; Fisher, 1936).

    Parameters
    ----------
    batches, n_classes, n_components, seed
        As for `class_means`. Rows of more than 4,096 columns must be projected.

    Returns
    -------
    ClassStatistics

    Raises
    ------
    ArgumentError
        As for `class_means`; or rows are too wide.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0], [0.0, 7.0]])
    >>> class_statistics([(rows, [0, 0, 1, 1])], 2).covariance.tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    means, covariance = _moments(batches, n_classes, n_components, seed, squares=True)
    assert covariance is not None
    return ClassStatistics(means, covariance)


def _moments(
    batches: Iterable[tuple[Any, Any]],
    n_classes: int,
    n_components: int | None,
    seed: int,
    *,
    squares: bool,
) -> tuple[NDArray[np.float32], NDArray[np.float64] | None]:
    n_classes = as_integer("n_classes", n_classes, 1)
    if n_components is not None:
        n_components = as_integer("n_components", n_components, 1)
    seed = as_integer("seed", seed, 0)
    sums: NDArray[np.float64] | None = None
    signs: NDArray[np.float32] | None = None
    products = origin = np.zeros(0)
    counts = np.zeros(n_classes, np.int64)
    for given, ids in _checked(batches, n_classes):
        if sums is None:
            width = given.shape[1]
            kept = n_components or width
            if squares and kept > WIDEST:
                raise ArgumentError(
                    f"n_components must be given, at most {WIDEST}, to know the covariance of "
                    f"rows of {width} columns; got {n_components}"
                )
            if n_components is not None:
                rng = np.random.default_rng(seed)
                signs = rng.choice(np.array([-1, 1], np.float32), (width, n_components))
                signs /= np.sqrt(np.float32(n_components))
            sums = np.zeros((n_classes, kept))
            products = np.zeros((kept, kept)) if squares else products
        projected = given if signs is None else given @ signs
        dense = projected.toarray() if hasattr(projected, "tocsr") else projected
        rows = np.asarray(dense, np.float64)
        if squares:
            # A point near all rows, so that squares and means do not cancel.
            origin = rows.mean(axis=0) if not counts.any() and len(rows) else origin
            rows = rows - origin
            products += rows.T @ rows
        np.add.at(sums, ids, rows)
        counts += np.bincount(ids, minlength=n_classes)
    empty = np.flatnonzero(counts == 0)
    if sums is None or empty.size:
        raise ArgumentError(
            f"batches must have a row of every class: {empty.size} of {n_classes} have none, the "
            f"first is {empty[0]}"
        )
    if not squares:
        return (sums / counts[:, None]).astype(np.float32), None
    means = sums / counts[:, None]
    scatter = products - sums.T @ means
    # Of rows that equal their class's mean only rounding is left, and it has no directions.
    rounding = 4 * np.finfo(np.float64).eps * np.sqrt(counts.sum()) * np.trace(products)
    if counts.max() == 1 or np.trace(scatter) <= rounding:
        scatter = np.zeros_like(scatter)
    covariance = scatter / counts.sum()
    return (means + origin).astype(np.float32), (covariance + covariance.T) / 2


def _checked(
    batches: Iterable[tuple[Any, Any]], n_classes: int
) -> Iterator[tuple[Any, NDArray[np.integer]]]:
    """Rows as matrices of equal width, dense or sparse, and their ids."""
    width = -1
    for number, (given, given_ids) in enumerate(batches):
        rows = without_torch(given)
        ids = as_class_ids("ids", without_torch(given_ids), n_classes).reshape(-1)
        if not hasattr(rows, "tocsr"):
            rows = np.asarray(rows)
            rows = rows.reshape(len(rows), -1)
        if rows.shape[0] != ids.size or width not in (-1, rows.shape[1]):
            raise ArgumentError(
                f"batches must have an id a row and {max(width, 0) or 'equal'} columns; batch "
                f"{number} has {ids.size} ids and shape {tuple(rows.shape)}"
            )
        width = rows.shape[1]
        values = rows.data if hasattr(rows, "tocsr") else rows
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            dense = rows.toarray() if hasattr(rows, "tocsr") else rows
            row = int(np.argmin(np.isfinite(dense).all(axis=1)))
            raise ArgumentError(
                f"batches must be finite: row {row} of batch {number}, of class {ids[row]}, has "
                f"{dense[row][~np.isfinite(dense[row])][0]}"
            )
        yield rows, ids


def as_prototypes(prototypes: ArrayLike, name: str = "prototypes") -> NDArray[Any]:
    """Prototypes as they are in float32 or float64, else in float64, (N, d).

    Raises
    ------
    ArgumentTypeError, ArgumentError
        They are no numbers, no matrix, not finite or beyond 1e30 (with the row).
    """
    try:
        array = np.asarray(without_torch(prototypes))
    except ValueError as error:  # rows of different lengths
        raise ArgumentError(f"{name} must be a matrix: {error}") from error
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ArgumentTypeError(f"{name} must be floats, got an array of {array.dtype}")
    if array.ndim != 2 or array.size == 0:
        raise ArgumentError(f"{name} must have shape (N, d), got {array.shape}")
    rows = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    for start in range(0, len(rows), CHECKED):
        block = rows[start : start + CHECKED]
        good = np.abs(block) <= LARGEST  # a NaN is not
        if not good.all():
            row = int(np.argmin(good.all(axis=1)))
            raise ArgumentError(
                f"{name} must be finite and within +-{LARGEST:g}: row {start + row} has "
                f"{block[row][~good[row]][0]}"
            )
    return rows
