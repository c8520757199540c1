"""Hashed codes: each site is a hash of the class id (MACH). Nothing of size N is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled
from ..errors import ArgumentError
from .base import Ids, LabelMapping
from .drawing import check_below_2_to_the, check_length
from .rows import RowIndex, shown
from .streams import draw_below

__all__ = ["HashedMapping"]

# The field of the hashes: products of two of its numbers stay in int64.
PRIME = 2**31 - 1
# Up to so many classes every codeword is looked at when the mapping is made (some seconds).
PROVEN = 1 << 24
# Above it, the largest expected number of equal pairs is one in so many.
UNLIKELY = 10**9
# Classes listed at a time; classes with equal fingerprints compared at first.
RUN, FIRST = 1 << 18, 1 << 12
# What it costs to look at one symbol's classes, in classes.
SYMBOL = 1000
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class HashedMapping(LabelMapping):
    """Symbols ``((a x + b) mod (2^31 - 1)) mod q`` with random a and b for each site.

    MACH (Medini, Huang, Wang, Mohan and Shrivastava, 2019). Two classes share a site's symbol
    with odds of at most 1/q (Carter and Wegman's 2-universal hashing), so these codes need
    more sites than others for distinct codewords, and guarantee a distance of 1 only.

    Up to 2^24 classes it is proven that all codewords differ, by looking at each when the
    mapping is made (a few seconds at 2^24). Above that it is a probability, not a proof:
    over the seeds, the expected number of equal pairs is below 10^-9.

    Parameters
    ----------
    n_classes : int
        N, from 1 to 2^31 - 1 and at most ``alphabet_size ** n_sites``.
    n_sites : int
        n, the number of hashes.
    alphabet_size : int
        q, symbols of every site, from 2 to 2^31 - 2.
    seed : int, default 0
        From 0 to 2**64 - 1. It decides all a and b.

    Raises
    ------
    ArgumentError
        With the smallest `n_sites` that may work, or the two classes whose codewords are
        equal with this seed.

    Examples
    --------
    >>> mapping = HashedMapping(100_000, 8, 64)
    >>> codeword = mapping.encode(99_999)
    >>> mapping.resolve(range(8), codeword).item()
    99999
    """

    kind = "hashed"

    def __init__(self, n_classes: int, n_sites: int, alphabet_size: int, *, seed: int = 0) -> None:
        n_classes, n_sites, alphabet_size = check_length(n_classes, n_sites, alphabet_size)
        for name, value, limit in (
            ("n_classes", n_classes, PRIME),
            ("alphabet_size", alphabet_size, PRIME - 1),
        ):
            if value > limit:
                raise ArgumentError(f"{name} must be at most {limit}, got {value}")
        self._seed = check_below_2_to_the("seed", seed, 64)
        counters = np.arange(2 * n_sites, dtype=np.uint64)
        factors = draw_below(self._seed, counters[::2], PRIME - 1) + 1
        offsets = draw_below(self._seed, counters[1::2], PRIME)
        self._hashes = tuple(zip(factors.tolist(), offsets.tolist(), strict=True))
        capacity = min(PRIME, alphabet_size**n_sites)
        super().__init__(n_classes, (alphabet_size,) * n_sites, n_sites, capacity)
        self._check_distinct()

    @property
    def seed(self) -> int:
        """The seed."""
        return self._seed

    @property
    def hashes(self) -> tuple[tuple[int, int], ...]:
        """(a, b) of each site, 0 < a < 2^31 - 1 and 0 <= b < 2^31 - 1."""
        return self._hashes

    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """The site's hash of `ids`."""
        factor, offset = self._hashes[site]
        return (ids * factor + offset) % PRIME % self._alphabet_sizes[site]

    def _classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        return np.concatenate([np.empty(0, np.int64), *self._runs(site, symbol)])

    def _runs(self, site: int, symbol: int) -> Iterator[NDArray[np.int64]]:
        """Ascending classes with a symbol, RUN at a time.

        With a x + b = symbol + q t (mod p), t = A x + B (mod p) must lie in 0..T-1. From one
        such x to the next there are three gaps at most (Steinhaus): the least that moves t
        up by less than T, the least that moves it down by less than T, and their sum.
        """
        factor, offset = self._hashes[site]
        size = self._alphabet_sizes[site]
        inverse = pow(size, -1, PRIME)
        step, t = inverse * factor % PRIME, inverse * (offset - symbol) % PRIME
        span = (PRIME - 1 - symbol) // size + 1
        x = 0 if t < span else _first_within(step, PRIME, PRIME - t, PRIME - t + span - 1)
        t = (step * x + t) % PRIME
        if span == 1:
            if x < self._n_classes:
                yield np.array([x], np.int64)
            return
        up = _first_within(step, PRIME, 1, span - 1)
        down = _first_within(PRIME - step, PRIME, 1, span - 1)
        moves = (up, up * step % PRIME, down, down * (PRIME - step) % PRIME)
        while x < self._n_classes:
            run = np.empty(RUN, np.int64)
            count, x, t = _walk(x, t, span, *moves, self._n_classes, run)
            yield run[:count]

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        wanted = symbols.reshape(-1, len(sites))
        ids = np.full(len(wanted), -1, np.int64)
        order = np.argsort(wanted[:, 0], kind="stable")
        firsts, starts = np.unique(wanted[order, 0], return_index=True)
        listed = len(firsts) * (self._n_classes / self._alphabet_sizes[sites[0]] + SYMBOL)
        if listed > self._n_classes:
            self._find(sites, wanted, order, self._id_blocks(), ids)
        else:
            for symbol, rows in zip(firsts, np.split(order, starts[1:]), strict=False):
                self._find(sites, wanted, rows, self._runs(sites[0], int(symbol)), ids)
        return ids.reshape(symbols.shape[:-1])

    def _find(
        self,
        sites: tuple[int, ...],
        wanted: NDArray[np.int64],
        rows: NDArray[np.int64],
        runs: Iterable[NDArray[np.int64]],
        ids: NDArray[np.int64],
    ) -> None:
        """Puts into `ids` the lowest of the classes in `runs` that each row of `wanted` wants."""
        for classes in runs:
            run = classes
            for column, site in enumerate(sites[1:], start=1):
                if len(run) <= len(rows):
                    break
                run = run[np.isin(self.symbols_at(run, site), wanted[rows, column])]
            if run.size == 0:
                continue
            codewords = np.stack([self.symbols_at(run, site) for site in sites], axis=1)
            places = RowIndex(codewords).find(wanted[rows])
            ids[rows[places >= 0]] = run[places[places >= 0]]
            rows = rows[places < 0]
            if rows.size == 0:
                return

    def _check_distinct(self) -> None:
        n_classes, size = self._n_classes, self._alphabet_sizes[0]
        if n_classes > PROVEN:
            least = _length(n_classes, size, UNLIKELY)
            if self.n_sites < least:
                raise ArgumentError(
                    f"n_sites must be at least {least} for {n_classes} classes and "
                    f"{size} symbols, got {self.n_sites}: above {PROVEN} classes fewer than "
                    "10^-9 pairs of equal codewords must be expected"
                )
            return
        pair = self._first_collision()
        if pair is not None:
            raise ArgumentError(
                f"n_classes must be at most {pair[1]} at {self.n_sites} sites of {size} symbols "
                f"with seed {self._seed}, got {n_classes}: classes {pair[0]} and {pair[1]} are "
                f"both {shown(self.encode(pair[0]))}; try another seed, or n_sites of "
                f"{_length(n_classes, size, 100)}, where equal codewords are unlikely"
            )

    def _first_collision(self) -> tuple[int, int] | None:
        """The lowest class whose codeword an earlier one has, behind that one; else None."""
        prints = self._fingerprints()
        ordered = np.sort(prints)
        shared = ordered[1:][ordered[1:] == ordered[:-1]]
        if shared.size == 0:
            return None
        places = np.minimum(np.searchsorted(shared, prints), len(shared) - 1)
        ids = np.flatnonzero(shared[places] == prints)
        # Fingerprints may be equal by accident, so the codewords decide. The lowest repeat
        # mostly lies among the first few of these classes.
        size = FIRST
        while True:
            index = RowIndex(self.encode(ids[:size]))
            repeats = index.repeats()
            if repeats.size:
                second = int(ids[repeats[0]])
                return int(ids[index.find(self.encode(second))]), second
            if size >= len(ids):
                return None
            size *= 4

    def _fingerprints(self) -> NDArray[np.uint64]:
        """A word for each class; equal codewords have equal words."""
        prints = np.zeros(self._n_classes, np.uint64)
        for ids in self._id_blocks():
            words = np.zeros(len(ids), np.uint64)
            for site in range(self.n_sites):
                words = (words ^ self.symbols_at(ids, site).astype(np.uint64)) * GOLDEN
                words ^= words >> np.uint64(32)
            prints[ids] = words
        return prints

    def _recipe(self) -> dict[str, Any]:
        return {
            "n_classes": self._n_classes,
            "n_sites": self.n_sites,
            "alphabet_size": self._alphabet_sizes[0],
            "seed": self._seed,
        }


def _length(n_classes: int, alphabet_size: int, scale: int) -> int:
    """The fewest sites where less than 1/scale equal pairs are expected."""
    pairs, length, codewords = n_classes * (n_classes - 1) // 2, 1, alphabet_size
    while pairs * scale >= codewords:
        length, codewords = length + 1, codewords * alphabet_size
    return length


def _first_within(factor: int, modulus: int, low: int, high: int) -> int:
    """The least x >= 0 with low <= factor·x mod modulus <= high; 0 < factor < modulus, a prime.

    As in Euclid's algorithm: where no multiple of the factor lies in low..high itself, the
    same is asked of how often the modulus was passed, modulo the factor.
    """
    if low == 0:
        return 0
    x = -(-low // factor)
    if factor * x <= high:
        return x
    wraps = _first_within(modulus % factor, factor, -high % factor, -low % factor)
    return -(-(low + modulus * wraps) // factor)


@compiled
def _walk(
    x: int,
    t: int,
    span: int,
    up: int,
    rise: int,
    down: int,
    fall: int,
    n_classes: int,
    run: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Fills `run` from x on, as far as it goes; how many, and where the next run begins."""
    count = 0
    while x < n_classes and count < len(run):
        run[count] = x
        count += 1
        if t + rise < span:
            x += up
            t += rise
        elif t >= fall:
            x += down
            t -= fall
        else:
            x += up + down
            t += rise - fall
    return count, x, t
