"""What `properties` says of a code, against counting by hand; the paper's theorems by structure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import (
    EcocMapping,
    LabelMapping,
    MixedMapping,
    PolynomialMapping,
    SimplexMapping,
)
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.experiments.independence import (
    independence_rows,
    independence_table,
    plot_independence,
)
from labelmapping.experiments.tables import markdown_table
from labelmapping.mappings.base import Ids
from labelmapping.mappings.hashed import HashedMapping
from labelmapping.mappings.properties import (
    CodeProperties,
    pairwise_mutual_information,
    properties,
)
from labelmapping.mappings.table import RandomMapping, TableMapping

from .test_mappings import class_counts, dimensions, mixed_mappings, redundancies

# The package has the function under the module's name.
module = import_module("labelmapping.mappings.properties")
RESULTS = Path(__file__).parents[1] / "docs" / "results"
EVERYTHING = 1e15  # nanoseconds: whatever the estimate, count
many = settings(max_examples=300, deadline=None, derandomize=True)


class FakeMapping(LabelMapping):
    """Symbols by any function; its claim of a dimension need not be true."""

    def __init__(
        self,
        n_classes: int,
        sizes: tuple[int, ...],
        symbols: Callable[[Ids, int], Ids],
        *,
        dimension: int = 1,
        abstentions: bool = False,
    ) -> None:
        super().__init__(n_classes, sizes, dimension, n_classes)
        self._symbols, self._abstentions = symbols, abstentions

    @property
    def has_abstentions(self) -> bool:
        return self._abstentions

    def symbols_at(self, ids: Ids, site: int, tables: Any = ()) -> Ids:
        return self._symbols(ids, site)

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        raise NotImplementedError

    def _recipe(self) -> dict[str, Any]:
        return {}


def fake_table(codewords: NDArray[np.int64], sizes: tuple[int, ...], **claims: Any) -> FakeMapping:
    return FakeMapping(len(codewords), sizes, lambda ids, site: codewords[ids, site], **claims)


@st.composite
def simplex_mappings(draw: st.DrawFn, max_classes: int) -> SimplexMapping:
    """Primes and prime powers, with and without the point at infinity."""
    order = draw(st.sampled_from([7, 5, 4, 11, 3, 8, 13, 9, 2, 16, 17]))
    k = min(draw(dimensions), order + 1)
    n_sites = min(k + draw(redundancies), order + 1)
    points: list[Any] = [*range(order), "infinity"]
    chosen = draw(st.one_of(st.none(), st.permutations(points).map(lambda p: p[:n_sites])))
    n_classes = draw(class_counts(min(order**k, max_classes)))
    return SimplexMapping(n_classes, n_sites, field_order=order, dimension=k, points=chosen)


@st.composite
def polynomial_mappings(draw: st.DrawFn, max_classes: int) -> PolynomialMapping:
    """Coprime moduli of different degrees: x^2, x + 1 and irreducible ones."""
    order, moduli = draw(
        st.sampled_from(
            [
                (2, [4, 3, 7, 11, 13, 19, 25]),
                (3, [9, 4, 5, 10, 14, 17]),
                (4, [16, 5, 6, 7, 22]),
                (5, [5, 6, 7, 8, 27]),
            ]
        )
    )
    k = draw(dimensions)
    n_sites = min(k + draw(redundancies), len(moduli))
    chosen = draw(st.permutations(moduli))[:n_sites]
    k = min(k, n_sites)
    sizes = PolynomialMapping(1, field_order=order, moduli=chosen, dimension=k).alphabet_sizes
    n_classes = draw(class_counts(min(math.prod(sorted(sizes)[:k]), max_classes)))
    return PolynomialMapping(n_classes, field_order=order, moduli=chosen, dimension=k)


def structured(max_classes: int) -> st.SearchStrategy[LabelMapping]:
    return st.one_of(
        mixed_mappings(max_classes), simplex_mappings(max_classes), polynomial_mappings(max_classes)
    )


def table_of(mapping: LabelMapping) -> NDArray[np.int64]:
    return mapping.encode(np.arange(mapping.n_classes))


def distances_by_hand(table: NDArray[np.int64]) -> list[int]:
    """Every pair, abstentions differing from nothing."""
    a, b = table[:, None], table[None, :]
    distances = ((a != b) & (a >= 0) & (b >= 0)).sum(axis=2)
    pairs = distances[np.triu_indices(len(table), 1)]
    return list(map(int, np.bincount(pairs, minlength=table.shape[1] + 1)))


def information_by_hand(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """The definition, in bits, summed over the pairs of symbols that come."""
    size, first, second = len(a), Counter(a.tolist()), Counter(b.tolist())
    both = Counter(zip(a.tolist(), b.tolist(), strict=True))
    terms = [c / size * math.log2(c * size / (first[x] * second[y])) for (x, y), c in both.items()]
    return math.fsum(terms)


def finite_part(mapping: LabelMapping) -> list[int]:
    """The sites whose symbol is no leading digit."""
    points = mapping.points if isinstance(mapping, SimplexMapping) else [0] * mapping.n_sites
    return [site for site, point in enumerate(points) if point != "infinity"]


# --- the lemma on preimages


def test_preimages_of_any_sites_have_the_floor_or_one_more() -> None:
    """The lemma for sets of sites, on 3,000 random codes: N mod Q combinations have one more."""
    rng = np.random.default_rng(0)
    primes = [int(p) for p in sympy.primerange(2, 45)]
    seen = Counter[str]()
    for _ in range(3000):
        k = int(rng.integers(1, 5))
        n_sites = k + int(rng.integers(0, 3))
        mapping: LabelMapping
        if rng.random() < 0.5:
            sizes = [int(p) for p in rng.choice(primes, n_sites, replace=False)]
            limit = math.prod(sorted(sizes)[:k])
            mapping = MixedMapping(int(rng.integers(1, min(limit, 3000) + 1)), sizes, dimension=k)
        else:
            order = int(rng.choice([p for p in primes if n_sites <= p <= 29]))
            mapping = SimplexMapping(
                int(rng.integers(1, min(order**k, 3000) + 1)),
                n_sites,
                field_order=order,
                dimension=k,
                points=rng.permutation(order)[:n_sites].tolist(),
            )
        length = int(rng.integers(1, k + 1))
        sites = rng.permutation(n_sites)[:length].tolist()
        counts = Counter(map(tuple, table_of(mapping)[:, sites].tolist()))
        product = math.prod(mapping.alphabet_sizes[site] for site in sites)
        whole, extra = divmod(mapping.n_classes, product)
        histogram = Counter(counts.values())
        if whole:
            assert len(counts) == product
        assert histogram[whole + 1] == extra
        assert histogram[whole] == (product - extra if whole else 0)
        assert set(histogram) <= {whole, whole + 1}
        seen[f"{mapping.kind} {length}"] += 1
    assert len(seen) == 8
    assert min(seen.values()) > 20


@many
@given(structured(max_classes=1500), st.data())
def test_the_structure_has_the_class_counts_of_all_families(
    mapping: LabelMapping, data: st.DataObject
) -> None:
    # Also beyond k sites, and with the leading digit.
    length = data.draw(st.integers(1, mapping.n_sites), "length")
    sites = tuple(data.draw(st.permutations(range(mapping.n_sites)), "sites")[:length])
    structure = module._structure_of(mapping)
    assert structure is not None
    said: Counter[int] = Counter()
    for classes, cells in structure.cells(sites):
        assert cells >= 0
        said[classes] += cells
    counts = Counter(map(tuple, table_of(mapping)[:, sites].tolist()))
    histogram = Counter(counts.values())
    product = math.prod(mapping.alphabet_sizes[site] for site in sites)
    histogram[0] = product - len(counts)
    assert +said == +histogram


# --- distances


@many
@given(structured(max_classes=220))
def test_distances_by_structure_are_those_of_every_pair(mapping: LabelMapping) -> None:
    known = properties(mapping)
    counts = distances_by_hand(table_of(mapping))
    assert known.distance_known_by == "structure"
    assert known.distance_counts == tuple(counts)
    assert known.n_pairs == sum(counts) == math.comb(mapping.n_classes, 2)
    assert (known.collisions, known.collision) == (0, None)
    assert known.distance_intervals is None
    assert (known.sampled_pairs, known.least_distance_seen) == (None, None)
    if known.n_pairs:
        least = min(d for d, count in enumerate(counts) if count)
        assert known.min_distance == least >= mapping.min_distance
        mean = Fraction(sum(d * c for d, c in enumerate(counts)), known.n_pairs)
        assert known.mean_distance == pytest.approx(float(mean), rel=1e-15)
        assert math.fsum(known.distance_shares) == pytest.approx(1, abs=1e-12)
    assert known.errors_corrected == (known.min_distance - 1) // 2
    assert known.sites_that_may_be_lost == known.min_distance - 1
    assert known.singleton_gap >= 0


@settings(max_examples=150, deadline=None, derandomize=True)
@given(structured(max_classes=120), st.booleans())
def test_the_same_code_counted_has_the_same_properties(mapping: LabelMapping, held: bool) -> None:
    counted = FakeMapping(
        mapping.n_classes,
        mapping.alphabet_sizes,
        mapping.symbols_at,
        dimension=mapping.dimension,
    )
    with pytest.MonkeyPatch.context() as patch:
        if not held:  # a sort in the place of a histogram
            patch.setattr(module, "DENSE", 0)
        found = properties(counted, max_work=EVERYTHING)
    known = properties(mapping)
    assert found.balance_known_by == found.information_known_by == "counting"
    assert found.distance_known_by == ("counting" if mapping.n_classes > 1 else "structure")
    left, right = known.to_dict(), found.to_dict()
    for name in left:
        if not name.endswith("known_by"):
            # To the last digit, mutual information too.
            assert left[name] == right[name], name


@pytest.mark.parametrize("infinity", [False, True])
def test_a_full_simplex_code_of_a_hundred_million_classes_is_mds(infinity: bool) -> None:
    # The number of words of each weight in an MDS code: MacWilliams and Sloane, chapter 11.
    q, k, n = 463, 3, 7
    points = [*range(2, n + 1), "infinity" if infinity else 0]
    mapping = SimplexMapping(q**k, n, field_order=q, dimension=k, points=points)
    assert mapping.n_classes == 99_252_847
    d = n - k + 1
    expected = [0] * (n + 1)
    for w in range(d, n + 1):
        terms = [(-1) ** j * math.comb(w, j) * (q ** (w - d + 1 - j) - 1) for j in range(w - d + 1)]
        expected[w] = math.comb(n, w) * sum(terms) * mapping.n_classes // 2
    known = properties(mapping)
    assert known.distance_known_by == "structure"
    assert known.distance_counts == tuple(expected)
    assert known.min_distance == d
    assert known.singleton_gap == 0
    assert known.symbol_counts == ((q * q, q * q),) * n
    assert known.balance == (1.0,) * n
    assert known.largest_mutual_information == 0.0
    assert known.entropy == pytest.approx((math.log2(q),) * n, rel=1e-15)


def test_a_hundred_million_classes_in_closed_form() -> None:
    # 10^4 divides N; the other alphabets hold whole classes and one more.
    mapping = MixedMapping(10**8, [10_000, 10_001, 10_003])
    known = properties(mapping)
    agreeing = []
    for q in mapping.alphabet_sizes:
        whole, extra = divmod(10**8, q)
        agreeing.append(extra * math.comb(whole + 1, 2) + (q - extra) * math.comb(whole, 2))
    assert known.distance_counts == (0, 0, sum(agreeing), math.comb(10**8, 2) - sum(agreeing))
    assert known.symbol_counts == ((10_000, 10_000), (9999, 10_000), (9997, 9998))
    assert known.entropy is not None
    assert known.entropy[0] == math.log2(10_000)
    one_hot = properties(MixedMapping.one_hot(10**8))
    assert one_hot.distance_counts == (0, math.comb(10**8, 2))
    assert one_hot.largest_mutual_information == 0.0
    assert one_hot.entropy == (math.log2(10**8),)


def test_one_class_has_no_pairs() -> None:
    mappings = [MixedMapping(1, n_sites=3), SimplexMapping(1, 2), EcocMapping(1)]
    for mapping in mappings:
        for max_work in (0, EVERYTHING):
            known = properties(mapping, max_work=max_work)
            assert known.n_pairs == 0
            assert known.distance_counts == (0,) * (mapping.n_sites + 1)
            assert known.distance_shares == (0.0,) * (mapping.n_sites + 1)
            assert known.mean_distance is None
            assert known.min_distance == mapping.min_distance
            assert (known.collisions, known.collision) == (0, None)
            json.dumps(known.to_dict(), allow_nan=False)
        assert pairwise_mutual_information(mapping, 0, 0) == 0.0


@many
@given(
    st.lists(st.integers(2, 6), min_size=1, max_size=6),
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_any_table_is_counted_with_its_abstentions_and_collisions(
    sizes: list[int], n_classes: int, seed: int, abstaining: bool
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(-1 if abstaining else 0, sizes, (n_classes, len(sizes)))
    mapping = fake_table(table, tuple(sizes), abstentions=abstaining)
    known = properties(mapping)
    counts = distances_by_hand(table)
    assert known.distance_counts == tuple(counts)
    assert known.collisions == counts[0]
    agreeing = [
        (x, y)
        for x, y in combinations(range(n_classes), 2)
        if not ((table[x] != table[y]) & (table[x] >= 0) & (table[y] >= 0)).any()
    ]
    assert len(agreeing) == counts[0]
    assert known.collision == (agreeing[0] if agreeing else None)
    for site, size in enumerate(sizes):
        per_symbol = np.bincount(table[table[:, site] >= 0, site], minlength=size)
        assert known.symbol_counts is not None
        assert known.symbol_counts[site] == (per_symbol.min(), per_symbol.max())
    assert known.mutual_information is not None
    for i in range(len(sizes)):
        for j in range(len(sizes)):
            shared = information_by_hand(table[:, i], table[:, j])
            assert known.mutual_information[i][j] == pytest.approx(shared, abs=1e-12)
            assert pairwise_mutual_information(mapping, i, j) == known.mutual_information[i][j]
    if counts[0]:
        assert (known.min_distance, known.errors_corrected) == (0, 0)
        assert known.sites_that_may_be_lost == 0
    json.dumps(known.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "mapping",
    [
        RandomMapping(300, 5, 6, seed=1),
        HashedMapping(300, 6, 11, seed=2),
        TableMapping([[0, 1, -1], [1, -1, 0], [-1, 0, 1]]),
        EcocMapping(12, "one-versus-one"),
        EcocMapping(100, "bch", distance=5),
        EcocMapping(7, "exhaustive"),
    ],
    ids=lambda mapping: type(mapping).__name__,
)
def test_codes_without_structure_are_counted(mapping: LabelMapping) -> None:
    known = properties(mapping)
    table = table_of(mapping)
    assert known.distance_counts == tuple(distances_by_hand(table))
    assert known.min_distance >= mapping.min_distance
    assert known.distance_known_by == known.information_known_by == "counting"
    assert known.mutual_information is not None
    shared = information_by_hand(table[:, 0], table[:, 2])
    assert known.mutual_information[0][2] == pytest.approx(shared, abs=1e-12)


def test_naturalness_is_the_share_of_variance_between_symbols() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 5))
    mapping = RandomMapping(300, 3, 7, seed=4)
    shares = properties(mapping, prototypes=rows).naturalness
    assert shares is not None
    whole = ((rows - rows.mean(axis=0)) ** 2).sum()
    for share, symbols in zip(shares, mapping.encode(np.arange(300)).T, strict=True):
        within = sum(
            ((part - part.mean(axis=0)) ** 2).sum()
            for part in (rows[symbols == symbol] for symbol in range(7))
        )
        assert share == pytest.approx(1 - within / whole, abs=1e-12)
    assert properties(mapping).naturalness is None


def test_naturalness_leaves_out_classes_without_a_symbol() -> None:
    rows = np.array([[0.0], [1.0], [500.0]])
    table = TableMapping([[0, 0, 1], [1, 1, 1], [-1, 0, 0]])
    shares = properties(table, prototypes=rows).naturalness
    # The second site: 0 and 500 share a symbol, 1 has its own.
    mean, between = 167.0, 2 * (250 - 167) ** 2 + (1 - 167) ** 2
    whole = sum((x - mean) ** 2 for x in (0, 1, 500))
    last = (2 * (0.5 - mean) ** 2 + (500 - mean) ** 2) / whole
    assert shares == pytest.approx([1.0, between / whole, last], abs=1e-12)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros((3, 2)), "prototypes must have a row for each of 300 classes, got 3"),
        (np.zeros(300), r"prototypes must have shape \(N, d\), got \(300,\)"),
        (np.full((300, 2), np.nan), "prototypes must be finite .*: row 0 has nan"),
    ],
)
def test_prototypes_that_do_not_fit_are_refused(rows: NDArray[np.float64], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        properties(RandomMapping(300, 3, 7), prototypes=rows)


def test_a_collision_is_found_whatever_the_mapping_claims() -> None:
    known = properties(FakeMapping(20, (9, 9), lambda ids, site: (ids * (site + 1)) % 9))
    assert (known.dimension, known.min_distance, known.distance_known_by) == (1, 0, "counting")
    assert known.collision == (0, 9)
    assert known.collisions == 2 * math.comb(3, 2) + 7 * math.comb(2, 2)
    sampled = properties(
        FakeMapping(20, (9, 9), lambda ids, site: (ids * (site + 1)) % 9), max_work=0
    )
    assert (sampled.min_distance, sampled.least_distance_seen) == (0, 0)
    assert sampled.collisions is None
    assert sampled.collision is not None
    x, y = sampled.collision
    assert x != y
    assert (x - y) % 9 == 0


def test_changed_symbols_are_not_taken_for_the_structure() -> None:
    class Shifted(MixedMapping):
        def symbols_at(self, ids: Ids, site: int, tables: Any = ()) -> Ids:
            return ids // 7 % self.alphabet_sizes[site]

    known = properties(Shifted(50, [7, 11, 13]))
    assert known.distance_known_by == known.information_known_by == "counting"
    assert known.collision == (0, 1)


# --- Singleton's bound


@pytest.mark.parametrize(
    ("mapping", "gap"),
    [
        (MixedMapping(1000, [31, 37, 41, 43]), 0),
        (MixedMapping(900, [31, 37, 41, 43], dimension=3), 0),  # its distance is better than told
        (MixedMapping.one_hot(10), 0),
        (SimplexMapping(100, 5, field_order=11), 0),
        (EcocMapping(128), 0),
        (FakeMapping(4, (2, 2, 5), lambda ids, site: [ids % 2, ids // 2, ids][site]), 0),
        (FakeMapping(4, (4, 4), lambda ids, site: [ids, ids // 2][site], dimension=2), 1),
        (FakeMapping(2, (2, 2, 2), lambda ids, site: ids * (site < 1), dimension=3), 2),
        (FakeMapping(3, (2, 9), lambda ids, site: [ids * 0, ids][site], dimension=2), 0),
    ],
    ids=repr,
)
def test_the_gap_is_that_to_the_bound_with_the_smallest_alphabets(
    mapping: LabelMapping, gap: int
) -> None:
    assert properties(mapping).singleton_gap == gap


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3), (2, 2, 2), (2, 2, 3), (2, 3, 4), (3, 3, 3)])
def test_no_code_passes_the_bound_and_some_reach_it(sizes: tuple[int, ...]) -> None:
    words = list(np.ndindex(*sizes))
    n = len(sizes)
    for least in range(1, n + 1):
        code: list[tuple[int, ...]] = []
        for word in words:
            if all(sum(a != b for a, b in zip(word, w, strict=True)) >= least for w in code):
                code.append(word)
        assert len(code) <= math.prod(sorted(sizes)[: n - least + 1])
        known = properties(fake_table(np.array(code), sizes))
        assert known.singleton_gap >= 0
        if len(code) == math.prod(sorted(sizes)[: n - least + 1]):
            assert known.singleton_gap == 0


# --- independence


@settings(max_examples=200, deadline=None, derandomize=True)
@given(structured(max_classes=3000))
def test_information_by_structure_is_that_of_the_joint_histogram(mapping: LabelMapping) -> None:
    known = properties(mapping)
    assert known.information_known_by == known.balance_known_by == "structure"
    table, matrix = table_of(mapping), known.mutual_information
    assert matrix is not None
    assert known.symbol_counts is not None
    for i, size in enumerate(mapping.alphabet_sizes):
        counts = np.bincount(table[:, i], minlength=size)
        assert known.symbol_counts[i] == (counts.min(), counts.max())
        for j in range(i, mapping.n_sites):
            shared = information_by_hand(table[:, i], table[:, j])
            assert matrix[i][j] == matrix[j][i] == pytest.approx(shared, abs=1e-9)
            assert matrix[i][j] == pairwise_mutual_information(mapping, j, i)
            assert matrix[i][j] >= 0.0


def information_of_cells(cells: Counter[tuple[int, int, int]], n_classes: int) -> float:
    """The definition to 70 digits by sympy; cells by (classes of both, of first, of second)."""
    total = 0
    for (both, first, second), number in cells.items():
        ratio = sympy.Rational(both * n_classes, first * second)
        total += number * both * sympy.log(ratio).evalf(70)
    return float(total / n_classes / sympy.log(2).evalf(70))


@pytest.mark.parametrize(
    "mapping",
    [
        MixedMapping(15 * 7000 + 1, [3, 5, 7, 11, 13, 17, 19], dimension=6),
        SimplexMapping(47**3 - 1, 4, field_order=47, dimension=3),
        SimplexMapping(2**17 - 3, 17, field_order=16, dimension=5),
        PolynomialMapping(19_681, field_order=3, moduli=[3, 4, 5, 10, 14, 17], dimension=6),
    ],
    ids=repr,
)
def test_a_tiny_mutual_information_is_right_to_the_last_digits(mapping: LabelMapping) -> None:
    table = table_of(mapping)
    first, second, last = (Counter(table[:, site].tolist()) for site in (0, 1, -1))
    for j, others in ((1, second), (mapping.n_sites - 1, last)):
        pairs = Counter(map(tuple, table[:, [0, j]].tolist()))
        cells = Counter((both, first[x], others[y]) for (x, y), both in pairs.items())
        shared = pairwise_mutual_information(mapping, 0, j)
        assert shared > 0
        assert shared == pytest.approx(information_of_cells(cells, mapping.n_classes), rel=1e-14)


@pytest.mark.parametrize("power", [1, 3, 6, 9, 12, 14])
def test_one_class_beyond_independence_is_seen_at_any_size(power: int) -> None:
    whole, p = 10**power, 47
    n_classes = whole * p**2 + 1
    mapping = SimplexMapping(n_classes, 11, field_order=p, dimension=11)
    each = whole * p
    cells = Counter(
        {
            (whole + 1, each + 1, each + 1): 1,
            (whole, each + 1, each): 2 * (p - 1),
            (whole, each, each): (p - 1) ** 2,
        }
    )
    shared = pairwise_mutual_information(mapping, 0, 1)
    assert shared == pytest.approx(information_of_cells(cells, n_classes), rel=1e-14)
    assert 0 < shared < (p / n_classes) ** 2
    even = SimplexMapping(n_classes - 1, 11, field_order=p, dimension=11)
    assert pairwise_mutual_information(even, 0, 1) == 0.0


@settings(max_examples=200, deadline=None, derandomize=True)
@given(structured(max_classes=10**9).filter(lambda mapping: mapping.dimension >= 2), st.data())
def test_information_is_0_exactly_where_the_alphabets_divide_the_classes(
    mapping: LabelMapping, data: st.DataObject
) -> None:
    sites = data.draw(st.permutations(finite_part(mapping)), "sites")
    assume(len(sites) >= 2)
    i, j = sites[:2]
    product = mapping.alphabet_sizes[i] * mapping.alphabet_sizes[j]
    assume(product <= mapping.capacity)
    times = data.draw(st.integers(1, mapping.capacity // product), "times")
    recipe = mapping.to_config()
    even = LabelMapping.from_config({**recipe, "n_classes": times * product})
    assert pairwise_mutual_information(even, i, j) == 0.0
    if product > 4:
        less = LabelMapping.from_config({**recipe, "n_classes": times * product - 1})
        assert pairwise_mutual_information(less, i, j) > 0.0


@many
@given(structured(max_classes=10**18))
def test_two_sites_share_no_more_than_the_variance_of_the_cells_allows(
    mapping: LabelMapping,
) -> None:
    """The theorem of independence, sharper: with f the fractional part of N / (p_i p_j).

    I is at most the divergence of the joint distribution from the uniform one, and that is
    at most log(1 + chi^2); chi^2 = f (1 - f) (p_i p_j / N)^2.
    """
    for i, j in list(combinations(finite_part(mapping), 2))[:6]:
        ratio = Fraction(mapping.alphabet_sizes[i] * mapping.alphabet_sizes[j], mapping.n_classes)
        part = 1 / ratio - math.floor(1 / ratio)
        bound = math.log1p(float(part * (1 - part) * ratio**2)) / math.log(2)
        assert pairwise_mutual_information(mapping, i, j) <= bound * (1 + 1e-12)


@pytest.mark.parametrize("kind", ["mixed", "simplex"])
@pytest.mark.parametrize("dimension", [3, 4, 5])
def test_information_falls_over_the_decades(kind: str, dimension: int) -> None:
    largest = []
    for exponent in range(3, 16, 3):
        mapping: LabelMapping = (
            MixedMapping(10**exponent, n_sites=6, dimension=dimension)
            if kind == "mixed"
            else SimplexMapping(10**exponent, 6, dimension=dimension)
        )
        shared = properties(mapping).largest_mutual_information
        assert shared is not None
        largest.append(shared)
    assert all(after < before / 5 for before, after in pairwise(largest))


def test_dimension_2_falls_only_as_the_alphabets_come_near_the_root() -> None:
    # Where every pair of symbols has one class or none, I = H_i + H_j - log N. With alphabets
    # from N^0.6 on, inside the paper's interval for epsilon = 1/2, it grows with N instead.
    near, far = [], []
    for exponent in range(3, 16, 3):
        n_classes = 10**exponent
        near.append(pairwise_mutual_information(MixedMapping(n_classes, n_sites=2), 0, 1))
        wide = int(sympy.nextprime(round(n_classes**0.6)))
        sizes = [wide, int(sympy.nextprime(wide))]
        assert n_classes**0.5 < min(sizes) < max(sizes) < n_classes ** (1 / (2 - 0.5))
        far.append(pairwise_mutual_information(MixedMapping(n_classes, sizes, dimension=2), 0, 1))
        excess = math.log2(math.prod(sizes) / n_classes)
        assert far[-1] == pytest.approx(excess, rel=0.1)
    assert near == sorted(near, reverse=True)
    assert near[-1] < 1e-5
    assert far == sorted(far)
    assert far[-1] > 9


def test_the_leading_digit_costs_balance_and_not_independence() -> None:
    mapping = SimplexMapping(200, 17, field_order=16)
    assert mapping.points[-1] == "infinity"
    known = properties(mapping)
    assert known.mutual_information is not None
    assert known.symbol_counts == (*[(12, 13)] * 16, (0, 16))
    finite, infinite = known.mutual_information[0], known.mutual_information[16]
    # As docs/results/independence.md has them.
    assert (round(finite[0], 2), round(infinite[16], 2)) == (4.0, 3.68)
    assert (round(finite[1], 2), round(infinite[0], 2)) == (0.35, 0.04)
    full = properties(mapping.grow(256))
    assert full.largest_mutual_information == 0.0
    assert full.balance == (1.0,) * 17


def test_an_entropy_is_the_information_of_a_site_with_itself() -> None:
    mapping = EcocMapping(100)
    known = properties(mapping)
    assert known.entropy is not None
    assert known.entropy[6] == pairwise_mutual_information(mapping, 6, 6)
    assert known.entropy[6] == pytest.approx(-0.36 * math.log2(0.36) - 0.64 * math.log2(0.64))
    assert known.symbol_counts is not None
    assert known.symbol_counts[6] == (36, 64)


# --- what cannot be counted


def binary_shares(n_bits: int) -> list[float]:
    """Of all pairs of different n-bit words, those at each distance."""
    return [0.0] + [math.comb(n_bits, d) / (2**n_bits - 1) for d in range(1, n_bits + 1)]


@pytest.mark.parametrize("n_bits", [20, 40])
def test_sampled_intervals_cover_the_truth(n_bits: int) -> None:
    mapping = EcocMapping(2**n_bits)
    inside = total = 0
    for seed in range(10):
        known = properties(mapping, sample=4000, seed=seed, max_work=0)
        assert known.distance_known_by == "sampling"
        assert known.distance_counts is None
        assert known.distance_intervals is not None
        assert known.mean_distance is not None
        assert known.mean_distance_interval is not None
        assert (known.min_distance, known.collisions, known.collision) == (1, 0, None)
        assert known.sampled_pairs == 4000
        for truth, share, (low, high) in zip(
            binary_shares(n_bits), known.distance_shares, known.distance_intervals, strict=True
        ):
            assert 0 <= low <= share <= high <= 1
            inside += low <= truth <= high
            total += 1
        low, high = known.mean_distance_interval
        inside += low <= n_bits / 2 * 2**n_bits / (2**n_bits - 1) <= high
        total += 1
        least = next(d for d, share in enumerate(known.distance_shares) if share)
        assert known.least_distance_seen == least
    assert inside / total > 0.93


def test_wilsons_interval_has_the_published_values() -> None:
    # Newcombe (1998), Statistics in Medicine 17, table I, method 3: 81/263, 15/148, 0/20, 1/29.
    for count, sample, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert module._interval(count, sample) == pytest.approx((low, high), abs=5e-5)


def test_a_sampled_pair_is_two_classes_and_any_two() -> None:
    # Three classes at distances 1, 2 and 3 from each other: each pair a third of the sample.
    mapping = fake_table(np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0]]), (2, 2, 2))
    known = properties(mapping, sample=30_000, max_work=0)
    assert known.distance_shares[0] == 0
    assert known.distance_intervals is not None
    for low, high in known.distance_intervals[1:]:
        assert low < 1 / 3 < high


def test_a_seed_gives_one_sample() -> None:
    mapping = EcocMapping(10**9)
    first = properties(mapping, sample=500, seed=3)
    assert first == properties(mapping, sample=500, seed=3)
    assert first != properties(mapping, sample=500, seed=4)


def test_too_many_classes_have_no_balance_instead_of_a_guess() -> None:
    known = properties(EcocMapping(10**12), sample=100)
    assert (known.symbol_counts, known.balance, known.balance_known_by) == (None, None, None)
    assert (known.mutual_information, known.entropy) == (None, None)
    assert (known.information_known_by, known.largest_mutual_information) == (None, None)
    json.dumps(known.to_dict(), allow_nan=False)


def test_max_work_decides_what_is_counted() -> None:
    mapping = EcocMapping(5000)
    assert properties(mapping).distance_known_by == "counting"
    none = properties(mapping, max_work=0, sample=100)
    assert (none.distance_known_by, none.balance_known_by) == ("sampling", None)
    some = properties(mapping, max_work=5e6, sample=100)
    assert (some.distance_known_by, some.balance_known_by) == ("sampling", "counting")
    assert some.information_known_by is None
    assert some.symbol_counts == properties(mapping).symbol_counts


def test_more_sites_than_a_matrix_is_for_have_their_entropies() -> None:
    many_sites = SimplexMapping(10**6, 448, field_order=1009)
    known = properties(many_sites)
    assert (known.distance_known_by, known.balance_known_by) == ("structure", "structure")
    assert (known.mutual_information, known.information_known_by) == (None, None)
    assert known.entropy is not None
    assert known.entropy[447] == pairwise_mutual_information(many_sites, 447, 447)
    pairs = EcocMapping(200, "one-versus-one")
    counted = properties(pairs)
    assert (counted.n_sites, counted.min_distance, counted.mean_distance) == (19_900, 1, 1.0)
    assert counted.symbol_counts == ((1, 1),) * 19_900
    assert counted.mutual_information is None


def test_symbols_that_most_classes_share_are_not_counted_for_minutes() -> None:
    # Alphabets promise 1,000 pairs a symbol; all classes but a few have the same.
    mapping = FakeMapping(3000, (10**6,) * 2, lambda ids, site: ids * (ids < 9))
    assert properties(mapping, max_work=1e6, sample=100).distance_known_by == "sampling"
    assert properties(mapping).distance_known_by == "counting"


def test_streamed_ids_count_as_held_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(0).integers(-1, [3, 5, 4], (1000, 3))
    mapping = fake_table(table, (3, 5, 4), abstentions=True)
    known = properties(mapping)
    monkeypatch.setattr(module, "HELD", 100)
    monkeypatch.setattr(module, "BLOCK", 64)
    streamed = properties(mapping, sample=50)
    assert streamed.distance_known_by == "sampling"
    assert streamed.symbol_counts == known.symbol_counts
    assert streamed.mutual_information == known.mutual_information
    monkeypatch.setattr(module, "DENSE", 10)
    assert properties(mapping, sample=50).information_known_by is None
    with pytest.raises(ArgumentError, match=r"at most 50 classes, or at most 10 combinations of"):
        pairwise_mutual_information(mapping, 0, 1)


def test_alphabets_beyond_int64_together_are_counted() -> None:
    huge = 2**62 - 1
    mapping = FakeMapping(600, (huge, huge), lambda ids, site: (ids // (site + 1)) * (2**52))
    known = properties(mapping)
    assert known.mutual_information is not None
    assert known.mutual_information[0] == pytest.approx((math.log2(600), math.log2(300)))
    assert known.symbol_counts == ((0, 1), (0, 2))


def test_many_products_are_sampled_and_the_rest_stays_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mapping = MixedMapping(10**6, n_sites=7, dimension=4)
    exact = properties(mapping)
    monkeypatch.setattr(module, "PRODUCTS", 20)
    known = properties(mapping, sample=20_000)
    assert (exact.distance_known_by, known.distance_known_by) == ("structure", "sampling")
    assert known.information_known_by == "structure"
    assert known.mutual_information == exact.mutual_information
    assert known.distance_intervals is not None
    for share, (low, high) in zip(exact.distance_shares, known.distance_intervals, strict=True):
        assert low <= share <= high
    small = MixedMapping(1000, n_sites=7, dimension=4)
    counted = properties(small)
    assert counted.distance_known_by == "counting"
    monkeypatch.undo()
    assert counted.distance_counts == properties(small).distance_counts


# --- the value


def test_a_dict_has_everything_as_json() -> None:
    known = properties(SimplexMapping(200, 17, field_order=16))
    written = json.loads(json.dumps(known.to_dict(), allow_nan=False))
    for name in CodeProperties.__dataclass_fields__:
        value = getattr(known, name)
        if isinstance(value, (int, str)) or value is None:
            assert written[name] == value
    assert written["distance_counts"][16] == 19_900
    assert written["balance"][16] is None
    assert written["singleton_gap"] == 0
    assert written["entropy"][0] == known.mutual_information[0][0]  # type: ignore[index]
    assert {"errors_corrected", "sites_that_may_be_lost"} < written.keys()


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"sample": 0}, ArgumentError, "sample must be at least 1, got 0"),
        ({"sample": 1.5}, ArgumentTypeError, "sample must be an integer, got 1.5"),
        ({"seed": -1}, ArgumentError, "seed must be at least 0, got -1"),
        ({"max_work": -1}, ArgumentError, "max_work must be at least 0, got -1"),
        ({"max_work": math.nan}, ArgumentError, "max_work must be at least 0, got nan"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as error:
        properties(EcocMapping(10), **arguments)
    assert text in str(error.value)


def test_what_is_no_mapping_and_sites_that_are_not_there_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match=r"mapping must be a LabelMapping, got \[\[0"):
        properties([[0, 1]])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"sites must lie in 0\.\.3, got 4"):
        pairwise_mutual_information(EcocMapping(10), 0, 4)


# --- the committed figures


def test_the_committed_table_is_what_the_codes_give() -> None:
    text = (RESULTS / "independence.md").read_text(encoding="utf-8")
    assert markdown_table(independence_table()) in text
    assert "(independence.svg)" in text


def test_the_rows_are_the_codes_own_properties() -> None:
    rows = independence_rows()
    assert {row.n_classes for row in rows} == {10**e for e in range(3, 9)}
    row = next(r for r in rows if (r.code, r.n_classes) == ("mixed, k = 2", 1000))
    table = table_of(MixedMapping(1000, list(row.alphabet_sizes)))
    pairs = list(combinations(range(4), 2))
    shared = [information_by_hand(table[:, i], table[:, j]) for i, j in pairs]
    assert row.shared == pytest.approx(max(shared), abs=1e-12)
    assert row.share == row.shared / row.entropy


def test_the_plot_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        plot_independence(tmp_path / name)
    plot = (tmp_path / "a.svg").read_bytes()
    assert plot == (tmp_path / "b.svg").read_bytes()
    committed = (RESULTS / "independence.svg").read_bytes()
    for written in (plot, committed):
        assert len(written) < 60_000
        assert b"dc:date" not in written
        assert b"mutual information, bits" in written
