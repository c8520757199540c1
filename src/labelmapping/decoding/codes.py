"""A mapping as arrays, for compiled loops: its kind, its sites, and how tuples of sites resolve.

Nothing here has the size of the label set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from math import comb, prod

import numpy as np
import sympy
from numpy.typing import NDArray

from ..mappings import EcocMapping, LabelMapping, MixedMapping, SimplexMapping

__all__ = ["BITS", "MIXED", "SIMPLEX", "CodeArrays", "code_arrays"]

MIXED, SIMPLEX, BITS = 0, 1, 2
# More k-tuples of sites than this are not tried as seeds.
MOST_SEED_TUPLES = 64


@dataclass(frozen=True, eq=False)
class CodeArrays:
    """The present sites of a code with a closed form.

    Attributes
    ----------
    kind : int
        MIXED, SIMPLEX or BITS.
    sizes : int64 array (m,)
        Alphabets of the present sites.
    points : int64 array (m,)
        SIMPLEX: evaluation points; BITS: which bit.
    tuples : int64 array (t, k)
        k places among the present sites; any such tuple determines the class. The
        first `n_groups` hold every site equally often: sites in disjoint groups
        where k divides m, else every window of k neighbours in a circle.
    inverses : int64 array (t, k, k)
        MIXED: [j, 0] is the inverse of the product of the sizes before j, modulo
        size j (Garner); SIMPLEX: the inverse of the tuple's Vandermonde matrix.
    others : int64 array (t, m - k)
        The places beside a tuple's.
    share : float
        k / m. Over the groups, the deficits of a class sum to its deficit times
        n_groups · share, so in one group it has at most `share` of it.
    pairs : int64 array (m, m)
        At dimension 2, what resolves two symbols at once: MIXED: [i, j] is the inverse
        of size i modulo size j; SIMPLEX: of point j less point i. Else zeros.
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


@lru_cache(maxsize=256)
def code_arrays(mapping: LabelMapping, sites: tuple[int, ...]) -> CodeArrays | None:
    """The arrays of a mapping's present sites, or None where it has no closed form here."""
    k, m = mapping.dimension, len(sites)
    sizes = np.array([mapping.alphabet_sizes[site] for site in sites], np.int64)
    if isinstance(mapping, MixedMapping):
        kind, points = MIXED, np.zeros(m, np.int64)
    elif isinstance(mapping, SimplexMapping):
        kind, points = SIMPLEX, np.array([mapping.points[site] for site in sites], np.int64)
    elif isinstance(mapping, EcocMapping):
        kind, points = BITS, np.array(sites, np.int64)
    else:
        return None
    groups = _groups(m, k)
    seeds = list(combinations(range(m), k)) if comb(m, k) <= MOST_SEED_TUPLES else []
    known = {tuple(sorted(group)) for group in groups}
    tuples = groups + [seed for seed in seeds if seed not in known]
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
    if k == 2 and kind != BITS:
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
        np.array(tuples, np.int64),
        inverses,
        np.array(others, np.int64).reshape(len(tuples), m - k),
        len(groups),
        k / m,
        pairs,
    )


def _groups(m: int, k: int) -> list[tuple[int, ...]]:
    if m % k == 0:
        return [tuple(range(start, start + k)) for start in range(0, m, k)]
    return [tuple((start + j) % m for j in range(k)) for start in range(m)]
