"""Simplex codes: Reed-Solomon codewords of a class id's base-q digits.

Section 4 of the paper. The k digits of an id are the coefficients of a
polynomial over F_q; site i is its value at the i-th point, and at infinity its
leading coefficient. Two polynomials of degree below k agree at k-1 points at most.
With an order it is the digits of another number than the id, so that a symbol can
follow what the classes are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_integer
from ..errors import ArgumentError, ArgumentTypeError
from .base import LARGEST_FACTOR, Ids, LabelMapping, refuse_overflow
from .fields import Field, field
from .linear import LinearCode, check_characteristic, digits_of
from .mixed import smallest_root
from .rows import RowIndex, shown
from .table import CodeTable

__all__ = ["INFINITY", "SimplexMapping"]

INFINITY = "infinity"


class SimplexMapping(LabelMapping):
    """A Reed-Solomon code over a finite field; all alphabets are equal.

    Parameters
    ----------
    n_classes : int
        N, at least 1 and at most ``field_order ** dimension``.
    n_sites : int
        n, at most ``field_order + 1``.
    field_order : int, optional
        q, a prime or a power of one (powers need galois). Default: the smallest prime
        that holds N classes and n points.
    dimension : int, default 2
        k, the number of base-q digits.
    points : sequence of int or "infinity", optional
        Where the polynomial is evaluated: n different elements 0..q-1 (of a prime power by
        number, as in galois: base-p digits are the coefficients) or "infinity", where
        the symbol is the leading digit. Default 1, 2, ..., q-1, 0, "infinity", the first
        n of them: with k = 2 and a prime that is the paper's
        ``((x mod p) + floor(x / p) * i) mod p``, i = 1..n.
    order : array-like of int, shape (N,), optional
        The number whose digits each class has: different ones in 0..q^k - 1; also the dict
        that `to_config` writes. Default: the class id. At the points 0 and "infinity" the
        symbol is the lowest and the highest digit, so an order gives symbols there a meaning
        (`natural_order`). New classes get the lowest numbers that are free. A code with an
        order holds its codewords, and is decoded as a table.

    Raises
    ------
    ArgumentTypeError
        The order is not integers.
    ArgumentError
        With the factors of a field order that is no prime power, the largest N that would
        fit, the points that coincide, or the classes whose numbers do or are out of range.
    MissingExtraError
        The order is no prime and galois is not installed.

    Examples
    --------
    >>> mapping = SimplexMapping(20901, 4, field_order=181)
    >>> mapping.encode([0, 20900]).tolist()
    [[0, 0, 0, 0], [19, 134, 68, 2]]
    >>> mapping.min_distance, mapping.capacity
    (3, 32761)
    >>> SimplexMapping(256, 17, field_order=16).min_distance
    16
    >>> mapping = SimplexMapping(3, 3, field_order=5, points=["infinity", 0, 1], order=[7, 23, 9])
    >>> mapping.encode([0, 1, 2]).tolist()
    [[1, 2, 3], [4, 3, 2], [1, 4, 0]]
    """

    kind = "simplex"

    def __init__(
        self,
        n_classes: int,
        n_sites: int,
        *,
        field_order: int | None = None,
        dimension: int = 2,
        points: Sequence[int | str] | None = None,
        order: ArrayLike | Mapping[str, Any] | None = None,
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
            q = int(sympy.nextprime(least - 1))
        else:
            q = as_integer("field_order", field_order, 2)
        if q > LARGEST_FACTOR:  # before a search for factors, which might never end
            raise ArgumentError(f"field_order must be at most {LARGEST_FACTOR}, got {q}")
        elements = field(q)
        capacity = q**dimension
        if n_classes > capacity:
            raise ArgumentError(
                f"n_classes must be at most {capacity} ({q}^{dimension}), got {n_classes}: "
                f"classes 0 and {capacity} would share a codeword; the smallest prime that "
                f"holds them is {sympy.nextprime(smallest_root(n_classes, dimension) - 1)}"
            )
        refuse_overflow("field_order ** dimension", capacity)
        self._points = _check_points(points, n_sites, q)
        self._linear = None
        if elements.degree > 1 or INFINITY in self._points:
            check_characteristic(elements.characteristic)
            self._linear = _linear_code(self._points, dimension, elements)
        super().__init__(n_classes, (q,) * n_sites, dimension, capacity)
        self._order = self._table = None
        if order is not None:
            numbers = _check_order(order, n_classes, q, dimension)
            columns = [self._symbols_of(numbers, site) for site in range(n_sites)]
            self._order = CodeTable(numbers[:, None])
            self._table = CodeTable(np.stack(columns, axis=1))

    @property
    def field_order(self) -> int:
        """q, the number of symbols of every site."""
        return self._alphabet_sizes[0]

    @property
    def points(self) -> tuple[int | str, ...]:
        """Where each site evaluates the polynomial: in 0..q-1, or "infinity"."""
        return self._points

    @property
    def order(self) -> NDArray[np.int64] | None:
        """A copy of the classes' numbers, int64 (N,); None where they are the ids."""
        return None if self._order is None else self._order.codewords[:, 0].astype(np.int64)

    @property
    def linear(self) -> LinearCode | None:
        """The code as a matrix over a prime field; None where a formula does (prime q, finite),
        and with an order.
        """
        return self._linear if self._order is None else None

    @property
    def table(self) -> CodeTable | None:
        """The codewords of a code with an order; else None."""
        return self._table

    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """The polynomial of each class's digits at the site's point."""
        if self._table is not None:
            return self._table.symbols_at(ids, site, tables)
        return self._symbols_of(ids, site, tables)

    def site_tables(self, site: int) -> tuple[NDArray[np.integer], ...]:
        """Codewords where the classes have an order, else nothing where q is a prime."""
        held = self._table if self._table is not None else self._linear
        return () if held is None else held.site_tables(site)

    def _symbols_of(self, numbers: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """The polynomial of each number's digits (Horner's rule)."""
        if self._linear is not None:
            return self._linear.symbols_at(numbers, site, tables)
        order, point = self.field_order, self._points[site]
        power = order ** (self._dimension - 1)
        value = numbers // power % order
        while power > 1:
            power //= order
            value = (value * point + numbers // power % order) % order
        return value

    def _classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        if self._table is not None:
            return self._table.classes_with(site, symbol)
        order = self.field_order
        if self._points[site] == INFINITY:
            run = order ** (self._dimension - 1)
            stop = min((symbol + 1) * run, self._n_classes)
            return np.arange(min(symbol * run, stop), stop, dtype=np.int64)
        if self._linear is not None:
            return self._linear.classes_with(site, symbol, self._n_classes)
        # The digits above the lowest are free; the symbol then fixes the lowest.
        rest = np.arange(-(-self._n_classes // order), dtype=np.int64) * order
        ids = rest + (symbol - self.symbols_at(rest, site)) % order
        below: NDArray[np.int64] = ids[ids < self._n_classes]
        return below

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = self._numbers_with(sites, symbols)
        return numbers if self._order is None else self._order.resolve((0,), numbers[..., None])

    def _numbers_with(
        self, sites: tuple[int, ...], symbols: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The number below q^k with the symbols (..., k) of k sites."""
        if self._linear is not None:
            return self._linear.resolve(sites, symbols)
        order, k = self.field_order, self._dimension
        if k == 1:
            only: NDArray[np.int64] = symbols[..., 0]
            return only
        points = [int(self._points[site]) for site in sites]
        vandermonde = sympy.Matrix(k, k, lambda i, j: pow(points[i], int(j), order))
        inverse = vandermonde.inv_mod(order)
        numbers = np.zeros(symbols.shape[:-1], np.int64)
        for j in range(k):
            digit = np.zeros_like(numbers)
            for i in range(k):
                digit = (digit + symbols[..., i] * int(inverse[j, i])) % order
            numbers += digit * order**j
        return numbers

    def _grown(self, n_classes: int) -> LabelMapping:
        order = self.order
        if order is None:
            return super()._grown(n_classes)
        # Enough of the numbers below the new N are free.
        free = np.setdiff1d(np.arange(n_classes), order)[: n_classes - self._n_classes]
        fields = {**self._recipe(), "n_classes": n_classes, "order": np.append(order, free)}
        return type(self)(**fields)

    __reduce__ = LabelMapping._reduce_to_recipe

    def _recipe(self) -> dict[str, Any]:
        fields = {
            "n_classes": self._n_classes,
            "n_sites": self.n_sites,
            "field_order": self.field_order,
            "dimension": self._dimension,
            "points": list(self._points),
        }
        return fields if self._order is None else {**fields, "order": self._order.to_config()}

    def __repr__(self) -> str:
        fields = {name: repr(value) for name, value in self._recipe().items()}
        if (order := self.order) is not None:
            fields["order"] = shown(order)
        shown_fields = ", ".join(f"{name}={text}" for name, text in fields.items())
        return f"{type(self).__name__}({shown_fields})"


def _linear_code(points: tuple[int | str, ...], dimension: int, elements: Field) -> LinearCode:
    """Multiplication by an element is a matrix over F_p: rows are the element times x^i."""
    p, m = elements.characteristic, elements.degree
    columns = []
    for point in points:
        factors = [0] * (dimension - 1) + [1]
        if isinstance(point, int):
            factors = [elements.power(point, j) for j in range(dimension)]
        products = [elements.multiply(factor, p**i) for factor in factors for i in range(m)]
        columns.append(digits_of(np.array(products, np.int64), p, m))
    return LinearCode(p, np.hstack(columns), (m,) * len(points))


def _check_points(points: object, n_sites: int, order: int) -> tuple[int | str, ...]:
    if n_sites > order + 1:
        raise ArgumentError(
            f"n_sites must be at most field_order + 1, {order + 1} (one point a site, and "
            f"infinity); got {n_sites}"
        )
    if points is None:
        finite = tuple(i % order for i in range(1, min(n_sites, order) + 1))
        return finite if n_sites <= order else (*finite, INFINITY)
    if (
        isinstance(points, (str, bytes))
        or not isinstance(points, (Sequence, np.ndarray, range))
        or (isinstance(points, np.ndarray) and points.ndim != 1)
    ):
        raise ArgumentTypeError(
            f'points must be a sequence of integers or "infinity", got {points!r}'
        )
    if len(points) != n_sites:
        raise ArgumentError(f"points must have n_sites = {n_sites} entries, got {len(points)}")
    chosen: list[int | str] = []
    for site, given in enumerate(points):
        at_infinity = given == INFINITY or (isinstance(given, float) and given == math.inf)
        point = INFINITY if at_infinity else as_integer(f"points[{site}]", given, 0)
        if isinstance(point, int) and point >= order:
            raise ArgumentError(f"points must lie in 0..{order - 1}, points[{site}] is {point}")
        if point in chosen:
            raise ArgumentError(
                f"points must be different from each other: sites {chosen.index(point)} and "
                f"{site} both evaluate at {point}"
            )
        chosen.append(point)
    return tuple(chosen)


def _check_order(
    order: ArrayLike | Mapping[str, Any], n_classes: int, q: int, dimension: int
) -> NDArray[np.int64]:
    if isinstance(order, Mapping):
        stored = CodeTable.codewords_of(order)
        given: NDArray[Any] = stored[:, 0] if stored.shape[1] == 1 else stored
    else:
        try:
            given = np.asarray(order)
        except ValueError as error:  # entries of different lengths
            raise ArgumentError(f"order must be a sequence of integers: {error}") from error
    if not np.issubdtype(given.dtype, np.integer):
        raise ArgumentTypeError(f"order must be integers, got an array of {given.dtype}")
    if given.shape != (n_classes,):
        raise ArgumentError(
            f"order must have a number for each of {n_classes} classes, shape ({n_classes},); "
            f"got shape {given.shape}"
        )
    outside = np.flatnonzero((given < 0) | (given >= q**dimension))
    if outside.size:
        raise ArgumentError(
            f"order must have numbers in 0..{q**dimension - 1} ({q}^{dimension}); class "
            f"{outside[0]} has {given[outside[0]]}"
        )
    numbers = given.astype(np.int64)
    pair = RowIndex(numbers[:, None]).first_repeat()
    if pair is not None:
        raise ArgumentError(
            f"order must have different numbers: classes {pair[0]} and {pair[1]} both have "
            f"{numbers[pair[0]]}"
        )
    return numbers
