"""Symbols that follow prototypes, under the constraint that keeps a code's distance.

One site at a time: a balanced clustering of the classes in the site's view of the
prototypes, where classes that agree already at k-1 other sites must differ. Knows
numpy, scipy and scikit-learn, no mapping.
"""

from __future__ import annotations

import importlib
import logging
import math
import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError

__all__ = ["Views", "explained_variance", "fit_codewords", "one_thread", "views_of"]

Floats = NDArray[np.float64]
Symbols = NDArray[np.int64]

logger = logging.getLogger(__name__)

# Rows of one assignment problem: the time of one grows with their square and more.
ASSIGNED = 256
# What a clash costs, in mean squared distances: more than any symbol can be worth.
CLASH = 1e3
# What a symbol costs that has a class more than its share already, the same way, per class
# relative to the share: it keeps symbols balanced where that costs little.
LOAD = 0.02
# The first sites are clustered freely but for this: no symbol has more than so many shares.
SLACK = 1.3
# Principal components that views are made of.
COMPONENTS = 64
# See `views_of`.
REPEATED = 0.6
# Rows a cluster that k-means is fitted on.
SAMPLED = 50
# Rounds of capped k-means, and of assignment; while classes clash, so many times more.
ROUNDS, PATIENCE = 6, 8


@dataclass(frozen=True, eq=False)
class Views:
    """Each site's view of the prototypes: a linear map of them.

    Attributes
    ----------
    centre : float64 array (d,)
        The mean prototype.
    maps : list of float64 arrays (d, d_i)
        A view is ``(prototypes - centre) @ map``.
    """

    centre: Floats
    maps: list[Floats]

    def of(self, prototypes: Floats, site: int) -> Floats:
        """One site's view, float64 (N, d_i)."""
        view: Floats = (prototypes - self.centre) @ self.maps[site]
        return view


def views_of(prototypes: Floats, n_sites: int, kind: str, size: int, seed: int) -> Views:
    """Views of the principal components: dealt among the sites, or all of them for each.

    "components": every component goes to the site that has least variance so far, so
    sites see different things and each its share; "full": all sites see all. "auto" tries
    two sites that see all: on data without structure a second clustering is as good as
    the first; on structured data it finds the same clusters again, the constraint forbids
    them, and little is left. Below REPEATED of the first's share the components are dealt.
    """
    centre = prototypes.mean(axis=0)
    components, variances = _principal(prototypes - centre, seed)
    full = Views(centre, [components] * n_sites)
    if kind == "full" or len(variances) < n_sites or n_sites == 1:
        return full
    if kind == "auto":
        n_classes = len(prototypes)  # of which two sites of a code of dimension 3 hold too few
        trial = size if size**2 >= n_classes else math.ceil(math.sqrt(2 * n_classes))
        codewords, _, _ = fit_codewords(prototypes, Views(centre, [components] * 2), trial, 2, seed)
        view = full.of(prototypes, 0)
        first, second = (explained_variance(view, symbols) for symbols in codewords.T)
        logger.info("two clusterings of all components explain %.3f and %.3f", first, second)
        if second >= REPEATED * first:
            return full
    owners, load = np.empty(len(variances), np.int64), np.zeros(n_sites)
    dealt = np.zeros(n_sites)
    for component, variance in enumerate(variances):
        owner = np.lexsort((dealt, load))[0]  # without variance, to the site with fewest
        owners[component] = owner
        load[owner] += variance
        dealt[owner] += 1
    return Views(centre, [components[:, owners == site] for site in range(n_sites)])


def _principal(centred: Floats, seed: int) -> tuple[Floats, Floats]:
    """Up to COMPONENTS directions (d, c) with their variances, largest first."""
    n_classes, width = centred.shape
    if width <= 1024:
        values, vectors = np.linalg.eigh(centred.T @ centred / n_classes)
        order = np.argsort(-values)[: min(COMPONENTS, n_classes, width)]
        return np.ascontiguousarray(vectors[:, order]), np.maximum(values[order], 0.0)
    if n_classes <= 2 * COMPONENTS:
        _, lengths, rows = np.linalg.svd(centred, full_matrices=False)
    else:
        _, lengths, rows = _sklearn("extmath").randomized_svd(
            centred, COMPONENTS, n_iter=5, random_state=seed % 2**31
        )
    return np.ascontiguousarray(rows[:COMPONENTS].T), lengths[:COMPONENTS] ** 2 / n_classes


def fit_codewords(
    prototypes: Floats, views: Views, size: int, dimension: int, seed: int
) -> tuple[Symbols, list[Floats], int]:
    """Codewords, each site's centroids in its view, and how many clashes are left.

    Parameters
    ----------
    prototypes : float64 array (N, d)
    size : int
        q of every site; N at most ``size ** dimension``.

    Returns
    -------
    codewords : int64 array (N, n_sites)
    centroids : list of float64 arrays (size, d_i)
    clashes : int
        0: any two classes agree at dimension - 1 sites at most. Else the codewords end at the
        first site that has some.
    """
    n_sites = len(views.maps)
    rng = np.random.default_rng(seed)
    codewords = np.empty((len(prototypes), n_sites), np.int64)
    centroids, clashes = [], 0
    for site in range(n_sites):
        view = views.of(prototypes, site)
        middles = _initial_centroids(view, size, rng)
        earlier = codewords[:, :site]
        # So many classes may agree at j earlier sites and at this one: the other k-1-j tell them.
        room = [min(size ** (dimension - 1 - j), len(view)) for j in range(dimension)]
        if site < dimension - 1:
            together = _groups(earlier, site, size)[:, 0]
            codewords[:, site], middles = _capped_means(view, middles, together, room[site])
            left = 0
        else:
            agreeing = range(dimension - 1, 0, -1) or [0]
            groups = [_groups(earlier, j, size) for j in agreeing]
            most = np.repeat([room[j] for j in agreeing], [g.shape[1] for g in groups])
            columns = np.concatenate(groups, axis=1)
            codewords[:, site], middles, left = _assign(view, middles, columns, most, rng)
        clashes += left
        centroids.append(middles)
        logger.info(
            "site %d: %.1f %% of its view's variance lies between symbols, %d clashes",
            site, 100 * explained_variance(view, codewords[:, site]), left,
        )  # fmt: skip
        if left:
            break  # the sites to come could not mend it
    return codewords, centroids, clashes


def explained_variance(view: Floats, symbols: Symbols) -> float:
    """Share of a view's variance that lies between symbols; 1 where there is none."""
    centre = view.mean(axis=0)
    size = int(symbols.max()) + 1
    averages = _means(view, symbols, np.zeros((size, view.shape[1])))
    counts = np.bincount(symbols, minlength=size)
    whole = ((view - centre) ** 2).sum()
    between = (counts * ((averages - centre) ** 2).sum(axis=1)).sum()
    return float(between / whole) if whole > 0 else 1.0


def _groups(codewords: Symbols, n_agreeing: int, size: int) -> Symbols:
    """For each so many of the sites so far a column of numbers, equal where classes agree there."""
    n_classes, n_sites = codewords.shape
    columns = []
    for sites in combinations(range(n_sites), n_agreeing):
        numbers = np.zeros(n_classes, np.int64)
        for site in sites:
            numbers = numbers * size + codewords[:, site]
        columns.append(np.unique(numbers, return_inverse=True)[1].reshape(-1))
    return np.stack(columns, axis=1)


def _initial_centroids(view: Floats, size: int, rng: np.random.Generator) -> Floats:
    sample = view
    if len(view) > SAMPLED * size:
        sample = view[rng.choice(len(view), SAMPLED * size, replace=False)]
    if len(np.unique(sample, axis=0)) <= size:  # k-means has nothing to find
        rows: Floats = view[rng.permutation(np.arange(size) % len(view))]
        return rows
    model = _sklearn("cluster").KMeans(
        size, n_init=1, max_iter=20, random_state=int(rng.integers(2**31))
    )
    with warnings.catch_warnings():
        # Rows that differ by rounding alone are one cluster; the cap tells them apart later.
        warnings.simplefilter("ignore", _sklearn("exceptions").ConvergenceWarning)
        found: Floats = model.fit(sample).cluster_centers_.astype(np.float64)
    return found


def _capped_means(
    view: Floats, centroids: Floats, groups: Symbols, most: int
) -> tuple[Symbols, Floats]:
    """k-means with a cap on each cluster; those that would lose most choose first.

    A symbol goes to `most` classes of a group at most, and to little more than its share of them.
    """
    size = len(centroids)
    symbols = np.empty(len(view), np.int64)
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    for _ in range(ROUNDS):
        for members in parts:
            room = max(1, min(math.ceil(members.size / size * SLACK), most))
            symbols[members] = _nearest_with_room(view[members], centroids, room)
        centroids = _means(view, symbols, centroids)
    return symbols, centroids


def _nearest_with_room(view: Floats, centroids: Floats, most: int) -> Symbols:
    n_classes, size = len(view), len(centroids)
    symbols, room = np.empty(n_classes, np.int64), np.full(size, most)
    open_, left = np.arange(size), np.arange(n_classes)
    while left.size:
        far = _distances(view[left], centroids[open_])
        best = far.argmin(axis=1)
        nearest = far[np.arange(left.size), best]
        regret = np.partition(far, 1, axis=1)[:, 1] - nearest if open_.size > 1 else nearest
        order = np.lexsort((-regret, best))
        ranks = np.arange(left.size) - np.searchsorted(best[order], best[order])
        fits = order[ranks < room[open_[best[order]]]]
        symbols[left[fits]] = open_[best[fits]]
        room -= np.bincount(open_[best[fits]], minlength=size)
        left = np.delete(left, fits)
        open_ = np.flatnonzero(room > 0)
    return symbols


def _assign(
    view: Floats, centroids: Floats, groups: Symbols, most: Symbols, rng: np.random.Generator
) -> tuple[Symbols, Floats, int]:
    """Symbols that differ within each group of each column, as near to their centroids as can be.

    The classes of a group are assigned at once, the others' symbols being as they are: the
    first round goes through the groups of the first column, the next through those of the
    second, and so on, with centroids drawn anew after each.

    So for the columns, the first ones, where `most` is 1. In the others a symbol may go to so
    many classes of a group, as later sites need it; what is beyond is avoided, but no clash.
    """
    assignment = _scipy_assignment()
    n_classes, n_columns = len(view), int(np.count_nonzero(most == 1))
    size = len(centroids)
    taken = [np.zeros((int(column.max()) + 1, size), np.int32) for column in groups.T]
    counts = np.zeros(size, np.int64)
    symbols = np.full(n_classes, -1)
    share = n_classes / size
    spread = float(view.var(axis=0).sum()) or 1.0

    def count(rows: Symbols, step: int) -> None:
        np.add.at(counts, symbols[rows], step)
        for column, there in zip(groups.T, taken, strict=True):
            np.add.at(there, (column[rows], symbols[rows]), step)

    clashes = 0
    for done in range(ROUNDS * PATIENCE):
        column = groups[:, done % n_columns]
        order = np.argsort(column, kind="stable")
        ends = np.searchsorted(column[order], np.arange(len(taken[done % n_columns]) + 1))
        for group in rng.permutation(len(ends) - 1):
            members = rng.permutation(order[ends[group] : ends[group + 1]])
            for first in range(0, members.size, min(ASSIGNED, size)):
                rows = members[first : first + min(ASSIGNED, size)]
                if symbols[rows[0]] >= 0:
                    count(rows, -1)
                cost = _distances(view[rows], centroids) / spread
                cost += LOAD * np.maximum(counts + 1 - share, 0.0) / share
                for other, there, limit in zip(groups.T, taken, most, strict=True):
                    cost += CLASH * np.maximum(there[other[rows]] - (limit - 1), 0)
                symbols[rows] = assignment(cost)[1]
                count(rows, 1)
        centroids = _means(view, symbols, centroids)
        clashes = int(sum(np.maximum(there - 1, 0).sum() for there in taken[:n_columns]))
        if done + 1 >= ROUNDS and clashes == 0:
            break
    return symbols, centroids, clashes


def _distances(view: Floats, centroids: Floats) -> Floats:
    """Squared distances (N, size)."""
    squares: Floats = (
        (view**2).sum(axis=1)[:, None] + (centroids**2).sum(axis=1) - 2 * view @ centroids.T
    )
    return np.maximum(squares, 0.0)


def _means(view: Floats, symbols: Symbols, old: Floats) -> Floats:
    """The mean of each symbol's classes; the old one where there is none."""
    sums = np.zeros_like(old)
    np.add.at(sums, symbols, view)
    counts = np.bincount(symbols, minlength=len(old))[:, None]
    return np.where(counts > 0, sums / np.maximum(counts, 1), old)


def one_thread() -> Any:
    """A context in which OpenMP and BLAS have one thread: sums then do not depend on their number.

    k-means adds up its threads' sums in the order in which they end. Without threads these
    small problems are faster, too; beside other work, many times.
    """
    try:
        return importlib.import_module("threadpoolctl").threadpool_limits(1)
    except ImportError as error:  # scikit-learn brings it
        raise _missing() from error


def _sklearn(module: str) -> Any:
    try:
        from sklearn import cluster, exceptions
        from sklearn.utils import extmath
    except ImportError as error:
        raise _missing() from error
    return {"cluster": cluster, "exceptions": exceptions, "extmath": extmath}[module]


def _scipy_assignment() -> Any:
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise _missing() from error
    return linear_sum_assignment


def _missing() -> MissingExtraError:
    return MissingExtraError(
        "learnt codes need scipy and scikit-learn to fit: pip install 'labelmapping[sklearn]'"
    )
