"""Error-correcting output codes: every site is a two-class problem.

Dietterich and Bakiri (1995); with abstentions Allwein, Schapire and Singer (2000).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import as_integer, check_choice
from ..errors import ArgumentError
from . import binary_codes
from .base import Ids, LabelMapping
from .distances import counting_work, distance_counts
from .linear import LinearCode
from .table import AFFORDABLE, CodeTable

__all__ = ["EcocMapping"]

# Code: what it is made by beside N, and the most classes it is made for.
LINEAR = {"binary": 2**62, "bch": 2**40, "hadamard": 2**14}
FIXED = {"exhaustive": 12, "one-versus-rest": 5000, "one-versus-one": 500}
DRAWN = {"random": 10**7, "sparse-random": 20_000, "hill-climbing": 1000}
CODES = (*LINEAR, *FIXED, *DRAWN)
# Bits a class needs, times this: the usual lengths of dense and of sparse random codes.
DENSE, SPARSE = 10, 15
DRAWS = 100
# Nanoseconds of counting that the choice among draws may take.
CHOICE_WORK = 3e9


class EcocMapping(LabelMapping):
    """A binary or ternary code: alphabets of two symbols.

    Parameters
    ----------
    n_classes : int
        N, from 1 (most codes: 2) to the code's limit.
    code : str, default "binary"
        - "binary": site i is bit i of the class id, the lowest first; ceil(log2 N) sites,
          distance 1; N up to 2**62.
        - "bch": a shortened primitive BCH code of the bits with at least `distance`; needs
          galois; N up to 2**40.
        - "hadamard": 2**m - 1 sites for up to 2**m classes, any two differ at half of them and
          a half more; N up to 2**14.
        - "exhaustive": all 2**(N-1) - 1 splits of up to 12 classes; distance 2**(N-2).
        - "random": fair bits, the best of several draws by distance; N up to 10**7.
        - "hill-climbing": random, then bits are changed where that makes rows or columns
          differ more; N up to 1,000.
        - "one-versus-rest": a site a class; distance 2; N up to 5,000.
        - "one-versus-one": a site a pair of classes; the others abstain; N up to 500.
        - "sparse-random": half of the entries abstain, the best of several draws; N up to
          20,000, since every pair of classes is compared.
    n_sites : int, optional
        Of the codes that are drawn. Default 10 (sparse: 15) times log2 N.
    distance : int, optional
        Of "bch", the designed distance. Default 3: one error is corrected.
    seed : int, default 0
        Of the codes that are drawn.
    draws : int, optional
        How many of "random" and "sparse-random" are compared. Default 100, or fewer
        where comparing them takes longer than seconds.
    draw : int, optional
        Take just this draw; recipes hold the one that was chosen.

    Notes
    -----
    An abstention, written 0 beside 1 and -1 in the literature, is the symbol -1 here: the
    site does not train on such a class, and adds log 1/2 to its score.

    Raises
    ------
    ArgumentError
        The code has no such argument, is not made for so many classes, or has no room
        for N different codewords.
    MissingExtraError
        "bch" without galois.

    Examples
    --------
    >>> EcocMapping(100).n_sites
    7
    >>> EcocMapping(100).encode(6).tolist()
    [0, 1, 1, 0, 0, 0, 0]
    >>> code = EcocMapping(100, "bch", distance=5)
    >>> code.n_sites, code.min_distance
    (15, 5)
    >>> EcocMapping(4, "one-versus-one").encode([0, 3]).tolist()
    [[1, 1, 1, -1, -1, -1], [-1, -1, 0, -1, 0, 0]]
    """

    kind = "ecoc"

    def __init__(
        self,
        n_classes: int,
        code: str = "binary",
        *,
        n_sites: int | None = None,
        distance: int | None = None,
        seed: int | None = None,
        draws: int | None = None,
        draw: int | None = None,
    ) -> None:
        n_classes = as_integer("n_classes", n_classes, 1)
        self._code = check_choice("code", code, CODES)
        _refuse_foreign(code, n_sites=n_sites, distance=distance, seed=seed, draws=draws, draw=draw)
        most = {**LINEAR, **FIXED, **DRAWN}[code]
        if n_classes > most:
            power = f" = 2^{most.bit_length() - 1}" if code in LINEAR else ""
            raise ArgumentError(
                f"n_classes must be at most {most}{power} for the code {code!r}, got {n_classes}"
            )
        self._options: dict[str, int] = {}
        self._structure: LinearCode | CodeTable
        n_bits = max(1, (n_classes - 1).bit_length())
        if code in LINEAR:
            generator, least = self._generator(n_bits, distance)
            self._structure = LinearCode(2, generator, (1,) * generator.shape[1])
            length, capacity = generator.shape[1], 2**n_bits
        else:
            if n_classes < 2:
                raise ArgumentError(
                    f"n_classes must be at least 2 for the code {code!r}, got {n_classes}"
                )
            matrix = self._matrix(n_classes, n_sites, seed, draws, draw)
            self._structure = CodeTable(matrix)
            length, capacity = matrix.shape[1], n_classes
            least = 1
            if counting_work(matrix.shape, (2,) * length) <= AFFORDABLE:
                least = _least(distance_counts(matrix))
        super().__init__(n_classes, (2,) * length, length - least + 1, capacity)

    def _generator(self, n_bits: int, distance: int | None) -> tuple[NDArray[np.int64], int]:
        if self._code == "binary":
            return np.eye(n_bits, dtype=np.int64), 1
        if self._code == "hadamard":
            return binary_codes.hadamard(n_bits), 2 ** (n_bits - 1)
        distance = 3 if distance is None else as_integer("distance", distance, 2)
        self._options["distance"] = distance
        generator = binary_codes.bch(n_bits, distance)
        return generator, binary_codes.linear_distance(generator) or distance

    def _matrix(
        self,
        n_classes: int,
        n_sites: int | None,
        seed: int | None,
        draws: int | None,
        draw: int | None,
    ) -> NDArray[np.int8]:
        code = self._code
        if code in FIXED:
            make: Callable[[int], NDArray[np.int8]] = {
                "exhaustive": binary_codes.exhaustive,
                "one-versus-rest": binary_codes.one_versus_rest,
                "one-versus-one": binary_codes.one_versus_one,
            }[code]
            return make(n_classes)
        if n_sites is None:
            per_bit = SPARSE if code == "sparse-random" else DENSE
            n_sites = max(1, math.ceil(per_bit * math.log2(n_classes)))
        n_sites = as_integer("n_sites", n_sites, 1)
        if code != "sparse-random" and n_classes > 2**n_sites:
            raise ArgumentError(
                f"n_sites must be at least {(n_classes - 1).bit_length()} for {n_classes} "
                f"different binary codewords, got {n_sites}"
            )
        seed = 0 if seed is None else as_integer("seed", seed, 0)
        self._options.update(n_sites=n_sites, seed=seed)
        if code == "hill-climbing":
            return binary_codes.climbed(n_classes, n_sites, seed)
        one = binary_codes.random_sparse if code == "sparse-random" else binary_codes.random_dense
        work = counting_work((n_classes, n_sites), (2,) * n_sites)
        chosen, tried = 0, "in each draw"
        if draw is not None:
            chosen, tried = as_integer("draw", draw, 0), f"in draw {draw}"
            if draws is not None:
                raise ArgumentError(f"draws must not be given beside draw, got {draws} and {draw}")
        else:
            affordable = max(1, int(CHOICE_WORK / work)) if work <= AFFORDABLE else 1
            if draws is None:
                draws = min(DRAWS, affordable)
            elif as_integer("draws", draws, 1) > 1 and work > AFFORDABLE:
                raise ArgumentError(
                    f"draws must be 1 for {n_classes} classes and {n_sites} sites: to compare "
                    f"codes takes too long; got {draws}"
                )
            if draws > 1:
                chosen = max(
                    range(draws),
                    key=lambda i: (*_score(one(n_classes, n_sites, seed, i)), -i),
                )
        self._options["draw"] = chosen
        matrix = one(n_classes, n_sites, seed, chosen)
        if code == "sparse-random" and _least(distance_counts(matrix)) == 0:
            raise ArgumentError(
                f"n_sites must be larger for {n_classes} classes: {tried} two of them have no "
                f"site that tells them apart; got {n_sites}"
            )
        return matrix

    @property
    def code(self) -> str:
        """Which binary or ternary code it is."""
        return self._code

    @property
    def has_abstentions(self) -> bool:
        """Whether some sites have nothing to say about some classes: symbol -1."""
        return isinstance(self._structure, CodeTable) and self._structure.has_abstentions

    @property
    def linear(self) -> LinearCode | None:
        """The code as a matrix over F_2, where it is one."""
        return self._structure if isinstance(self._structure, LinearCode) else None

    @property
    def table(self) -> CodeTable | None:
        """The code as a table, where it is one."""
        return self._structure if isinstance(self._structure, CodeTable) else None

    def symbols_at(self, ids: Ids, site: int, tables: Sequence[Ids] = ()) -> Ids:
        """The side of each class at a site: 1, 0, or -1 for neither."""
        if self._code == "binary":
            return ids // 2**site % 2
        return self._structure.symbols_at(ids, site, tables)

    def site_tables(self, site: int) -> tuple[NDArray[np.integer], ...]:
        """The site's column of the code, or what digits of the id add to its symbol."""
        return () if self._code == "binary" else self._structure.site_tables(site)

    def _classes_with(self, site: int, symbol: int) -> NDArray[np.int64]:
        if isinstance(self._structure, CodeTable):
            return self._structure.classes_with(site, symbol)
        return super()._classes_with(site, symbol)

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._structure.resolve(sites, symbols)

    __reduce__ = LabelMapping._reduce_to_recipe

    def _recipe(self) -> dict[str, Any]:
        return {"n_classes": self._n_classes, "code": self._code, **self._options}


def _refuse_foreign(code: str, **given: int | None) -> None:
    """Refuse an argument that the code does not have."""
    known: tuple[str, ...] = ()
    if code == "bch":
        known = ("distance",)
    elif code == "hill-climbing":
        known = ("n_sites", "seed")
    elif code in DRAWN:
        known = ("n_sites", "seed", "draws", "draw")
    for name, value in given.items():
        if value is not None and name not in known:
            has = f"it has {', '.join(known)}" if known else "it has no options"
            raise ArgumentError(f"{name} is no argument of the code {code!r} ({has}), got {value}")


def _score(matrix: NDArray[np.int8]) -> tuple[int, int, int]:
    """What makes one draw better: no constant site, the least distance, few pairs at it."""
    counts = distance_counts(matrix)
    least = _least(counts)
    constant = np.count_nonzero(matrix.min(axis=0) == matrix.max(axis=0))
    return -int(constant), least, -int(counts[least])


def _least(counts: NDArray[np.int64]) -> int:
    return int(np.flatnonzero(counts)[0])
