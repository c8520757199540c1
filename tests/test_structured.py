"""Natural orders, trees of dichotomies, quantisers: what they promise, by brute force."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import LabelMapping, LearnedMapping, SimplexMapping, TableMapping, decode_topk
from labelmapping.errors import ArgumentError, MissingExtraError
from labelmapping.mappings import (
    assignment,
    discriminant_tree,
    natural_order,
    product_quantisation,
    structured,
)
from labelmapping.mappings.assignment import explained_variance

from .test_learned import clusters, random_prototypes

Floats = NDArray[np.float64]
seeds = st.integers(0, 2**32 - 1)


def different_rows(codewords: NDArray[np.int64]) -> int:
    return len(np.unique(codewords, axis=0))


# --- natural orders


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 60), st.sampled_from([2, 3, 4]), st.integers(1, 6), st.booleans(), seeds)
def test_numbers_are_different_and_below_the_capacity(
    n_classes: int, k: int, width: int, roomy: bool, seed: int
) -> None:
    q = 2
    while q**k < n_classes:
        q += 1
    q += 3 * roomy
    rows = random_prototypes(np.random.default_rng(seed), n_classes, width)
    order = natural_order(rows, q, k, seed=seed)
    assert order.dtype == np.int64
    assert order.shape == (n_classes,)
    assert len(set(order.tolist())) == n_classes
    assert 0 <= order.min() <= order.max() < q**k


def test_two_digits_are_the_sites_of_a_learnt_code() -> None:
    prototypes = clusters(20, 10, 12)
    order = natural_order(prototypes, 17, seed=3)
    learnt = LearnedMapping.fit(prototypes, 2, alphabet_size=17, seed=3)
    mapping = SimplexMapping(200, 4, field_order=17, points=["infinity", 0, 1, 2], order=order)
    assert mapping.encode(range(200))[:, :2].tolist() == learnt.codewords.tolist()
    assert order.tolist() == natural_order(prototypes, 17, seed=3).tolist()
    assert order.tolist() != natural_order(prototypes, 17, seed=4).tolist()


@pytest.mark.parametrize(("q", "k"), [(19, 2), (7, 3), (5, 4)])
def test_symbols_at_infinity_and_0_follow_the_prototypes(q: int, k: int) -> None:
    """Two components that know nothing of each other: the digits see one each."""
    prototypes = np.random.default_rng(0).normal(size=(200, 2)) * [1.1, 1.0]
    order = natural_order(prototypes, q, k)
    points: list[Any] = ["infinity", 0, *range(1, k)]
    mapping = SimplexMapping(200, k + 1, field_order=q, dimension=k, points=points, order=order)
    shares = [explained_variance(prototypes, column) for column in mapping.encode(range(200)).T]
    chance = (q - 1) / 199
    assert min(shares[:2]) > 0.3 > 3 * chance
    assert max(shares[2:]) < 2 * chance


def test_full_codes_have_an_order() -> None:
    for q, k in [(2, 2), (5, 2), (2, 3), (3, 3), (2, 4)]:
        rows = np.random.default_rng(q).normal(size=(q**k, 4))
        for prototypes in (rows, np.ones_like(rows)):
            assert sorted(natural_order(prototypes, q, k).tolist()) == list(range(q**k))


def test_digits_that_clash_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    clashing: tuple[Any, ...] = (np.zeros((60, 2), np.int64), [], 59)
    monkeypatch.setattr(structured, "fit_codewords", lambda *_: clashing)
    with pytest.raises(
        ArgumentError, match=r"field_order must be larger than 8 .* 59 symbols clash"
    ):
        natural_order(np.ones((60, 2)), 8)


# --- trees


def check_tree(mapping: TableMapping, n_classes: int) -> NDArray[np.int64]:
    """Every site halves a set: the root all classes, the others a half of an earlier one."""
    codewords = mapping.codewords
    assert codewords.shape == (n_classes, n_classes - 1)
    assert mapping.alphabet_sizes == (2,) * (n_classes - 1)
    halves = {tuple(range(n_classes))}
    for column in codewords.T:
        members = tuple(np.flatnonzero(column >= 0).tolist())
        assert members in halves
        halves.remove(members)
        zero, one = (tuple(np.flatnonzero(column == s).tolist()) for s in (0, 1))
        assert (len(zero), len(one)) == (len(members) // 2, -(-len(members) // 2))
        halves |= {zero, one}
    assert halves == {(x,) for x in range(n_classes)}
    first = codewords.argmax(axis=0)  # a class of each site's set
    above = [int((codewords[x, :site] >= 0).sum()) for site, x in enumerate(first)]
    assert above == sorted(above)  # level by level
    return codewords


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(2, 70), st.integers(1, 6), seeds)
def test_a_tree_halves_the_classes_down_to_single_ones(
    n_classes: int, width: int, seed: int
) -> None:
    rows = random_prototypes(np.random.default_rng(seed), n_classes, width)
    codewords = check_tree(discriminant_tree(rows, seed=seed), n_classes)
    for a, b in itertools.combinations(codewords, 2):
        assert np.count_nonzero((a != b) & (a >= 0) & (b >= 0)) == 1
    depths = (codewords >= 0).sum(axis=1)
    assert math.floor(math.log2(n_classes)) <= depths.min()
    assert depths.max() <= math.ceil(math.log2(n_classes))


def test_sets_that_lie_apart_part_first() -> None:
    """8 clusters in 4 pairs in 2 pairs of pairs, each farther apart than what is in it."""
    rng = np.random.default_rng(1)
    middles = np.array([[a * 100, b * 10, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
    cluster_of = rng.permutation(np.repeat(np.arange(8), 4))
    rows = middles[cluster_of] + 0.01 * rng.normal(size=(32, 3))
    codewords = check_tree(discriminant_tree(rows @ np.linalg.qr(rng.normal(size=(3, 3)))[0]), 32)
    for level, divisor in enumerate((4, 2, 1)):
        for column in codewords.T[2**level - 1 : 2 ** (level + 1) - 1]:
            for symbol in (0, 1):
                assert len(set((cluster_of[column == symbol] // divisor).tolist())) == 1


def test_few_classes_are_halved_as_well_as_can_be() -> None:
    for seed in range(20):
        rows = np.random.default_rng(seed).normal(size=(6, 2))
        side = discriminant_tree(rows, seed=seed).codewords[:, 0]

        def apart(chosen: tuple[int, ...], rows: Floats = rows) -> float:
            rest = [x for x in range(6) if x not in chosen]
            return float(np.linalg.norm(rows[list(chosen)].mean(axis=0) - rows[rest].mean(axis=0)))

        best = max(apart(chosen) for chosen in itertools.combinations(range(6), 3))
        assert apart(tuple(np.flatnonzero(side).tolist())) == pytest.approx(best, rel=0.15)


def test_no_class_lies_nearer_to_the_other_half_than_one_of_that_half() -> None:
    for seed in range(5):
        rows = np.random.default_rng(seed).normal(size=(301, 8))
        side = discriminant_tree(rows, seed=seed).codewords[:, 0] > 0
        along = rows @ (rows[side].mean(axis=0) - rows[~side].mean(axis=0))
        assert along[~side].max() <= along[side].min()


def test_a_tree_is_a_table_that_is_decoded_through_its_abstentions() -> None:
    mapping = discriminant_tree(clusters(5, 6, 4), seed=2)
    assert mapping.has_abstentions
    assert mapping.min_distance == 1
    assert LabelMapping.from_config(json.loads(json.dumps(mapping.to_config()))) == mapping
    # Each site is sure of its class, or knows nothing.
    arrays = []
    for column in mapping.codewords.T:
        probs = np.where(column[:, None] < 0, 0.5, np.where(column[:, None] == [0, 1], 0.99, 0.01))
        arrays.append(np.log(probs))
    assert decode_topk(mapping, arrays, 1).ids[:, 0].tolist() == list(range(30))


def test_equal_seeds_give_equal_trees() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 5))
    assert discriminant_tree(rows, seed=5) == discriminant_tree(rows, seed=5)
    assert discriminant_tree(rows, seed=5) != discriminant_tree(rows, seed=6)


# --- quantisers


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 120), st.integers(2, 5), st.sampled_from(structured.QUANTISERS), seeds)
def test_codewords_differ_or_too_many_classes_agree(
    n_classes: int, n_sites: int, kind: str, seed: int
) -> None:
    rows = random_prototypes(np.random.default_rng(seed), n_classes, 6)
    if n_classes < n_sites - 1:
        return
    try:
        mapping = product_quantisation(rows, n_sites, alphabet_size=9, kind=kind, seed=seed)
    except ArgumentError as error:
        refusal = str(error)
    else:
        assert mapping.alphabet_sizes == (9,) * n_sites
        assert different_rows(mapping.codewords) == mapping.n_classes == n_classes
        assert mapping == product_quantisation(rows, n_sites, alphabet_size=9, kind=kind, seed=seed)
        return
    assert "so many classes agree at all sites but the last" in refusal
    assert n_classes > 9


def test_product_sites_cluster_components_of_their_own() -> None:
    """Every combination of three values of five: each site finds the five of one component."""
    parts = np.array(list(itertools.product(range(5), repeat=3)))
    rows = np.random.default_rng(0).permutation(parts) * [10.0, 8.0, 7.0]
    mapping = product_quantisation(rows, 4, alphabet_size=5)
    shares = np.array(
        [
            [explained_variance(part[:, None], symbols) for part in rows.T]
            for symbols in mapping.codewords.T[:3]
        ]
    )
    assert sorted(shares.argmax(axis=1).tolist()) == [0, 1, 2]
    assert shares.max(axis=1) == pytest.approx(1)
    assert shares.sum() == pytest.approx(3)


def test_residual_sites_cluster_what_is_left() -> None:
    """Coarse, middle and fine offsets of the same kind in every cluster: one for each site."""
    rng = np.random.default_rng(0)
    offsets = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    parts = np.array(list(itertools.product(range(4), repeat=3)))
    rows = (offsets[parts] * np.array([100.0, 10.0, 1.0])[:, None]).sum(axis=1)
    rows += 1e-3 * rng.normal(size=rows.shape)
    mapping = product_quantisation(rows, 4, alphabet_size=4, kind="residual")
    for site in range(3):
        pairs = zip(parts[:, site].tolist(), mapping.codewords[:, site].tolist(), strict=True)
        assert len(set(pairs)) == 4  # the same partition, whatever its numbers


@pytest.mark.parametrize("kind", structured.QUANTISERS)
def test_the_last_site_tells_equal_classes_apart(kind: str) -> None:
    rows = np.repeat(np.random.default_rng(0).normal(size=(6, 4)), 5, axis=0)
    codewords = product_quantisation(rows, 3, alphabet_size=5, kind=kind).codewords
    assert different_rows(codewords) == 30
    for copies in np.split(codewords, 6):
        assert different_rows(copies[:, :2]) == 1
        assert sorted(copies[:, 2].tolist()) == list(range(5))


def test_the_last_symbols_are_the_nearest_or_the_best_that_differ() -> None:
    view = np.random.default_rng(5).normal(size=(12, 2))
    earlier = np.array([[0, 0]] * 4 + [[0, 1]] * 3 + [[1, 1]] + [[2, 0]] * 4)
    symbols = structured._told_apart(view, earlier, 5, np.random.default_rng(0))
    centroids = assignment.initial_centroids(view, 5, np.random.default_rng(0))
    far = ((view[:, None] - centroids) ** 2).sum(axis=2)
    for group in np.unique(earlier, axis=0):
        rows = np.flatnonzero((earlier == group).all(axis=1))
        best = min(
            itertools.permutations(range(5), rows.size), key=lambda p: far[rows, list(p)].sum()
        )
        assert symbols[rows].tolist() == list(best)


def test_rows_are_quantised_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 6))
    whole = product_quantisation(rows, 3, alphabet_size=11)
    monkeypatch.setattr(structured, "BLOCK", 7)
    assert product_quantisation(rows, 3, alphabet_size=11) == whole


# --- refusals

ROWS = np.random.default_rng(0).normal(size=(30, 6))
BAD = np.where(np.arange(180).reshape(30, 6) == 20, np.nan, ROWS)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: natural_order(ROWS, 5),
            "field_order 5 holds at most 25 classes (5^2), got 30 prototypes",
        ),
        (lambda: natural_order(ROWS, 2, 1), "dimension must be at least 2, got 1"),
        (lambda: natural_order(ROWS, 1), "field_order must be at least 2, got 1"),
        (lambda: natural_order(ROWS, 2**32, 2), "field_order ** dimension must stay below 2^63"),
        (lambda: natural_order(ROWS, 7, seed=-1), "seed must be at least 0, got -1"),
        (lambda: natural_order(BAD, 7), "row 3 has nan"),
        (lambda: discriminant_tree(BAD), "row 3 has nan"),
        (lambda: discriminant_tree(ROWS[:1]), "prototypes must have 2 to 4096 rows"),
        (lambda: discriminant_tree(np.zeros((4097, 1))), "got 4097"),
        (lambda: product_quantisation(BAD, 3, alphabet_size=7), "row 3 has nan"),
        (lambda: product_quantisation(ROWS, 1, alphabet_size=30), "n_sites must be at least 2"),
        (lambda: product_quantisation(ROWS, 3, alphabet_size=1), "alphabet_size must be at least"),
        (
            lambda: product_quantisation(ROWS, 3, alphabet_size=7, kind="tree"),
            "kind must be one of product, residual; got 'tree'",
        ),
        (
            lambda: product_quantisation(ROWS, 8, alphabet_size=7),
            "n_sites must be at most 7 for prototypes of shape (30, 6)",
        ),
        (
            lambda: product_quantisation(ROWS[:4], 6, alphabet_size=7),
            "n_sites must be at most 5 for prototypes of shape (4, 6)",
        ),
        (
            lambda: product_quantisation(np.repeat(ROWS[:3], [1, 2, 4], 0), 3, alphabet_size=3),
            "alphabet_size must be at least 4, got 3: so many classes agree at all sites but the "
            "last, classes 3 and 4 among them",
        ),
    ],
)
def test_a_refusal_names_argument_rule_and_value(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        make()
    assert text in str(error.value)


def test_residual_sites_may_be_more_than_the_components() -> None:
    mapping = product_quantisation(ROWS, 8, alphabet_size=7, kind="residual")
    assert mapping.n_sites == 8


@pytest.mark.parametrize(
    "make",
    [
        lambda: natural_order(ROWS, 7),
        lambda: discriminant_tree(ROWS),
        lambda: product_quantisation(ROWS, 3, alphabet_size=7),
    ],
    ids=["order", "tree", "quantiser"],
)
def test_a_missing_package_is_told_with_the_extra_that_brings_it(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("sklearn", "threadpoolctl"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'labelmapping\[sklearn\]'"):
        make()
