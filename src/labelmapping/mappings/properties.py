"""What a code is worth: distances, balance and independence of its sites, and how each is known.

By structure (any N, exact), by counting (exact), or by sampling (an estimate with its
interval). Knows the codes and numpy; no learner and no decoder.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_integer
from ..errors import ArgumentError, ArgumentTypeError
from .assignment import explained_variance
from .base import BLOCK, INT64_LIMIT, LabelMapping
from .distances import counting_work, distance_counts, first_collision, matrix_work
from .mixed import MixedMapping
from .polynomial import PolynomialMapping
from .prototypes import as_prototypes
from .simplex import INFINITY, SimplexMapping

__all__ = ["CodeProperties", "pairwise_mutual_information", "properties"]

# Nanoseconds: binary codes for 100,000 classes are just counted.
MAX_WORK = 1e10
# Nanoseconds to encode a class at the sites of a histogram and to count it, and what each
# histogram takes besides.
COUNTED, BESIDES = 20, 1e5
# Pairs of sites whose information is told: 447 sites, some seconds.
MOST_PAIRS = 100_000
# Symbols of a table of codewords that is held whole: 256 MB.
HELD = 1 << 25
# Entries of a histogram that is held whole: 32 MB.
DENSE = 1 << 22
# Products of alphabets that inclusion-exclusion may meet: half a second.
PRODUCTS = 1 << 18
# The normal quantile of a two-sided interval of 95 %.
QUANTILE = 1.959963984540054
# Entropies cancel in a mutual information, of which the least for N < 2^63 is about 1e-76.
DIGITS = Context(prec=120)

# How many combinations of symbols have so many classes: (classes, combinations) each.
Cells: TypeAlias = tuple[tuple[int, int], ...]
CellsOf: TypeAlias = Callable[[tuple[int, ...]], Cells]


@dataclass(frozen=True, kw_only=True)
class CodeProperties:
    """The properties of a code, each with how it is known.

    Attributes
    ----------
    n_classes, n_sites, dimension : int
        N, n and k, as the mapping has them.
    alphabet_sizes : tuple of int
        q_i, the number of symbols of each site.
    min_distance : int
        The number of sites at which any two classes differ at least: exact by structure
        or counting (at N = 1 and by sampling, the mapping's guarantee, or less where
        less was seen).
    distance_known_by : {"structure", "counting", "sampling"}
        How the distances are known, from `min_distance` to `collision`.
    n_pairs : int
        Pairs of classes, without order: N(N-1)/2.
    distance_counts : tuple of int, length n + 1, or None
        How many pairs differ at exactly 0, 1, ..., n sites. None by sampling.
    distance_shares : tuple of float, length n + 1
        The same as shares of all pairs, by sampling as estimates; zeros where N = 1.
    distance_intervals : tuple of (float, float), or None
        By sampling only: Wilson's interval of 95 % for each share.
    mean_distance : float or None
        None where N = 1.
    mean_distance_interval : (float, float) or None
        By sampling only: the mean and 1.96 standard errors to both sides.
    sampled_pairs, least_distance_seen : int or None
        By sampling only.
    collisions : int or None
        Pairs with the same codeword. None by sampling where the mapping excludes none.
    collision : (int, int) or None
        Two classes with the same codeword, where such were found.
    symbol_counts : tuple of (int, int), length n, or None
        The fewest and the most classes of a symbol, over the symbols of each site.
    entropy : tuple of float, length n, or None
        Of each site's symbol, the class uniform, in bits; log2 of the alphabet at most. An
        abstention counts as a symbol of its own here and in the information.
    balance_known_by : {"structure", "counting"} or None
        How `symbol_counts` and `entropy` are known; None, as they are, where counting would
        pass `max_work`.
    mutual_information : tuple of n tuples of n floats, or None
        Of the symbols of two sites, in bits; on the diagonal the entropies.
    information_known_by : {"structure", "counting"} or None
        None where counting would pass `max_work`, and for more than 447 sites.
    naturalness : tuple of float, length n, or None
        For given prototypes: the share of their variance that lies between the symbols of each
        site (the rest lies within), over the classes that have a symbol there. About
        (q-1)/(N-1) where symbols know nothing of the classes, 1 where those of a symbol are alike.
    """

    n_classes: int
    alphabet_sizes: tuple[int, ...]
    n_sites: int
    dimension: int
    min_distance: int
    distance_known_by: str
    n_pairs: int
    distance_counts: tuple[int, ...] | None
    distance_shares: tuple[float, ...]
    distance_intervals: tuple[tuple[float, float], ...] | None
    mean_distance: float | None
    mean_distance_interval: tuple[float, float] | None
    sampled_pairs: int | None
    least_distance_seen: int | None
    collisions: int | None
    collision: tuple[int, int] | None
    symbol_counts: tuple[tuple[int, int], ...] | None
    entropy: tuple[float, ...] | None
    balance_known_by: str | None
    mutual_information: tuple[tuple[float, ...], ...] | None
    information_known_by: str | None
    naturalness: tuple[float, ...] | None

    @property
    def errors_corrected(self) -> int:
        """Wrong sites that the nearest codeword puts right: half of `min_distance` - 1."""
        return max(self.min_distance - 1, 0) // 2

    @property
    def sites_that_may_be_lost(self) -> int:
        """Sites without which the class is still determined: `min_distance` - 1."""
        return max(self.min_distance - 1, 0)

    @property
    def singleton_gap(self) -> int:
        """How far `min_distance` lies below the best that any code could have.

        At distance d the codewords differ on any n - d + 1 sites, the smallest too, whose
        alphabets so multiply to N or more. With the fewest, k0, that do, d is at most
        n - k0 + 1: Singleton's bound (the paper's section 4) for unequal alphabets. A single
        class counts as needing one site.
        """
        product, fewest = 1, 0
        for size in sorted(self.alphabet_sizes):
            if product >= self.n_classes:
                break
            product, fewest = product * size, fewest + 1
        return self.n_sites - max(fewest, 1) + 1 - self.min_distance

    @property
    def balance(self) -> tuple[float, ...] | None:
        """Most by fewest classes of a symbol at each site: 1 is best, inf has unused symbols."""
        if self.symbol_counts is None:
            return None
        return tuple(most / fewest if fewest else math.inf for fewest, most in self.symbol_counts)

    @property
    def largest_mutual_information(self) -> float | None:
        """Of the two sites that share most, in bits; None where unknown, 0 for a single site."""
        if self.mutual_information is None:
            return None
        pairs = combinations(range(self.n_sites), 2)
        return max((self.mutual_information[i][j] for i, j in pairs), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values: sequences as lists, what is unknown or infinite as None."""
        derived = (
            "errors_corrected",
            "sites_that_may_be_lost",
            "singleton_gap",
            "balance",
            "largest_mutual_information",
        )
        names = [field.name for field in fields(self)] + list(derived)
        return {name: _json(getattr(self, name)) for name in names}


def properties(
    mapping: LabelMapping,
    *,
    prototypes: ArrayLike | None = None,
    sample: int = 100_000,
    seed: int = 0,
    max_work: float = MAX_WORK,
) -> CodeProperties:
    """The properties of a code: exact where that can be, and labelled.

    Mixed, simplex and polynomial codes are known by structure, in milliseconds for any N:
    of N ids in a row every combination of symbols of the same sites has N / Q or one
    more, rounded down, Q the product of their alphabets (the paper's lemma on preimages).
    How many pairs agree at a set of sites follows, and by inclusion and exclusion how
    many agree at exactly so many. Other codes, simplex codes whose order leaves gaps among
    them, are counted, class by class and pair by pair.

    Parameters
    ----------
    mapping : LabelMapping
    prototypes : array-like of float, shape (N, d), optional
        What stands for each class (`class_means`): tells how natural each site is.
    sample : int, default 100_000
        Pairs of classes to draw where distances can neither be derived nor counted.
    seed : int, default 0
        Of that sample.
    max_work : float, default 1e10
        How long counting may take, estimated, in nanoseconds of one core: once for the
        distances, once for the sites. 0 counts nothing.

    Returns
    -------
    CodeProperties

    Raises
    ------
    ArgumentTypeError
        `mapping` is no mapping.
    ArgumentError
        `sample` is below 1, or `seed` or `max_work` negative; the prototypes are not finite or
        not N.

    Examples
    --------
    >>> from labelmapping import MixedMapping
    >>> known = properties(MixedMapping(10**8, [463, 467, 479, 487]))
    >>> known.dimension, known.min_distance, known.distance_known_by
    (3, 2, 'structure')
    >>> known.distance_counts
    (0, 0, 133315653324, 41944296691186, 4957922337655490)
    >>> known.symbol_counts[0], known.singleton_gap
    ((215982, 215983), 0)
    >>> f"{known.largest_mutual_information:.2e} of {known.entropy[0]:.2f} bits"
    '9.17e-07 of 8.85 bits'
    """
    if not isinstance(mapping, LabelMapping):
        raise ArgumentTypeError(f"mapping must be a LabelMapping, got {mapping!r}")
    sample = as_integer("sample", sample, 1)
    seed = as_integer("seed", seed, 0)
    if not max_work >= 0:
        raise ArgumentError(f"max_work must be at least 0, got {max_work}")
    structure = _structure_of(mapping)
    codewords = None
    n_symbols = mapping.n_classes * mapping.n_sites
    if structure is None and n_symbols <= min(HELD, max_work / COUNTED):
        codewords = mapping.encode(np.arange(mapping.n_classes))
    return CodeProperties(
        n_classes=mapping.n_classes,
        alphabet_sizes=mapping.alphabet_sizes,
        n_sites=mapping.n_sites,
        dimension=mapping.dimension,
        n_pairs=_pairs(mapping.n_classes),
        **_distances(mapping, structure, codewords, sample, seed, max_work),
        **_balance(mapping, structure, codewords, max_work),
        **_information(mapping, structure, codewords, max_work),
        naturalness=None if prototypes is None else _naturalness(mapping, prototypes),
    )


def pairwise_mutual_information(mapping: LabelMapping, first: int, second: int) -> float:
    """Mutual information of the symbols of two sites, the class uniform over 0..N-1.

    The paper's measure of the independence of base learners (section 4). By structure for
    mixed, simplex and polynomial codes, else by counting all classes. Rounded once: it is
    right to the last digit however small, and 0.0 means that the symbols are independent.

    Parameters
    ----------
    mapping : LabelMapping
    first, second : int
        Sites; the same one twice gives its entropy.

    Returns
    -------
    float
        In bits.

    Raises
    ------
    ArgumentError
        There is no such site, or neither way is open: no structure, more than 2^24 classes
        and more than 2^22 pairs of symbols.

    Examples
    --------
    >>> from labelmapping import SimplexMapping
    >>> mapping = SimplexMapping(10**8, 4, dimension=3)
    >>> f"{pairwise_mutual_information(mapping, 0, 1):.3e}"
    '8.550e-07'
    >>> pairwise_mutual_information(mapping.grow(mapping.capacity), 0, 1)
    0.0
    """
    (first,), (second,) = mapping.check_sites([first]), mapping.check_sites([second])
    sites = (first, second) if first != second else (first,)
    structure = _structure_of(mapping)
    if structure is None and not _countable(mapping, sites):
        raise ArgumentError(
            f"mapping must have a structure, at most {HELD // len(sites)} classes, or at most "
            f"{DENSE} combinations of symbols at sites {list(sites)}, got {mapping!r}"
        )

    def entropy(*chosen: int) -> Decimal:
        if structure is not None:
            return _entropy(structure.cells(chosen), mapping.n_classes)
        return _entropy(_counted_cells(mapping, chosen, None), mapping.n_classes)

    if first == second:
        return _bits(entropy(first))
    shared = _shared(entropy(first), entropy(second), entropy(first, second), mapping.n_classes)
    return _bits(shared)


# --- by structure


@dataclass(frozen=True)
class _Structure:
    """Block-uniform codes: how the N ids fall on the combinations of symbols, in closed form.

    Take a set of sites with Q the product of their alphabets. In every run of Q ids that
    starts at a multiple of Q each combination of symbols comes once: by the Chinese
    remainder theorem for residues; for polynomials because the ids of a run differ in the
    digits below Q only, whose values determine the combination and are determined by it
    (the higher digits add a constant). The last run, cut off at N, has N mod Q different
    ones. Where Q is above the capacity, N is below it and the combinations are different.

    A simplex code's symbol at infinity is the leading digit: it cuts the ids into runs of
    q^(k-1), a multiple of the Q of up to k - 1 other sites, and within each the same holds.
    """

    n_classes: int
    alphabet_sizes: tuple[int, ...]
    dimension: int
    leading: int | None = None

    def cells(self, sites: tuple[int, ...]) -> Cells:
        """(classes, combinations) for the combinations of symbols of different sites."""
        others = math.prod(self.alphabet_sizes[site] for site in sites if site != self.leading)
        return self.cells_of(others, self.leading in sites)

    def cells_of(self, product: int, with_leading: bool) -> Cells:
        """The same from the product of the alphabets, but for that of the leading digit."""
        if not with_leading or self.leading is None:
            return _even_cells(self.n_classes, product, 1)
        order = self.alphabet_sizes[self.leading]
        run = order ** (self.dimension - 1)
        whole, rest = divmod(self.n_classes, run)
        cells = _even_cells(run, product, whole) + _even_cells(rest, product, 1 if rest else 0)
        return (*cells, (0, (order - whole - (rest > 0)) * product))

    def agreements(self) -> list[int] | None:
        """How many pairs of classes agree at exactly 0, 1, ..., n sites.

        None where the sets of fewer than k sites have too many different products.
        """
        sets: list[Counter[int]] = [Counter({1: 1})]
        sets += [Counter() for _ in range(1, self.dimension)]
        for site, size in enumerate(self.alphabet_sizes):
            if site == self.leading:
                continue
            for length in range(self.dimension - 1, 0, -1):
                for product, number in sets[length - 1].items():
                    sets[length][product * size] += number
            if sum(map(len, sets)) > PRODUCTS:
                return None
        at_least = [self._pairs_agreeing(chosen, with_leading=False) for chosen in sets]
        if self.leading is not None:
            for length in range(1, self.dimension):
                at_least[length] += self._pairs_agreeing(sets[length - 1], with_leading=True)
        exactly = [0] * (len(self.alphabet_sizes) + 1)
        for j in range(self.dimension):
            exactly[j] = sum(
                (-1) ** (length - j) * math.comb(length, j) * at_least[length]
                for length in range(j, self.dimension)
            )
        return exactly

    def _pairs_agreeing(self, sets: Counter[int], *, with_leading: bool) -> int:
        """Summed over sets of sites, the pairs of classes that agree at all sites of a set."""
        return sum(
            number * cells * _pairs(classes)
            for product, number in sets.items()
            for classes, cells in self.cells_of(product, with_leading)
        )


def _structure_of(mapping: LabelMapping) -> _Structure | None:
    # A subclass may have changed the symbols.
    if type(mapping) not in {MixedMapping, SimplexMapping, PolynomialMapping}:
        return None
    leading = None
    if isinstance(mapping, SimplexMapping):
        if mapping.order is not None and mapping.order.max() >= mapping.n_classes:
            return None  # not N numbers in a row; if they are, who has which changes no count
        if INFINITY in mapping.points:
            leading = mapping.points.index(INFINITY)
    return _Structure(mapping.n_classes, mapping.alphabet_sizes, mapping.dimension, leading)


def _even_cells(n_classes: int, product: int, times: int) -> Cells:
    """So many classes spread as evenly as can be over `product` combinations, so many times."""
    whole, extra = divmod(n_classes, product)
    return (whole, (product - extra) * times), (whole + 1, extra * times)


# --- by counting


def _countable(mapping: LabelMapping, sites: tuple[int, ...]) -> bool:
    cells = math.prod(mapping.alphabet_sizes[site] + 1 for site in sites)
    return mapping.n_classes * len(sites) <= HELD or cells <= DENSE


def _affordable(mapping: LabelMapping, sets: Sequence[tuple[int, ...]], max_work: float) -> bool:
    """Whether the class counts at each of these sets of sites can be had within the work."""
    work = len(sets) * (COUNTED * mapping.n_classes + BESIDES)
    return work <= max_work and all(_countable(mapping, sites) for sites in sets)


def _counter(mapping: LabelMapping, codewords: NDArray[np.int64] | None) -> CellsOf:
    return lambda sites: _counted_cells(mapping, sites, codewords)


def _columns(
    mapping: LabelMapping, sites: tuple[int, ...], codewords: NDArray[np.int64] | None, block: int
) -> Iterator[list[NDArray[np.int64]]]:
    """The symbols of these sites for all classes, some ids at a time."""
    for start in range(0, mapping.n_classes, block):
        stop = min(start + block, mapping.n_classes)
        if codewords is not None:
            yield [codewords[start:stop, site] for site in sites]
        else:
            ids = np.arange(start, stop, dtype=np.int64)
            yield [mapping.symbols_at(ids, site) for site in sites]


def _class_counts(
    mapping: LabelMapping, sites: tuple[int, ...], codewords: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The combinations of symbols that come, by number, and how many classes have each.

    Where the mapping has abstentions, they count as a symbol before the others.
    """
    shift = int(mapping.has_abstentions)
    sizes = [mapping.alphabet_sizes[site] + shift for site in sites]
    n_cells = math.prod(sizes)
    if n_cells <= min(DENSE, 8 * mapping.n_classes + BLOCK):
        counts = np.zeros(n_cells, np.int64)
        for columns in _columns(mapping, sites, codewords, max(BLOCK, n_cells)):
            counts += np.bincount(_joined(columns, sizes, shift), minlength=n_cells)
        combinations_that_come = np.flatnonzero(counts)
        return combinations_that_come, counts[combinations_that_come]
    (columns,) = _columns(mapping, sites, codewords, mapping.n_classes)
    if n_cells >= INT64_LIMIT:
        columns = [np.unique(column, return_inverse=True)[1] for column in columns]
        sizes, shift = [mapping.n_classes] * len(sites), 0
    return np.unique(_joined(columns, sizes, shift), return_counts=True)


def _joined(columns: list[NDArray[np.int64]], sizes: list[int], shift: int) -> NDArray[np.int64]:
    """One number for each combination of symbols, the first symbol counting most."""
    number = np.zeros(len(columns[0]), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        number = number * size + (column + shift)
    return number


def _counted_cells(
    mapping: LabelMapping, sites: tuple[int, ...], codewords: NDArray[np.int64] | None
) -> Cells:
    _, counts = _class_counts(mapping, sites, codewords)
    values, cells = np.unique(counts, return_counts=True)
    return tuple(zip(values.tolist(), cells.tolist(), strict=True))


def _counted_extremes(
    mapping: LabelMapping, site: int, codewords: NDArray[np.int64] | None
) -> tuple[int, int]:
    """The fewest and the most classes of a symbol, those that abstain left out."""
    symbols, counts = _class_counts(mapping, (site,), codewords)
    if mapping.has_abstentions:
        counts = counts[symbols > 0]
    unused = len(counts) < mapping.alphabet_sizes[site]
    return (0 if unused else int(counts.min())), int(counts.max(initial=0))


# --- entropies


@lru_cache(maxsize=1 << 14)
def _weighted_log(count: int) -> Decimal:
    """Count * ln(count), 0 for 0."""
    with localcontext(DIGITS):
        return count * Decimal(count).ln() if count else Decimal(0)


@lru_cache(maxsize=1 << 10)
def _entropy(cells: Cells, n_classes: int) -> Decimal:
    """In nats, to 120 digits, of the combination of symbols of a uniform class."""
    with localcontext(DIGITS):
        total = sum((number * _weighted_log(count) for count, number in cells), Decimal(0))
        return (_weighted_log(n_classes) - total) / n_classes


def _shared(first: Decimal, second: Decimal, both: Decimal, n_classes: int) -> Decimal:
    """The mutual information in nats from the three entropies."""
    with localcontext(DIGITS):
        shared = first + second - both
        # By Pinsker's inequality half the square of the distance between the joint
        # distribution and the product; its entries are multiples of 1 / N^2.
        return shared if shared >= Decimal(2) / n_classes**4 else Decimal(0)


def _bits(nats: Decimal) -> float:
    with localcontext(DIGITS):
        return float(2 * nats / _weighted_log(2))


# --- the parts of the answer


def _pairs(n_classes: int) -> int:
    return n_classes * (n_classes - 1) // 2


def _distances(
    mapping: LabelMapping,
    structure: _Structure | None,
    codewords: NDArray[np.int64] | None,
    sample: int,
    seed: int,
    max_work: float,
) -> dict[str, Any]:
    shape = (mapping.n_classes, mapping.n_sites)
    if mapping.n_classes == 1:
        return _exact_distances(mapping, "structure", [0] * (mapping.n_sites + 1), None)
    agreements = structure.agreements() if structure is not None else None
    if agreements is not None:
        return _exact_distances(mapping, "structure", agreements[::-1], None)
    if math.prod(shape) > HELD or counting_work(shape, mapping.alphabet_sizes) > max_work:
        return _sampled_distances(mapping, sample, seed)
    if codewords is None:
        codewords = mapping.encode(np.arange(mapping.n_classes))
    if matrix_work(codewords) > max_work:  # symbols less even than the alphabets promise
        return _sampled_distances(mapping, sample, seed)
    counts = [int(count) for count in distance_counts(codewords)]
    witness = first_collision(codewords) if counts[0] else None
    return _exact_distances(mapping, "counting", counts, witness)


def _exact_distances(
    mapping: LabelMapping, known_by: str, counts: list[int], witness: tuple[int, int] | None
) -> dict[str, Any]:
    n_pairs = _pairs(mapping.n_classes)
    total = sum(distance * count for distance, count in enumerate(counts))
    least = next((distance for distance, count in enumerate(counts) if count), None)
    return {
        "min_distance": mapping.min_distance if least is None else least,
        "distance_known_by": known_by,
        "distance_counts": tuple(counts),
        "distance_shares": tuple(count / max(n_pairs, 1) for count in counts),
        "distance_intervals": None,
        "mean_distance": total / n_pairs if n_pairs else None,
        "mean_distance_interval": None,
        "sampled_pairs": None,
        "least_distance_seen": None,
        "collisions": counts[0],
        "collision": witness,
    }


def _sampled_distances(mapping: LabelMapping, sample: int, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    first = generator.integers(0, mapping.n_classes, sample)
    second = generator.integers(0, mapping.n_classes - 1, sample)
    second += second >= first
    distances = np.zeros(sample, np.int64)
    for site in range(mapping.n_sites):
        a, b = mapping.symbols_at(first, site), mapping.symbols_at(second, site)
        distances += (a != b) & (a >= 0) & (b >= 0)
    counts = np.bincount(distances, minlength=mapping.n_sites + 1).tolist()
    least = int(distances.min())
    mean, error = float(distances.mean()), QUANTILE * float(distances.std()) / math.sqrt(sample)
    at = int(distances.argmin())
    return {
        "min_distance": min(mapping.min_distance, least),
        "distance_known_by": "sampling",
        "distance_counts": None,
        "distance_shares": tuple(count / sample for count in counts),
        "distance_intervals": tuple(_interval(count, sample) for count in counts),
        "mean_distance": mean,
        "mean_distance_interval": (mean - error, mean + error),
        "sampled_pairs": sample,
        "least_distance_seen": least,
        "collisions": 0 if min(mapping.min_distance, least) > 0 else None,
        "collision": None if least else (int(first[at]), int(second[at])),
    }


def _interval(count: int, sample: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share of which `count` of `sample` were seen."""
    square = QUANTILE**2
    middle = (count + square / 2) / (sample + square)
    spread = count * (sample - count) / sample + square / 4
    half = QUANTILE * math.sqrt(spread) / (sample + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def _balance(
    mapping: LabelMapping,
    structure: _Structure | None,
    codewords: NDArray[np.int64] | None,
    max_work: float,
) -> dict[str, Any]:
    sites = [(site,) for site in range(mapping.n_sites)]
    cells_of: CellsOf
    if structure is not None:
        known_by, cells_of = "structure", structure.cells
        used = [[c for c, number in cells_of(site) if number] for site in sites]
        extremes = [(min(counts), max(counts)) for counts in used]
    elif _affordable(mapping, sites, max_work):
        known_by, cells_of = "counting", _counter(mapping, codewords)
        extremes = [_counted_extremes(mapping, *site, codewords) for site in sites]
    else:
        return {"symbol_counts": None, "entropy": None, "balance_known_by": None}
    return {
        "symbol_counts": tuple(extremes),
        "entropy": tuple(_bits(_entropy(cells_of(site), mapping.n_classes)) for site in sites),
        "balance_known_by": known_by,
    }


def _information(
    mapping: LabelMapping,
    structure: _Structure | None,
    codewords: NDArray[np.int64] | None,
    max_work: float,
) -> dict[str, Any]:
    n, sites = mapping.n_sites, range(mapping.n_sites)
    cells_of: CellsOf
    few = math.comb(n, 2) <= MOST_PAIRS
    pairs = list(combinations(sites, 2)) if few else []
    if few and structure is not None:
        known_by, cells_of = "structure", structure.cells
    elif few and _affordable(mapping, [*((site,) for site in sites), *pairs], max_work):
        known_by, cells_of = "counting", _counter(mapping, codewords)
    else:
        return {"mutual_information": None, "information_known_by": None}
    entropies = [_entropy(cells_of((site,)), mapping.n_classes) for site in sites]
    matrix = [[0.0] * n for _ in sites]
    for site in sites:
        matrix[site][site] = _bits(entropies[site])
    for i, j in pairs:
        both = _entropy(cells_of((i, j)), mapping.n_classes)
        shared = _shared(entropies[i], entropies[j], both, mapping.n_classes)
        matrix[i][j] = matrix[j][i] = _bits(shared)
    return {
        "mutual_information": tuple(map(tuple, matrix)),
        "information_known_by": known_by,
    }


def _naturalness(mapping: LabelMapping, prototypes: ArrayLike) -> tuple[float, ...]:
    rows = as_prototypes(prototypes).astype(np.float64)
    if len(rows) != mapping.n_classes:
        raise ArgumentError(
            f"prototypes must have a row for each of {mapping.n_classes} classes, got {len(rows)}"
        )
    ids = np.arange(mapping.n_classes)
    shares = []
    for site in range(mapping.n_sites):
        symbols = mapping.symbols_at(ids, site)
        known = symbols >= 0
        shares.append(explained_variance(rows[known], symbols[known]))
    return tuple(shares)


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json(entry) for entry in value]
    return None if isinstance(value, float) and math.isinf(value) else value
