"""Learnt codes: symbols that follow how the classes look, at the distance of the paper's codes.

The paper's codes are arbitrary with respect to the classes, so each site has to be
memorised; here a site's symbols are clusters of prototypes.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_integer, as_integers, check_choice
from ..errors import ArgumentError, ArgumentTypeError
from .assignment import (
    Views,
    algebraic_codewords,
    explained_variance,
    fit_codewords,
    one_thread,
    views_of,
)
from .placing import TakenWords
from .prototypes import as_prototypes
from .rows import RowIndex, as_codewords, check_symbols
from .table import CodeTable, StoredMapping

__all__ = ["LearnedMapping"]

logger = logging.getLogger(__name__)

VIEWS = ("auto", "components", "full")
# The alphabet that is tried first holds this many times N: natural symbols need free room.
ROOM = 1.56
# More where sites are many; see `_first_alphabet`. Measured with 1,000 classes at up to 40 sites.
FREE, FREER = 0.38, 2.4
# Where the caller leaves the alphabet open, so many larger ones are tried, each by a tenth.
ENLARGEMENTS, STEP = 12, 1.1
# So many partial codewords are kept in the search for a free one; so many classes at a time.
BEAM, PLACED = 200, 256
# Combinations of symbols that are ticked off one by one, whatever N.
BITMAP = 1 << 20


class LearnedMapping(StoredMapping):
    """A table code with a certificate: any two classes agree at `dimension` - 1 sites at most.

    Made by `fit`. The constructor takes codewords that exist, as a recipe does, and checks
    the certificate: a mapping that does not hold it is refused with two classes that agree
    at more sites.

    Parameters
    ----------
    codewords : array-like of int, shape (N, n_sites), or the dict of a recipe
    alphabet_sizes : sequence of int
    dimension : int, default 2
        k.
    sites : dict, optional
        What new classes are placed by (`grow`): each site's view and centroids.
    checksum : str, optional
        SHA-256 of the codewords, checked where given.

    Examples
    --------
    >>> prototypes = np.random.default_rng(0).normal(size=(200, 8))
    >>> LearnedMapping.fit(prototypes, n_sites=4, alphabet_size=23)
    LearnedMapping(n_classes=200, alphabet_sizes=(23, 23, 23, 23), dimension=2)
    >>> LearnedMapping([[0, 0, 0], [0, 1, 1], [1, 0, 1]], [2, 2, 2]).min_distance
    2
    """

    kind = "learned"

    def __init__(
        self,
        codewords: ArrayLike | Mapping[str, Any],
        alphabet_sizes: Sequence[int],
        dimension: int = 2,
        sites: Mapping[str, Any] | None = None,
        checksum: str | None = None,
    ) -> None:
        if isinstance(codewords, Mapping):
            codewords = CodeTable.codewords_of(codewords)
        matrix = as_codewords(codewords)
        sizes = as_integers("alphabet_sizes", alphabet_sizes, 2)
        check_symbols(matrix, sizes)
        if matrix.min() < 0:
            raise ArgumentError("codewords of a learned mapping must have a symbol everywhere")
        dimension = as_integer("dimension", dimension, 1)
        if dimension > len(sizes):
            raise ArgumentError(
                f"dimension must be at most the number of sites, {len(sizes)}; got {dimension}"
            )
        _certify(matrix, sizes, dimension)
        self._checksum = hashlib.sha256(matrix.astype("<i8").tobytes()).hexdigest()
        if checksum not in (None, self._checksum):
            raise ArgumentError(
                f"checksum of the codewords must be {self._checksum}, got {checksum}: "
                "they were changed after they were written"
            )
        self._sites = None if sites is None else _Sites.from_config(sites, sizes)
        capacity = min(math.prod(sorted(sizes)[:dimension]), 2**62)
        super().__init__(CodeTable(matrix), sizes, len(sizes) - dimension + 1, capacity)

    @classmethod
    def fit(
        cls,
        prototypes: ArrayLike,
        n_sites: int,
        *,
        alphabet_size: int | None = None,
        dimension: int = 2,
        views: str = "auto",
        covariance: ArrayLike | None = None,
        shrinkage: float = 0.1,
        seed: int = 0,
    ) -> LearnedMapping:
        """Cluster the classes at each site, at the distance n_sites - dimension + 1.

        Parameters
        ----------
        prototypes : array-like of float, shape (N, d)
            What stands for each class: the mean of its inputs, or of a network's features,
            or a row of a smaller model's last layer. Equal ones are told apart by chance.
        n_sites : int
            n, at least `dimension`.
        alphabet_size : int, optional
            q of every site; N at most ``q ** dimension``. Symbols follow the prototypes
            better the less of that is used. Default: ``q ** dimension`` is about 1.56 N, more
            where sites are many (4 N for 16 sites and 1,000 classes) or no code is found
            (the log says so).
        dimension : int, default 2
            k.
        views : {"auto", "components", "full"}
            What each site clusters: its share of the principal components, or all of
            them; "auto" takes "full" where variance is spread evenly.
        covariance : array-like of float, shape (d, d), optional
            How the rows of a class scatter about its prototype (`class_statistics`). Distances are
            then in units of that scatter, as in linear discriminant analysis: differences
            that noise drowns count little. Zero: as if not given.
        shrinkage : float, default 0.1
            In 0..1: how much of `covariance` is replaced by the identity times its mean
            variance (Friedman, 1989).
        seed : int, default 0

        Returns
        -------
        LearnedMapping

        Raises
        ------
        ArgumentError
            A prototype is not finite or beyond 1e30 (with its row), N is too large for the
            alphabet, or no code with the distance was found; `covariance` is no covariance
            matrix of the prototypes' width, or singular without shrinkage.
        MissingExtraError
            scipy or scikit-learn is absent.
        """
        rows = as_prototypes(prototypes)
        n_classes = len(rows)
        dimension = as_integer("dimension", dimension, 1)
        n_sites = as_integer("n_sites", n_sites, dimension)
        seed = as_integer("seed", seed, 0)
        check_choice("views", views, VIEWS)
        given = alphabet_size is not None
        if given:
            size = as_integer("alphabet_size", alphabet_size, 2)
            if n_classes > size**dimension:
                raise ArgumentError(
                    f"alphabet_size {size} holds at most {size**dimension} classes "
                    f"({size}^{dimension}), got {n_classes} prototypes"
                )
        else:
            size = _first_alphabet(n_classes, n_sites, dimension)
        scale = None if covariance is None else _whitening(covariance, shrinkage, rows.shape[1])
        with one_thread():
            seen = views_of(rows, n_sites, views, size, seed, scale)
        for attempt in range(1 if given else ENLARGEMENTS):
            with one_thread():
                codewords, centroids, clashes = fit_codewords(rows, seen, size, dimension, seed)
            if clashes == 0:
                sites = _Sites(seen, centroids)
                return cls(codewords, [size] * n_sites, dimension, sites.to_config())
            if not given and attempt + 1 < ENLARGEMENTS:
                larger = math.ceil(size * STEP)
                logger.warning(
                    "%d clashes at %d sites are left with %d symbols a site; trying %d",
                    clashes, dimension, size, larger,
                )  # fmt: skip
                size = larger
        with one_thread():
            found = algebraic_codewords(rows, seen, size, dimension, seed)
        if found is not None:
            logger.warning(
                "%d clashes are left with %d symbols a site; from site %d on, symbols start from "
                "those of an algebraic code and follow the prototypes less",
                clashes, size, dimension,
            )  # fmt: skip
            sites = _Sites(seen, found[1])
            return cls(found[0], [size] * n_sites, dimension, sites.to_config())
        raise ArgumentError(
            f"alphabet_size must be larger than {size} for {n_classes} classes, {n_sites} sites "
            f"and dimension {dimension}: {clashes} symbols clash in the code found last"
        )

    def grow(self, n_classes: int, prototypes: ArrayLike | None = None) -> LearnedMapping:
        """The same code with more classes, each with the free codeword that suits it best.

        Parameters
        ----------
        n_classes : int
            From the present number to `capacity`.
        prototypes : array-like of float, shape (n_classes - N, d)
            Of the new classes, in the space of those that the mapping was fitted on.

        Raises
        ------
        ArgumentError
            The mapping was not made by `fit`, the shape does not fit, or no codeword that
            keeps the distance is free (with how many classes could be placed).
        """
        n_classes = as_integer("n_classes", n_classes, 1)
        if n_classes < self.n_classes or n_classes > self.capacity:
            super().grow(n_classes)
        if n_classes == self.n_classes:
            return self
        if self._sites is None:
            raise ArgumentError(
                "sites must be known to place new classes: only a mapping made by fit can grow"
            )
        if prototypes is None:
            raise ArgumentError("prototypes must be given for the new classes of a learned mapping")
        rows = as_prototypes(prototypes)
        shape = (n_classes - self.n_classes, len(self._sites.views.centre))
        if rows.shape != shape:
            raise ArgumentError(f"prototypes must have shape {shape}, got {rows.shape}")
        codewords = self._sites.place(rows, self.codewords, self.alphabet_sizes, self.dimension)
        return LearnedMapping(
            codewords, self.alphabet_sizes, self.dimension, self._sites.to_config()
        )

    def naturalness(self, prototypes: ArrayLike) -> list[float]:
        """The share of each site's view's variance that lies between its symbols.

        Parameters
        ----------
        prototypes : array-like of float, shape (N, d)

        Returns
        -------
        list of float
            In 0..1, one a site. 0 is what symbols have that know nothing of the classes
            (about (q-1)/(N-1)), 1 where the classes of a symbol are alike.
        """
        if self._sites is None:
            raise ArgumentError("sites must be known: only a mapping made by fit has views")
        rows = as_prototypes(prototypes)
        shape = (self.n_classes, len(self._sites.views.centre))
        if rows.shape != shape:
            raise ArgumentError(f"prototypes must have shape {shape}, got {rows.shape}")
        codewords = self.codewords
        return [
            explained_variance(self._sites.views.of(rows, site), codewords[:, site])
            for site in range(self.n_sites)
        ]

    def _recipe(self) -> dict[str, Any]:
        return {
            "codewords": self._table.to_config(),
            "alphabet_sizes": list(self._alphabet_sizes),
            "dimension": self._dimension,
            "sites": None if self._sites is None else self._sites.to_config(),
            "checksum": self._checksum,
        }

    def __repr__(self) -> str:
        return (
            f"LearnedMapping(n_classes={self.n_classes}, alphabet_sizes={self.alphabet_sizes}, "
            f"dimension={self.dimension})"
        )


class _Sites:
    """Where each site's symbols lie in its view; places new classes."""

    def __init__(self, views: Views, centroids: list[NDArray[np.float64]]) -> None:
        # In float32, as written, so that a loaded mapping places classes as the fitted one.
        maps = [_rounded(m) for m in views.maps]
        if all(np.array_equal(m, maps[0]) for m in maps):
            maps = [maps[0]] * len(maps)
        self.views = Views(_rounded(views.centre), maps)
        self.centroids = [_rounded(c) for c in centroids]

    def to_config(self) -> dict[str, Any]:
        """JSON values: float32 arrays in base64."""
        shared = all(m is self.views.maps[0] for m in self.views.maps)
        maps = self.views.maps[:1] if shared else self.views.maps
        return {
            "centre": _packed(self.views.centre),
            "maps": [_packed(m) for m in maps],
            "centroids": [_packed(c) for c in self.centroids],
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], sizes: tuple[int, ...]) -> _Sites:
        """What `to_config` wrote, checked."""
        if not isinstance(config, Mapping) or set(config) != {"centre", "maps", "centroids"}:
            got = list(config) if isinstance(config, Mapping) else type(config).__name__
            raise ArgumentError(
                f"sites must be a dict with the fields centre, maps, centroids; got {got}"
            )
        if not all(isinstance(config[name], list) for name in ("maps", "centroids")):
            raise ArgumentTypeError("maps and centroids of the sites must be lists")
        centre = _unpacked("centre", config["centre"], 1)
        maps = [_unpacked("maps", m, 2) for m in config["maps"]]
        maps = maps * len(sizes) if len(maps) == 1 else maps
        centroids = [_unpacked("centroids", c, 2) for c in config["centroids"]]
        if len(maps) != len(sizes) or len(centroids) != len(sizes):
            raise ArgumentError(f"sites must have maps and centroids for {len(sizes)} sites")
        for size, m, c in zip(sizes, maps, centroids, strict=True):
            if m.shape[0] != centre.size or c.shape != (size, m.shape[1]):
                raise ArgumentError(
                    f"sites must have maps of shape ({centre.size}, d) and centroids of shape "
                    f"({size}, d), got {m.shape} and {c.shape}"
                )
        return cls(Views(centre, maps), centroids)

    def place(
        self,
        prototypes: NDArray[Any],
        codewords: NDArray[np.int64],
        sizes: tuple[int, ...],
        dimension: int,
    ) -> NDArray[np.int64]:
        """`codewords` and behind them those of the new classes, nearest first."""
        taken = TakenWords(sizes, dimension)
        taken.add(codewords)
        spreads = [float(c.var(axis=0).sum()) or 1.0 for c in self.centroids]
        added = [codewords]
        for first in range(0, len(prototypes), PLACED):
            rows = prototypes[first : first + PLACED].astype(np.float64)
            costs = np.empty((len(rows), len(sizes), max(sizes)))
            for row, prototype in enumerate(rows):  # one by one: sums do not depend on how many
                for site, (centroids, spread) in enumerate(
                    zip(self.centroids, spreads, strict=True)
                ):
                    view = self.views.of(prototype[None], site)
                    far = ((centroids - view) ** 2).sum(axis=1)
                    costs[row, site, : sizes[site]] = far / spread
            added.append(taken.place(costs, BEAM))
            if len(added[-1]) < len(rows):
                raise ArgumentError(
                    f"n_classes must be at most {sum(map(len, added))} for these prototypes: no "
                    "codeword that keeps the distance was found for the next"
                )
        return np.concatenate(added)


def _first_alphabet(n_classes: int, n_sites: int, dimension: int) -> int:
    """The alphabet that is tried first.

    A random word agrees with no class at k sites, of which there are C(n, k), with
    probability (1 - N/q^k)^C(n, k). Classes find a codeword while that times q^(c n) is 1
    or more, c being about 0.38 + 2.4/n.
    """
    size: int = max(2, math.ceil((ROOM * n_classes) ** (1 / dimension)))
    share: float = (FREE + FREER / n_sites) * n_sites / math.comb(n_sites, dimension)
    while n_classes > size**dimension * -math.expm1(-share * math.log(size)):
        size += 1
    return size


def _whitening(covariance: ArrayLike, shrinkage: float, width: int) -> NDArray[np.float64] | None:
    """The map (d, d) after which rows scatter about their classes evenly; None for zero."""
    matrix = as_prototypes(covariance, "covariance")
    if matrix.shape != (width, width):
        raise ArgumentError(f"covariance must have shape {(width, width)}, got {matrix.shape}")
    if not 0 <= shrinkage <= 1:
        raise ArgumentError(f"shrinkage must lie in 0..1, got {shrinkage}")
    variance = float(np.trace(matrix)) / width
    largest = float(np.abs(matrix).max())
    if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-6 * largest):
        raise ArgumentError("covariance must be symmetric")
    if largest == 0:
        return None
    with one_thread():
        values, vectors = np.linalg.eigh(matrix.astype(np.float64))
    if values[0] < -1e-6 * values[-1]:
        raise ArgumentError(f"covariance must have no negative eigenvalue, got {values[0]}")
    values = (1 - shrinkage) * np.maximum(values, 0.0) + shrinkage * variance
    if values[0] <= 1e-12 * values[-1]:
        raise ArgumentError("shrinkage must be above 0 for a singular covariance")
    whitening: NDArray[np.float64] = vectors / np.sqrt(values)
    return whitening


def _certify(matrix: NDArray[np.int64], sizes: tuple[int, ...], dimension: int) -> None:
    """Refuse codewords of which two agree at `dimension` sites."""
    for sites in combinations(range(len(sizes)), dimension):
        span = math.prod(sizes[site] for site in sites)
        if span <= 16 * len(matrix) + BITMAP:  # counting is faster than sorting
            there, places = np.zeros(span, np.bool_), np.zeros(len(matrix), np.int64)
            for site in sites:
                places = places * sizes[site] + matrix[:, site]
            there[places] = True
            if np.count_nonzero(there) == len(matrix):
                continue
        pair = RowIndex(matrix[:, list(sites)]).first_repeat()
        if pair is not None:
            first, second = pair
            raise ArgumentError(
                f"codewords must agree at {dimension - 1} sites at most: classes {first} and "
                f"{second} both have {matrix[first, list(sites)].tolist()} at sites {list(sites)}"
            )


def _rounded(array: NDArray[np.float64]) -> NDArray[np.float64]:
    return array.astype(np.float32).astype(np.float64)


def _packed(array: NDArray[np.float64]) -> dict[str, Any]:
    data = base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode("ascii")
    return {"shape": list(array.shape), "data": data}


def _unpacked(name: str, config: Any, n_axes: int) -> NDArray[np.float64]:
    try:
        shape = as_integers(f"shape of the {name}", config["shape"], 1)
        raw = base64.b64decode(config["data"], validate=True)
        array = np.frombuffer(raw, "<f4").reshape(shape).astype(np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"{name} of the sites are damaged: {error}") from error
    if array.ndim != n_axes or not np.isfinite(array).all():
        raise ArgumentError(f"{name} of the sites must be {n_axes}-dimensional and finite")
    return array
