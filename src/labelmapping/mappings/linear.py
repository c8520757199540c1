"""Symbols that are linear over a prime field in the digits of the class id.

What Reed-Solomon codes over prime powers, polynomial residues and the linear binary
codes have in common. Knows numpy and sympy; the fields above come from the codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray
from sympy.polys.domains import GF
from sympy.polys.matrices import DomainMatrix

from ..errors import ArgumentError
from .base import Ids, look_up

__all__ = ["LinearCode", "check_characteristic"]

# Entries of one table of partial symbols; a few digits of the id are looked up at a time.
TABLE = 1 << 14
# The largest p: a table has an entry for every value of a digit.
LARGEST_TABLE = 1 << 20


@dataclass(frozen=True, eq=False)
class LinearCode:
    """A generator matrix over F_p, and the tables that apply it.

    The id's base-p digits x_0, x_1, ... (lowest first) times the matrix are the base-p
    digits of all symbols, one site behind the other, lowest first.

    Attributes
    ----------
    characteristic : int
        p, a prime.
    generator : int64 array (D, E)
        Entries in 0..p-1; D digits of the id, E of the codeword.
    widths : tuple of int
        Digits of each site's symbol; they sum to E. The alphabet is p**width.
    """

    characteristic: int
    generator: NDArray[np.int64]
    widths: tuple[int, ...]

    @property
    def n_digits(self) -> int:
        """D, the number of base-p digits of an id."""
        return len(self.generator)

    def columns(self, site: int) -> slice:
        """Where a site's digits stand in the generator."""
        start = sum(self.widths[:site])
        return slice(start, start + self.widths[site])

    @property
    def chunk(self) -> int:
        """How many digits of the id are looked up at a time."""
        digits = 1
        while self.characteristic ** (digits + 1) <= TABLE:
            digits += 1
        return min(digits, self.n_digits)

    @cached_property
    def tables(self) -> NDArray[np.int64]:
        """(n_sites, chunks, p**chunk): what each value of each chunk of digits adds to a symbol."""
        p, chunk = self.characteristic, self.chunk
        n_chunks = -(-self.n_digits // chunk)
        digits = digits_of(np.arange(p**chunk), p, chunk)
        tables = np.zeros((len(self.widths), n_chunks, p**chunk), np.int64)
        for site in range(len(self.widths)):
            matrix = self.generator[:, self.columns(site)]
            for c in range(n_chunks):
                rows = matrix[c * chunk : (c + 1) * chunk]
                tables[site, c] = number_of(digits[:, : len(rows)] @ rows % p, p)
        return tables

    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """Symbols of one site; `ids` is an int64 numpy array or torch tensor."""
        symbols = None
        for table in tables or self.site_tables(site):
            base = len(table)  # p**chunk, and a constant in a compiled graph
            part = look_up(table, ids % base)
            ids = ids // base
            symbols = part if symbols is None else self.add(symbols, part, self.widths[site])
        return symbols

    def site_tables(self, site: int) -> tuple[NDArray[np.int64], ...]:
        """A table for each chunk of digits; see `tables`."""
        return tuple(self.tables[site])

    def add(self, a: Ids, b: Ids, width: int) -> Ids:
        """The sum of numbers of `width` base-p digits, digit by digit and without carries."""
        p = self.characteristic
        if p == 2:
            return a ^ b
        if width == 1:
            return (a + b) % p
        total, power = 0 * a, 1
        for _ in range(width):
            total = total + (a // power + b // power) % p * power
            power *= p
        return total

    def subtract(self, a: Ids, b: Ids, width: int) -> Ids:
        """The difference of numbers of `width` base-p digits, digit by digit, without borrowing."""
        p = self.characteristic
        if p == 2:
            return a ^ b
        total, power = 0 * a, 1
        for _ in range(width):
            total = total + (a // power - b // power) % p * power
            power *= p
        return total

    def classes_with(self, site: int, symbol: int, n_classes: int) -> NDArray[np.int64]:
        """Ascending ids with a symbol at a site whose lowest digits stand as they are in it.

        So it is in simplex codes at finite points and in polynomial codes: the digits
        above the lowest are free, and the symbol fixes those.
        """
        width = self.widths[site]
        size = self.characteristic**width
        rest = np.arange(-(-n_classes // size), dtype=np.int64) * size
        ids = rest + self.subtract(np.full_like(rest, symbol), self.symbols_at(rest, site), width)
        below: NDArray[np.int64] = ids[ids < n_classes]
        return below

    def inverse(self, sites: tuple[int, ...]) -> NDArray[np.int64]:
        """The matrix over F_p, (digits of these sites, D), from their symbols' digits to the id's.

        Raises
        ------
        ArgumentError
            These sites do not determine the id.
        """
        p, n_digits = self.characteristic, self.n_digits
        chosen = np.concatenate([np.arange(c.start, c.stop) for c in map(self.columns, sites)])
        matrix = np.hstack([self.generator[:, chosen], np.eye(n_digits, dtype=np.int64)])
        field = GF(p, symmetric=False)
        domain = DomainMatrix(
            [[field(int(value)) for value in row] for row in matrix], matrix.shape, field
        )
        reduced, pivots = domain.rref()
        pivots = tuple(pivot for pivot in pivots if pivot < chosen.size)
        if len(pivots) < n_digits:
            raise ArgumentError(
                f"sites {list(sites)} do not determine the class: they give {len(pivots)} of "
                f"{n_digits} base-{p} digits"
            )
        rows = np.array([[int(v) for v in row] for row in reduced.to_list()], np.int64)
        inverse = np.zeros((chosen.size, n_digits), np.int64)
        inverse[list(pivots)] = rows[:, chosen.size :] % p
        return inverse

    def resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids from the symbols (..., k) of sites that determine them; -1 where none has all."""
        p = self.characteristic
        digits = np.concatenate(
            [digits_of(symbols[..., i], p, self.widths[s]) for i, s in enumerate(sites)], axis=-1
        )
        ids = number_of(digits @ self.inverse(sites) % p, p)
        fits = np.ones(ids.shape, np.bool_)
        for i, site in enumerate(sites):
            fits &= self.symbols_at(ids, site) == symbols[..., i]
        return np.where(fits, ids, -1)


def check_characteristic(prime: int) -> None:
    """Refuse a field whose digits are too many to look up.

    Raises
    ------
    ArgumentError
        The prime is above 2^20.
    """
    if prime > LARGEST_TABLE:
        raise ArgumentError(
            f"field_order must be a power of a prime up to {LARGEST_TABLE} for this code, whose "
            f"symbols are looked up in tables of that size; got the prime {prime}"
        )


def digits_of(numbers: NDArray[np.int64], base: int, width: int) -> NDArray[np.int64]:
    """The `width` lowest digits of numbers (...), lowest first; (..., width)."""
    powers = np.array([base**i for i in range(width)], np.int64)
    return cast(NDArray[np.int64], numbers[..., None] // powers % base)


def number_of(digits: NDArray[np.int64], base: int) -> NDArray[np.int64]:
    """The numbers (...) with these digits (..., width), lowest first."""
    powers = np.array([base**i for i in range(digits.shape[-1])], np.int64)
    return cast(NDArray[np.int64], (digits * powers).sum(axis=-1))
