"""Matrices of symbols, a class a row: their check, and finding rows. Knows no mapping."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, ArgumentTypeError

__all__ = ["RowIndex", "as_codewords", "check_symbols", "shown"]

# Symbols and keys stay below this.
LIMIT = 2**62
# A column with more values than this is ranked first, so ranks times values stay in int64.
WIDE = 2**31


def as_codewords(codewords: ArrayLike) -> NDArray[np.int64]:
    """A matrix of symbols, int64 (N, n); each is -1 or above, and below 2^62.

    Raises
    ------
    ArgumentTypeError
        They are not integers.
    ArgumentError
        The array has no two axes or is empty, or a symbol is out of range (with its place).
    """
    try:
        array = np.asarray(codewords)
    except ValueError as error:  # rows of different lengths
        raise ArgumentError(f"codewords must be a matrix: {error}") from error
    if array.ndim != 2:
        raise ArgumentError(f"codewords must have shape (n_classes, n_sites), got {array.shape}")
    if array.size == 0:
        raise ArgumentError(f"codewords must not be empty, got shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise ArgumentTypeError(f"codewords must be integers, got an array of {array.dtype}")
    if array.min() < -1 or array.max() >= LIMIT:
        row, site = np.argwhere((array < -1) | (array >= LIMIT))[0]
        raise ArgumentError(
            "codewords must have symbols from 0 to 2^62 - 1, or -1 where a site has nothing to "
            f"say; codewords[{row}, {site}] is {array[row, site]}"
        )
    return array.astype(np.int64)


def check_symbols(matrix: NDArray[np.int64], sizes: tuple[int, ...]) -> None:
    """Refuse symbols outside their site's alphabet, and classes or sites without any."""
    if len(sizes) != matrix.shape[1]:
        raise ArgumentError(
            f"alphabet_sizes must have an entry for each of {matrix.shape[1]} sites, "
            f"got {len(sizes)}"
        )
    for site, size in enumerate(sizes):
        row = int(np.argmax(matrix[:, site]))
        if matrix[row, site] >= size:
            raise ArgumentError(
                f"codewords must have symbols in 0..{size - 1} at site {site} (or -1); "
                f"codewords[{row}, {site}] is {matrix[row, site]}"
            )
    for axis, what in enumerate(("site", "class")):
        silent = np.flatnonzero((matrix < 0).all(axis=axis))
        if silent.size:
            raise ArgumentError(
                f"codewords must have a symbol for every class and at every site; {what} "
                f"{silent[0]} is -1 throughout"
            )


def shown(codeword: NDArray[np.int64]) -> str:
    """A codeword for a message; a long one is cut."""
    symbols = ", ".join(str(symbol) for symbol in codeword[:16])
    return f"[{symbols}{', ...' if len(codeword) > 16 else ''}]"


class RowIndex:
    """Finds the row of a matrix that has given entries.

    A row's key is its entries as the digits of one number. Where that would pass int64, the
    numbers so far are replaced by their ranks among the rows, so keys are exact always.

    Parameters
    ----------
    rows : int64 array (N, k)
        Entries from -1 on.

    Examples
    --------
    >>> index = RowIndex(np.array([[3, 1], [0, 2], [3, 1]]))
    >>> index.find(np.array([[0, 2], [3, 1], [1, 2]])).tolist()
    [1, 0, -1]
    """

    def __init__(self, rows: NDArray[np.int64]) -> None:
        # For each column: its values where they are ranked, their number, and the keys
        # before it where they are ranked.
        self._columns: list[tuple[NDArray[np.int64] | None, int, NDArray[np.int64] | None]] = []
        keys, span = np.zeros(len(rows), np.int64), 1
        for column in rows.T:
            size = int(column.max()) + 2
            values = prefixes = None
            if size > WIDE:
                values = np.unique(column)
                size = len(values)
            if span * size >= LIMIT:
                prefixes = np.unique(keys)
                keys, span = np.searchsorted(prefixes, keys), len(prefixes)
            digits = column + 1 if values is None else np.searchsorted(values, column)
            keys, span = keys * size + digits, span * size
            self._columns.append((values, size, prefixes))
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lowest row with these entries (..., k), or -1 where none has them; int64 (...)."""
        keys = np.zeros(entries.shape[:-1], np.int64)
        there = np.ones(keys.shape, np.bool_)
        for column, (values, size, prefixes) in enumerate(self._columns):
            digits = entries[..., column] + 1
            if values is not None:
                digits, known = _ranks(values, entries[..., column])
            else:
                known = (digits >= 0) & (digits < size)
            there &= known
            if prefixes is not None:
                keys, known = _ranks(prefixes, keys)
                there &= known
            keys = keys * size + np.where(there, digits, 0)
        places, known = _ranks(self._keys, keys)
        return np.where(there & known, self._order[places], -1)

    def repeats(self) -> NDArray[np.int64]:
        """Ascending rows that are equal to an earlier row."""
        return np.sort(self._order[1:][self._keys[1:] == self._keys[:-1]])

    def first_repeat(self) -> tuple[int, int] | None:
        """The lowest row that comes again, and where it does first; None where all differ."""
        places = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if places.size == 0:
            return None
        place = places[np.argmin(self._order[places])]
        return int(self._order[place]), int(self._order[place + 1])


def _ranks(
    values: NDArray[np.int64], wanted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The first place of each number in sorted `values`, and whether it is there."""
    places = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return places, values[places] == wanted
