"""Free codewords: those that agree with no class at k sites, and the one that suits a class best.

Compiled loops over the tuples of symbols that classes have at every k sites. Knows no mapping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled

__all__ = ["TakenWords"]

Floats = NDArray[np.float64]
Symbols = NDArray[np.int64]


class TakenWords:
    """For every k sites the tuples of symbols that a class has there, a bit each.

    Parameters
    ----------
    sizes : sequence of int
        The sites' alphabets.
    dimension : int
        k.
    """

    def __init__(self, sizes: Sequence[int], dimension: int) -> None:
        # In the order of their last sites, so those that end at a site follow one another.
        tuples = sorted(combinations(range(len(sizes)), dimension), key=lambda sites: sites[::-1])
        self.sizes = np.asarray(sizes, np.int64)
        self._tuples = np.array(tuples, np.int64)
        counts = [math.prod(int(self.sizes[site]) for site in sites) for sites in tuples]
        self._starts = np.cumsum([0, *counts[:-1]]).astype(np.int64)
        self._ends = np.searchsorted(self._tuples[:, -1], np.arange(len(sizes) + 1))
        self._taken = np.zeros(sum(counts) // 8 + 1, np.uint8)

    def add(self, codewords: Symbols) -> None:
        """Classes take their codewords, int64 (N, n_sites); no two agree at k sites."""
        _mark_all(codewords, self._arrays())

    def place(self, costs: Floats, width: int) -> Symbols:
        """Classes without a codeword take, one after the other, a free one of little cost.

        By a beam over the sites: the `width` cheapest beginnings are continued.

        Parameters
        ----------
        costs : float64 array (B, n_sites, largest size)
            Of each symbol at each site; a codeword costs their sum.

        Returns
        -------
        int64 array (B, n_sites)
            Shorter where no codeword was found for a class: those before it.
        """
        words = np.full(costs.shape[:2], -1)
        done = _place(costs, words, self._arrays(), width)
        return words[:done]

    def exchange(self, costs: Floats, words: Symbols, width: int) -> int:
        """Classes give their codewords up, one after the other, for cheaper ones that are free.

        Parameters
        ----------
        costs : as for `place`
        words : int64 array (B, n_sites)
            The classes' codewords, changed in place.

        Returns
        -------
        int
            How many have another codeword now.
        """
        before = words.copy()
        _place(costs, words, self._arrays(), width)
        return int((words != before).any(axis=1).sum())

    def _arrays(self) -> tuple[Symbols, Symbols, Symbols, Symbols, NDArray[np.uint8]]:
        return self.sizes, self._tuples, self._starts, self._ends, self._taken


@compiled
def _place(  # type: ignore[no-untyped-def]  # noqa: PLR0912, PLR0915 - a call costs more
    costs, words, arrays, width
):
    """A free codeword for each class in turn; how many classes there were one for."""
    sizes, tuples, starts, ends, taken = arrays
    n_sites, dimension = sizes.size, tuples.shape[1]
    most = 0
    for site in range(n_sites):
        most = max(most, ends[site + 1] - ends[site])
    beam, longer = np.empty((width, n_sites), np.int64), np.empty((width, n_sites), np.int64)
    so_far, sums = np.empty(width), np.empty(width)
    # Of each beginning: where its tuples with the next symbol start, the place of the cheapest
    # free symbol that is not in `longer` yet, and what it costs with it.
    bases, heads = np.empty((width, most), np.int64), np.empty(width, np.int64)
    values = np.empty(width)
    for row in range(len(costs)):
        known = words[row, 0] >= 0
        if known:
            _mark(words[row], arrays, False)
        n_beam, so_far[0] = 1, 0.0
        for site in range(n_sites):
            size, first, last = sizes[site], ends[site], ends[site + 1]
            cost = costs[row, site, :size]
            heap = _heap(cost)
            n_heap = size
            for b in range(n_beam):
                for t in range(first, last):
                    place = 0
                    for j in range(dimension - 1):
                        place = place * sizes[tuples[t, j]] + beam[b, tuples[t, j]]
                    bases[b, t - first] = starts[t] + place * size
                heads[b] = -1
                values[b] = -np.inf
            found, best, n_open = 0, 0, 0
            while True:
                if n_open < n_beam:
                    best = n_open
                    n_open += 1
                else:
                    best = 0
                    for b in range(1, n_beam):
                        if values[b] < values[best]:
                            best = b
                    if found == width or values[best] == np.inf:
                        break
                    longer[found, :site] = beam[best, :site]
                    longer[found, site] = heap[size - 1 - heads[best]]
                    sums[found] = values[best]
                    found += 1
                head, free = heads[best] + 1, False
                while head < size:
                    if head >= size - n_heap:
                        n_heap = _pop(heap, n_heap, cost)
                    free = True
                    for t in range(last - first):
                        bit = bases[best, t] + heap[size - 1 - head]
                        if taken[bit >> 3] >> (bit & 7) & 1:
                            free = False
                            break
                    if free:
                        break
                    head += 1
                heads[best] = head
                values[best] = so_far[best] + cost[heap[size - 1 - head]] if free else np.inf
            beam, longer, so_far, sums, n_beam = longer, beam, sums, so_far, found
        if known:
            own = 0.0  # the beam may have lost it
            for site in range(n_sites):
                own += costs[row, site, words[row, site]]
        if n_beam > 0 and (not known or so_far[0] < own):
            words[row] = beam[0]
        elif not known:
            return row
        _mark(words[row], arrays, True)
    return len(costs)


@compiled
def _mark(word, arrays, is_taken):  # type: ignore[no-untyped-def]
    sizes, tuples, starts, _, taken = arrays
    for t in range(len(tuples)):
        place = 0
        for j in range(tuples.shape[1]):
            place = place * sizes[tuples[t, j]] + word[tuples[t, j]]
        bit = starts[t] + place
        if is_taken:
            taken[bit >> 3] |= np.uint8(1 << (bit & 7))
        else:
            taken[bit >> 3] &= np.uint8(255 - (1 << (bit & 7)))


@compiled
def _mark_all(words, arrays):  # type: ignore[no-untyped-def]
    for word in words:
        _mark(word, arrays, True)


@compiled
def _heap(cost):  # type: ignore[no-untyped-def]
    """The symbols as a heap, the cheapest on top; of equal ones the lowest."""
    heap = np.arange(cost.size)
    for root in range(cost.size // 2 - 1, -1, -1):
        _sift(heap, root, cost.size, cost)
    return heap


@compiled(inline="always")
def _pop(heap, n_heap, cost):  # type: ignore[no-untyped-def]
    """The heap's top goes behind it: the array then ends with all that came, the first last."""
    n_heap -= 1
    heap[0], heap[n_heap] = heap[n_heap], heap[0]
    _sift(heap, 0, n_heap, cost)
    return n_heap


@compiled(inline="always")
def _sift(heap, root, n_heap, cost):  # type: ignore[no-untyped-def]
    symbol = heap[root]
    while True:
        child = 2 * root + 1
        if child >= n_heap:
            break
        right = child + 1
        if right < n_heap and _before(heap[right], heap[child], cost):
            child = right
        if not _before(heap[child], symbol, cost):
            break
        heap[root] = heap[child]
        root = child
    heap[root] = symbol


@compiled(inline="always")
def _before(one, other, cost):  # type: ignore[no-untyped-def]
    return cost[one] < cost[other] or (cost[one] == cost[other] and one < other)
