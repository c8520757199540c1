"""A mapping as arrays, for compiled loops: its kind, its sites, and how tuples of sites resolve.

Nothing here has the size of the label set, but for tables, which have it already.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from math import comb, prod

import numpy as np
import sympy
from numpy.typing import NDArray

from ..mappings import EcocMapping, LabelMapping, MixedMapping, PolynomialMapping, SimplexMapping
from ..mappings.linear import LinearCode, digits_of, number_of
from ..mappings.simplex import INFINITY
from ..mappings.table import CodeTable

__all__ = ["BITS", "LINEAR", "LOWEST", "MIXED", "SIMPLEX", "TABLE", "CodeArrays", "code_arrays"]

MIXED, SIMPLEX, BITS, LINEAR, TABLE = 0, 1, 2, 3, 4
# Where the classes with a symbol are, at a site of a LINEAR code: one for each value of the
# digits above the symbol's, or those with these leading digits, or anywhere.
LOWEST, LEADING, ANYWHERE = 0, 1, 2
# More k-tuples of sites than this are not tried as seeds.
MOST_SEED_TUPLES = 64
# Cells of the lookups of a TABLE code, 8 bytes each: with more it is scanned.
MOST_CELLS = 1 << 23


@dataclass(frozen=True, eq=False)
class CodeArrays:
    """The present sites of a code, and how their symbols resolve.

    Attributes
    ----------
    kind : int
        MIXED, SIMPLEX (over a prime field, at finite points), BITS, LINEAR or TABLE.
    sizes : int64 array (m,)
        Alphabets of the present sites.
    points : int64 array (m,)
        SIMPLEX: evaluation points; BITS: which bit; LINEAR: where a symbol's classes are.
    tuples : int64 array (t, k)
        k places among the present sites; any such tuple determines the class. The
        first `n_groups` hold every site equally often: sites in disjoint groups
        where k divides m, else every window of k neighbours in a circle.
    inverses : int64 array (t, k, k); LINEAR: (t, k, largest size); TABLE: (t, 1, cells)
        MIXED: [j, 0] is the inverse of the product of the sizes before j, modulo
        size j (Garner); SIMPLEX: the inverse of the tuple's Vandermonde matrix; LINEAR:
        what each symbol of place j adds to the class id; TABLE: the class of each
        combination of symbols (the last one fastest), -1 for none.
    others : int64 array (t, m - k)
        The places beside a tuple's.
    share : float
        k / m. Over the groups, the deficits of a class sum to its deficit times
        n_groups · share, so in one group it has at most `share` of it.
    pairs : int64 array (m, m)
        At dimension 2, what resolves two symbols at once: MIXED: [i, j] is the inverse
        of size i modulo size j; SIMPLEX: of point j less point i; LINEAR, TABLE: 2 t for the
        tuple (i, j) and 2 t + 1 for the tuple (j, i). Else zeros.
    searchable, sliceable : bool
        Whether tuples of symbols are worth trying, and whether symbols may be peeled.
    linear : tuple
        LINEAR: the characteristic p, p**chunk, the digits of an id, each site's digits
        (m,), and what the chunks of an id's digits add to its symbols (m, chunks, p**chunk).
        TABLE: last, the codewords, int32 (m, N).
    """

    kind: int
    n_classes: int
    dimension: int
    sizes: NDArray[np.int64]
    points: NDArray[np.int64]
    tuples: NDArray[np.int64]
    inverses: NDArray[np.int64]
    others: NDArray[np.int64]
    n_groups: int
    share: float
    pairs: NDArray[np.int64]
    searchable: bool
    sliceable: bool
    linear: tuple[int, int, int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]


@lru_cache(maxsize=32)
def code_arrays(mapping: LabelMapping, sites: tuple[int, ...]) -> CodeArrays | None:
    """The arrays of a mapping's present sites, or None where only `encode` knows it."""
    k, m = mapping.dimension, len(sites)
    sizes = np.array([mapping.alphabet_sizes[site] for site in sites], np.int64)
    found = _kind(mapping, sites)
    if found is None:
        return None
    kind, points, structure = found
    searchable = kind != LINEAR or ANYWHERE not in points
    cells = prod(sorted(int(size) for size in sizes)[-k:]) if kind == TABLE else 1
    groups = _groups(m, k) if searchable and cells <= MOST_CELLS else []
    if cells * len(groups) > MOST_CELLS or not groups:
        groups, searchable = [], False  # a code that is only scanned needs no tuples
    few = searchable and comb(m, k) <= MOST_SEED_TUPLES
    seeds = list(combinations(range(m), k)) if few else []
    known = {tuple(sorted(group)) for group in groups}
    tuples = groups + [seed for seed in seeds if seed not in known]
    if kind == TABLE:
        tuples = tuples[: MOST_CELLS // cells]
    inverses = np.zeros((len(tuples), k, k), np.int64)
    if kind == MIXED:
        for t, places in enumerate(tuples):
            chosen = [int(sizes[place]) for place in places]
            for j in range(1, k):
                inverses[t, j, 0] = pow(prod(chosen[:j]), -1, chosen[j])
    elif kind == SIMPLEX and k > 1:
        order = int(sizes[0])
        for t, places in enumerate(tuples):
            powers = [[pow(int(points[place]), j, order) for j in range(k)] for place in places]
            inverses[t] = np.array(sympy.Matrix(powers).inv_mod(order).tolist(), dtype=np.int64)
    pairs = np.zeros((m, m), np.int64)
    sliceable = k > 1 and kind != BITS and searchable
    if structure is not None:
        inverses = _lookups(structure, sites, tuples, sizes)
        pairs = np.full((m, m), -1, np.int64)
        for t, places in enumerate(tuples if k == 2 else []):
            pairs[places[0], places[1]], pairs[places[1], places[0]] = 2 * t, 2 * t + 1
        # Runs are there for some linear codes only; slices need every pair of sites.
        has_way = kind == LINEAR if k != 2 else int(np.count_nonzero(pairs < 0)) == m
        sliceable = sliceable and has_way
    elif k == 2 and kind != BITS:
        for i, j in permutations(range(m), 2):
            number = int(sizes[i]) if kind == MIXED else int(points[j]) - int(points[i])
            pairs[i, j] = pow(number, -1, int(sizes[j]))
    others = [[place for place in range(m) if place not in places] for places in tuples]
    return CodeArrays(
        kind,
        mapping.n_classes,
        k,
        sizes,
        points,
        np.array(tuples, np.int64).reshape(len(tuples), k),
        inverses,
        np.array(others, np.int64).reshape(len(tuples), m - k),
        len(groups),
        k / m,
        pairs,
        searchable,
        sliceable,
        _structure_arrays(structure, sites),
    )


def _kind(
    mapping: LabelMapping, sites: tuple[int, ...]
) -> tuple[int, NDArray[np.int64], LinearCode | CodeTable | None] | None:
    """Kind, points, and the matrix of a LINEAR code or the table of a TABLE code."""
    if isinstance(mapping, MixedMapping):
        return MIXED, np.zeros(len(sites), np.int64), None
    if isinstance(mapping, EcocMapping) and mapping.code == "binary":
        return BITS, np.array(sites, np.int64), None
    linear = getattr(mapping, "linear", None)
    if isinstance(linear, LinearCode):
        return LINEAR, np.array([_place(mapping, site) for site in sites], np.int64), linear
    table = getattr(mapping, "table", None)
    if isinstance(table, CodeTable) and not table.has_abstentions:
        return TABLE, np.zeros(len(sites), np.int64), table
    if isinstance(mapping, SimplexMapping):
        return SIMPLEX, np.array([mapping.points[site] for site in sites], np.int64), None
    return None


def _place(mapping: LabelMapping, site: int) -> int:
    if isinstance(mapping, SimplexMapping):
        return LEADING if mapping.points[site] == INFINITY else LOWEST
    return LOWEST if isinstance(mapping, PolynomialMapping) else ANYWHERE


def _structure_arrays(
    structure: LinearCode | CodeTable | None, sites: tuple[int, ...]
) -> tuple[int, int, int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    codewords = np.zeros((0, 0), np.int32)
    if isinstance(structure, CodeTable):
        codewords = np.ascontiguousarray(structure.codewords[:, list(sites)].T, np.int32)
    if not isinstance(structure, LinearCode):
        return 2, 2, 1, np.zeros(0, np.int64), np.zeros((0, 0, 0), np.int64), codewords
    linear = structure
    widths = np.array([linear.widths[site] for site in sites], np.int64)
    tables = np.ascontiguousarray(linear.tables[list(sites)])
    p = linear.characteristic
    return p, p**linear.chunk, linear.n_digits, widths, tables, codewords


def _lookups(
    structure: LinearCode | CodeTable,
    sites: tuple[int, ...],
    tuples: list[tuple[int, ...]],
    sizes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """What tuples of symbols are looked up in; see `CodeArrays.inverses`."""
    k = len(tuples[0]) if tuples else 1
    if isinstance(structure, CodeTable):
        cells = max((int(np.prod(sizes[list(places)])) for places in tuples), default=1)
        lookups = np.full((len(tuples), 1, cells), -1, np.int64)
        for t, places in enumerate(tuples):
            numbers = np.zeros(len(structure.codewords), np.int64)
            for place in places:
                numbers = numbers * sizes[place] + structure.codewords[:, sites[place]]
            lookups[t, 0, numbers] = np.arange(len(numbers))
        return lookups
    p = structure.characteristic
    inverses = np.zeros((len(tuples), k, int(sizes.max())), np.int64)
    for t, places in enumerate(tuples):
        inverse = structure.inverse(tuple(sites[place] for place in places))
        start = 0
        for j, place in enumerate(places):
            width = structure.widths[sites[place]]
            digits = digits_of(np.arange(sizes[place]), p, width)
            rows = inverse[start : start + width]
            inverses[t, j, : sizes[place]] = number_of(digits @ rows % p, p)
            start += width
    return inverses


def _groups(m: int, k: int) -> list[tuple[int, ...]]:
    if m % k == 0:
        return [tuple(range(start, start + k)) for start in range(0, m, k)]
    return [tuple((start + j) % m for j in range(k)) for start in range(m)]
