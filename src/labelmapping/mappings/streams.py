"""Random numbers that never change: a recipe with a seed rebuilds its code bit for bit.

numpy may change what its generators draw; this one is written down here. Splitmix64
(Steele, Lea and Flood, 2014) as a function of a counter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["draw_below", "draw_words"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def draw_words(seed: int, counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The 64-bit word of each counter (...), of the stream with this seed in 0..2^64-1."""
    with np.errstate(over="ignore"):
        start = _mixed(np.array([seed], np.uint64) + GOLDEN)
        return _mixed(start + (counters + np.uint64(1)) * GOLDEN)


def draw_below(
    seed: int, counters: NDArray[np.uint64], limits: NDArray[np.int64] | int
) -> NDArray[np.int64]:
    """Integers in 0..limit-1, one a counter; limits below 2^32, so no value is favoured by
    more than 2^-32.
    """
    words = draw_words(seed, counters) >> np.uint64(32)
    return ((words * np.asarray(limits, np.uint64)) >> np.uint64(32)).astype(np.int64)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))
