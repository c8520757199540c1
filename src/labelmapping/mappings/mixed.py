"""Mixed codes: a class id becomes its residues modulo pairwise coprime numbers.

Section 4 of the paper. Any k sites determine a class because the k smallest
moduli multiply to at least N (Chinese remainder theorem).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from ..arguments import as_integer, as_integers
from ..errors import ArgumentError
from .base import LARGEST_FACTOR, Ids, LabelMapping, refuse_overflow

__all__ = ["MixedMapping", "smallest_root"]


class MixedMapping(LabelMapping):
    """Residues modulo pairwise coprime alphabets.

    Parameters
    ----------
    n_classes : int
        N, at least 1 and at most the product of the `dimension` smallest alphabets.
    alphabet_sizes : sequence of int, optional
        Pairwise coprime, each at least 2. Default: the `n_sites` smallest primes
        from the `dimension`-th root of N on.
    n_sites : int, optional
        The number of sites; needed where `alphabet_sizes` is not given.
    dimension : int, optional
        k. Default: the smallest k whose k smallest alphabets multiply to N or
        more, where alphabets are given; else 2 (1 with a single site).

    Raises
    ------
    ArgumentError
        With the two moduli and their common factor, or the largest N that would
        fit and the two classes that would collide.

    Examples
    --------
    >>> mapping = MixedMapping(1000, [31, 37, 41, 43])
    >>> mapping.encode(999).tolist()
    [7, 0, 15, 10]
    >>> mapping.dimension, mapping.min_distance, mapping.capacity
    (2, 3, 1147)
    >>> mapping.resolve([1, 3], [0, 10]).item()
    999
    """

    kind = "mixed"

    def __init__(
        self,
        n_classes: int,
        alphabet_sizes: Sequence[int] | None = None,
        *,
        n_sites: int | None = None,
        dimension: int | None = None,
    ) -> None:
        n_classes = as_integer("n_classes", n_classes, 1)
        if dimension is not None:
            dimension = as_integer("dimension", dimension, 1)
        if n_sites is not None:
            n_sites = as_integer("n_sites", n_sites, 1)
        if alphabet_sizes is None:
            if n_sites is None:
                raise ArgumentError("n_sites must be given where alphabet_sizes is not")
            dimension = min(2, n_sites) if dimension is None else dimension
            sizes = _primes_from(smallest_root(n_classes, dimension), n_sites)
        else:
            sizes = as_integers("alphabet_sizes", alphabet_sizes, 2)
            if n_sites not in (None, len(sizes)):
                raise ArgumentError(
                    f"n_sites must be the length of alphabet_sizes, {len(sizes)}; got {n_sites}"
                )
        _check_coprime(sizes)
        if dimension is None:
            dimension = smallest_dimension(n_classes, sizes)
        if dimension > len(sizes):
            raise ArgumentError(
                f"dimension must be at most the number of sites, {len(sizes)}; got {dimension}"
            )
        capacity = math.prod(sorted(sizes)[:dimension])
        if n_classes > capacity:
            raise ArgumentError(_too_many(n_classes, sizes, dimension, capacity))
        refuse_overflow(
            "the product of the largest alphabets", math.prod(sorted(sizes)[-dimension:])
        )
        if dimension > 1 and max(sizes) > LARGEST_FACTOR:
            raise ArgumentError(
                f"alphabet_sizes must be at most {LARGEST_FACTOR}, got {max(sizes)}"
            )
        super().__init__(n_classes, sizes, dimension, capacity)

    @classmethod
    def one_hot(cls, n_classes: int) -> MixedMapping:
        """The one-site case: the class id is its own symbol (2 symbols for a single class)."""
        return cls(n_classes, [max(2, as_integer("n_classes", n_classes, 1))])

    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """Residues of `ids` modulo the site's alphabet."""
        return ids % self._alphabet_sizes[site]

    def _classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        # Counted in ints: arange with a step counts in float64, one short past 2^53.
        size = self._alphabet_sizes[site]
        count = -(-(self._n_classes - symbol) // size)
        return np.arange(count, dtype=np.int64) * size + symbol

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        # Garner's form of the Chinese remainder theorem: every product stays
        # below the square of one alphabet or the product of all.
        ids = symbols[..., 0]
        product = self._alphabet_sizes[sites[0]]
        for column, site in enumerate(sites[1:], start=1):
            size = self._alphabet_sizes[site]
            inverse = pow(product, -1, size)
            ids = ids + product * ((symbols[..., column] - ids) % size * inverse % size)
            product *= size
        return ids

    def _recipe(self) -> dict[str, Any]:
        return {
            "n_classes": self._n_classes,
            "alphabet_sizes": list(self._alphabet_sizes),
            "dimension": self._dimension,
        }


def smallest_root(n_classes: int, dimension: int) -> int:
    """The smallest q with q**dimension >= n_classes."""
    root, exact = sympy.integer_nthroot(n_classes, dimension)
    return int(root) if exact else int(root) + 1


def _primes_from(start: int, count: int) -> tuple[int, ...]:
    primes = [int(sympy.nextprime(max(start, 2) - 1))]
    while len(primes) < count:
        primes.append(int(sympy.nextprime(primes[-1])))
    return tuple(primes)


def _check_coprime(sizes: tuple[int, ...]) -> None:
    for a, b in combinations(sizes, 2):
        factor = math.gcd(a, b)
        if factor > 1:
            raise ArgumentError(
                f"alphabet_sizes must be pairwise coprime: {a} and {b} share the factor {factor}, "
                f"so classes 0 and {math.lcm(a, b)} agree at both"
            )


def smallest_dimension(n_classes: int, sizes: tuple[int, ...]) -> int:
    product = 1
    for k, size in enumerate(sorted(sizes), start=1):
        product *= size
        if product >= n_classes:
            return k
    return len(sizes)  # too small: refused with the witness by the caller


def _too_many(n_classes: int, sizes: tuple[int, ...], dimension: int, capacity: int) -> str:
    smallest = sorted(sizes)[:dimension]
    product = " x ".join(str(size) for size in smallest)
    message = (
        f"n_classes must be at most {capacity} ({product}) for these alphabet_sizes and "
        f"dimension {dimension}, got {n_classes}: classes 0 and {capacity} would share all "
        f"symbols of the sites with alphabets {smallest}"
    )
    if dimension == len(sizes):
        length = dimension
        while max(sizes) ** length < n_classes:
            length += 1
        message += f"; alphabets of at most {max(sizes)} symbols need at least {length} sites"
    return message
