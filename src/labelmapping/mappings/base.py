"""What every code offers: class id to codeword and back. Knows numpy, no learner.

A mapping is a frozen value: it is what its recipe (`to_config`) says, and two
mappings with the same recipe are equal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_class_ids, as_integer, as_integers, check_choice
from ..errors import ArgumentError

__all__ = ["LabelMapping"]

INT64_LIMIT = 2**63
# The largest alphabet whose symbols can be multiplied with each other in int64.
LARGEST_FACTOR = 3_037_000_499
# Ids coded at a time: bounds the temporaries of `encode` to a few MB.
BLOCK = 1 << 18
FORMAT = 1

# A numpy array or a torch tensor of int64: the codes need +, *, // and % only.
Ids: TypeAlias = Any


class LabelMapping(ABC):
    """A code for classes: N class ids to codewords of n small symbols.

    Subclasses give `symbols_at` (one site's symbols from ids), `resolve` and,
    where the code has structure, `classes_with`; everything public here checks
    its arguments and lifts shapes.

    Attributes
    ----------
    n_classes : int
        N; class ids are 0..N-1.
    alphabet_sizes : tuple of int
        q_i, the number of symbols of each site.
    dimension : int
        k: any k sites determine the class, so two classes agree at k-1 sites at most.
    capacity : int
        The largest N the same alphabets can code.
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[LabelMapping]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in vars(cls):  # a subclass without its own is no new kind of recipe
            LabelMapping._kinds[cls.kind] = cls

    def __init__(
        self, n_classes: int, alphabet_sizes: tuple[int, ...], dimension: int, capacity: int
    ) -> None:
        self._n_classes = n_classes
        self._alphabet_sizes = alphabet_sizes
        self._dimension = dimension
        self._capacity = capacity

    @property
    def n_classes(self) -> int:
        """N, the number of classes."""
        return self._n_classes

    @property
    def alphabet_sizes(self) -> tuple[int, ...]:
        """q_i, the number of symbols of each site."""
        return self._alphabet_sizes

    @property
    def n_sites(self) -> int:
        """n, the length of a codeword."""
        return len(self._alphabet_sizes)

    @property
    def dimension(self) -> int:
        """k: any k sites determine the class."""
        return self._dimension

    @property
    def min_distance(self) -> int:
        """The number of sites at which any two classes differ at least: n - k + 1."""
        return self.n_sites - self._dimension + 1

    @property
    def capacity(self) -> int:
        """The largest N the same alphabets can code, so classes can be added up to it."""
        return self._capacity

    @abstractmethod
    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """Symbols of one site, unchecked: the hook under `encode`.

        `ids` is an int64 numpy array or torch tensor of any shape, already
        checked; the symbols have its type, shape and device. `tables` are copies of
        `site_tables` of its type, on its device; without them a tensor's are made anew.
        """

    def site_tables(self, site: int) -> tuple[NDArray[np.integer], ...]:
        """What `symbols_at` looks one site's symbols up in: nothing where they are computed."""
        return ()

    @abstractmethod
    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """Class ids from the symbols (..., k) of k sites; anything outside 0..N-1 is no class."""

    @abstractmethod
    def _recipe(self) -> dict[str, Any]:
        """The constructor's arguments, as JSON values."""

    def encode(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Codewords of class ids; no table of classes is built.

        Parameters
        ----------
        ids : array-like of int, shape (...)
            Class ids in 0..N-1.

        Returns
        -------
        ndarray of int64, shape (..., n_sites)

        Raises
        ------
        ArgumentTypeError
            `ids` are not integers.
        ArgumentError
            An id is out of range; the message has its value and place.
        """
        array = as_class_ids("ids", ids, self._n_classes)
        flat = array.reshape(-1)
        codewords = np.empty((flat.size, self.n_sites), np.int64)
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK].astype(np.int64)
            for site in range(self.n_sites):
                codewords[start : start + BLOCK, site] = self.symbols_at(block, site)
        return codewords.reshape(*array.shape, self.n_sites)

    def classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        """Ascending ids of the classes that have `symbol` at `site`; int64, shape (m,).

        Raises
        ------
        ArgumentError
            There is no such site, or `symbol` is outside its alphabet.
        """
        (site,) = self.check_sites([site])
        symbol = as_integer("symbol", symbol, 0)
        if symbol >= self._alphabet_sizes[site]:
            raise ArgumentError(
                f"symbol must lie in 0..{self._alphabet_sizes[site] - 1} at site {site}, "
                f"got {symbol}"
            )
        return self._classes_with(site, symbol)

    def _classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        """`classes_with` for a code without structure: one look at every class."""
        runs = [ids[self.symbols_at(ids, site) == symbol] for ids in self._id_blocks()]
        return np.concatenate(runs)

    def _id_blocks(self) -> Iterator[NDArray[np.int64]]:
        for start in range(0, self._n_classes, BLOCK):
            yield np.arange(start, min(start + BLOCK, self._n_classes), dtype=np.int64)

    def resolve(self, sites: Sequence[int], symbols: ArrayLike) -> NDArray[np.int64]:
        """The class that has these symbols at these sites, or -1 where none has.

        Parameters
        ----------
        sites : sequence of int, length `dimension`
            Different sites.
        symbols : array-like of int, shape (..., dimension)
            Their symbols, in the order of `sites`.

        Returns
        -------
        ndarray of int64, shape (...)
        """
        chosen = self.check_sites(sites)
        if len(chosen) != self._dimension:
            raise ArgumentError(
                f"sites must name {self._dimension} sites (the dimension), got {len(chosen)}"
            )
        array = np.asarray(symbols)
        if array.ndim == 0 or array.shape[-1] != len(chosen):
            raise ArgumentError(
                f"symbols must have shape (..., {len(chosen)}), got {tuple(array.shape)}"
            )
        for column, site in enumerate(chosen):
            there = array[..., column]
            if self.has_abstentions:
                there = np.where(there == -1, 0, there)
            as_class_ids(f"symbols of site {site}", there, self._alphabet_sizes[site])
        ids = self._resolve(chosen, array.astype(np.int64))
        return np.where((ids >= 0) & (ids < self._n_classes), ids, -1)

    @property
    def has_abstentions(self) -> bool:
        """Whether some sites have nothing to say about some classes: symbol -1 (ternary codes)."""
        return False

    def grow(self, n_classes: int) -> LabelMapping:
        """The same code for more classes: alphabets and all codewords so far stay as they are.

        Parameters
        ----------
        n_classes : int
            From the present number to `capacity`.

        Raises
        ------
        ArgumentError
            It is below the present number, or above the capacity (the message says how
            far it can go).

        Examples
        --------
        >>> from labelmapping import MixedMapping
        >>> mapping = MixedMapping(1000, [31, 37, 41, 43])
        >>> mapping.capacity
        1147
        >>> grown = mapping.grow(1147)
        >>> bool((grown.encode(range(1000)) == mapping.encode(range(1000))).all())
        True
        """
        n_classes = as_integer("n_classes", n_classes, 1)
        if n_classes < self._n_classes:
            raise ArgumentError(
                f"n_classes must be at least the present {self._n_classes}, got {n_classes}"
            )
        if n_classes > self._capacity:
            raise ArgumentError(
                f"n_classes must be at most the capacity of these alphabets, {self._capacity} "
                f"({self._capacity - self._n_classes} more than now); got {n_classes}"
            )
        return self._grown(n_classes)

    def _grown(self, n_classes: int) -> LabelMapping:
        return type(self)._from_recipe({**self._recipe(), "n_classes": n_classes})

    def check_sites(self, sites: object) -> tuple[int, ...]:
        """`sites` as a tuple, each in 0..n_sites-1 and none twice."""
        chosen = as_integers("sites", sites, 0)
        for site in chosen:
            if site >= self.n_sites:
                raise ArgumentError(f"sites must lie in 0..{self.n_sites - 1}, got {site}")
        if len(set(chosen)) < len(chosen):
            raise ArgumentError(f"sites must be different from each other, got {list(chosen)}")
        return chosen

    def to_config(self) -> dict[str, Any]:
        """The recipe: a small dict of JSON values that `from_config` rebuilds bit for bit."""
        return {"format": FORMAT, "kind": self.kind, **self._recipe()}

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> LabelMapping:
        """The mapping of a recipe.

        Raises
        ------
        ArgumentError
            The recipe's format or kind is unknown, or it lacks a field or has one too many.
        """
        fields = dict(config)
        number = as_integer("format of the recipe", fields.pop("format", None), 1)
        if number > FORMAT:
            raise ArgumentError(
                f"format of the recipe must be at most {FORMAT}, got {number}: "
                "it was written by a newer labelmapping"
            )
        kind = check_choice(
            "kind of the recipe", str(fields.pop("kind", None)), LabelMapping._kinds
        )
        return LabelMapping._kinds[kind]._from_recipe(fields)

    @classmethod
    def _from_recipe(cls, fields: dict[str, Any]) -> Self:
        try:
            mapping = cls(**fields)
        except (TypeError, ArgumentError) as error:  # a field too many, too few, or a wrong one
            raise ArgumentError(f"recipe of a {cls.kind} mapping: {error}") from error
        names = mapping._recipe().keys()
        if names != fields.keys():  # a default must not stand in for what was written
            raise ArgumentError(
                f"recipe of a {cls.kind} mapping must have the fields {', '.join(names)}; "
                f"got {', '.join(fields)}"
            )
        return mapping

    def _reduce_to_recipe(self) -> tuple[Any, ...]:
        """For pickling codes that are cheap to make and hold tables beside their recipe."""
        return type(self)._from_recipe, (self._recipe(),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelMapping):
            return NotImplemented
        return self.to_config() == other.to_config()

    def __hash__(self) -> int:
        return hash((self.kind, self._n_classes, self._alphabet_sizes, self._dimension))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._recipe().items())
        return f"{type(self).__name__}({fields})"


def refuse_overflow(what: str, product: int) -> None:
    """Refuse a product that int64 cannot hold."""
    if product >= INT64_LIMIT:
        raise ArgumentError(f"{what} must stay below 2^63, got {product}")


def look_up(table: Ids, index: Ids) -> Ids:
    """`table[index]` as int64, of the type of `index` and on its device."""
    if isinstance(index, (np.ndarray, np.generic)):
        return table[index].astype(np.int64)
    if isinstance(table, np.ndarray):
        table = index.new_tensor(table.astype(np.int64))
    return table[index].long()
