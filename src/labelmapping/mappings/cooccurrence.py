"""Prototypes from sequences alone: which classes stand near each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_class_ids, as_integer
from ..errors import ArgumentError, MissingExtraError

__all__ = ["cooccurrence_factors"]


def cooccurrence_factors(
    sequences: Sequence[ArrayLike],
    n_classes: int,
    *,
    window: int = 5,
    n_components: int = 64,
    seed: int = 0,
) -> NDArray[np.float32]:
    """Vectors of classes from which others they stand near in sequences, for `LearnedMapping.fit`.

    The positive pointwise mutual information of classes at most `window` places apart, by a
    truncated singular value decomposition: the left vectors times the roots of the singular
    values (Levy and Goldberg, 2014).

    Parameters
    ----------
    sequences : sequence of int arrays
        Class ids in order: words of a text, items of a user.
    n_classes : int
        N.
    window : int, default 5
    n_components : int, default 64
        Below N.
    seed : int, default 0
        Of the vector that the decomposition starts from.

    Returns
    -------
    float32 array (N, n_components)
        By falling singular value. A class that stands near none, or near all as often as
        chance has it, has a row of zeros.

    Raises
    ------
    ArgumentError
        An id is out of range, no two classes ever stand near each other, or there are as
        many components as classes.
    MissingExtraError
        scipy is absent.

    Examples
    --------
    >>> left, right = [0, 1, 2] * 4, [5, 4, 3] * 4
    >>> factors = cooccurrence_factors([left, right], 6, n_components=2)
    >>> bool(factors[0] @ factors[2] > 0.5), bool(abs(factors[0] @ factors[3]) < 1e-6)
    (True, True)
    """
    n_classes = as_integer("n_classes", n_classes, 1)
    window = as_integer("window", window, 1)
    n_components = as_integer("n_components", n_components, 1)
    if n_components >= n_classes:
        raise ArgumentError(
            f"n_components must be below n_classes, {n_classes}; got {n_components}"
        )
    try:
        from scipy import sparse
    except ImportError as error:
        raise MissingExtraError(
            "factors of co-occurrence need scipy: pip install 'labelmapping[sklearn]'"
        ) from error
    parts = [as_class_ids("sequences", ids, n_classes).reshape(-1) for ids in sequences]
    ids = np.concatenate([np.empty(0, np.int64), *parts])
    owner = np.repeat(np.arange(len(parts)), [part.size for part in parts])
    counts = sparse.csr_array((n_classes, n_classes))
    for distance in range(1, min(window, ids.size) + 1):
        near = owner[distance:] == owner[:-distance]
        pairs = (ids[:-distance][near], ids[distance:][near])
        counts += sparse.coo_array((np.ones(len(pairs[0])), pairs), counts.shape).tocsr()
    counts = (counts + counts.T).tocoo()
    if counts.nnz == 0:
        raise ArgumentError("sequences must have two classes beside each other, they have none")
    often = counts.sum(axis=1)
    rows, columns = counts.coords
    information = np.log(counts.data * often.sum() / (often[rows] * often[columns]))
    positive = sparse.csr_array((np.maximum(information, 0), (rows, columns)), counts.shape)
    positive.eliminate_zeros()
    start = np.random.default_rng(seed).normal(size=n_classes)
    vectors, values, _ = sparse.linalg.svds(positive, k=n_components, v0=start)
    factors = (vectors * np.sqrt(values))[:, ::-1]
    # Singular vectors have no sign of their own.
    largest = np.take_along_axis(factors, np.abs(factors).argmax(axis=0)[None], axis=0)
    signed: NDArray[np.float32] = (factors * np.where(largest < 0, -1, 1)).astype(np.float32)
    return signed
