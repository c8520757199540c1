"""Simplex codes: Reed-Solomon codewords of a class id's base-p digits.

Section 4 of the paper. The k digits of an id are the coefficients of a
polynomial over F_p; site i is its value at the i-th point. Two polynomials of
degree below k agree at k-1 points at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from ..arguments import as_integer, as_integers
from ..errors import ArgumentError
from .base import LARGEST_FACTOR, Ids, LabelMapping, refuse_overflow
from .mixed import smallest_root

__all__ = ["SimplexMapping"]


class SimplexMapping(LabelMapping):
    """A Reed-Solomon code over a prime field; all alphabets are equal.

    Parameters
    ----------
    n_classes : int
        N, at least 1 and at most ``field_order ** dimension``.
    n_sites : int
        n, at most `field_order`.
    field_order : int, optional
        p, a prime. Default: the smallest prime that holds N classes and n points.
    dimension : int, default 2
        k, the number of base-p digits.
    points : sequence of int, optional
        Where the polynomial is evaluated: n different values in 0..p-1.
        Default 1, 2, ..., n (modulo p): with k = 2 that is the paper's
        ``((x mod p) + floor(x / p) * i) mod p``, i = 1..n.

    Raises
    ------
    ArgumentError
        With the factors of an order that is no prime, the largest N that would
        fit, or the points that coincide.

    Examples
    --------
    >>> mapping = SimplexMapping(20901, 4, field_order=181)
    >>> mapping.encode([0, 20900]).tolist()
    [[0, 0, 0, 0], [19, 134, 68, 2]]
    >>> mapping.min_distance, mapping.capacity
    (3, 32761)
    """

    kind = "simplex"

    def __init__(
        self,
        n_classes: int,
        n_sites: int,
        *,
        field_order: int | None = None,
        dimension: int = 2,
        points: Sequence[int] | None = None,
    ) -> None:
        n_classes = as_integer("n_classes", n_classes, 1)
        n_sites = as_integer("n_sites", n_sites, 1)
        dimension = as_integer("dimension", dimension, 1)
        if dimension > n_sites:
            raise ArgumentError(
                f"dimension must be at most the number of sites, {n_sites}; got {dimension}"
            )
        if field_order is None:
            least = max(smallest_root(n_classes, dimension), n_sites, 2)
            order = int(sympy.nextprime(least - 1))
        else:
            order = as_integer("field_order", field_order, 2)
        if order > LARGEST_FACTOR:  # before a search for factors, which might never end
            raise ArgumentError(f"field_order must be at most {LARGEST_FACTOR}, got {order}")
        if not sympy.isprime(order):
            factors = " x ".join(f"{p}^{e}" for p, e in sympy.factorint(order).items())
            raise ArgumentError(f"field_order must be a prime, got {order} = {factors}")
        capacity = order**dimension
        if n_classes > capacity:
            raise ArgumentError(
                f"n_classes must be at most {capacity} ({order}^{dimension}), got {n_classes}: "
                f"classes 0 and {capacity} would share a codeword; the smallest prime that "
                f"holds them is {sympy.nextprime(smallest_root(n_classes, dimension) - 1)}"
            )
        refuse_overflow("field_order ** dimension", capacity)
        self._points = _check_points(points, n_sites, order)
        super().__init__(n_classes, (order,) * n_sites, dimension, capacity)

    @property
    def field_order(self) -> int:
        """p, the number of symbols of every site."""
        return self._alphabet_sizes[0]

    @property
    def points(self) -> tuple[int, ...]:
        """Where each site evaluates the polynomial, in 0..p-1."""
        return self._points

    def symbols_at(self, ids: Ids, site: int) -> Ids:
        """The polynomial of each id's digits at the site's point (Horner's rule)."""
        order, point = self.field_order, self._points[site]
        power = order ** (self._dimension - 1)
        value = ids // power % order
        while power > 1:
            power //= order
            value = (value * point + ids // power % order) % order
        return value

    def _classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        # The digits above the lowest are free; the symbol then fixes the lowest.
        order = self.field_order
        rest = np.arange(-(-self._n_classes // order), dtype=np.int64) * order
        ids = rest + (symbol - self.symbols_at(rest, site)) % order
        below: NDArray[np.int64] = ids[ids < self._n_classes]
        return below

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        order, k = self.field_order, self._dimension
        if k == 1:
            only: NDArray[np.int64] = symbols[..., 0]
            return only
        vandermonde = sympy.Matrix(k, k, lambda i, j: pow(self._points[sites[i]], int(j), order))
        inverse = vandermonde.inv_mod(order)
        ids = np.zeros(symbols.shape[:-1], np.int64)
        for j in range(k):
            digit = np.zeros_like(ids)
            for i in range(k):
                digit = (digit + symbols[..., i] * int(inverse[j, i])) % order
            ids += digit * order**j
        return ids

    def _recipe(self) -> dict[str, Any]:
        return {
            "n_classes": self._n_classes,
            "n_sites": self.n_sites,
            "field_order": self.field_order,
            "dimension": self._dimension,
            "points": list(self._points),
        }


def _check_points(points: Sequence[int] | None, n_sites: int, order: int) -> tuple[int, ...]:
    if points is None:
        if n_sites > order:
            raise ArgumentError(
                f"n_sites must be at most field_order, {order} (one point a site); got {n_sites}"
            )
        return tuple(i % order for i in range(1, n_sites + 1))
    chosen = as_integers("points", points, 0)
    if len(chosen) != n_sites:
        raise ArgumentError(f"points must have n_sites = {n_sites} entries, got {len(chosen)}")
    seen: dict[int, int] = {}
    for site, point in enumerate(chosen):
        if point >= order:
            raise ArgumentError(f"points must lie in 0..{order - 1}, points[{site}] is {point}")
        if point in seen:
            raise ArgumentError(
                f"points must be different from each other: sites {seen[point]} and {site} "
                f"both evaluate at {point}"
            )
        seen[point] = site
    return chosen
