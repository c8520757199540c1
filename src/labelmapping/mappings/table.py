"""Codes without a closed form: any matrix of symbols, and a seeded random one."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_integer, as_integers, check_choice
from ..errors import ArgumentError, ArgumentTypeError
from .base import Ids, LabelMapping, look_up
from .distances import (
    counting_work,
    distance_counts,
    first_collision,
    matrix_work,
    minimum_distance,
)
from .drawing import check_below_2_to_the, check_length, random_codewords
from .rows import RowIndex, as_codewords, check_symbols, shown

__all__ = ["CodeTable", "RandomMapping", "StoredMapping", "TableMapping"]

# Least distances are counted where that takes about half a second at most (`counting_work`).
AFFORDABLE = 5e8
# With abstentions, distinctness is proven pair by pair; more than minutes of it are refused.
PATIENCE = 2e11
# How symbols are stored: the first that holds them all. Little-endian on every machine.
DTYPES = ("|u1", "<u2", "<u4", "|i1", "<i2", "<i4", "<i8")
# Tuples of sites whose index is kept.
KEPT = 64


@dataclass(frozen=True, eq=False)
class CodeTable:
    """The codewords of a code without a closed form, and its indexes, made when first asked for.

    Attributes
    ----------
    codewords : integer array (N, n_sites)
        Symbols, -1 where a site has nothing to say; kept as a read-only copy of the
        smallest dtype that holds them.
    """

    codewords: NDArray[np.integer]
    _lists: dict[int, tuple[NDArray[np.int64], ...]] = field(
        default_factory=dict, init=False, repr=False
    )
    _indexes: dict[tuple[int, ...], RowIndex] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        least, most = int(self.codewords.min()), int(self.codewords.max())
        limits = {dtype: np.iinfo(dtype) for dtype in DTYPES}
        dtype = next(d for d, i in limits.items() if i.min <= least and most <= i.max)
        compact = np.array(self.codewords, dtype, order="F")  # a site's symbols lie together
        compact.flags.writeable = False
        object.__setattr__(self, "codewords", compact)

    def __reduce__(self) -> tuple[type[CodeTable], tuple[NDArray[np.integer]]]:
        return CodeTable, (self.codewords,)  # the indexes are made again

    @cached_property
    def has_abstentions(self) -> bool:
        """Whether some symbol is -1."""
        return bool(self.codewords.min() < 0)

    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """One site's symbols, int64; `ids` is an int64 numpy array or torch tensor."""
        (column,) = tables or self.site_tables(site)
        return look_up(column, ids)

    def site_tables(self, site: int) -> tuple[NDArray[np.integer], ...]:
        """The site's column of the codewords."""
        return (self.codewords[:, site],)

    def classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        """Ascending ids of the classes with this symbol; int64."""
        if site not in self._lists:
            column = self.codewords[:, site]
            order = np.argsort(column, kind="stable")
            symbols, starts = np.unique(column[order], return_index=True)
            self._lists[site] = (symbols.astype(np.int64), np.append(starts, len(order)), order)
        symbols, starts, order = self._lists[site]
        place = int(np.searchsorted(symbols, symbol))
        if place == len(symbols) or symbols[place] != symbol:
            return np.empty(0, np.int64)
        return order[starts[place] : starts[place + 1]].copy()

    def resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lowest class with the symbols (..., k) at any k sites, or -1; int64 (...)."""
        if sites not in self._indexes:
            while len(self._indexes) >= KEPT:
                self._indexes.pop(next(iter(self._indexes)))
            self._indexes[sites] = RowIndex(self.codewords[:, list(sites)].astype(np.int64))
        return self._indexes[sites].find(symbols)

    @cached_property
    def _data(self) -> str:
        return base64.b64encode(self.codewords.tobytes()).decode("ascii")

    def to_config(self) -> dict[str, Any]:
        """The table as JSON values: dtype, shape, and the rows in base64."""
        shape = list(self.codewords.shape)
        return {"dtype": self.codewords.dtype.str, "shape": shape, "data": self._data}

    @staticmethod
    def codewords_of(config: Mapping[str, Any]) -> NDArray[np.integer]:
        """The codewords that `to_config` wrote.

        Raises
        ------
        ArgumentError
            A field is missing or wrong, or the data are damaged or of another size.
        """
        if set(config) != {"dtype", "shape", "data"}:
            raise ArgumentError(
                f"codewords as a dict must have the fields dtype, shape, data; got {list(config)}"
            )
        dtype = np.dtype(check_choice("dtype of the codewords", str(config["dtype"]), DTYPES))
        shape = as_integers("shape of the codewords", config["shape"], 1)
        if len(shape) != 2:
            raise ArgumentError(f"shape of the codewords must have 2 entries, got {list(shape)}")
        if not isinstance(config["data"], str):
            raise ArgumentTypeError(
                f"data of the codewords must be a string, got {type(config['data']).__name__}"
            )
        size = shape[0] * shape[1] * dtype.itemsize
        try:
            plain = base64.b64decode(config["data"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ArgumentError(f"data of the codewords are damaged: {error}") from error
        if len(plain) != size:
            raise ArgumentError(
                f"data of the codewords must be {size} bytes for shape {list(shape)} and dtype "
                f"{dtype.str}, got {len(plain)}"
            )
        return np.frombuffer(plain, dtype).reshape(shape)


class StoredMapping(LabelMapping):
    """A code whose codewords are a `CodeTable`."""

    def __init__(
        self, table: CodeTable, alphabet_sizes: tuple[int, ...], min_distance: int, capacity: int
    ) -> None:
        self._table = table
        n_classes, n_sites = table.codewords.shape
        super().__init__(n_classes, alphabet_sizes, n_sites - min_distance + 1, capacity)

    @property
    def table(self) -> CodeTable:
        """The codewords and their indexes."""
        return self._table

    @property
    def codewords(self) -> NDArray[np.int64]:
        """A copy of all codewords, int64 (N, n_sites)."""
        return self._table.codewords.astype(np.int64, order="C")

    @property
    def has_abstentions(self) -> bool:
        """Whether some sites have nothing to say about some classes: symbol -1."""
        return self._table.has_abstentions

    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """Symbols of one site, looked up."""
        return self._table.symbols_at(ids, site, tables)

    def site_tables(self, site: int) -> tuple[NDArray[np.integer], ...]:
        """The site's column of the codewords."""
        return self._table.site_tables(site)

    def _classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        return self._table.classes_with(site, symbol)

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._table.resolve(sites, symbols)


class TableMapping(StoredMapping):
    """Any matrix of symbols as a code.

    `min_distance` is counted where that takes about half a second at most (100,000 classes
    with 4 sites of 317 symbols, 20,000 with 63 bits); above that it is 1, which is what
    distinct codewords guarantee. With abstentions it is always counted.

    Parameters
    ----------
    codewords : array-like of int, shape (N, n_sites)
        Symbols from 0 on, or -1 where a site has nothing to say about a class (it then
        differs from no class). Any two rows differ at one site or more. Also
        the dict that `to_config` writes for them.
    alphabet_sizes : sequence of int, optional
        The number of symbols of each site. Default: its largest symbol plus 1, at least 2.

    Raises
    ------
    ArgumentTypeError
        The codewords are not integers.
    ArgumentError
        With the place of a symbol that is out of range, the class or the site that is -1
        throughout, or two classes that differ nowhere. Tables with abstentions are
        compared pair by pair, and refused where that would take minutes.

    Examples
    --------
    >>> mapping = TableMapping([[0, 0, 0], [0, 1, 2], [1, 0, 1]])
    >>> mapping
    TableMapping(n_classes=3, alphabet_sizes=(2, 2, 3), min_distance=2)
    >>> mapping.resolve([1, 2], [[1, 2], [1, 0]]).tolist()
    [1, -1]
    """

    kind = "table"

    def __init__(
        self,
        codewords: ArrayLike | Mapping[str, Any],
        alphabet_sizes: Sequence[int] | None = None,
    ) -> None:
        if isinstance(codewords, Mapping):
            codewords = CodeTable.codewords_of(codewords)
        matrix = as_codewords(codewords)
        if alphabet_sizes is None:
            sizes = tuple(max(2, int(symbol) + 1) for symbol in matrix.max(axis=0))
        else:
            sizes = as_integers("alphabet_sizes", alphabet_sizes, 2)
        check_symbols(matrix, sizes)
        super().__init__(CodeTable(matrix), sizes, _least_distance(matrix), len(matrix))

    @staticmethod
    def random(
        n_classes: int, n_sites: int, alphabet_size: int, *, seed: int = 0, draws: int = 1
    ) -> RandomMapping:
        """A seeded random table; see `RandomMapping`."""
        return RandomMapping(n_classes, n_sites, alphabet_size, seed=seed, draws=draws)

    def _grown(self, n_classes: int) -> LabelMapping:
        return self  # a table is full: the capacity is N

    def _recipe(self) -> dict[str, Any]:
        return {
            "codewords": self._table.to_config(),
            "alphabet_sizes": list(self._alphabet_sizes),
        }

    def __repr__(self) -> str:
        return (
            f"TableMapping(n_classes={self.n_classes}, alphabet_sizes={self.alphabet_sizes}, "
            f"min_distance={self.min_distance})"
        )


def _least_distance(matrix: NDArray[np.int64]) -> int:
    """The least distance, or 1 where it is not counted; equal codewords are refused."""
    work, abstains = matrix_work(matrix), matrix.min() < 0
    if abstains and work > PATIENCE:
        raise ArgumentError(
            "codewords with abstentions (-1) are compared pair by pair, which must take at most "
            f"{PATIENCE * 1e-9:.0f} seconds; for {len(matrix)} classes it would take "
            f"{work * 1e-9:.0f}"
        )
    if abstains or work <= AFFORDABLE:
        distance, pair = minimum_distance(matrix)
        collision = pair if distance == 0 else None
    else:
        distance, collision = 1, first_collision(matrix)
    if collision is not None:
        first, second = (shown(matrix[row]) for row in collision)
        raise ArgumentError(
            f"codewords must differ: classes {collision[0]} and {collision[1]} "
            + (f"are both {first}" if first == second else f"differ nowhere: {first}, {second}")
        )
    return distance


class RandomMapping(StoredMapping):
    """Random codewords, all different: a function of the seed that never changes.

    Class r draws its symbols from (seed, draw, r, attempt, site), each with equal odds.
    Where an earlier class has that codeword it draws again, up to 8 times; then it takes
    the next free codeword in lexicographic order (after the last comes the first).
    So no class depends on later ones, and N can grow. `min_distance` is counted where that
    takes about half a second at most (`counting_work`), else it is 1.

    Parameters
    ----------
    n_classes : int
        N, from 1 to ``alphabet_size ** n_sites``.
    n_sites : int
        n, the length of a codeword.
    alphabet_size : int
        q, symbols of every site, from 2 to 2**32 - 1.
    seed : int, default 0
        From 0 to 2**64 - 1.
    draws : int, default 1
        Draw this many codes and keep the one with the largest minimum distance; of those,
        one with the fewest pairs of classes at that distance; of those, the first.
    draw : int, optional
        Instead: this one, counted from 0. The recipe says which it was, so a rebuilt or
        grown code does not choose again.

    Raises
    ------
    ArgumentError
        With the smallest `n_sites` that gives N classes different codewords; or where
        there are several draws and too many classes to count their distances.

    Examples
    --------
    >>> mapping = RandomMapping(1000, 40, 41)
    >>> mapping.encode(0)[:6].tolist()
    [5, 2, 27, 28, 12, 29]
    >>> mapping.min_distance
    33
    """

    kind = "random"

    def __init__(
        self,
        n_classes: int,
        n_sites: int,
        alphabet_size: int,
        *,
        seed: int = 0,
        draws: int = 1,
        draw: int | None = None,
    ) -> None:
        n_classes, n_sites, alphabet_size = check_length(n_classes, n_sites, alphabet_size)
        self._seed = check_below_2_to_the("seed", seed, 64)
        check_below_2_to_the("alphabet_size", alphabet_size, 32)
        draws = as_integer("draws", draws, 1)
        sizes = (alphabet_size,) * n_sites
        counted = counting_work((n_classes, n_sites), sizes) <= AFFORDABLE
        if draw is not None:
            self._draw = check_below_2_to_the("draw", draw, 64)
            if draws > 1:
                raise ArgumentError(f"draws must be 1 where draw is given, got {draws}")
        elif draws > 1 and not counted:
            raise ArgumentError(
                f"draws must be 1 for {n_classes} classes at {n_sites} sites of {alphabet_size} "
                f"symbols, whose distances take too long to count; got {draws}"
            )
        else:
            self._draw = 0
        shape = (n_classes, n_sites, alphabet_size)
        matrix = random_codewords(self._seed, self._draw, *shape)
        best = _closeness(matrix) if counted else (-1, 0)
        for number in range(1, draws):
            other = random_codewords(self._seed, number, *shape)
            closeness = _closeness(other)
            if closeness < best:
                matrix, best, self._draw = other, closeness, number
        super().__init__(CodeTable(matrix), sizes, -best[0], min(alphabet_size**n_sites, 2**62))

    @property
    def seed(self) -> int:
        """The seed."""
        return self._seed

    @property
    def draw(self) -> int:
        """Which of the seed's codes this is."""
        return self._draw

    def _recipe(self) -> dict[str, Any]:
        return {
            "n_classes": self._n_classes,
            "n_sites": self.n_sites,
            "alphabet_size": self._alphabet_sizes[0],
            "seed": self._seed,
            "draw": self._draw,
        }


def _closeness(matrix: NDArray[np.int64]) -> tuple[int, int]:
    """The least distance, negated, and the pairs at it: the lower, the better the code."""
    counts = distance_counts(matrix)
    distances = np.flatnonzero(counts)
    least = int(distances[0]) if distances.size else matrix.shape[1]
    return -least, int(counts[least])
