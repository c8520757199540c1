"""No two classes share a codeword: every N up to 5,000, and random N up to 10^8.

Codes with the same alphabets are the same code, cut off at N: of each, the largest is looked
at as a whole, and every smaller one is shown to be its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from labelmapping import (
    EcocMapping,
    LabelMapping,
    MixedMapping,
    PolynomialMapping,
    SimplexMapping,
)
from labelmapping.errors import ArgumentError
from labelmapping.mappings import binary_codes, simplex
from labelmapping.mappings.drawing import random_codewords
from labelmapping.mappings.hashed import HashedMapping
from labelmapping.mappings.linear import LinearCode
from labelmapping.mappings.table import RandomMapping

LARGEST = 5000
MANY = 10**8


@pytest.fixture(autouse=True)
def one_matrix_for_the_same_points() -> Iterator[None]:
    """The matrix of a simplex code depends on points and field alone: make it once for all N."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simplex, "_linear_code", lru_cache(simplex._linear_code))
        yield


@lru_cache
def prime_powers(primes: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """Powers of these primes that are no primes, in order, up to the first above `limit`."""
    powers = sorted(p**m for p in primes for m in range(2, 40) if p**m <= 16 * limit)
    return tuple(powers)


def over_a_prime_power(n_classes: int, dimension: int, *, infinity: bool) -> SimplexMapping:
    """Over the smallest power of 2, 3, 5 or 7 that holds N; with 5 sites where there are."""
    root = math.ceil(n_classes ** (1 / dimension))
    orders = prime_powers((2, 3, 5, 7), math.isqrt(MANY))
    order = next(q for q in orders if q >= root and q**dimension >= n_classes)
    n_sites = min(5, order + 1)
    points: list[Any] = [*range(n_sites - 1), "infinity"] if infinity else list(range(n_sites))
    if n_sites > order and not infinity:
        points = points[:order]
    return SimplexMapping(
        n_classes, len(points), field_order=order, dimension=dimension, points=points
    )


def with_infinity(n_classes: int) -> SimplexMapping:
    order = SimplexMapping(n_classes, 2).field_order
    points: list[Any] = [1, "infinity", 0]
    return SimplexMapping(n_classes, 3, field_order=order, points=points)


Maker = Callable[[int], LabelMapping]
FAMILIES: dict[str, Maker] = {
    "mixed": lambda n: MixedMapping(n, n_sites=4),
    "mixed, dimension 3": lambda n: MixedMapping(n, n_sites=5, dimension=3),
    "mixed, alphabets no primes": lambda n: MixedMapping(n, no_primes(n)),
    "one-hot": MixedMapping.one_hot,
    "simplex": lambda n: SimplexMapping(n, 4),
    "simplex, dimension 3": lambda n: SimplexMapping(n, 5, dimension=3),
    "simplex with infinity": with_infinity,
    "simplex, prime powers": lambda n: over_a_prime_power(n, 2, infinity=False),
    "simplex, prime powers with infinity": lambda n: over_a_prime_power(n, 2, infinity=True),
    "simplex, prime powers, dimension 3": lambda n: over_a_prime_power(n, 3, infinity=True),
    "polynomial": lambda n: PolynomialMapping(n, 4),
    "polynomial, dimension 3": lambda n: PolynomialMapping(n, 5, dimension=3),
    "polynomial, mixed degrees": lambda n: PolynomialMapping(n, moduli=mixed_degrees(n)),
    "binary": EcocMapping,
    "bch": lambda n: EcocMapping(n, "bch"),
    "bch, distance 7": lambda n: EcocMapping(n, "bch", distance=7),
}
families = pytest.mark.parametrize("make", FAMILIES.values(), ids=FAMILIES.keys())


def no_primes(n_classes: int) -> list[int]:
    """Neighbours and squares: q, q + 1, and where it is odd, q + 2."""
    q = max(3, math.isqrt(n_classes - 1) + 1) | 1
    return [q, q + 1, q + 2]


def mixed_degrees(n_classes: int) -> list[int]:
    """x^d, (x + 1)^d and x^2 + x + 1, over F_2: as many digits as N needs."""
    degree = max(2, (n_classes - 1).bit_length() - 2)
    power = 1
    for _ in range(degree):
        power ^= power << 1
    return [1 << degree, power, 0b111]


def code_of(mapping: LabelMapping) -> str:
    """The alphabets, and the recipe without N."""
    fields = {k: v for k, v in mapping.to_config().items() if k != "n_classes"}
    return f"{mapping.alphabet_sizes} {fields}"


def is_the_beginning_of(mapping: LabelMapping, whole: LabelMapping) -> bool:
    """By the matrix where there is one, else by the codewords of all classes."""
    linear, larger = (getattr(m, "linear", None) for m in (mapping, whole))
    if isinstance(linear, LinearCode) and isinstance(larger, LinearCode):
        return np.array_equal(linear.generator, larger.generator) and linear.widths == larger.widths
    ids = np.arange(mapping.n_classes)
    return np.array_equal(mapping.encode(ids), whole.encode(ids))


def some_sites(mapping: LabelMapping, rng: np.random.Generator) -> list[int]:
    chosen: list[int] = rng.permutation(mapping.n_sites)[: mapping.dimension].tolist()
    return chosen


@families
def test_N01_no_collision_for_every_N_from_2_to_5000(make: Maker) -> None:
    rng = np.random.default_rng(0)
    whole, table = None, np.zeros((0, 0), np.int64)
    for n_classes in range(2, LARGEST + 1):
        mapping = make(n_classes)
        assert mapping.n_classes == n_classes
        if whole is None or code_of(mapping) != code_of(whole):
            whole = mapping.grow(mapping.capacity)
            table = whole.encode(np.arange(whole.n_classes))
            for _ in range(3):  # whoever finds each class by its symbols has seen no two alike
                sites = some_sites(whole, rng)
                ids = whole.resolve(sites, table[:, sites])
                assert np.array_equal(ids, np.arange(whole.n_classes))
        assert n_classes <= whole.n_classes == mapping.capacity
        assert is_the_beginning_of(mapping, whole)
        if n_classes % 250 == 0 or n_classes in (2, 3, LARGEST):
            assert np.array_equal(mapping.encode(np.arange(n_classes)), table[:n_classes])


@pytest.mark.parametrize("largest", [1024])
def test_N01_no_collision_in_hadamard_codes(largest: int) -> None:
    """For every N to 1,024: for 5,000 classes they have 8,191 sites, so tables of 500 MB."""
    whole, table = EcocMapping(2, "hadamard"), np.zeros((0, 0), np.int64)
    for n_classes in range(2, largest + 1):
        mapping = EcocMapping(n_classes, "hadamard")
        if mapping.capacity != whole.n_classes or n_classes == 2:
            whole = EcocMapping(mapping.capacity, "hadamard")
            table = whole.encode(np.arange(whole.n_classes))
            sites = list(range(whole.dimension))
            assert np.array_equal(whole.resolve(sites, table[:, sites]), np.arange(len(table)))
        assert is_the_beginning_of(mapping, whole)
    assert np.array_equal(EcocMapping(777, "hadamard").encode(np.arange(777)), table[:777])


def test_N01_no_collision_in_random_binary_codes_of_the_usual_length() -> None:
    """Every N: where fair bits are all distinct and no site is constant, nothing is drawn again."""
    n_classes = 2
    while n_classes <= LARGEST:
        length = math.ceil(binary_codes_length(n_classes))
        last = n_classes
        while last < LARGEST and math.ceil(binary_codes_length(last + 1)) == length:
            last += 1
        for seed in (0, 1):
            bits = binary_codes._columns(seed, 0, 0, np.arange(length), last)
            first = bits[:n_classes]
            if (first.min(axis=0) < first.max(axis=0)).all() and distinct(bits):
                # So it is for each N between these two: the same bits, cut off.
                for some in {n_classes, last}:
                    matrix = binary_codes.random_dense(some, length, seed, 0)
                    assert np.array_equal(matrix, bits[:some])
            else:
                assert n_classes < 50  # few rows are constant at some site now and then
                for some in range(n_classes, last + 1):
                    assert distinct(binary_codes.random_dense(some, length, seed, 0))
        n_classes = last + 1
    for some in (2, 17, 400, LARGEST):
        mapping = EcocMapping(some, "random", draw=0)
        assert mapping.n_sites == math.ceil(binary_codes_length(some))
        matrix = binary_codes.random_dense(some, mapping.n_sites, 0, 0)
        assert np.array_equal(mapping.encode(np.arange(some)), matrix)


def binary_codes_length(n_classes: int) -> float:
    return 10 * math.log2(n_classes)


def distinct(matrix: NDArray[np.integer]) -> bool:
    packed = np.packbits(matrix, axis=1)
    return len(np.unique(packed, axis=0)) == len(matrix)


def test_N01_no_collision_in_random_binary_codes_of_the_least_length() -> None:
    for n_classes in [*range(2, 260), 511, 512, 513, 1000, 1024, 4096, LARGEST]:
        length = (n_classes - 1).bit_length()
        assert distinct(binary_codes.random_dense(n_classes, length, n_classes % 5, 0)), n_classes


def test_N01_no_collision_in_random_tables_for_every_N() -> None:
    # 18^3 = 5,832 codewords: from N = 1,458 on they are served row after row.
    whole = random_codewords(3, 0, 18**3, 3, 18)
    keys = whole @ [18**2, 18, 1]
    assert np.array_equal(np.sort(keys), np.arange(18**3))
    for n_classes in range(2, LARGEST + 1):
        codewords = random_codewords(3, 0, n_classes, 3, 18)
        assert np.array_equal(codewords, whole[:n_classes])
    for n_classes in (2, 1457, 1458, LARGEST):
        mapping = RandomMapping(n_classes, 3, 18, seed=3)
        assert np.array_equal(mapping.encode(np.arange(n_classes)), whole[:n_classes])


def test_N01_hashed_codes_collide_only_with_an_error() -> None:
    n_sites, size, seed = 3, 32, 0
    largest = HashedMapping(2, n_sites, size, seed=seed)
    factors = np.array([a for a, _ in largest.hashes])
    offsets = np.array([b for _, b in largest.hashes])
    words = (np.arange(LARGEST)[:, None] * factors + offsets) % (2**31 - 1) % size
    _, first = np.unique(words @ [size**2, size, 1], return_index=True)
    # The first class whose codeword an earlier one has already.
    collides = int(np.setdiff1d(np.arange(LARGEST), first)[0])
    assert 500 < collides < LARGEST - 500
    for n_classes in range(2, LARGEST + 1):
        if n_classes <= collides:
            mapping = HashedMapping(n_classes, n_sites, size, seed=seed)
            assert mapping.hashes == largest.hashes
            largest = mapping
        else:
            with pytest.raises(ArgumentError, match=f"n_classes must be at most {collides} at"):
                HashedMapping(n_classes, n_sites, size, seed=seed)
    assert np.array_equal(largest.encode(np.arange(collides)), words[:collides])


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "bch"])
def test_N01_random_N_up_to_10_to_the_8_go_there_and_back(name: str) -> None:
    """A thousand sizes: random ids, with 0 and N - 1, and random pairs at the distance."""
    rng = np.random.default_rng(1)
    sizes = [*rng.integers(2, MANY + 1, 500), *np.exp(rng.uniform(1, math.log(MANY), 498)), 2, MANY]
    known: dict[str, LabelMapping] = {}
    for count, size in enumerate(sizes):
        n_classes = int(size)
        mapping = FAMILIES[name](n_classes)
        whole = mapping
        if isinstance(getattr(mapping, "linear", None), LinearCode):
            # Tables and inverses are made once for a code, and serve each N that it holds.
            whole = known.setdefault(code_of(mapping), mapping.grow(mapping.capacity))
            assert is_the_beginning_of(mapping, whole)
        chosen = mapping if count % 100 == 0 else whole
        ids = np.concatenate([[0, n_classes - 1], rng.integers(0, n_classes, 30)])
        codewords = chosen.encode(ids)
        sites = some_sites(mapping, rng)
        if whole is mapping or count % 10 == 0:
            assert chosen.resolve(sites, codewords[:, sites]).tolist() == ids.tolist()
        different = ids[1:] != ids[:-1]
        distances = (codewords[1:] != codewords[:-1]).sum(axis=1)
        assert (distances[different] >= mapping.min_distance).all()
        assert (codewords >= 0).all()
        assert (codewords < np.array(mapping.alphabet_sizes)).all()
