"""Simplex codes over prime powers and with the points 0 and infinity."""

from __future__ import annotations

import json
import math
import pickle
import sys
from collections.abc import Callable
from itertools import combinations
from typing import Any

import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import LabelMapping, PolynomialMapping, SimplexMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from labelmapping.mappings import fields, linear

from .test_mappings import class_counts, dimensions, redundancies

INFINITY = "infinity"
AS_FLOAT: Any = math.inf
PRIMES = [2, 3, 5, 7, 11, 13]


@st.composite
def field_mappings(draw: st.DrawFn, max_classes: int) -> SimplexMapping:
    """Over prime powers at any points, and over primes with the point at infinity."""
    order = draw(st.sampled_from([4, 9, 5, 8, 3, 16, 7, 25, 2, 27, 11]))
    k = min(draw(dimensions), order + 1)
    n_sites = min(k + draw(redundancies), order + 1)
    points: list[Any] = draw(st.permutations([*range(order), INFINITY]))[:n_sites]
    if order in PRIMES and INFINITY not in points:
        points[draw(st.integers(0, n_sites - 1))] = INFINITY
    n_classes = draw(class_counts(min(order**k, max_classes)))
    return SimplexMapping(n_classes, n_sites, field_order=order, dimension=k, points=points)


def table_of(mapping: LabelMapping) -> NDArray[np.int64]:
    return mapping.encode(np.arange(mapping.n_classes))


def least_distance(table: NDArray[np.int64]) -> int:
    """Of all pairs of rows, one by one."""
    rows = range(len(table) - 1)
    return min(int((table[row + 1 :] != table[row]).sum(axis=1).min()) for row in rows)


FULL = [
    SimplexMapping(order**k, order + 1, field_order=order, dimension=k)
    for order, most in [(2, 3), (3, 4), (4, 4), (5, 3), (7, 3), (8, 3), (9, 2), (16, 2), (25, 2)]
    for k in range(1, most + 1)
]
full = pytest.mark.parametrize("mapping", FULL, ids=lambda m: f"q{m.field_order}-k{m.dimension}")


# --- points


def test_default_points_are_1_to_q_less_1_then_0_then_infinity() -> None:
    for order in (2, 3, 4, 7, 8, 9):
        finite = [*range(1, order), 0]
        for n_sites in range(1, order + 2):
            k = min(2, n_sites)
            mapping = SimplexMapping(order, n_sites, field_order=order, dimension=k)
            assert mapping.points == tuple([*finite, INFINITY][:n_sites])
            assert (mapping.linear is None) == (order in PRIMES and n_sites <= order)


def test_infinity_is_given_by_name_or_as_the_float() -> None:
    named = SimplexMapping(20, 3, field_order=5, points=[1, INFINITY, 0])
    forms: list[Any] = [math.inf, float("inf"), np.inf, np.float64(np.inf), np.str_(INFINITY)]
    for form in forms:
        assert SimplexMapping(20, 3, field_order=5, points=[1, form, 0]) == named
    assert named.points == (1, INFINITY, 0)
    assert named.to_config()["points"] == [1, "infinity", 0]


@pytest.mark.parametrize("order", [5, 7, 9, 16, 27])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_0_and_infinity_are_the_lowest_and_the_highest_digit(order: int, k: int) -> None:
    n_sites = max(2, k)
    points = [0, INFINITY, *range(1, n_sites - 1)]
    mapping = SimplexMapping(order**k, n_sites, field_order=order, dimension=k, points=points)
    ids = np.arange(order**k)
    assert mapping.encode(ids)[:, 0].tolist() == (ids % order).tolist()
    assert mapping.encode(ids)[:, 1].tolist() == (ids // order ** (k - 1)).tolist()


def test_a_large_prime_with_infinity_is_its_formula_in_unbounded_ints() -> None:
    p, k = 1_000_003, 3
    mapping = SimplexMapping(
        10**18, 4, field_order=p, dimension=k, points=[p - 1, INFINITY, 0, 123_456]
    )
    rng = np.random.default_rng(0)
    ids = [0, 1, p, p * p, 10**18 - 1, *rng.integers(0, 10**18, 50).tolist()]
    expected = []
    for x in ids:
        digits = [x // p**j % p for j in range(k)]
        values = [sum(d * t**j for j, d in enumerate(digits)) % p for t in (p - 1, 0, 123_456)]
        expected.append([values[0], digits[-1], *values[1:]])
    assert mapping.encode(ids).tolist() == expected
    for sites in combinations(range(4), k):
        assert mapping.resolve(sites, mapping.encode(ids)[:, sites]).tolist() == ids


@pytest.mark.parametrize("order", [2, 5, 4, 8, 9, 25, 27])
def test_field_arithmetic_is_galois(order: int) -> None:
    galois = pytest.importorskip("galois")
    elements, ours = galois.GF(order, compile="python-calculate"), fields.field(order)
    assert ours.order == order == ours.characteristic**ours.degree
    numbers = list(range(order))
    table = elements(numbers)
    for a in numbers:
        assert [ours.multiply(a, b) for b in numbers] == (elements(a) * table).tolist()
        assert [ours.subtract(a, b) for b in numbers] == (elements(a) - table).tolist()
    for exponent in (0, 1, 2, 3, order - 2, order - 1, order, 100):
        assert [ours.power(a, exponent) for a in numbers] == (table**exponent).tolist()


# --- the code


@full
def test_the_distance_is_exactly_n_less_k_plus_1_at_all_q_plus_1_points(
    mapping: SimplexMapping,
) -> None:
    table = table_of(mapping)
    expected = mapping.field_order + 2 - mapping.dimension
    assert mapping.min_distance == least_distance(table) == expected
    assert table.min() == 0
    assert table.max() == mapping.field_order - 1


@full
def test_every_k_sites_determine_the_class(mapping: SimplexMapping) -> None:
    table, rng = table_of(mapping), np.random.default_rng(0)
    ids = list(range(mapping.n_classes))
    subsets = list(combinations(range(mapping.n_sites), mapping.dimension))
    for subset in subsets if len(subsets) <= 150 else subsets[:: len(subsets) // 100]:
        sites = rng.permutation(subset).tolist()
        assert mapping.resolve(sites, table[:, sites]).tolist() == ids


@full
def test_every_symbol_of_a_full_code_has_as_many_classes(mapping: SimplexMapping) -> None:
    table = table_of(mapping)
    for site in range(mapping.n_sites):
        for symbol in range(mapping.field_order):
            ids = mapping.classes_with(site, symbol)
            assert ids.dtype == np.int64
            assert ids.tolist() == np.flatnonzero(table[:, site] == symbol).tolist()
            assert len(ids) == mapping.n_classes // mapping.field_order


@settings(max_examples=150, deadline=None, derandomize=True)
@given(field_mappings(max_classes=250))
def test_classes_with_equals_a_look_at_the_table(mapping: SimplexMapping) -> None:
    table = table_of(mapping)
    for site, size in enumerate(mapping.alphabet_sizes):
        for symbol in range(size):
            ids = mapping.classes_with(site, symbol)
            assert ids.tolist() == np.flatnonzero(table[:, site] == symbol).tolist()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(field_mappings(max_classes=300), st.data())
def test_resolve_equals_a_search_in_the_table(mapping: SimplexMapping, data: st.DataObject) -> None:
    k = mapping.dimension
    sites = data.draw(st.permutations(range(mapping.n_sites)), "sites")[:k]
    table = table_of(mapping)[:, sites]
    class_of = {tuple(symbols): x for x, symbols in enumerate(table.tolist())}
    assert len(class_of) == mapping.n_classes
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    asked = np.concatenate([table, rng.integers(0, mapping.field_order, (300, k))])
    classes = mapping.resolve(sites, asked)
    assert classes.tolist() == [class_of.get(tuple(symbols), -1) for symbols in asked.tolist()]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(field_mappings(max_classes=250))
def test_any_two_classes_differ_at_the_distance_or_more(mapping: SimplexMapping) -> None:
    if mapping.n_classes > 1:
        assert least_distance(table_of(mapping)) >= mapping.min_distance


@settings(max_examples=60, deadline=None, derandomize=True)
@given(field_mappings(max_classes=250), st.integers(1, 300))
def test_digits_looked_up_fewer_at_a_time_give_the_same_symbols(
    mapping: SimplexMapping, entries: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "TABLE", entries)
        other = LabelMapping.from_config(mapping.to_config())
        assert table_of(other).tolist() == table_of(mapping).tolist()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(field_mappings(max_classes=250))
def test_growing_keeps_the_codewords(mapping: SimplexMapping) -> None:
    whole = mapping.grow(mapping.capacity)
    assert whole.n_classes == mapping.field_order**mapping.dimension
    ids = np.arange(mapping.n_classes)
    assert whole.encode(ids).tolist() == mapping.encode(ids).tolist()
    assert mapping.grow(mapping.n_classes) == mapping


LARGE = [
    SimplexMapping(2**56, 8, field_order=256, dimension=7),
    SimplexMapping(2**60, 17, field_order=16, dimension=15),
    SimplexMapping(27**13, 15, field_order=27, dimension=13, points=[*range(14), INFINITY]),
    SimplexMapping(10**8, 4, field_order=2**14),
    SimplexMapping(10**8, 4, field_order=101**2, points=[3, INFINITY, 0, 10_200]),
    SimplexMapping(10**12, 3, field_order=2**20, points=[INFINITY, 0, 2**20 - 1]),
    SimplexMapping(3**39, 40, field_order=3**13, dimension=3),
]


@pytest.mark.parametrize("mapping", LARGE, ids=repr)
def test_large_ids_do_not_overflow(mapping: SimplexMapping) -> None:
    n_classes, k = mapping.n_classes, mapping.dimension
    rng = np.random.default_rng(1)
    ids = [0, 1, n_classes // 2, *rng.integers(0, n_classes, 60).tolist()]
    ids += [n_classes - 1 - i for i in range(20)]
    codewords = mapping.encode(ids)
    assert codewords.min() >= 0
    assert codewords.max() < mapping.field_order
    for _ in range(3):
        sites = rng.permutation(mapping.n_sites)[:k].tolist()
        assert mapping.resolve(sites, codewords[:, sites]).tolist() == ids
    with pytest.raises(ArgumentError, match=rf"\[0\] is {n_classes}$"):
        mapping.encode([n_classes])


def added(a: int, b: int, base: int) -> int:
    """Digit by digit, without carries."""
    total, power = 0, 1
    while a or b:
        total += (a % base + b % base) % base * power
        a, b, power = a // base, b // base, power * base
    return total


@pytest.mark.parametrize("mapping", [*FULL[::4], *(m.grow(m.capacity) for m in LARGE)], ids=repr)
def test_codewords_add_as_ids_do_digit_by_digit(mapping: SimplexMapping) -> None:
    p = fields.field(mapping.field_order).characteristic
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, mapping.n_classes, (2, 30)).tolist()
    words, others = mapping.encode(first).tolist(), mapping.encode(second).tolist()
    sums = mapping.encode([added(a, b, p) for a, b in zip(first, second, strict=True)]).tolist()
    for word, other, total in zip(words, others, sums, strict=True):
        assert total == [added(a, b, p) for a, b in zip(word, other, strict=True)]


@pytest.mark.parametrize("mapping", [*FULL[::5], *LARGE], ids=repr)
def test_symbols_of_torch_ids_equal_numpys(mapping: SimplexMapping) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    ids = rng.integers(0, mapping.n_classes, (3, 50))
    ids[0, 0], ids[0, 1] = 0, mapping.n_classes - 1
    before = ids.copy()
    for site in range(0, mapping.n_sites, 1 + mapping.n_sites // 8):
        symbols = mapping.symbols_at(torch.from_numpy(ids), site)
        assert symbols.dtype == torch.int64
        assert np.array_equal(symbols.numpy(), mapping.symbols_at(ids, site))
    assert np.array_equal(ids, before)
    assert np.array_equal(mapping.encode(torch.from_numpy(ids)), mapping.encode(ids))


def test_encode_lifts_any_shape() -> None:
    mapping = SimplexMapping(700, 6, field_order=9, dimension=3, points=[0, 1, 8, 5, 3, INFINITY])
    table = table_of(mapping)
    rng = np.random.default_rng(0)
    for shape in [(), (1,), (2, 3), (0,), (3, 0), (2, 1, 3)]:
        ids = rng.integers(0, 700, shape)
        codewords = mapping.encode(ids)
        assert codewords.dtype == np.int64
        assert codewords.tolist() == table[ids].tolist()
        symbols = codewords[..., [5, 0, 2]]
        assert mapping.resolve([5, 0, 2], symbols).tolist() == ids.tolist()


# --- recipes


@settings(max_examples=100, deadline=None, derandomize=True)
@given(field_mappings(max_classes=250))
def test_a_recipe_goes_through_json_pickle_and_repr(mapping: SimplexMapping) -> None:
    text = json.dumps(mapping.to_config(), allow_nan=False)
    for rebuilt in (
        LabelMapping.from_config(json.loads(text)),
        pickle.loads(pickle.dumps(mapping)),
        eval(repr(mapping)),
    ):
        assert isinstance(rebuilt, SimplexMapping)
        assert rebuilt == mapping
        assert hash(rebuilt) == hash(mapping)
        assert rebuilt.points == mapping.points
        assert table_of(rebuilt).tolist() == table_of(mapping).tolist()


def test_the_recipe_is_as_written_in_earlier_files() -> None:
    written = {
        "format": 1,
        "kind": "simplex",
        "n_classes": 100,
        "n_sites": 3,
        "field_order": 16,
        "dimension": 2,
        "points": [1, 0, "infinity"],
    }
    mapping = LabelMapping.from_config(written)
    assert mapping == SimplexMapping(100, 3, field_order=16, points=[1, 0, INFINITY])
    assert mapping.to_config() == written


# --- refusals


@pytest.mark.parametrize(
    ("make", "witnesses"),
    [
        (
            lambda: SimplexMapping(100, 3, field_order=12),
            ["field_order must be a prime or a power of one, got 12 = 2^2 x 3^1"],
        ),
        (lambda: SimplexMapping(4, 2, field_order=1), ["field_order must be at least 2, got 1"]),
        (lambda: SimplexMapping(100, 3, field_order=30), ["got 30 = 2^1 x 3^1 x 5^1"]),
        (
            lambda: SimplexMapping(16, 6, field_order=4),
            ["n_sites must be at most field_order + 1, 5", "infinity", "got 6"],
        ),
        (
            lambda: SimplexMapping(17, 4, field_order=4),
            ["at most 16 (4^2)", "got 17", "classes 0 and 16 would share a codeword"],
        ),
        (
            lambda: SimplexMapping(9, 3, field_order=9, points=[3, 8, 3]),
            ["points must be different", "sites 0 and 2", "both evaluate at 3"],
        ),
        (
            lambda: SimplexMapping(9, 3, field_order=9, points=[INFINITY, 1, AS_FLOAT]),
            ["points must be different", "sites 0 and 2", "both evaluate at infinity"],
        ),
        (
            lambda: SimplexMapping(9, 2, field_order=9, points=[8, 9]),
            ["points must lie in 0..8, points[1] is 9"],
        ),
        (
            lambda: SimplexMapping(9, 2, field_order=9, points=[8, -1]),
            ["points[1] must be at least 0, got -1"],
        ),
        (
            lambda: SimplexMapping(9, 3, field_order=9, points=[4, INFINITY]),
            ["points must have n_sites = 3 entries, got 2"],
        ),
        (
            lambda: SimplexMapping(9, 5, field_order=256, dimension=8, points=None),
            ["dimension must be at most the number of sites, 5; got 8"],
        ),
        (
            lambda: SimplexMapping(9, 8, field_order=256, dimension=8),
            ["field_order ** dimension must stay below 2^63", str(2**64)],
        ),
    ],
)
def test_a_refusal_names_argument_rule_value_and_witness(
    make: Callable[[], object], witnesses: list[str]
) -> None:
    with pytest.raises(ArgumentError) as error:
        make()
    assert not isinstance(error.value, TypeError)
    for witness in witnesses:
        assert witness in str(error.value)


@pytest.mark.parametrize(
    "point", [1.0, 2.5, "1", "inf", "Infinity", True, None, [3], -math.inf, math.nan, b"infinity"]
)
def test_points_of_another_type_are_refused(point: Any) -> None:
    for order in (5, 9):
        with pytest.raises(ArgumentTypeError, match=r"points\[1\] must be an integer, got"):
            SimplexMapping(9, 2, field_order=order, points=[1, point])


@pytest.mark.parametrize(
    "points", [INFINITY, b"12", 7, {1, 2}, iter([1, 2]), np.array([[1, 2]]), 7.0, math.inf]
)
def test_points_that_are_no_sequence_are_refused(points: Any) -> None:
    with pytest.raises(
        ArgumentTypeError, match='points must be a sequence of integers or "infinity"'
    ):
        SimplexMapping(5, 2, field_order=9, points=points)


@pytest.mark.parametrize("order", [4.0, "4", True, [4]])
def test_field_orders_of_another_type_are_refused(order: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="field_order must be an integer, got"):
        SimplexMapping(5, 2, field_order=order)


def test_without_galois_prime_powers_name_the_extra_and_primes_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields.field.cache_clear()
    monkeypatch.setitem(sys.modules, "galois", None)
    for order in (4, 9):
        with pytest.raises(MissingExtraError, match=r"pip install 'labelmapping\[fields\]'"):
            SimplexMapping(9, 3, field_order=order)
    assert SimplexMapping(25, 6, field_order=5).min_distance == 5


def test_a_field_of_the_users_own_is_left_as_it_is() -> None:
    mine = galois.GF(32)
    mode = mine.ufunc_mode
    SimplexMapping(100, 3, field_order=32)
    PolynomialMapping(100, 3, field_order=32)
    assert mine.ufunc_mode == mode


def test_primes_whose_tables_would_be_large_are_refused() -> None:
    text = "power of a prime up to 1048576 .* got the prime 100000007"
    with pytest.raises(ArgumentError, match=text):
        SimplexMapping(10**12, 3, field_order=100_000_007, points=[1, 2, "infinity"])
    with pytest.raises(ArgumentError, match=text):
        PolynomialMapping(10**12, 3, field_order=100_000_007)
    assert SimplexMapping(10**12, 3, field_order=100_000_007).linear is None
