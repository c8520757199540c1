"""Simplex codes whose classes have numbers of their own: the plain code's words, dealt anew."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import LabelMapping, SimplexMapping, decode_symbols, decode_topk, log_partition
from labelmapping.decoding import problem, search
from labelmapping.decoding.codes import TABLE, code_arrays
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings.properties import pairwise_mutual_information, properties

from .test_mappings import class_counts, dimensions, redundancies
from .test_search import NO_SCAN, compare_with_brute_force

INFINITY = "infinity"


@st.composite
def ordered_mappings(draw: st.DrawFn, max_classes: int) -> SimplexMapping:
    """Over primes and prime powers at any points; numbers anywhere, or a permutation of the ids."""
    q = draw(st.sampled_from([5, 7, 4, 9, 13, 2, 3, 16]))
    k = min(draw(dimensions), q + 1)
    n_sites = min(k + draw(redundancies), q + 1)
    points: list[Any] = draw(st.permutations([*range(q), INFINITY]))[:n_sites]
    n_classes = draw(class_counts(min(q**k, max_classes)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), "seed of the order"))
    numbers = rng.choice(q**k if draw(st.booleans(), "anywhere") else n_classes, n_classes, False)
    return SimplexMapping(
        n_classes, n_sites, field_order=q, dimension=k, points=points, order=numbers
    )


def plain(mapping: SimplexMapping) -> SimplexMapping:
    """The same code at its capacity, without an order."""
    return SimplexMapping(
        mapping.capacity,
        mapping.n_sites,
        field_order=mapping.field_order,
        dimension=mapping.dimension,
        points=mapping.points,
    )


def numbers_of(mapping: SimplexMapping) -> NDArray[np.int64]:
    assert mapping.order is not None
    return mapping.order


def table_of(mapping: LabelMapping) -> NDArray[np.int64]:
    return mapping.encode(np.arange(mapping.n_classes))


GAPS = SimplexMapping(
    40,
    5,
    field_order=11,
    points=[INFINITY, 0, 1, 2, 3],
    order=np.random.default_rng(0).choice(121, 40, False),
)
ROW = SimplexMapping(60, 4, field_order=11, order=np.random.default_rng(1).permutation(60))
POWER = SimplexMapping(
    300, 6, field_order=9, dimension=3, order=np.random.default_rng(2).choice(729, 300, False)
)
every_kind = pytest.mark.parametrize("mapping", [GAPS, ROW, POWER], ids=["gaps", "row", "power"])


# --- the code


@settings(max_examples=80, deadline=None, derandomize=True)
@given(ordered_mappings(max_classes=250))
def test_a_class_has_the_codeword_of_its_number(mapping: SimplexMapping) -> None:
    expected = plain(mapping).encode(numbers_of(mapping))
    assert table_of(mapping).tolist() == expected.tolist()
    assert mapping.capacity == mapping.field_order**mapping.dimension
    assert mapping.min_distance == mapping.n_sites - mapping.dimension + 1
    assert mapping.linear is None
    assert not mapping.has_abstentions


def test_high_and_low_digits_are_symbols_at_infinity_and_0() -> None:
    numbers = numbers_of(GAPS)
    assert table_of(GAPS)[:, 0].tolist() == (numbers // 11).tolist()
    assert table_of(GAPS)[:, 1].tolist() == (numbers % 11).tolist()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ordered_mappings(max_classes=250))
def test_any_two_classes_differ_at_the_distance_or_more(mapping: SimplexMapping) -> None:
    table = table_of(mapping)
    for row in range(len(table) - 1):
        assert (table[row + 1 :] != table[row]).sum(axis=1).min() >= mapping.min_distance


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ordered_mappings(max_classes=250))
def test_classes_with_equals_a_look_at_the_table(mapping: SimplexMapping) -> None:
    table = table_of(mapping)
    for site in range(mapping.n_sites):
        for symbol in range(mapping.field_order):
            ids = mapping.classes_with(site, symbol)
            assert ids.dtype == np.int64
            assert ids.tolist() == np.flatnonzero(table[:, site] == symbol).tolist()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ordered_mappings(max_classes=300), st.data())
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


@every_kind
def test_shapes_are_lifted(mapping: SimplexMapping) -> None:
    table, rng = table_of(mapping), np.random.default_rng(0)
    sites = list(range(mapping.dimension))
    for shape in [(), (1,), (2, 3), (0,), (3, 0)]:
        ids = rng.integers(0, mapping.n_classes, shape)
        codewords = mapping.encode(ids)
        assert codewords.dtype == np.int64
        assert codewords.tolist() == table[ids].tolist()
        assert mapping.resolve(sites, codewords[..., sites]).tolist() == ids.tolist()


@every_kind
def test_symbols_of_torch_ids_equal_numpys(mapping: SimplexMapping) -> None:
    torch = pytest.importorskip("torch")
    ids = np.random.default_rng(0).integers(0, mapping.n_classes, (3, 20))
    for site in range(mapping.n_sites):
        symbols = mapping.symbols_at(torch.from_numpy(ids), site)
        assert symbols.dtype == torch.int64
        assert np.array_equal(symbols.numpy(), mapping.symbols_at(ids, site))
    assert np.array_equal(mapping.encode(torch.from_numpy(ids)), mapping.encode(ids))


def test_large_numbers_do_not_overflow() -> None:
    capacity = 2**60
    numbers = [capacity - 1, 0, 7, capacity // 2, 3**37]
    mapping = SimplexMapping(5, 17, field_order=16, dimension=15, order=numbers)
    assert table_of(mapping).tolist() == plain(mapping).encode(numbers).tolist()
    sites = list(range(2, 17))
    assert mapping.resolve(sites, table_of(mapping)[:, sites]).tolist() == [0, 1, 2, 3, 4]
    assert LabelMapping.from_config(mapping.to_config()) == mapping


# --- decoding


@pytest.fixture
def search_small_codes() -> Iterator[None]:
    """Let the search run where a scan would be chosen because there are few classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FEW_CLASSES", 0)
        patch.setattr(problem, "FEW_CANDIDATES", 0)
        yield


@pytest.mark.parametrize("costs", [search.COSTS, NO_SCAN], ids=["costs", "no scan"])
@settings(max_examples=80, deadline=None, derandomize=True)
@given(mapping=ordered_mappings(max_classes=1500), data=st.data())
def test_decoding_equals_brute_force(
    costs: tuple[float, ...], mapping: SimplexMapping, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FEW_CLASSES", 0)
        patch.setattr(problem, "FEW_CANDIDATES", 0)
        patch.setattr(search, "COSTS", costs)
        compare_with_brute_force(mapping, data)


@pytest.mark.usefixtures("search_small_codes")
@pytest.mark.parametrize("points", [[1, 2, 3, 4], [INFINITY, 0, 1, 2]], ids=str)
def test_codes_with_an_order_are_searched_as_tables(points: list[Any]) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.choice(149**2, 20_000, False)
    mapping = SimplexMapping(20_000, 4, field_order=149, points=points, order=numbers)
    code = code_arrays(mapping, (0, 1, 2, 3))
    assert code is not None
    assert code.kind == TABLE
    truth = rng.integers(0, 20_000, 50)
    arrays = [rng.normal(size=(50, 149)) for _ in range(4)]
    for site, array in enumerate(arrays):
        array[np.arange(50), mapping.symbols_at(truth, site)] += 9
    answer = decode_topk(mapping, arrays, 1)
    assert answer.ids[:, 0].tolist() == truth.tolist()
    assert set(answer.certified_by.tolist()) == {"bound"}


def test_hard_reading_corrects_what_the_distance_allows() -> None:
    received = table_of(GAPS)
    received[:, 3] = (received[:, 3] + 1) % 11
    nearest = decode_symbols(GAPS, received)
    assert nearest.ids[:, 0].tolist() == list(range(40))
    assert nearest.certain.all()


def test_the_partition_sums_the_classes_that_are() -> None:
    arrays = [np.full((1, 11), -np.log(11.0)) for _ in range(5)]
    found = log_partition(GAPS, arrays)
    assert found.lower[0] == pytest.approx(np.log(40) - 5 * np.log(11))


# --- properties


def counts_by_hand(mapping: LabelMapping) -> tuple[int, ...]:
    table, counts = table_of(mapping), [0] * (mapping.n_sites + 1)
    for a, b in combinations(range(mapping.n_classes), 2):
        counts[int((table[a] != table[b]).sum())] += 1
    return tuple(counts)


def test_numbers_in_a_row_have_the_structure_whoever_has_which() -> None:
    found = properties(ROW)
    assert found == properties(SimplexMapping(60, 4, field_order=11))
    assert found.distance_known_by == found.balance_known_by == "structure"
    assert found.distance_counts == counts_by_hand(ROW)
    full = SimplexMapping(25, 4, field_order=5, order=np.random.default_rng(0).permutation(25))
    assert properties(full).information_known_by == "structure"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ordered_mappings(max_classes=80))
def test_properties_are_those_of_the_codewords(mapping: SimplexMapping) -> None:
    found = properties(mapping)
    in_a_row = set(numbers_of(mapping).tolist()) == set(range(mapping.n_classes))
    assert found.balance_known_by == ("structure" if in_a_row else "counting")
    assert found.distance_counts == counts_by_hand(mapping)
    table = table_of(mapping)
    for site, extremes in enumerate(found.symbol_counts or ()):
        counts = np.bincount(table[:, site], minlength=mapping.field_order)
        assert extremes == (counts.min(), counts.max())


def test_information_of_numbers_with_gaps_is_counted() -> None:
    numbers = [0, 1, 2, 5, 6, 7, 10, 11, 12]  # both digits below 3, every pair once
    even = SimplexMapping(9, 3, field_order=5, points=[INFINITY, 0, 1], order=numbers)
    assert pairwise_mutual_information(even, 0, 1) == 0.0
    same = SimplexMapping(
        5, 3, field_order=5, points=[INFINITY, 0, 1], order=[0, 6, 12, 18, 24]
    )  # both digits are equal
    assert pairwise_mutual_information(same, 0, 1) == pytest.approx(np.log2(5))
    assert properties(same).information_known_by == "counting"


# --- growing


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ordered_mappings(max_classes=120), st.data())
def test_new_classes_get_the_lowest_free_numbers(
    mapping: SimplexMapping, data: st.DataObject
) -> None:
    old = numbers_of(mapping).tolist()
    n_classes = data.draw(st.integers(len(old), min(mapping.capacity, len(old) + 60)), "classes")
    grown = mapping.grow(n_classes)
    assert isinstance(grown, SimplexMapping)
    free = [x for x in range(mapping.capacity) if x not in set(old)]
    assert numbers_of(grown).tolist() == old + free[: n_classes - len(old)]
    assert table_of(grown)[: len(old)].tolist() == table_of(mapping).tolist()
    halfway = mapping.grow(data.draw(st.integers(len(old), n_classes), "halfway"))
    assert halfway.grow(n_classes) == grown


def test_growing_ends_at_the_capacity() -> None:
    full = GAPS.grow(121)
    assert isinstance(full, SimplexMapping)
    assert sorted(numbers_of(full).tolist()) == list(range(121))
    with pytest.raises(ArgumentError, match=r"at most the capacity .* 121 \(81 more than now\)"):
        GAPS.grow(122)
    with pytest.raises(ArgumentError, match="at least the present 40"):
        GAPS.grow(39)


# --- recipes


WRITTEN: dict[str, Any] = {
    "format": 1,
    "kind": "simplex",
    "n_classes": 4,
    "n_sites": 3,
    "field_order": 17,
    "dimension": 2,
    "points": ["infinity", 0, 1],
    "order": {"dtype": "<u2", "shape": [4, 1], "data": "AwAgAQAAEQA="},
}


def test_the_recipe_is_as_written_in_earlier_files() -> None:
    mapping = LabelMapping.from_config(WRITTEN)
    assert table_of(mapping).tolist() == [[0, 3, 3], [16, 16, 15], [0, 0, 0], [1, 0, 1]]
    same = SimplexMapping(
        4, 3, field_order=17, points=[INFINITY, 0, 1], order=np.array([3, 288, 0, 17])
    )
    assert mapping == same
    assert mapping.to_config() == WRITTEN


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ordered_mappings(max_classes=250))
def test_a_recipe_goes_through_json_and_pickle(mapping: SimplexMapping) -> None:
    text = json.dumps(mapping.to_config(), allow_nan=False)
    for rebuilt in (
        LabelMapping.from_config(json.loads(text)),
        pickle.loads(pickle.dumps(mapping)),
    ):
        assert isinstance(rebuilt, SimplexMapping)
        assert rebuilt == mapping
        assert hash(rebuilt) == hash(mapping)
        assert numbers_of(rebuilt).tolist() == numbers_of(mapping).tolist()
        assert table_of(rebuilt).tolist() == table_of(mapping).tolist()


def test_equal_means_the_same_order() -> None:
    for other in ([0, 1, 2, 4], [1, 0, 2, 3]):
        assert SimplexMapping(4, 3, order=other) != SimplexMapping(4, 3, order=[0, 1, 2, 3])
    assert SimplexMapping(4, 3, order=np.arange(4, dtype=np.uint8)) == SimplexMapping(
        4, 3, order=range(4)
    )
    assert "order" not in SimplexMapping(4, 3).to_config()
    assert SimplexMapping(4, 3).order is None


def test_the_order_is_a_copy_and_stays_as_it_is() -> None:
    numbers = np.array([3, 1, 4])
    mapping = SimplexMapping(3, 2, field_order=5, order=numbers)
    before = table_of(mapping).tolist()
    numbers[0] = 9
    numbers_of(mapping)[1] = 9
    assert numbers_of(mapping).tolist() == [3, 1, 4]
    assert table_of(mapping).tolist() == before


def test_a_repr_shows_the_first_numbers() -> None:
    assert repr(SimplexMapping(2, 2, field_order=5, order=[7, 3])) == (
        "SimplexMapping(n_classes=2, n_sites=2, field_order=5, dimension=2, points=[1, 2], "
        "order=[7, 3])"
    )
    assert len(repr(POWER)) < 250


# --- refusals


def ordered(order: Any, n_classes: int = 4) -> Callable[[], object]:
    return lambda: SimplexMapping(n_classes, 3, field_order=5, order=order)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            ordered([0, 1, 2]),
            "order must have a number for each of 4 classes, shape (4,); got shape (3,)",
        ),
        (ordered([[0, 1, 2, 3]]), "shape (4,); got shape (1, 4)"),
        (ordered(7), "got shape ()"),
        (
            ordered([9, 3, 0, 3]),
            "order must have different numbers: classes 1 and 3 both have 3",
        ),
        (ordered([9, 3, 25, 4]), "order must have numbers in 0..24 (5^2); class 2 has 25"),
        (ordered([9, -1, 30, 4]), "class 1 has -1"),
        (ordered(np.array([0, 1, 2, 2**63], np.uint64)), f"class 3 has {2**63}"),
        (ordered([[0], [1, 2]]), "order must be a sequence of integers"),
        (
            ordered({"dtype": "|u1", "shape": [2, 2], "data": "AAECAw=="}),
            "shape (4,); got shape (2, 2)",
        ),
        (ordered({"dtype": "|u1", "shape": [4, 1], "data": "AAEC"}), "must be 4 bytes"),
        (ordered({"dtype": "|u1", "shape": [4, 1]}), "must have the fields dtype, shape, data"),
        (
            lambda: LabelMapping.from_config({**WRITTEN, "n_classes": 3}),
            "recipe of a simplex mapping: order must have a number for each of 3 classes",
        ),
        (
            lambda: LabelMapping.from_config({**WRITTEN, "order": None}),
            "recipe of a simplex mapping must have the fields",
        ),
    ],
)
def test_a_refusal_names_argument_rule_value_and_witness(
    make: Callable[[], object], text: str
) -> None:
    with pytest.raises(ArgumentError) as error:
        make()
    assert text in str(error.value)


@pytest.mark.parametrize(
    "order", [[0.0, 1.0, 2.0, 3.5], "0123", [True, False, True, False], [None], [0, 1, 2**80, 3]]
)
def test_orders_of_another_type_are_refused(order: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="order must be integers, got an array of"):
        ordered(order)()
