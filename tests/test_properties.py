"""The paper's theorems (section 4) and the exactness of every capacity, on random codes."""

import math
import re
from itertools import combinations

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import LabelMapping, MixedMapping, SimplexMapping
from labelmapping.errors import ArgumentError

from .test_mappings import (
    any_mapping,
    dimensions,
    mixed_mappings,
    redundancies,
    simplex_mappings,
)

many = settings(max_examples=300, deadline=None, derandomize=True)


def table_of(mapping: LabelMapping) -> NDArray[np.int64]:
    return mapping.encode(np.arange(mapping.n_classes))


def agreements(mapping: LabelMapping) -> NDArray[np.int64]:
    """At how many sites two classes have the same symbol, for each pair x < y."""
    table = table_of(mapping)
    counts = (table[:, None] == table[None, :]).sum(axis=2)
    pairs: NDArray[np.int64] = counts[np.triu_indices(mapping.n_classes, 1)]
    return pairs


def mutual_information(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Of two symbols, in nats, the class uniform."""
    joint = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(joint, (a, b), 1 / a.size)
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    some = joint > 0
    return float((joint[some] * np.log(joint[some] / apart[some])).sum())


def information_bound(n_classes: int, p: int, q: int) -> float:
    """The last line of the proof of independence: O(pq/N)."""
    ratio = p * q / n_classes
    return math.log1p(ratio) - math.log1p(-(1 / p + 1 / q) * ratio)


# --- classes high separable


@many
@given(any_mapping(max_classes=250))
def test_two_classes_agree_at_k_minus_1_sites_at_most(mapping: LabelMapping) -> None:
    pairs = agreements(mapping)
    assert pairs.max(initial=0) <= mapping.dimension - 1
    distances = mapping.n_sites - pairs
    assert distances.min(initial=mapping.n_sites) >= mapping.min_distance
    assert mapping.min_distance == mapping.n_sites - mapping.dimension + 1


@many
@given(any_mapping(max_classes=250))
def test_any_k_sites_determine_the_class(mapping: LabelMapping) -> None:
    table = table_of(mapping)
    for sites in combinations(range(mapping.n_sites), mapping.dimension):
        assert len(set(map(tuple, table[:, sites].tolist()))) == mapping.n_classes


@many
@given(any_mapping(max_classes=3000))
def test_all_codewords_are_distinct(mapping: LabelMapping) -> None:
    words = set(map(tuple, table_of(mapping).tolist()))
    assert len(words) == mapping.n_classes


@pytest.mark.parametrize(
    ("p", "n", "k"), [(2, 2, 1), (3, 3, 2), (5, 4, 3), (7, 6, 3), (5, 5, 4), (13, 5, 2), (11, 1, 1)]
)
def test_a_full_simplex_code_is_mds(p: int, n: int, k: int) -> None:
    # The bound of Singleton is met, and with it the count of words of each
    # weight is known: MacWilliams and Sloane, chapter 11.
    mapping = SimplexMapping(p**k, n, field_order=p, dimension=k)
    assert mapping.n_classes == p ** (n - mapping.min_distance + 1)
    weights = np.bincount((table_of(mapping) != 0).sum(axis=1), minlength=n + 1)
    d = mapping.min_distance
    expected = [1] + [0] * n
    for w in range(d, n + 1):
        terms = [(-1) ** j * math.comb(w, j) * (p ** (w - d + 1 - j) - 1) for j in range(w - d + 1)]
        expected[w] = math.comb(n, w) * sum(terms)
    assert weights.tolist() == expected


def test_a_mixed_code_reaches_its_distance() -> None:
    mapping = MixedMapping(1000, [11, 13, 17, 19], dimension=3)
    assert agreements(mapping).max() == 2
    # 0 and 143 agree modulo 11 and 13.
    assert (mapping.encode(0) == mapping.encode(143)).tolist() == [True, True, False, False]


# --- base learners independence


@many
@given(st.one_of(mixed_mappings(max_classes=3000), simplex_mappings(max_classes=3000)))
def test_preimages_have_t_or_t_minus_1_classes(mapping: LabelMapping) -> None:
    # The paper states the lemma for residues; the digits of consecutive ids
    # run through F_p, so it holds for the simplex code as well.
    table = table_of(mapping)
    for site, q in enumerate(mapping.alphabet_sizes):
        t = -(-mapping.n_classes // q)
        counts = np.bincount(table[:, site], minlength=q)
        assert counts.sum() == mapping.n_classes
        assert set(counts.tolist()) <= {t, t - 1}


@many
@given(
    st.one_of(mixed_mappings(max_classes=3000), simplex_mappings(max_classes=3000)).filter(
        lambda mapping: mapping.dimension >= 2
    )
)
def test_two_sites_share_no_more_information_than_the_paper_bounds(mapping: LabelMapping) -> None:
    table, n_classes = table_of(mapping), mapping.n_classes
    for i, j in list(combinations(range(mapping.n_sites), 2))[:3]:
        p, q = mapping.alphabet_sizes[i], mapping.alphabet_sizes[j]
        s = -(-n_classes // (p * q))
        pairs = np.bincount(table[:, i] * q + table[:, j], minlength=p * q)
        assert set(pairs.tolist()) <= {s, s - 1}
        information = mutual_information(table[:, i], table[:, j])
        assert information >= -1e-9
        t_i, t_j = -(-n_classes // p), -(-n_classes // q)
        if min(t_i, t_j) > 1:
            # The first line of the proof, with s = 1 where k = 2.
            bound = math.log(n_classes * s) - math.log(t_i - 1) - math.log(t_j - 1)
            assert information <= bound + 1e-9
        if p + q < n_classes:
            # Its last line, for any k.
            assert information < information_bound(n_classes, p, q)


@pytest.mark.parametrize("kind", ["mixed", "simplex"])
def test_mutual_information_goes_to_0_as_the_classes_grow(kind: str) -> None:
    information, bounds = [], []
    for n_classes in (10**3, 10**4, 10**5, 10**6):
        mapping: LabelMapping = (
            MixedMapping(n_classes, n_sites=3, dimension=3)
            if kind == "mixed"
            else SimplexMapping(n_classes, 3, dimension=3)
        )
        table = table_of(mapping)
        information.append(mutual_information(table[:, 0], table[:, 1]))
        bounds.append(information_bound(n_classes, *mapping.alphabet_sizes[:2]))
    # Not monotone itself: it depends on how nearly the alphabets divide N.
    assert all(value < bound for value, bound in zip(information, bounds, strict=True))
    assert bounds == sorted(bounds, reverse=True)
    assert information[-1] < 1e-5 < information[0]


# --- capacity


@many
@given(st.data())
def test_mixed_capacity_is_exact(data: st.DataObject) -> None:
    drawn = data.draw(mixed_mappings(max_classes=50))
    sizes, k = drawn.alphabet_sizes, drawn.dimension
    full = MixedMapping(drawn.capacity, sizes, dimension=k)
    assert full.capacity == full.n_classes == math.prod(sorted(sizes)[:k])
    with pytest.raises(ArgumentError) as error:
        MixedMapping(drawn.capacity + 1, sizes, dimension=k)
    named = re.search(
        r"classes (\d+) and (\d+) would share all symbols of the sites with alphabets \[(.*?)\]",
        str(error.value),
    )
    assert named is not None
    x, y = int(named[1]), int(named[2])
    alphabets = [int(size) for size in named[3].split(", ")]
    # By hand: both are classes, they are two, and k sites cannot tell them apart.
    assert 0 <= x < y <= drawn.capacity
    assert len(alphabets) == k
    assert set(alphabets) <= set(sizes)
    assert all(x % q == y % q for q in alphabets)


@many
@given(st.data())
def test_simplex_capacity_is_exact(data: st.DataObject) -> None:
    drawn = data.draw(simplex_mappings(max_classes=50))
    p, n, k = drawn.field_order, drawn.n_sites, drawn.dimension
    points = drawn.points
    full = SimplexMapping(drawn.capacity, n, field_order=p, dimension=k, points=points)
    assert full.capacity == full.n_classes == p**k
    with pytest.raises(ArgumentError) as error:
        SimplexMapping(drawn.capacity + 1, n, field_order=p, dimension=k, points=points)
    named = re.search(r"classes (\d+) and (\d+) would share a codeword", str(error.value))
    assert named is not None
    x, y = int(named[1]), int(named[2])
    assert 0 <= x < y <= drawn.capacity

    def word(c: int) -> list[int]:
        return [sum((c // p**j % p) * int(t) ** j for j in range(k)) % p for t in points]

    assert word(x) == word(y)


@many
@given(dimensions, redundancies, st.integers(1, 10**9))
def test_default_alphabets_hold_the_classes_and_the_next_smaller_would_not(
    k: int, redundancy: int, n_classes: int
) -> None:
    n_sites = k + redundancy
    mixed = MixedMapping(n_classes, n_sites=n_sites, dimension=k)
    assert mixed.capacity >= n_classes
    assert len(set(mixed.alphabet_sizes)) == n_sites
    smallest = mixed.alphabet_sizes[0]
    assert smallest == 2 or sympy.prevprime(smallest) ** k < n_classes
    simplex = SimplexMapping(n_classes, n_sites, dimension=k)
    assert simplex.capacity >= n_classes
    order = simplex.field_order
    below = sympy.prevprime(order) if order > 2 else 0
    assert below**k < n_classes or below < n_sites


@many
@given(any_mapping(max_classes=200))
def test_classes_added_up_to_the_capacity_move_no_codeword(mapping: LabelMapping) -> None:
    recipe = mapping.to_config()
    grown = LabelMapping.from_config({**recipe, "n_classes": min(mapping.capacity, 5000)})
    assert grown.alphabet_sizes == mapping.alphabet_sizes
    assert grown.capacity == mapping.capacity
    assert np.array_equal(grown.encode(np.arange(mapping.n_classes)), table_of(mapping))
