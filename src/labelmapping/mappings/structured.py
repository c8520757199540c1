"""Codes that follow prototypes of the classes in other ways than `LearnedMapping`.

An order that makes two sites of a simplex code natural, and two methods of the literature
to compare with: a tree of dichotomies, and quantisers. Knows codes and numpy; scipy and
scikit-learn where k-means or an assignment problem is solved.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_integer, check_choice
from ..errors import ArgumentError
from .assignment import (
    COMPONENTS,
    SWEEPS,
    assignment_solver,
    fit_codewords,
    initial_centroids,
    one_thread,
    squared_distances,
    views_of,
)
from .base import refuse_overflow
from .prototypes import as_prototypes
from .table import TableMapping

__all__ = ["discriminant_tree", "natural_order", "product_quantisation"]

Floats = NDArray[np.float64]
Symbols = NDArray[np.int64]

QUANTISERS = ("product", "residual")
# Classes of a tree: its codewords are N(N-1) symbols, of which some copies are needed.
MOST_CLASSES = 4096
# How often the halves of a node are sought, and how often the rows change sides at most.
STARTS, ROUNDS = 4, 50
# Rows whose distances to all centroids are held at a time.
BLOCK = 8192


def natural_order(
    prototypes: ArrayLike, field_order: int, dimension: int = 2, *, seed: int = 0
) -> NDArray[np.int64]:
    """Numbers for the classes that give a simplex code natural symbols at infinity and at 0.

    The highest base-q digit is a clustering of the prototypes in one view, the lowest a
    clustering in another, as the first two sites of a `LearnedMapping` (whose method this
    is). They are the symbols at the points "infinity" and 0; the digits between tell apart
    classes that agree in both, and symbols at all other points stay arbitrary.

    Parameters
    ----------
    prototypes : array-like of float, shape (N, d)
        What stands for each class, as in `LearnedMapping.fit`.
    field_order : int
        q; N at most ``q ** dimension``.
    dimension : int, default 2
        k, at least 2.
    seed : int, default 0

    Returns
    -------
    ndarray of int64, shape (N,)
        Different numbers in 0..q^k - 1, for `SimplexMapping` as `order`.

    Raises
    ------
    ArgumentError
        A prototype is not finite (with its row), N is too large, or no two clusterings that
        tell the classes apart were found.
    MissingExtraError
        scipy or scikit-learn is absent.

    Examples
    --------
    >>> from labelmapping import SimplexMapping
    >>> prototypes = np.random.default_rng(0).normal(size=(200, 8))
    >>> order = natural_order(prototypes, 23)
    >>> mapping = SimplexMapping(200, 4, field_order=23, points=["infinity", 0, 1, 2], order=order)
    >>> bool((mapping.encode(range(200))[:, 0] == order // 23).all())
    True
    """
    rows = as_prototypes(prototypes).astype(np.float64)
    q = as_integer("field_order", field_order, 2)
    k = as_integer("dimension", dimension, 2)
    seed = as_integer("seed", seed, 0)
    if len(rows) > q**k:
        raise ArgumentError(
            f"field_order {q} holds at most {q**k} classes ({q}^{k}), got {len(rows)} prototypes"
        )
    refuse_overflow("field_order ** dimension", q**k)
    with one_thread():
        views = views_of(rows, 2, "auto", q, seed)
        # Sweeps exchange whole codewords, of which two digits are a part for k > 2.
        sweeps = SWEEPS if k == 2 else 0
        digits, _, clashes = fit_codewords(rows, views, q, k, seed, sweeps)
    if clashes:
        raise ArgumentError(
            f"field_order must be larger than {q} for these {len(rows)} prototypes: {clashes} "
            "symbols clash in the digits found"
        )
    high, low = digits.T
    middle = _ranks_among_equals(high * q + low)
    numbers: Symbols = high * q ** (k - 1) + middle * q + low
    return numbers


def discriminant_tree(prototypes: ArrayLike, *, seed: int = 0) -> TableMapping:
    """A tree of dichotomies: each site tells two halves of a set of similar classes apart.

    The classes are halved, each half again, down to single classes. Each of the N - 1 sets
    that are halved is a site: its halves have the symbols 0 and 1, the classes outside
    abstain (-1). Sites are numbered from the root, level by level. Two classes differ at
    exactly one site, where they part: no error is corrected.

    After the discriminant ECOC of Pujol, Radeva and Vitrià ("Discriminant ECOC", IEEE
    Transactions on Pattern Analysis and Machine Intelligence 28, 2006). What differs:

    - They split a set where the split has most mutual information with the features of the
      training rows, sought by a floating search, which is for few classes. Here the two
      halves' mean prototypes lie as far apart as can be found: 2-means with clusters of
      equal size, in up to 64 principal components, the best of 4 starts.
    - Their parts may be of any sizes, so depths differ. Here they are halves, so that every
      class has ⌊log2 N⌋ or one more sites: an abstention adds log 1/2 to a score in our
      decoder, and classes with few sites would lose against those with many.

    Parameters
    ----------
    prototypes : array-like of float, shape (N, d)
        What stands for each class; N from 2 to 4096 (the codewords are N(N-1) symbols).
    seed : int, default 0
        Of the starts.

    Returns
    -------
    TableMapping
        N - 1 sites of 2 symbols, with abstentions.

    Raises
    ------
    ArgumentError
        A prototype is not finite (with its row), or there are too few or too many.
    MissingExtraError
        scikit-learn is absent.

    Examples
    --------
    >>> mapping = discriminant_tree([[0.0], [5.0], [0.1], [5.1]])
    >>> mapping.encode(range(4)).tolist()
    [[0, 0, -1], [1, -1, 0], [0, 1, -1], [1, -1, 1]]
    """
    rows = as_prototypes(prototypes).astype(np.float64)
    seed = as_integer("seed", seed, 0)
    n_classes = len(rows)
    if not 2 <= n_classes <= MOST_CLASSES:
        raise ArgumentError(
            f"prototypes must have 2 to {MOST_CLASSES} rows for a tree, whose codewords have a "
            f"symbol for each class and each inner node; got {n_classes}"
        )
    rng = np.random.default_rng(seed)
    codewords = np.full((n_classes, n_classes - 1), -1, np.int8)
    with one_thread():
        view = views_of(rows, 1, "full", 2, seed).of(rows, 0)
        sets = deque([np.arange(n_classes)])
        for site in range(n_classes - 1):
            members = sets.popleft()
            side = _halves(view[members], rng)
            codewords[members, site] = side
            sets.extend(part for part in (members[~side], members[side]) if part.size > 1)
    return TableMapping(codewords)


def product_quantisation(
    prototypes: ArrayLike,
    n_sites: int,
    *,
    alphabet_size: int,
    kind: str = "product",
    seed: int = 0,
) -> TableMapping:
    """Symbols of a quantiser of the prototypes, and a last site that tells apart what is equal.

    "product": the principal components are dealt among the first n - 1 sites, so that each
    has about the same variance; a site's symbols are k-means clusters in its own (product
    quantisation: Jégou, Douze and Schmid, "Product quantization for nearest neighbor
    search", 2011). "residual": the first site clusters the prototypes, each further one
    what the clusters before it leave (residual quantisation: Chen, Guan and Wang,
    "Approximate nearest neighbor search by residual vector quantization", 2010). Both in
    up to 64 principal components.

    The last site clusters what the others leave. Classes that agree at all others get
    different symbols there, at the least squared distance from its clusters. So codewords
    differ, and no more is guaranteed: two similar classes may differ at the last site alone.

    Parameters
    ----------
    prototypes : array-like of float, shape (N, d)
        What stands for each class.
    n_sites : int
        n, at least 2; "product" needs N and d of n - 1 or more.
    alphabet_size : int
        q of every site.
    kind : {"product", "residual"}
    seed : int, default 0
        Of k-means.

    Returns
    -------
    TableMapping

    Raises
    ------
    ArgumentError
        A prototype is not finite (with its row), there are fewer components than sites, or
        more classes than the alphabet has symbols agree at the first n - 1 sites (with two).
    MissingExtraError
        scipy or scikit-learn is absent.

    Examples
    --------
    >>> prototypes = np.random.default_rng(0).normal(size=(200, 8))
    >>> mapping = product_quantisation(prototypes, 4, alphabet_size=16)
    >>> mapping.alphabet_sizes, mapping.min_distance
    ((16, 16, 16, 16), 1)
    """
    rows = as_prototypes(prototypes).astype(np.float64)
    n_sites = as_integer("n_sites", n_sites, 2)
    size = as_integer("alphabet_size", alphabet_size, 2)
    check_choice("kind", kind, QUANTISERS)
    seed = as_integer("seed", seed, 0)
    most = min(*rows.shape, COMPONENTS) + 1
    if kind == "product" and n_sites > most:
        raise ArgumentError(
            f"n_sites must be at most {most} for prototypes of shape {rows.shape}, whose principal "
            f"components are dealt among the first n_sites - 1; got {n_sites}"
        )
    rng = np.random.default_rng(seed)
    codewords = np.empty((len(rows), n_sites), np.int64)
    with one_thread():
        if kind == "product":
            views = views_of(rows, n_sites - 1, "components", size, seed)
            parts = []
            for site in range(n_sites - 1):
                codewords[:, site], part = _quantised(views.of(rows, site), size, rng)
                parts.append(part)
            left = np.concatenate(parts, axis=1)
        else:
            left = views_of(rows, 1, "full", size, seed).of(rows, 0)
            for site in range(n_sites - 1):
                codewords[:, site], left = _quantised(left, size, rng)
        codewords[:, -1] = _told_apart(left, codewords[:, :-1], size, rng)
    return TableMapping(codewords, [size] * n_sites)


def _ranks_among_equals(numbers: Symbols) -> Symbols:
    """How many equal entries come before each."""
    order = np.argsort(numbers, kind="stable")
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order)) - np.searchsorted(numbers[order], numbers[order])
    return ranks


def _halves(view: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Two halves of the rows, the second the larger if any, whose means lie far apart.

    From the line through two rows on: cut at the middle along it, draw it anew through the
    two means.
    """
    best, widest = np.zeros(0, np.bool_), -1.0
    for _ in range(STARTS):
        one, other = view[rng.choice(len(view), 2, replace=False)]
        side = np.zeros(0, np.bool_)
        for _ in range(ROUNDS):
            before, side = side, np.zeros(len(view), np.bool_)
            side[np.argsort(view @ (other - one), kind="stable")[len(view) // 2 :]] = True
            if np.array_equal(side, before):
                break
            one, other = view[~side].mean(axis=0), view[side].mean(axis=0)
        apart = float(((other - one) ** 2).sum())
        if apart > widest:
            best, widest = side, apart
    return best


def _quantised(view: Floats, size: int, rng: np.random.Generator) -> tuple[Symbols, Floats]:
    """Each row's cluster by k-means, and what its centroid leaves of it."""
    centroids = _centroids(view, size, rng)
    symbols = _nearest(view, centroids)
    return symbols, view - centroids[symbols]


def _centroids(view: Floats, size: int, rng: np.random.Generator) -> Floats:
    """By k-means; where there are no more different rows than symbols, those rows."""
    different = np.unique(view, axis=0)
    if len(different) > size:
        return initial_centroids(view, size, rng)
    return different[np.arange(size) % len(different)]


def _nearest(view: Floats, centroids: Floats) -> Symbols:
    blocks = [view[start : start + BLOCK] for start in range(0, len(view), BLOCK)]
    return np.concatenate([squared_distances(block, centroids).argmin(axis=1) for block in blocks])


def _told_apart(view: Floats, earlier: Symbols, size: int, rng: np.random.Generator) -> Symbols:
    """Symbols near their centroids that differ where the earlier ones are all equal."""
    groups = np.unique(earlier, axis=0, return_inverse=True)[1].reshape(-1)
    counts = np.bincount(groups)
    largest = int(counts.argmax())
    if counts[largest] > size:
        first, second = np.flatnonzero(groups == largest)[:2]
        raise ArgumentError(
            f"alphabet_size must be at least {counts[largest]}, got {size}: so many classes agree "
            f"at all sites but the last, classes {first} and {second} among them"
        )
    centroids = _centroids(view, size, rng)
    symbols = _nearest(view, centroids)
    by_group = np.split(np.argsort(groups, kind="stable"), np.cumsum(counts)[:-1])
    for group in np.unique(groups[_ranks_among_equals(groups * size + symbols) > 0]):
        members = by_group[group]
        symbols[members] = assignment_solver()(squared_distances(view[members], centroids))[1]
    return symbols
