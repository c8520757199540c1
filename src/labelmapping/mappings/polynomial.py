"""Polynomial codes: residues of a class id's polynomial modulo coprime polynomials over F_q.

The Chinese remainder theorem over F_q[x] in the place of the integers'. With moduli of
degree 1 it is a simplex code; with q = 2 the alphabets are powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import as_integer, as_integers
from ..errors import ArgumentError
from .base import LARGEST_FACTOR, Ids, LabelMapping, refuse_overflow
from .fields import Field, field, irreducible_polynomials, n_irreducible
from .linear import LinearCode, check_characteristic, digits_of, number_of
from .mixed import smallest_dimension

__all__ = ["PolynomialMapping"]


class PolynomialMapping(LabelMapping):
    """The base-q digits of a class id as a polynomial, modulo pairwise coprime polynomials.

    Parameters
    ----------
    n_classes : int
        N, at least 1 and at most the product of the `dimension` smallest alphabets.
    n_sites : int, optional
        n; needed where `moduli` are not given.
    field_order : int, default 2
        q, a prime or a power of one.
    degree : int, optional
        Of the default moduli, the n first monic irreducible polynomials of this degree.
        Default: the smallest with n of them and q**(degree * dimension) >= N.
    dimension : int, optional
        k. Default: the smallest k whose k smallest alphabets multiply to N or more, where
        moduli are given; else 2 (1 with a single site).
    moduli : sequence of int, optional
        Polynomials by number: base-q digits are the coefficients, the constant first;
        each of degree 1 or more. The alphabet of a site is q**degree.

    Raises
    ------
    ArgumentError
        With two moduli and their common factor, or the largest N that would fit.
    MissingExtraError
        galois is not installed.

    Examples
    --------
    >>> mapping = PolynomialMapping(50_000, 4)
    >>> mapping.alphabet_sizes, mapping.min_distance, mapping.capacity
    ((256, 256, 256, 256), 3, 65536)
    >>> mapping.moduli  # x^8 + x^4 + x^3 + x + 1, ...
    (283, 285, 299, 301)
    >>> mapping.encode(49_999).tolist()
    [215, 93, 54, 174]
    """

    kind = "polynomial"

    def __init__(
        self,
        n_classes: int,
        n_sites: int | None = None,
        *,
        field_order: int = 2,
        degree: int | None = None,
        dimension: int | None = None,
        moduli: Sequence[int] | None = None,
    ) -> None:
        n_classes = as_integer("n_classes", n_classes, 1)
        order = as_integer("field_order", field_order, 2)
        if order > LARGEST_FACTOR:
            raise ArgumentError(f"field_order must be at most {LARGEST_FACTOR}, got {order}")
        elements = field(order)
        check_characteristic(elements.characteristic)
        if dimension is not None:
            dimension = as_integer("dimension", dimension, 1)
        if n_sites is not None:
            n_sites = as_integer("n_sites", n_sites, 1)
        if moduli is None:
            if n_sites is None:
                raise ArgumentError("n_sites must be given where moduli are not")
            dimension = min(2, n_sites) if dimension is None else dimension
            degree = None if degree is None else as_integer("degree", degree, 1)
            chosen = _default_moduli(n_classes, n_sites, order, degree, dimension)
        else:
            if degree is not None:
                raise ArgumentError("degree must not be given beside moduli, which have theirs")
            chosen = as_integers("moduli", moduli, order)
            if n_sites not in (None, len(chosen)):
                raise ArgumentError(
                    f"n_sites must be the length of moduli, {len(chosen)}; got {n_sites}"
                )
        self._moduli, self._field_order = chosen, order
        digits = [_coefficients(modulus, order) for modulus in chosen]
        _check_coprime(chosen, digits, elements)
        degrees = [len(coefficients) - 1 for coefficients in digits]
        sizes = tuple(order**degree for degree in degrees)
        if dimension is None:
            dimension = smallest_dimension(n_classes, sizes)
        if dimension > len(sizes):
            raise ArgumentError(
                f"dimension must be at most the number of sites, {len(sizes)}; got {dimension}"
            )
        capacity = math.prod(sorted(sizes)[:dimension])
        if n_classes > capacity:
            raise ArgumentError(
                f"n_classes must be at most {capacity}, the product of the {dimension} smallest "
                f"alphabets, got {n_classes}: classes 0 and {capacity} would share their symbols; "
                f"alphabets of at most {max(sizes)} symbols need at least "
                f"{_fewest_sites(n_classes, max(sizes))} sites"
            )
        refuse_overflow("the product of the smallest alphabets", capacity)
        if max(sizes) > LARGEST_FACTOR:
            raise ArgumentError(
                f"alphabet_sizes must be at most {LARGEST_FACTOR}, got {max(sizes)}"
            )
        n_digits = sum(sorted(degrees)[:dimension])
        self._linear = LinearCode(
            elements.characteristic,
            np.hstack([_residues(coefficients, n_digits, elements) for coefficients in digits]),
            tuple(elements.degree * degree for degree in degrees),
        )
        super().__init__(n_classes, sizes, dimension, capacity)

    @property
    def field_order(self) -> int:
        """q, the number of values of a digit."""
        return self._field_order

    @property
    def moduli(self) -> tuple[int, ...]:
        """The polynomial of each site, by number."""
        return self._moduli

    @property
    def linear(self) -> LinearCode:
        """The code as a matrix over a prime field."""
        return self._linear

    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """The residue of each id's polynomial modulo the site's, by number."""
        return self._linear.symbols_at(ids, site, tables)

    def site_tables(self, site: int) -> tuple[NDArray[np.integer], ...]:
        """What digits of the id add to the site's symbol."""
        return self._linear.site_tables(site)

    def _classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        return self._linear.classes_with(site, symbol, self._n_classes)

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._linear.resolve(sites, symbols)

    __reduce__ = LabelMapping._reduce_to_recipe

    def _recipe(self) -> dict[str, Any]:
        return {
            "n_classes": self._n_classes,
            "field_order": self._field_order,
            "moduli": list(self._moduli),
            "dimension": self._dimension,
        }


def _default_moduli(
    n_classes: int, n_sites: int, order: int, degree: int | None, dimension: int
) -> tuple[int, ...]:
    if degree is None:
        degree = 1
        while order ** (degree * dimension) < n_classes or n_irreducible(order, degree) < n_sites:
            degree += 1
    found = n_irreducible(order, degree)
    if found < n_sites:
        raise ArgumentError(
            f"n_sites must be at most {found}, the number of irreducible polynomials of degree "
            f"{degree} over F_{order}; got {n_sites}"
        )
    return irreducible_polynomials(order, degree, n_sites)


def _fewest_sites(n_classes: int, size: int) -> int:
    sites = 1
    while size**sites < n_classes:
        sites += 1
    return sites


def _coefficients(number: int, order: int) -> list[int]:
    """Base-q digits, lowest first, without leading zeros."""
    digits = []
    while number:
        number, digit = divmod(number, order)
        digits.append(digit)
    return digits


def _residues(modulus: list[int], n_digits: int, elements: Field) -> NDArray[np.int64]:
    """The matrix over F_p from an id's digits to its residue's; (n_digits * m, degree * m)."""
    p, m = elements.characteristic, elements.degree
    inverse = _inverse(modulus[-1], elements)
    monic = [elements.multiply(inverse, coefficient) for coefficient in modulus]
    residue = [1] + [0] * (len(modulus) - 2)
    rows = []
    for _ in range(n_digits):
        rows += [[elements.multiply(p**i, c) for c in residue] for i in range(m)]
        top = residue[-1]
        shifted = [0, *residue[:-1]]
        residue = [
            elements.subtract(s, elements.multiply(top, c))
            for s, c in zip(shifted, monic[:-1], strict=True)
        ]
    return digits_of(np.array(rows, np.int64), p, m).reshape(len(rows), -1)


def _inverse(element: int, elements: Field) -> int:
    return elements.power(element, elements.order - 2) if element > 1 else element


def _check_coprime(moduli: tuple[int, ...], digits: list[list[int]], elements: Field) -> None:
    for i, j in combinations(range(len(moduli)), 2):
        common = _gcd(digits[i], digits[j], elements)
        if len(common) > 1:
            inverse = _inverse(common[-1], elements)
            common = [elements.multiply(inverse, coefficient) for coefficient in common]
            factor = int(number_of(np.array(common, np.int64), elements.order))
            raise ArgumentError(
                f"moduli must be pairwise coprime: {moduli[i]} and {moduli[j]} share the factor "
                f"{factor} (base-{elements.order} digits are the coefficients)"
            )


def _gcd(a: list[int], b: list[int], elements: Field) -> list[int]:
    while b:
        inverse = _inverse(b[-1], elements)
        a = a.copy()
        while len(a) >= len(b):
            factor = elements.multiply(a[-1], inverse)
            shift = len(a) - len(b)
            for i, coefficient in enumerate(b):
                a[shift + i] = elements.subtract(
                    a[shift + i], elements.multiply(factor, coefficient)
                )
            while a and a[-1] == 0:
                a.pop()
        a, b = b, a
    return a
