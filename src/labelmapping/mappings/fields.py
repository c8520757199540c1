"""Finite fields of prime and prime-power order, elements numbered 0..q-1.

An element's base-p digits are its coefficients, as in galois, which gives the modulus of prime
powers (Conway's polynomial) and irreducible polynomials, and is imported only for those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import sympy

from ..errors import ArgumentError, MissingExtraError

__all__ = ["Field", "field", "import_galois", "irreducible_polynomials", "n_irreducible"]


@dataclass(frozen=True, eq=False)
class Field:
    """Arithmetic on element numbers.

    Attributes
    ----------
    order : int
        q.
    characteristic, degree : int
        The prime p and the exponent m with q = p**m.
    """

    order: int
    characteristic: int
    degree: int
    multiply: Callable[[int, int], int]
    subtract: Callable[[int, int], int]

    def power(self, element: int, exponent: int) -> int:
        """Element ** exponent; 1 for the exponent 0, also of 0."""
        value = 1
        while exponent:
            if exponent % 2:
                value = self.multiply(value, element)
            element = self.multiply(element, element)
            exponent //= 2
        return value


@lru_cache(maxsize=64)
def field(order: int) -> Field:
    """The field with `order` elements.

    Raises
    ------
    ArgumentError
        The order is no prime power; the message has its factors.
    """
    factors = sympy.factorint(order)
    if len(factors) != 1:
        product = " x ".join(f"{p}^{e}" for p, e in factors.items())
        raise ArgumentError(
            f"field_order must be a prime or a power of one, got {order} = {product}"
        )
    ((prime, degree),) = factors.items()
    p = int(prime)
    if degree == 1:
        return Field(order, p, 1, lambda a, b: a * b % p, lambda a, b: (a - b) % p)
    # Few products are needed: plain Python. A field class of galois is shared by the whole
    # process, and compiles for seconds.
    modulus = _digits(int(import_galois().conway_poly(p, int(degree))), p, int(degree) + 1)
    return Field(
        order,
        p,
        int(degree),
        lambda a, b: _product(a, b, modulus, p),
        lambda a, b: _difference(a, b, p),
    )


def _digits(number: int, base: int, width: int) -> list[int]:
    return [number // base**i % base for i in range(width)]


def _number(digits: list[int], base: int) -> int:
    return sum(digit * base**i for i, digit in enumerate(digits))


def _product(a: int, b: int, modulus: list[int], p: int) -> int:
    """Of two polynomials over F_p by number, modulo a monic one by its coefficients."""
    degree = len(modulus) - 1
    product = [0] * (2 * degree)
    for i, x in enumerate(_digits(a, p, degree)):
        for j, y in enumerate(_digits(b, p, degree)):
            product[i + j] = (product[i + j] + x * y) % p
    for top in range(len(product) - 1, degree - 1, -1):
        for i, coefficient in enumerate(modulus):
            place = top - degree + i
            product[place] = (product[place] - product[top] * coefficient) % p if i < degree else 0
    return _number(product[:degree], p)


def _difference(a: int, b: int, p: int) -> int:
    width = max(a, b, 1).bit_length()
    pairs = zip(_digits(a, p, width), _digits(b, p, width), strict=True)
    return _number([(x - y) % p for x, y in pairs], p)


def import_galois() -> Any:
    """The package galois, or an error that says how to get it."""
    try:
        import galois
    except ImportError as error:
        raise MissingExtraError(
            "fields of prime-power order, polynomial and BCH codes need galois: "
            "pip install 'labelmapping[fields]'"
        ) from error
    return galois


def n_irreducible(order: int, degree: int) -> int:
    """How many monic irreducible polynomials of a degree there are (Gauss's formula)."""
    divisors = [int(d) for d in sympy.divisors(degree)]
    total: int = sum(int(sympy.mobius(d)) * order ** (degree // d) for d in divisors)
    return total // degree


@lru_cache(maxsize=64)
def irreducible_polynomials(order: int, degree: int, count: int) -> tuple[int, ...]:
    """The first so many monic irreducible polynomials; base-q digits are the coefficients."""
    if degree == 1:
        return tuple(range(order, order + count))
    polynomials = import_galois().irreducible_polys(order, degree)
    return tuple(int(polynomial) for polynomial in islice(polynomials, count))
