"""Symbols that follow prototypes, under the constraint that keeps a code's distance.

One site at a time: a balanced clustering of the classes in the site's view of the
prototypes, where classes that agree already at k-1 other sites must differ. Knows
numpy, sympy, scipy and scikit-learn, no mapping.
"""

from __future__ import annotations

import importlib
import logging
import math
import warnings
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from ..compiled import compiled
from ..errors import MissingExtraError
from .placing import TakenWords
from .rows import RowIndex

__all__ = [
    "Views",
    "algebraic_codewords",
    "assignment_solver",
    "explained_variance",
    "fit_codewords",
    "initial_centroids",
    "one_thread",
    "squared_distances",
    "views_of",
]

Floats = NDArray[np.float64]
# Prototypes as they came: copies in float64 are made a block at a time.
Rows = NDArray[Any]
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
REPEATED, TRIED = 0.6, 20_000
# Rows a cluster that k-means is fitted on.
SAMPLED = 50
# Rounds of capped k-means, and of assignment; while classes clash, so many times more.
ROUNDS, PATIENCE = 6, 8
# ... unless so many are left of a round's, and more than this share of them ROUNDS later.
FEW, FEWER = 16, 0.5
# Rows of prototypes, or of distances to centroids, at a time.
BLOCK = 4096
# Sweeps of exchange, of so many classes at a time with the same costs, by a beam so wide.
SWEEPS, EXCHANGED, BEAM = 4, 256, 16
# Rounds of assignment for each site in a sweep.
ANEW = 3
# The beam for classes that have no codeword yet.
WIDE = 200


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

    def of(self, prototypes: Rows, site: int) -> Floats:
        """One site's view, float64 (N, d_i)."""
        view = np.empty((len(prototypes), self.maps[site].shape[1]))
        for block in _blocks(len(prototypes)):
            view[block] = _centred(prototypes[block], self.centre) @ self.maps[site]
        return view


def views_of(
    prototypes: Rows, n_sites: int, kind: str, size: int, seed: int, scale: Floats | None = None
) -> Views:
    """Views of the principal components: dealt among the sites, or all of them for each.

    "components": every component goes to the site that has least variance so far, so
    sites see different things and each its share; "full": all sites see all. "auto" tries
    two sites that see all: on data without structure a second clustering is as good as
    the first; on structured data it finds the same clusters again, the constraint forbids
    them, and little is left. Below REPEATED of the first's share the components are dealt.
    Of more than TRIED classes the trial has a sample, with as many classes a pair of symbols.
    With `scale`, (d, d), the components are those of ``prototypes @ scale``.
    """
    n_classes = len(prototypes)
    centre = np.zeros(prototypes.shape[1])
    for block in _blocks(n_classes):
        centre += prototypes[block].sum(axis=0, dtype=np.float64)
    centre /= n_classes
    components, variances = _principal(prototypes, centre, seed, scale)
    if scale is not None:
        components = scale @ components
    full = Views(centre, [components] * n_sites)
    if kind == "full" or len(variances) < n_sites or n_sites == 1:
        return full
    if kind == "auto":
        # Two sites of a code of dimension 3 hold too few.
        trial = size if size**2 >= n_classes else math.ceil(math.sqrt(2 * n_classes))
        tried = prototypes
        if n_classes > TRIED:
            chosen = np.random.default_rng(seed).choice(n_classes, TRIED, replace=False)
            tried = prototypes[np.sort(chosen)]
            trial = math.ceil(trial * math.sqrt(TRIED / n_classes))
        codewords, _, _ = fit_codewords(
            tried, Views(centre, [components] * 2), trial, 2, seed, sweeps=0
        )
        view = full.of(tried, 0)
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


def _blocks(n_rows: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, n_rows, BLOCK)]


def _centred(prototypes: Rows, centre: Floats) -> Floats:
    """A copy in float64, rows together in memory: equal values give equal bits."""
    return np.ascontiguousarray(prototypes, np.float64) - centre


def _principal(
    prototypes: Rows, centre: Floats, seed: int, scale: Floats | None
) -> tuple[Floats, Floats]:
    """Up to COMPONENTS directions (d, c), after `scale`, with their variances, largest first."""
    n_classes, width = prototypes.shape
    count = min(COMPONENTS, n_classes, width)

    def products(basis: Floats | None) -> Floats:
        """The covariance matrix, times `basis`."""
        sums = np.zeros((width, width if basis is None else basis.shape[1]))
        for block in _blocks(n_classes):
            rows = scaled(prototypes[block])
            sums += rows.T @ (rows if basis is None else rows @ basis)
        sums /= n_classes
        return sums

    def scaled(block: Rows) -> Floats:
        rows = _centred(block, centre)
        return rows if scale is None else rows @ scale

    if width <= 1024:
        values, vectors = np.linalg.eigh(products(None))
    elif n_classes <= 2 * COMPONENTS:
        _, lengths, rows = np.linalg.svd(scaled(prototypes), full_matrices=False)
        return np.ascontiguousarray(rows[:count].T), lengths[:count] ** 2 / n_classes
    else:
        # Subspace iteration with ten directions to spare (Halko, Martinsson and Tropp 2011).
        basis = np.random.default_rng(seed).normal(size=(width, COMPONENTS + 10))
        for _ in range(6):
            basis = np.linalg.qr(products(basis))[0]
        values, vectors = np.linalg.eigh(basis.T @ products(basis))
        vectors = basis @ vectors
    order = np.argsort(-values)[:count]
    return np.ascontiguousarray(vectors[:, order]), np.maximum(values[order], 0.0)


def fit_codewords(
    prototypes: Rows, views: Views, size: int, dimension: int, seed: int, sweeps: int = SWEEPS
) -> tuple[Symbols, list[Floats], int]:
    """Codewords, each site's centroids in its view, and how many clashes are left.

    Site by site; then sweeps in which each class takes a free codeword that suits it better, and
    each site's symbols are assigned anew beside those of all others.

    Parameters
    ----------
    prototypes : array (N, d)
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
    code = _Code(codewords)
    for site in range(n_sites):
        if site and views.maps[site] is views.maps[0]:
            view = code.views[0]
        else:
            view = views.of(prototypes, site)
        middles = initial_centroids(view, size, rng)
        earlier = codewords[:, :site]
        # So many classes may agree at j earlier sites and at this one: the other k-1-j tell them.
        room = [min(size ** (dimension - 1 - j), len(view)) for j in range(dimension)]
        clashes = 0
        if site < dimension - 1:
            together = _groups(earlier, site, size)[:, 0]
            codewords[:, site], middles = _capped_means(view, middles, together, room[site])
        else:
            agreeing = range(dimension - 1, 0, -1) or [0]
            groups = [_groups(earlier, j, size) for j in agreeing]
            most = np.repeat([room[j] for j in agreeing], [g.shape[1] for g in groups])
            columns = np.concatenate(groups, axis=1)
            codewords[:, site], middles, clashes = _assign(view, middles, columns, most, rng)
        code.add(view, middles)
        if clashes:
            clashes = _mend(code, dimension)
        logger.info(
            "site %d: %.1f %% of its view's variance lies between symbols, %d clashes",
            site, 100 * explained_variance(view, codewords[:, site]), clashes,
        )  # fmt: skip
        if clashes:
            return codewords, code.centroids, clashes  # the sites to come could not mend it
    _sweep(code, dimension, sweeps, rng)
    return codewords, code.centroids, 0


def algebraic_codewords(
    prototypes: Rows, views: Views, size: int, dimension: int, seed: int
) -> tuple[Symbols, list[Floats]] | None:
    """Codewords and centroids as of `fit_codewords` for alphabets too full for it, or None.

    The first k sites are fitted. Their symbols are the digits of a number in base p, the
    largest prime up to `size`; the other sites have those of a Reed-Solomon code: digits times
    a Cauchy matrix, of which every square part can be inverted. Then come the sweeps.
    None where p ** dimension is less than N, or p less than the number of sites.
    """
    n_sites = len(views.maps)
    prime = int(sympy.prevprime(size + 1))
    if prime**dimension < len(prototypes) or prime < n_sites:
        return None
    first = Views(views.centre, views.maps[:dimension])
    digits, middles, clashes = fit_codewords(prototypes, first, prime, dimension, seed, sweeps=0)
    if clashes:
        return None
    for site, centroids in enumerate(middles):  # neighbours in number are neighbours in the view
        axis = np.linalg.svd(centroids - centroids.mean(axis=0), full_matrices=False)[2][0]
        digits[:, site] = np.argsort(np.argsort(centroids @ axis, kind="stable"))[digits[:, site]]
    rng = np.random.default_rng(seed)
    codewords = np.empty((len(prototypes), n_sites), np.int64)
    code = _Code(codewords)
    for site in range(n_sites):
        codewords[:, site] = digits[:, site] if site < dimension else 0
        if site >= dimension:
            for j in range(dimension):
                codewords[:, site] += digits[:, j] * pow(site - j, -1, prime) % prime
            codewords[:, site] %= prime
        view = views.of(prototypes, site)
        # Symbols from p on have no class yet, but a place.
        code.add(view, _means(view, codewords[:, site], view[rng.integers(len(view), size=size)]))
    _sweep(code, dimension, SWEEPS, rng)
    return codewords, code.centroids


def _sweep(code: _Code, dimension: int, sweeps: int, rng: np.random.Generator) -> None:
    n_sites = len(code)
    for _ in range(sweeps if n_sites > 1 else 0):
        exchanged = _exchange(code, dimension, rng)
        assigned = sum(_assign_anew(code, site, dimension, rng) for site in range(n_sites))
        logger.info("%d codewords exchanged, %d symbols assigned anew", exchanged, assigned)
        if exchanged + assigned == 0:
            break


@dataclass(eq=False)
class _Code:
    """The first sites of a code that is being made.

    Attributes
    ----------
    codewords : int64 array (N, n_sites)
    views, centroids : lists of float64 arrays (N, d_i) and (size, d_i)
        Of each site that is there.
    spreads : list of float
        The variance of each view; 1 where there is none.
    """

    codewords: Symbols
    views: list[Floats] = field(default_factory=list)
    centroids: list[Floats] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)

    def add(self, view: Floats, centroids: Floats) -> None:
        """The next site."""
        self.views.append(view)
        self.centroids.append(centroids)
        self.spreads.append(_spread(view) or 1.0)

    def draw_centroids(self) -> None:
        """They become the means of their classes."""
        for site, view in enumerate(self.views):
            self.centroids[site] = _means(view, self.codewords[:, site], self.centroids[site])

    def __len__(self) -> int:
        return len(self.centroids)

    @property
    def size(self) -> int:
        return len(self.centroids[0])

    def costs(self, rows: Symbols, counts: Symbols) -> Floats:
        """What each symbol costs each class at each site, float64 (B, sites, size)."""
        share = len(self.codewords) / self.size
        costs = np.empty((len(rows), len(self), self.size))
        for site, (view, middles) in enumerate(zip(self.views, self.centroids, strict=True)):
            costs[:, site] = squared_distances(view[rows], middles) / self.spreads[site]
            costs[:, site] += LOAD * np.maximum(counts[site] + 1 - share, 0.0) / share
        return costs

    def counts(self, codewords: Symbols) -> Symbols:
        """How many of these have each symbol at each site, int64 (sites, size)."""
        columns = codewords.T[: len(self)]
        return np.stack([np.bincount(column, minlength=self.size) for column in columns])


def _exchange(code: _Code, dimension: int, rng: np.random.Generator) -> int:
    """Each class takes a free codeword that suits it better; how many have another one."""
    codewords = code.codewords
    taken = TakenWords([code.size] * len(code), dimension)
    taken.add(codewords)
    order, changed = rng.permutation(len(codewords)), 0
    counts = code.counts(codewords)
    for first in range(0, len(order), EXCHANGED):
        rows = order[first : first + EXCHANGED]
        words = codewords[rows]
        changed += taken.exchange(code.costs(rows, counts), words, BEAM)
        counts += code.counts(words) - code.counts(codewords[rows])
        codewords[rows] = words
    code.draw_centroids()
    return changed


def _assign_anew(code: _Code, site: int, dimension: int, rng: np.random.Generator) -> int:
    """One site's symbols beside those of all others; how many changed."""
    groups = _groups(np.delete(code.codewords, site, axis=1), dimension - 1, code.size)
    before = code.codewords[:, site].copy()
    code.codewords[:, site], code.centroids[site], _ = _assign(
        code.views[site], code.centroids[site], groups, np.ones(groups.shape[1], np.int64), rng,
        before,
    )  # fmt: skip
    return int(np.count_nonzero(code.codewords[:, site] != before))


def _mend(code: _Code, dimension: int) -> int:
    """Classes that agree with an earlier one at k sites take free codewords; the clashes left."""
    n_sites = len(code)
    codewords = code.codewords[:, :n_sites]
    clashing = np.concatenate(_repeats(codewords, dimension))
    kept = np.ones(len(codewords), np.bool_)
    kept[clashing] = False
    taken = TakenWords([code.size] * n_sites, dimension)
    taken.add(codewords[kept])
    rows, counts = np.flatnonzero(~kept), code.counts(codewords[kept])
    for first in range(0, rows.size, EXCHANGED):
        part = rows[first : first + EXCHANGED]
        words = taken.place(code.costs(part, counts), WIDE)
        counts += code.counts(words)
        codewords[part[: len(words)]] = words
        if len(words) < len(part):
            break
    code.draw_centroids()
    return sum(map(len, _repeats(codewords, dimension)))


def _repeats(codewords: Symbols, dimension: int) -> list[Symbols]:
    """For every k sites the classes that agree there with an earlier one."""
    choices = combinations(range(codewords.shape[1]), dimension)
    return [RowIndex(codewords[:, list(sites)]).repeats() for sites in choices]


def explained_variance(view: Floats, symbols: Symbols) -> float:
    """Share of a view's variance that lies between symbols; 1 where there is none."""
    centre = view.mean(axis=0)
    size = int(symbols.max()) + 1
    averages = _means(view, symbols, np.zeros((size, view.shape[1])))
    counts = np.bincount(symbols, minlength=size)
    whole = len(view) * _spread(view)
    between = (counts * ((averages - centre) ** 2).sum(axis=1)).sum()
    return float(between / whole) if whole > 0 else 1.0


def _spread(view: Floats) -> float:
    """The variance of all columns together."""
    centre = view.mean(axis=0)
    return sum(float(((view[b] - centre) ** 2).sum()) for b in _blocks(len(view))) / len(view)


def _groups(codewords: Symbols, n_agreeing: int, size: int) -> NDArray[np.int32]:
    """For each so many of the sites so far a column of numbers, equal where classes agree there."""
    n_classes, n_sites = codewords.shape
    span = size**n_agreeing
    columns = np.empty((n_classes, math.comb(n_sites, n_agreeing)), np.int32)
    for place, sites in enumerate(combinations(range(n_sites), n_agreeing)):
        numbers = np.zeros(n_classes, np.int64)
        for site in sites:
            numbers = numbers * size + codewords[:, site]
        if span <= 8 * n_classes + 1024:  # counting is faster than sorting
            ranks = np.cumsum(np.bincount(numbers, minlength=span) > 0) - 1
            columns[:, place] = ranks[numbers]
        else:
            columns[:, place] = np.unique(numbers, return_inverse=True)[1].reshape(-1)
    return columns


def initial_centroids(view: Floats, size: int, rng: np.random.Generator) -> Floats:
    """By k-means; rows themselves where there are no more different ones than symbols."""
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
    view: Floats, centroids: Floats, groups: NDArray[np.integer], most: int
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
        best, regret = np.empty(left.size, np.int64), np.empty(left.size)
        for block in _blocks(left.size):
            far = squared_distances(view[left[block]], centroids[open_])
            _two_nearest(far, best[block], regret[block])
        order = np.lexsort((-regret, best))
        ranks = np.arange(left.size) - np.searchsorted(best[order], best[order])
        fits = order[ranks < room[open_[best[order]]]]
        symbols[left[fits]] = open_[best[fits]]
        room -= np.bincount(open_[best[fits]], minlength=size)
        left = np.delete(left, fits)
        open_ = np.flatnonzero(room > 0)
    return symbols


@compiled
def _two_nearest(far, best, regret):  # type: ignore[no-untyped-def]
    """Each row's least entry, and what the next one has more (0 where there is none)."""
    for row in range(len(far)):
        least = second = np.inf
        for symbol in range(far.shape[1]):
            value = far[row, symbol]
            if value < least:
                second, least, best[row] = least, value, symbol
            elif value < second:
                second = value
        regret[row] = second - least if second < np.inf else 0.0


def _assign(
    view: Floats,
    centroids: Floats,
    groups: NDArray[np.integer],
    most: Symbols,
    rng: np.random.Generator,
    start: Symbols | None = None,
) -> tuple[Symbols, Floats, int]:
    """Symbols that differ within each group of each column, as near to their centroids as can be.

    The classes of a group are assigned at once, the others' symbols being as they are: the
    first round goes through the groups of the first column, the next through those of the
    second, and so on, with centroids drawn anew after each.

    So for the columns, the first ones, where `most` is 1. In the others a symbol may go to so
    many classes of a group, as later sites need it; what is beyond is avoided, but no clash.

    From symbols to start with, without clashes, there are ANEW rounds at most, one a column.
    """
    assignment = assignment_solver()
    n_classes, n_columns = len(view), int(np.count_nonzero(most == 1))
    size = len(centroids)
    n_groups = groups.max(axis=0).astype(np.int64) + 1
    starts = np.cumsum([0, *n_groups]) * size
    # How many classes of each group have each symbol, a column of groups behind the other.
    taken, counts = np.zeros(starts[-1], np.int32), np.zeros(size, np.int64)
    symbols, rounds = np.full(n_classes, -1), range(ROUNDS * PATIENCE)
    if start is not None:
        drawn = int(rng.integers(n_columns))
        symbols, rounds = start.copy(), range(drawn, drawn + min(ANEW, n_columns))
        _count(np.arange(n_classes), symbols, groups, starts, taken, counts, 1)
    share = n_classes / size
    spread = _spread(view) or 1.0
    clashes, before = 0, n_classes * n_columns
    for done in rounds:
        column = groups[:, done % n_columns]
        order = np.argsort(column, kind="stable")
        ends = np.searchsorted(column[order], np.arange(n_groups[done % n_columns] + 1))
        for group in rng.permutation(len(ends) - 1):
            members = rng.permutation(order[ends[group] : ends[group + 1]])
            for first in range(0, members.size, min(ASSIGNED, size)):
                rows = members[first : first + min(ASSIGNED, size)]
                if symbols[rows[0]] >= 0:
                    _count(rows, symbols, groups, starts, taken, counts, -1)
                loads = LOAD * np.maximum(counts + 1 - share, 0.0) / share
                costs = squared_distances(view[rows], centroids)
                _add_clashes(costs, spread, loads, rows, groups, starts, taken, most)
                symbols[rows] = assignment(costs)[1]
                _count(rows, symbols, groups, starts, taken, counts, 1)
        centroids = _means(view, symbols, centroids)
        clashes = int(np.maximum(taken[: starts[n_columns]] - 1, 0).sum())
        if start is None and done + 1 >= ROUNDS and clashes == 0:
            break
        if start is None and (done + 1) % ROUNDS == 0:
            if clashes > max(FEWER * before, FEW):
                break
            before = clashes
    return symbols, centroids, clashes


@compiled
def _count(rows, symbols, groups, starts, taken, counts, step):  # type: ignore[no-untyped-def]
    for row in rows:
        symbol = symbols[row]
        counts[symbol] += step
        for column in range(groups.shape[1]):
            taken[starts[column] + groups[row, column] * counts.size + symbol] += step


@compiled
def _add_clashes(  # type: ignore[no-untyped-def]
    costs, spread, loads, rows, groups, starts, taken, most
):
    """Divide distances by the spread; add loads, and what classes of the same groups have."""
    size = costs.shape[1]
    worse = np.empty(size, np.int64)
    for place, row in enumerate(rows):
        worse[:] = 0
        for column in range(groups.shape[1]):
            start, limit = starts[column] + groups[row, column] * size, most[column] - 1
            for symbol in range(size):
                worse[symbol] += max(taken[start + symbol] - limit, 0)
        for symbol in range(size):
            costs[place, symbol] = (
                costs[place, symbol] / spread + loads[symbol] + CLASH * worse[symbol]
            )


def squared_distances(view: Floats, centroids: Floats) -> Floats:
    """Squared distances (N, size)."""
    squares: Floats = (
        (view**2).sum(axis=1)[:, None] + (centroids**2).sum(axis=1) - 2 * view @ centroids.T
    )
    return np.maximum(squares, 0.0)


def _means(view: Floats, symbols: Symbols, old: Floats) -> Floats:
    """The mean of each symbol's classes; the old one where there is none."""
    sums = np.zeros_like(old)
    _add_rows(view, symbols, sums)
    counts = np.bincount(symbols, minlength=len(old))[:, None]
    return np.where(counts > 0, sums / np.maximum(counts, 1), old)


@compiled
def _add_rows(view, symbols, sums):  # type: ignore[no-untyped-def]
    for row in range(len(view)):
        for column in range(view.shape[1]):
            sums[symbols[row], column] += view[row, column]


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
    except ImportError as error:
        raise _missing() from error
    return {"cluster": cluster, "exceptions": exceptions}[module]


def assignment_solver() -> Any:
    """`linear_sum_assignment` of scipy."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise _missing() from error
    return linear_sum_assignment


def _missing() -> MissingExtraError:
    return MissingExtraError(
        "learnt codes need scipy and scikit-learn to fit: pip install 'labelmapping[sklearn]'"
    )
