"""Codes without a closed form, and what all three kinds share: recipes, ways back, refusals."""

import base64
import json
import pickle
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import HashedMapping, LabelMapping, RandomMapping, TableMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import drawing, table
from labelmapping.mappings.distances import minimum_distance
from labelmapping.mappings.drawing import random_codewords
from labelmapping.mappings.streams import draw_below, draw_words
from labelmapping.mappings.table import CodeTable

KINDS: list[LabelMapping] = [
    TableMapping([[0, 300, 1], [1, 0, 0], [0, 2, 0], [1, 300, 0], [1, 2, 70_000]]),
    TableMapping([[0, 1, -1, 1], [1, 0, 1, -1], [-1, 2, 0, 0], [0, -1, 1, 0]], [2, 3, 2, 5]),
    TableMapping([[0]]),
    RandomMapping(100, 8, 16),
    RandomMapping(16, 4, 2, seed=2**64 - 1, draw=3),
    HashedMapping(100, 8, 16),
    HashedMapping(1000, 2, 2**30, seed=2**64 - 1),
    HashedMapping(3000, 1, 2**31 - 2),
]
kinds = pytest.mark.parametrize("mapping", KINDS, ids=repr)


@st.composite
def distinct_rows(draw: st.DrawFn) -> NDArray[np.int64]:
    """Up to 12 codewords of which no two are equal."""
    n_sites, size = draw(st.integers(1, 6)), draw(st.sampled_from([2, 3, 7, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return np.unique(rng.integers(0, size, (draw(st.integers(1, 12)), n_sites)), axis=0)[::-1]


# --- all three


@kinds
def test_a_table_of_codewords_has_every_answer(mapping: LabelMapping) -> None:
    codewords = mapping.encode(range(mapping.n_classes))
    if mapping.n_classes > 1 and mapping.kind != "hashed":
        assert mapping.min_distance == minimum_distance(codewords)[0]
    assert mapping.has_abstentions == bool((codewords < 0).any())
    assert (codewords < mapping.alphabet_sizes).all()
    for site, size in enumerate(mapping.alphabet_sizes):
        there = np.unique(codewords[:5, site])
        for symbol in {*there[there >= 0].tolist(), 0, 1, size - 1}:
            ids = mapping.classes_with(site, symbol)
            assert ids.dtype == np.int64
            assert ids.tolist() == np.flatnonzero(codewords[:, site] == symbol).tolist()
    sites = np.random.default_rng(0).permutation(mapping.n_sites)[: mapping.dimension]
    wanted = codewords[:, sites]
    full = (wanted >= 0).all(axis=1)
    ids = np.flatnonzero(full)
    assert mapping.resolve(sites.tolist(), wanted[full]).tolist() == ids.tolist()
    assert mapping.resolve(sites.tolist(), wanted[full][:0]).shape == (0,)
    asked = (wanted[full] + 1) % np.array(mapping.alphabet_sizes)[sites]
    class_of = {tuple(row): x for x, row in enumerate(wanted.tolist())}
    found = [class_of.get(tuple(row), -1) for row in asked.tolist()]
    assert mapping.resolve(sites.tolist(), asked).tolist() == found


@kinds
def test_symbols_of_torch_ids_equal_numpys(mapping: LabelMapping) -> None:
    torch = pytest.importorskip("torch")
    ids = np.random.default_rng(2).integers(0, mapping.n_classes, (3, 50))
    for site in range(mapping.n_sites):
        symbols = mapping.symbols_at(torch.from_numpy(ids), site)
        assert symbols.dtype == torch.int64
        assert np.array_equal(symbols.numpy(), mapping.symbols_at(ids, site))
        assert mapping.symbols_at(ids, site).dtype == np.int64


@kinds
def test_a_recipe_goes_through_json_and_rebuilds_the_mapping(mapping: LabelMapping) -> None:
    recipe = mapping.to_config()
    rebuilt = LabelMapping.from_config(json.loads(json.dumps(recipe, allow_nan=False)))
    for other in (rebuilt, pickle.loads(pickle.dumps(mapping))):
        assert type(other) is type(mapping)
        assert other == mapping
        assert hash(other) == hash(mapping)
        assert other.to_config() == recipe
        ids = range(mapping.n_classes)
        assert np.array_equal(other.encode(ids), mapping.encode(ids))
        assert other.dimension == mapping.dimension
    assert len(repr(mapping)) < 150
    for field in recipe:
        with pytest.raises(ArgumentError, match=r"of the recipe|^recipe of a"):
            LabelMapping.from_config({k: v for k, v in recipe.items() if k != field})


@kinds
def test_what_was_handed_out_is_a_copy(mapping: LabelMapping) -> None:
    before = json.dumps(mapping.to_config())
    codewords = mapping.encode(range(mapping.n_classes))
    recipe = mapping.to_config()
    if isinstance(mapping, TableMapping):
        recipe["codewords"]["shape"].clear()
        recipe["alphabet_sizes"].clear()
        mapping.codewords[:] = 0
    mapping.classes_with(0, int(codewords[0, 0]))[:] = -5
    assert json.dumps(mapping.to_config()) == before
    assert np.array_equal(mapping.encode(range(mapping.n_classes)), codewords)
    assert (mapping.classes_with(0, int(codewords[0, 0])) >= 0).all()


@pytest.mark.parametrize("n_classes", [4, 10, 1000])
def test_n01_random_codewords_are_distinct_for_every_seed(n_classes: int) -> None:
    for seed in range(60):
        mapping = RandomMapping(n_classes, (n_classes - 1).bit_length(), 2, seed=seed)
        assert len(np.unique(mapping.codewords, axis=0)) == n_classes


# --- tables


@settings(max_examples=150, deadline=None, derandomize=True)
@given(distinct_rows(), st.data())
def test_a_table_gives_back_what_it_was_made_of(
    rows: NDArray[np.int64], data: st.DataObject
) -> None:
    mapping = TableMapping(rows.tolist())
    assert mapping.n_classes == mapping.capacity == len(rows)
    assert mapping.codewords.tolist() == rows.tolist()
    assert mapping.alphabet_sizes == tuple(max(2, q) for q in (rows.max(axis=0) + 1).tolist())
    assert mapping.min_distance == minimum_distance(rows)[0]
    assert mapping.grow(len(rows)) == mapping
    # Any sites, also fewer than determine the class: then the lowest.
    sites = data.draw(st.permutations(range(rows.shape[1])).map(lambda s: s[: len(s) // 2 + 1]))
    found = CodeTable(rows).resolve(tuple(sites), rows[:, sites])
    first = [int(np.argmax((rows[:, sites] == row).all(axis=1))) for row in rows[:, sites]]
    assert found.tolist() == first


def test_a_table_keeps_the_smallest_dtype_and_no_array_of_the_caller() -> None:
    for most, least, dtype in [
        (255, 0, "|u1"),
        (256, 0, "<u2"),
        (2**16, 0, "<u4"),
        (2**32, 0, "<i8"),
        (127, -1, "|i1"),
        (128, -1, "<i2"),
        (2**15, -1, "<i4"),
        (2**31, -1, "<i8"),
    ]:
        given = np.array([[most, 0], [0, 1], [least, 2]])
        mapping = TableMapping(given)
        assert mapping.to_config()["codewords"]["dtype"] == dtype
        assert LabelMapping.from_config(mapping.to_config()) == mapping
        given[0, 0] = 5
        assert mapping.encode(0).tolist() == [most, 0]
    kept = CodeTable(given)
    with pytest.raises(ValueError, match="read-only"):
        kept.codewords[0, 0] = 1
    for other in (kept, pickle.loads(pickle.dumps(kept))):
        assert not other.codewords.flags.writeable


def test_the_recipe_of_a_table_is_as_written_in_earlier_files() -> None:
    packed = {"dtype": "<i2", "shape": [2, 3], "data": "AAD//ywBAQAAAAIA"}
    written = {"format": 1, "kind": "table", "codewords": packed, "alphabet_sizes": [2, 2, 301]}
    mapping = TableMapping([[0, -1, 300], [1, 0, 2]])
    assert LabelMapping.from_config(written) == mapping
    assert mapping.to_config() == written
    # The rows may be written out, too.
    assert TableMapping(np.array([[0, -1, 300], [1, 0, 2]], ">i8")) == mapping


def test_few_indexes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "KEPT", 3)
    codes = CodeTable(np.array(list(product(range(3), repeat=3))))
    for sites in product(range(3), repeat=2):
        assert codes.resolve(sites, np.array([1, 1])).item() >= 0
    assert len(codes._indexes) == 3
    assert codes.classes_with(0, -1).size == codes.classes_with(0, 3).size == 0


def test_distances_that_take_long_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [[0, 0, 0], [1, 1, 1], [2, 2, 0]]
    assert TableMapping(rows).min_distance == 2
    assert RandomMapping(100, 8, 16).min_distance > 1
    monkeypatch.setattr(table, "AFFORDABLE", -1.0)
    assert TableMapping(rows).min_distance == 1
    assert TableMapping(rows).resolve([0, 1, 2], [1, 1, 1]).item() == 1
    assert TableMapping([[0, 0, 0], [1, 1, 1], [2, 2, -1]]).min_distance == 2
    assert RandomMapping(100, 8, 16).min_distance == 1
    with pytest.raises(ArgumentError, match="classes 0 and 2 are both"):
        TableMapping([[0, 1], [1, 1], [0, 1]])
    with pytest.raises(ArgumentError, match="draws must be 1 for 100 classes at 8 sites"):
        RandomMapping(100, 8, 16, draws=2)
    monkeypatch.setattr(table, "PATIENCE", -1.0)
    with pytest.raises(ArgumentError, match=r"with abstentions .* are compared pair by pair"):
        TableMapping([[0, 0], [1, -1]])


# --- random codes


def codewords_by_hand(seed: int, draw: int, n_classes: int, n_sites: int, size: int) -> Any:
    """The definition, row after row."""
    stream = int(draw_words(seed, np.array([draw], np.uint64))[0])
    taken: list[list[int]] = []
    for row in range(n_classes):
        for attempt in range(8):
            start = (row * 8 + attempt) * n_sites
            counters = np.arange(start, start + n_sites, dtype=np.uint64)
            word = draw_below(stream, counters, size).tolist()
            if word not in taken:
                break
        while word in taken:
            number = sum(s * size**i for i, s in enumerate(reversed(word))) + 1
            word = [number // size**i % size for i in reversed(range(n_sites))]
        taken.append(word)
    return taken


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from([(1, 2), (3, 2), (2, 3), (5, 2), (1, 40), (4, 3), (30, 7)]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 3),
    st.data(),
)
def test_random_codewords_are_those_of_the_definition(
    shape: tuple[int, int], seed: int, draw: int, data: st.DataObject
) -> None:
    n_sites, size = shape
    most = min(size**n_sites, 81)
    n_classes = data.draw(st.one_of(st.just(most), st.integers(1, most)))
    expected = codewords_by_hand(seed, draw, n_classes, n_sites, size)
    with pytest.MonkeyPatch.context() as patch:
        for dense in (0, 4, 10**60 if size**n_sites < 100 else 4):  # by rounds, as it is, in order
            patch.setattr(drawing, "DENSE", dense)
            for block in (1, drawing.BLOCK):
                patch.setattr(drawing, "BLOCK", block)
                found = random_codewords(seed, draw, n_classes, n_sites, size)
                assert found.tolist() == expected


def test_random_codewords_never_change() -> None:
    random = RandomMapping(1000, 6, 41)
    assert random.encode([0, 1, 999]).tolist() == [
        [5, 2, 27, 28, 12, 29],
        [4, 38, 34, 27, 38, 40],
        [36, 37, 39, 5, 34, 36],
    ]
    assert RandomMapping(10, 3, 5, seed=7, draw=2).encode(2).tolist() == [4, 1, 1]
    assert RandomMapping(16, 4, 2).encode([14, 15]).tolist() == [[1, 0, 1, 1], [0, 0, 0, 0]]


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_random_codes_grow_row_by_row(seed: int) -> None:
    mapping: LabelMapping = RandomMapping(1, 3, 4, seed=seed)
    codewords = RandomMapping(64, 3, 4, seed=seed).codewords
    assert mapping.capacity == 64
    for n_classes in (1, 2, 15, 16, 17, 40, 63, 64):  # both sides of the switch at a quarter
        mapping = mapping.grow(n_classes)
        assert mapping.encode(range(n_classes)).tolist() == codewords[:n_classes].tolist()
    with pytest.raises(ArgumentError, match=r"capacity of these alphabets, 64 \(0 more than now\)"):
        mapping.grow(65)
    assert RandomMapping(10, 40, 41).capacity == 2**62
    assert RandomMapping(10, 40, 41, draws=5).grow(20).to_config()["n_classes"] == 20


def test_the_best_draw_is_kept_and_stays() -> None:
    best = TableMapping.random(50, 6, 8, seed=3, draws=12)
    single = [RandomMapping(50, 6, 8, seed=3, draw=d) for d in range(12)]
    assert len({mapping.min_distance for mapping in single}) > 1
    scores = [table._closeness(mapping.codewords) for mapping in single]
    assert best.draw == scores.index(min(scores))
    assert best == single[best.draw] == LabelMapping.from_config(best.to_config())
    assert best.min_distance == max(mapping.min_distance for mapping in single)
    assert best.seed == 3
    assert TableMapping.random(1, 2, 2, draws=3).draw == 0


def test_many_classes_need_no_list_of_all_codewords() -> None:
    mapping = RandomMapping(1000, 40, 41)  # 41^40 codewords
    assert len(np.unique(mapping.codewords, axis=0)) == 1000
    assert mapping.min_distance == 33
    large = RandomMapping(100_000, 4, 64)
    assert len(np.unique(large.codewords, axis=0)) == 100_000
    assert np.array_equal(large.codewords[:500], RandomMapping(500, 4, 64).codewords)


# --- refusals


def refusals() -> list[tuple[Callable[[], object], list[str]]]:
    return [
        (
            lambda: TableMapping([[0, 1], [0, 2]], [2, 2]),
            ["0..1 at site 1", "codewords[1, 1] is 2"],
        ),
        (lambda: TableMapping([[0, 1], [0, -2]]), ["codewords[1, 1] is -2"]),
        (lambda: TableMapping([[0, 1]], [2]), ["alphabet_sizes", "each of 2 sites, got 1"]),
        (lambda: TableMapping([[0, 1]], [2, 1]), ["alphabet_sizes[1] must be at least 2, got 1"]),
        (lambda: TableMapping([[0, 1], [-1, -1]]), ["class 1 is -1 throughout"]),
        (lambda: TableMapping([[-1, 1], [-1, 0]]), ["site 0 is -1 throughout"]),
        (
            lambda: TableMapping([[0, 1], [1, 1], [1, 0], [1, 1]]),
            ["codewords must differ: classes 1 and 3 are both [1, 1]"],
        ),
        (
            lambda: TableMapping([[0, -1], [1, 1], [-1, 0]]),
            ["classes 0 and 2 differ nowhere: [0, -1], [-1, 0]"],
        ),
        (lambda: TableMapping([]), ["codewords must have shape (n_classes, n_sites), got (0,)"]),
        (lambda: RandomMapping(10, 0, 3), ["n_sites must be at least 3 for 10 classes, got 0"]),
        (
            lambda: RandomMapping(10, 1, 3),
            ["n_sites must be at least 3 for 10 classes, got 1", "n_classes must be at most 3"],
        ),
        (lambda: RandomMapping(1001, 3, 10), ["at least 4", "n_classes must be at most 1000"]),
        (lambda: RandomMapping(0, 3, 10), ["n_classes must be at least 1, got 0"]),
        (lambda: RandomMapping(5, 3, 1), ["alphabet_size must be at least 2, got 1"]),
        (lambda: RandomMapping(5, 3, 2**32), ["alphabet_size must be below 2^32"]),
        (lambda: RandomMapping(5, 3, 4, seed=2**64), ["seed must be below 2^64"]),
        (lambda: RandomMapping(5, 3, 4, seed=-1), ["seed must be at least 0, got -1"]),
        (lambda: RandomMapping(5, 3, 4, draws=0), ["draws must be at least 1, got 0"]),
        (lambda: RandomMapping(5, 3, 4, draw=-1), ["draw must be at least 0, got -1"]),
        (lambda: RandomMapping(5, 3, 4, draws=2, draw=1), ["draws must be 1 where draw is given"]),
        (lambda: HashedMapping(10, -2, 3), ["n_sites must be at least 3 for 10 classes, got -2"]),
        (lambda: HashedMapping(10, 2, 3), ["at least 3 for 10 classes, got 2", "at most 9"]),
        (lambda: HashedMapping(2**31, 60, 3), ["n_classes must be at most 2147483647"]),
        (lambda: HashedMapping(5, 6, 2**31 - 1), ["alphabet_size must be at most 2147483646"]),
        (lambda: HashedMapping(5, 6, 3, seed=2**64), ["seed must be below 2^64"]),
    ]


@pytest.mark.parametrize(("make", "witnesses"), refusals())
def test_a_refusal_names_argument_rule_value_and_witness(
    make: Callable[[], object], witnesses: list[str]
) -> None:
    with pytest.raises(ArgumentError) as error:
        make()
    assert not isinstance(error.value, TypeError)
    for witness in witnesses:
        assert witness in str(error.value)


@pytest.mark.parametrize("value", [10.0, "10", True, None, [3]])
def test_n30_sizes_that_are_no_integers_are_refused(value: Any) -> None:
    makers: list[Callable[[], object]] = [lambda: RandomMapping(10, 4, 5, draws=value)]
    for kind in (RandomMapping, HashedMapping):
        makers += [
            partial(kind, value, 4, 5),
            partial(kind, 10, value, 5),
            partial(kind, 10, 4, value),
            partial(kind, 10, 4, 5, seed=value),
        ]
    for make in makers:
        with pytest.raises(ArgumentTypeError, match="must be an integer, got"):
            make()


def packed(rows: bytes, **changes: Any) -> dict[str, Any]:
    data = base64.b64encode(rows).decode()
    return {"dtype": "|u1", "shape": [2, 2], "data": data, **changes}


@pytest.mark.parametrize(
    ("codewords", "text"),
    [
        ({"dtype": "|u1", "shape": [2, 2]}, "must have the fields dtype, shape, data; got ['dtype"),
        (packed(b"\0\0\0\1", colour=1), "must have the fields dtype, shape, data"),
        (packed(b"\0\0\0\1", dtype="object"), "dtype of the codewords must be one of |u1, <u2"),
        (packed(b"\0\0\0\1", dtype="<f8"), "; got '<f8'"),
        (packed(b"\0\0\0\1", shape=[4]), "shape of the codewords must have 2 entries, got [4]"),
        (packed(b"\0\0\0\1", shape=[2, 0]), "shape of the codewords[1] must be at least 1, got 0"),
        (packed(b"\0\0\0\1", shape="22"), "shape of the codewords must be a sequence of integers"),
        (packed(b"\0\0\0\1", data=5), "data of the codewords must be a string, got int"),
        (packed(b"\0\0\0\1", data="*"), "data of the codewords are damaged: "),
        (packed(b"\0\0\0\1", data="é"), "data of the codewords are damaged: "),
        (packed(b"\0\0\0\1", data="AAAA"), "must be 4 bytes for shape [2, 2] and dtype |u1, got 3"),
        (packed(b"\0\0\0"), "must be 4 bytes for shape [2, 2] and dtype |u1, got 3"),
        (packed(b"\0" * 10**6), "must be 4 bytes for shape [2, 2] and dtype |u1, got 1000000"),
        (packed(b"\0\0\0\1", shape=[10**30, 2]), "bytes for shape [10000"),
        (packed(b"\0\0\0\0"), "classes 0 and 1 are both [0, 0]"),
    ],
)
def test_damaged_codewords_are_refused(codewords: dict[str, Any], text: str) -> None:
    recipe = {"format": 1, "kind": "table", "codewords": codewords, "alphabet_sizes": [2, 2]}
    makers: list[Callable[[], object]] = [
        lambda: TableMapping(codewords),
        lambda: LabelMapping.from_config(recipe),
    ]
    for make in makers:
        with pytest.raises(ArgumentError) as error:
            make()
        assert text in str(error.value)
