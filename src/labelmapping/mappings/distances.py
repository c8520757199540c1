"""How far codewords lie apart, counted over all pairs. Knows matrices of symbols, no mapping.

A matrix (N, n) has a class a row and a site a column. Two classes differ at a site
where both have a symbol there and the symbols are unequal; -1 is an abstention.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..compiled import compiled
from .rows import RowIndex, as_codewords

__all__ = [
    "counting_work",
    "distance_counts",
    "first_collision",
    "matrix_work",
    "minimum_distance",
]

# What one operation costs, in nanoseconds of one core (measured): to count an agreement that
# the index lists, to compare one word of one bit plane, and to tally one pair.
LISTED, COMPARED, TALLIED = 4.0, 0.2, 1.0
# Pairs compared at a time: their distances stay in the first cache.
BLOCK = 1024
ONE, TWO, FOUR, TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
PAIRS, NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
BYTES, SUM = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


def counting_work(codewords_shape: tuple[int, int], alphabet_sizes: Sequence[int]) -> float:
    """About how long `distance_counts` takes, in nanoseconds of one core.

    An estimate for codes without abstentions whose symbols are all about as frequent.

    Parameters
    ----------
    codewords_shape : (int, int)
        N and n_sites.
    alphabet_sizes : sequence of int
        Of every site.

    Examples
    --------
    >>> bool(counting_work((1000, 8), [64] * 8) < counting_work((100_000, 8), [64] * 8))
    True
    """
    n_classes, n_sites = codewords_shape
    pairs = n_classes * (n_classes - 1) / 2
    listed = n_classes * n_sites + pairs * sum(1 / size for size in alphabet_sizes)
    return min(LISTED * listed, _packed_work(n_classes, n_sites, max(alphabet_sizes)))


def matrix_work(codewords: ArrayLike) -> float:
    """About how long `distance_counts` takes for this matrix (N, n_sites), in nanoseconds.

    Exact in what it counts: a symbol that most classes share costs more than q says.
    """
    return min(_works(*_buckets(as_codewords(codewords))))


def _works(
    buckets: NDArray[np.int64], abstained: NDArray[np.int64], starts: NDArray[np.int64]
) -> tuple[float, float]:
    """The work through lists and the work on bits."""
    n_classes, n_sites = buckets.shape
    lengths = np.diff(starts)
    listed = float((lengths.astype(np.float64) * (lengths - 1) / 2).sum())
    listed += n_classes * (n_sites + int(lengths[abstained].sum()))
    return LISTED * listed, _packed_work(n_classes, n_sites, _largest_alphabet(abstained, starts))


def _largest_alphabet(abstained: NDArray[np.int64], starts: NDArray[np.int64]) -> int:
    return int(np.diff(np.append(abstained, len(starts) - 1)).max()) - 1


def _packed_work(n_classes: int, n_sites: int, alphabet_size: int) -> float:
    columns = -(-n_sites // 64) * ((alphabet_size - 1).bit_length() + 1)
    return n_classes * (n_classes - 1) / 2 * (COMPARED * columns + TALLIED)


def distance_counts(codewords: ArrayLike) -> NDArray[np.int64]:
    """How many pairs of classes differ at exactly d sites.

    Counted through an index of the classes with each symbol, in about N²n/q steps, or,
    where alphabets are small, by comparing the bits of 64 sites at once; whichever is less.

    Parameters
    ----------
    codewords : array-like of int, shape (N, n_sites)
        Symbols from 0 on; -1 is an abstention and differs from nothing.

    Returns
    -------
    ndarray of int64, shape (n_sites + 1,)
        Entry d is the number of pairs at distance d; the sum is N(N-1)/2.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        Not a matrix of such integers.

    Examples
    --------
    >>> distance_counts([[0, 0, 0], [0, 1, 1], [1, 0, -1], [2, 2, 2]]).tolist()
    [0, 1, 3, 2]
    """
    return _count(as_codewords(codewords), all_pairs=True)[0]


def minimum_distance(codewords: ArrayLike) -> tuple[int, tuple[int, int]]:
    """The least number of sites at which two classes differ, and the first two that do so.

    Parameters
    ----------
    codewords : array-like of int, shape (N, n_sites)
        As in `distance_counts`, which takes as long.

    Returns
    -------
    distance : int
        n_sites where there is one class only.
    witness : (int, int)
        The pair with the lowest first id, then the lowest second; (0, 0) for one class.

    Examples
    --------
    >>> minimum_distance([[0, 0, 0], [2, 2, 2], [0, 2, 1], [1, 0, 0]])
    (1, (0, 3))
    """
    _, distance, first, second = _count(as_codewords(codewords), all_pairs=False)
    return distance, (first, second)


def first_collision(codewords: ArrayLike) -> tuple[int, int] | None:
    """The first two classes that differ nowhere, or None; lowest ids as in `minimum_distance`.

    By sorting, in O(N log N); tables with abstentions pair by pair.

    Examples
    --------
    >>> first_collision([[0, 1], [1, 1], [0, 1]])
    (0, 2)
    >>> first_collision([[0, -1], [1, 1], [-1, 5]])
    (0, 2)
    """
    matrix = as_codewords(codewords)
    if matrix.min() < 0:
        distance, pair = minimum_distance(matrix)
        return pair if distance == 0 and len(matrix) > 1 else None
    return RowIndex(matrix).first_repeat()


def _count(
    matrix: NDArray[np.int64], *, all_pairs: bool
) -> tuple[NDArray[np.int64], int, int, int]:
    """Pairs at each distance, the least distance and its witness.

    Without `all_pairs` the counts end at the first pair that differs nowhere.
    """
    n_classes, n_sites = matrix.shape
    if n_classes == 1:
        return np.zeros(n_sites + 1, np.int64), n_sites, 0, 0
    buckets, abstained, starts = _buckets(matrix)
    through_lists, on_bits = _works(buckets, abstained, starts)
    if through_lists <= on_bits:
        found = _count_listed(buckets, abstained, starts, all_pairs)
    else:
        packed = _packed(buckets - abstained - 1, _largest_alphabet(abstained, starts))
        found = _count_packed(*packed, n_sites, all_pairs)
    counts, distance, first, second = found
    return counts, int(distance), int(first), int(second)


def _buckets(
    matrix: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """A number for each site's symbol; those of each site's -1; where each bucket starts.

    A site's buckets follow its bucket of abstentions; rare symbols of wide alphabets are ranked.
    """
    n_classes, n_sites = matrix.shape
    buckets = np.empty(matrix.shape, np.int64)
    abstained = np.empty(n_sites, np.int64)
    counts, total = [], 0
    for site in range(n_sites):
        symbols = matrix[:, site]
        if symbols.max() > 2 * n_classes:
            values = np.unique(symbols)
            symbols = np.searchsorted(values[values >= 0], symbols) - (symbols < 0)
        count = np.bincount(symbols + 1, minlength=2)
        abstained[site] = total
        buckets[:, site] = symbols + total + 1
        counts.append(count)
        total += len(count)
    return buckets, abstained, np.concatenate([[0], np.cumsum(np.concatenate(counts))])


@compiled
def _members(buckets: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Ascending classes of each bucket, one bucket behind the other."""
    members = np.empty(buckets.size, np.int32)
    heads = starts[:-1].copy()
    for i in range(len(buckets)):
        for bucket in buckets[i]:
            members[heads[bucket]] = i
            heads[bucket] += 1
    return members


@compiled
def _count_listed(
    buckets: NDArray[np.int64],
    abstained: NDArray[np.int64],
    starts: NDArray[np.int64],
    all_pairs: bool,
) -> tuple[NDArray[np.int64], int, int, int]:
    """Counts through the list of each bucket's classes; an abstention agrees with everything."""
    n_classes, n_sites = buckets.shape
    members = _members(buckets, starts)
    heads = starts[:-1].copy()
    counts = np.zeros(n_sites + 1, np.int64)
    agreements = np.zeros(n_classes, np.int32)
    touched = np.empty(n_classes, np.int32)
    least, first, second = n_sites + 1, 0, 0
    for i in range(n_classes - 1):
        n_touched, differing = 0, n_sites
        for site in range(n_sites):
            bucket = buckets[i, site]
            heads[bucket] += 1  # past i: only later classes are left
            if bucket == abstained[site]:
                differing -= 1
                continue
            for listed in (bucket, abstained[site]):
                for place in range(heads[listed], starts[listed + 1]):
                    j = members[place]
                    if agreements[j] == 0:
                        touched[n_touched] = j
                        n_touched += 1
                    agreements[j] += 1
        nearest, partner = n_sites + 1, 0
        if n_touched < n_classes - 1 - i:
            # Those that are in no list lie farther than any that is, so they give the
            # witness only where there are no others.
            counts[differing] += n_classes - 1 - i - n_touched
            nearest, partner = differing, i + 1
        for place in range(n_touched):
            j = touched[place]
            distance = differing - agreements[j]
            agreements[j] = 0
            counts[distance] += 1
            if distance < nearest or (distance == nearest and j < partner):
                nearest, partner = distance, j
        if nearest < least:
            least, first, second = nearest, i, partner
            if least == 0 and not all_pairs:
                break
    return counts, least, first, second


@compiled
def _packed(
    digits: NDArray[np.int64], alphabet_size: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Bit planes (words, planes, N) of symbols, and whether there is a symbol (words, N)."""
    n_classes, n_sites = digits.shape
    n_planes = 0
    while (1 << n_planes) < alphabet_size:
        n_planes += 1
    n_words = (n_sites + 63) // 64
    planes = np.zeros((n_words, n_planes, n_classes), np.uint64)
    present = np.zeros((n_words, n_classes), np.uint64)
    for i in range(n_classes):
        for site in range(n_sites):
            symbol = digits[i, site]
            if symbol >= 0:
                bit = ONE << np.uint64(site & 63)
                present[site >> 6, i] |= bit
                for plane in range(n_planes):
                    if symbol >> plane & 1:
                        planes[site >> 6, plane, i] |= bit
    return planes, present


@compiled
def _ones(word: np.uint64) -> np.uint64:
    """How many bits are set; compilers know this form and use the machine's instruction."""
    word = word - ((word >> ONE) & PAIRS)
    word = (word & NIBBLES) + ((word >> TWO) & NIBBLES)
    word = (word + (word >> FOUR)) & BYTES
    return (word * SUM) >> TOP


@compiled
def _count_packed(
    planes: NDArray[np.uint64], present: NDArray[np.uint64], n_sites: int, all_pairs: bool
) -> tuple[NDArray[np.int64], np.int64, int, int]:
    """Counts by comparing every pair, 64 sites at once."""
    n_words, n_planes, n_classes = planes.shape
    counts = np.zeros(n_sites + 1, np.int64)
    distances = np.empty(BLOCK, np.int64)
    differing = np.empty(BLOCK, np.uint64)
    least, first, second = np.int64(n_sites + 1), 0, 0
    for i in range(n_classes - 1):
        for start in range(i + 1, n_classes, BLOCK):
            size = min(BLOCK, n_classes - start)
            distances[:] = 0
            for word in range(n_words):
                differing[:] = 0
                for plane in range(n_planes):
                    own = planes[word, plane, i]
                    others = planes[word, plane, start : start + size]
                    for j in range(size):
                        differing[j] |= own ^ others[j]
                own = present[word, i]
                others = present[word, start : start + size]
                for j in range(size):
                    distances[j] += np.int64(_ones(differing[j] & own & others[j]))
            for j in range(size):
                distance = distances[j]
                counts[distance] += 1
                if distance < least:
                    least, first, second = distance, i, start + j
        if least == 0 and not all_pairs:
            break
    return counts, least, first, second
