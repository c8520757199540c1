"""Random codewords, all different, that never change; and what seeded codes check."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arguments import as_integer
from ..compiled import compiled
from ..errors import ArgumentError
from .rows import RowIndex
from .streams import draw_below, draw_words

__all__ = ["check_below_2_to_the", "check_length", "random_codewords"]

# How often a row draws before it takes the next free codeword.
ATTEMPTS = 8
# A code that fills more than 1/DENSE of all codewords is drawn row by row.
DENSE = 4
# Symbols drawn at a time: bounds the temporaries to some ten MB.
BLOCK = 1 << 20


def check_length(n_classes: object, n_sites: object, alphabet_size: object) -> tuple[int, int, int]:
    """N, n and q as ints, where q^n codewords are enough for N classes."""
    classes = as_integer("n_classes", n_classes, 1)
    size = as_integer("alphabet_size", alphabet_size, 2)
    length = as_integer("n_sites", n_sites)
    least, limit = 1, size
    while limit < classes:
        least, limit = least + 1, limit * size
    if length < least:
        message = f"n_sites must be at least {least} for {classes} classes, got {length}"
        if length > 0:
            message += f": with {size} symbols n_classes must be at most {size**length}"
        raise ArgumentError(message)
    return classes, length, size


def check_below_2_to_the(name: str, value: object, bits: int) -> int:
    """An integer from 0 to 2**bits - 1."""
    number = as_integer(name, value, 0)
    if number >> bits:
        raise ArgumentError(f"{name} must be below 2^{bits}, got {number}")
    return number


def random_codewords(
    seed: int, draw: int, n_classes: int, n_sites: int, alphabet_size: int
) -> NDArray[np.int64]:
    """Codewords as `RandomMapping` defines them, (N, n_sites).

    Rows ask for codewords in their order of preference, and of those who ask for the same
    one the lowest gets it (Gale and Shapley, 1962). Since all codewords prefer lower rows,
    that is what serving row after row gives, but it takes few rounds. A code that
    fills much of its space takes many, and is served row after row.
    """
    stream = int(draw_words(seed, np.array([draw], np.uint64))[0])
    if alphabet_size**n_sites <= DENSE * n_classes:
        return _served_in_order(stream, n_classes, n_sites, alphabet_size)
    codewords = np.empty((n_classes, n_sites), np.int64)
    step = max(1, BLOCK // n_sites)
    for start in range(0, n_classes, step):
        rows = np.arange(start, min(start + step, n_classes))
        codewords[rows] = _drawn(stream, rows, np.zeros_like(rows), n_sites, alphabet_size)
    attempts = np.zeros(n_classes, np.int64)
    while (rows := RowIndex(codewords).repeats()).size:
        attempts[rows] += 1
        again = rows[attempts[rows] < ATTEMPTS]
        codewords[again] = _drawn(stream, again, attempts[again], n_sites, alphabet_size)
        late = rows[attempts[rows] >= ATTEMPTS]
        codewords[late] = _successors(codewords[late], alphabet_size)
    return codewords


def _drawn(
    stream: int,
    rows: NDArray[np.int64],
    attempts: NDArray[np.int64],
    n_sites: int,
    alphabet_size: int,
) -> NDArray[np.int64]:
    """What each row draws at its attempt, (..., n_sites)."""
    counters = (rows * ATTEMPTS + attempts)[..., None] * n_sites + np.arange(n_sites)
    return draw_below(stream, counters.astype(np.uint64), alphabet_size)


def _successors(codewords: NDArray[np.int64], alphabet_size: int) -> NDArray[np.int64]:
    """The next codewords in lexicographic order; the first after the last."""
    following = codewords.copy()
    carry = np.ones(len(codewords), np.int64)
    for site in range(codewords.shape[1] - 1, -1, -1):
        following[:, site] += carry
        carry = (following[:, site] == alphabet_size).astype(np.int64)
        following[:, site] *= 1 - carry
    return following


def _served_in_order(
    stream: int, n_classes: int, n_sites: int, alphabet_size: int
) -> NDArray[np.int64]:
    """Row after row, with a list of all codewords: for codes that fill much of their space."""
    powers = alphabet_size ** np.arange(n_sites - 1, -1, -1, dtype=np.int64)
    free = np.arange(alphabet_size**n_sites + 1)
    keys = np.empty(n_classes, np.int64)
    step = max(1, BLOCK // (ATTEMPTS * n_sites))
    for start in range(0, n_classes, step):
        rows = np.arange(start, min(start + step, n_classes))[:, None]
        drawn = _drawn(stream, rows, np.arange(ATTEMPTS), n_sites, alphabet_size)
        _serve(drawn @ powers, free, keys[start : start + step])
    codewords: NDArray[np.int64] = keys[:, None] // powers % alphabet_size
    return codewords


@compiled
def _serve(wishes: NDArray[np.int64], free: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
    """Gives each row its first free wish (rows, ATTEMPTS), or the next free key.

    `free` points from each taken key towards the next free one and from a free key, or
    from its end, to itself.
    """
    end = len(free) - 1
    for row in range(len(wishes)):
        for wish in wishes[row]:
            key = wish
            if free[key] == key:
                break
        for _ in range(2):
            while free[key] != key:
                free[key] = free[free[key]]
                key = free[key]
            if key < end:
                break
            key = 0
        keys[row] = key
        free[key] = key + 1
