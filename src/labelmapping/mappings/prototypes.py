"""What stands for each class when a code is learnt: means of rows, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import as_class_ids, as_integer
from ..errors import ArgumentError

__all__ = ["class_means"]


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
    n_classes = as_integer("n_classes", n_classes, 1)
    if n_components is not None:
        n_components = as_integer("n_components", n_components, 1)
    sums: NDArray[np.float64] | None = None
    counts = np.zeros(n_classes, np.int64)
    signs: NDArray[np.float32] | None = None
    width = -1
    for number, (given, given_ids) in enumerate(batches):
        rows = given.detach().cpu().numpy() if hasattr(given, "detach") else given
        ids = as_class_ids("ids", _plain(given_ids), n_classes).reshape(-1)
        if not hasattr(rows, "tocsr"):
            rows = np.asarray(rows)
            rows = rows.reshape(len(rows), -1)
        if rows.shape[0] != ids.size or width not in (-1, rows.shape[1]):
            raise ArgumentError(
                f"batches must have an id a row and {max(width, 0) or 'equal'} columns; batch "
                f"{number} has {ids.size} ids and shape {tuple(rows.shape)}"
            )
        if width < 0:
            width = rows.shape[1]
            if n_components is not None:
                rng = np.random.default_rng(seed)
                signs = rng.choice(np.array([-1, 1], np.float32), (width, n_components))
                signs /= np.sqrt(np.float32(n_components))
            sums = np.zeros((n_classes, n_components or width))
        assert sums is not None
        if signs is not None:
            rows = np.asarray(rows @ signs)
        elif hasattr(rows, "tocsr"):
            rows = rows.toarray()
        np.add.at(sums, ids, rows)
        counts += np.bincount(ids, minlength=n_classes)
    empty = np.flatnonzero(counts == 0)
    if sums is None or empty.size:
        raise ArgumentError(
            f"batches must have a row of every class: {empty.size} of {n_classes} have none, the "
            f"first is {empty[0]}"
        )
    return (sums / counts[:, None]).astype(np.float32)


def _plain(ids: Any) -> Any:
    return ids.detach().cpu().numpy() if hasattr(ids, "detach") else ids
