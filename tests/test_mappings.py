"""Codes: encoding, recipes, refusals, and the way back by site and symbol."""

import json
import math
import pickle
import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelmapping import EcocMapping, LabelMapping, MixedMapping, SimplexMapping
from labelmapping.arguments import as_class_ids, as_integer, as_integers, check_choice
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import base

CJK_PRIMES = [149, 151, 157, 163, 167, 173, 179]
# The largest prime whose square int64 holds, and a number below it without a common factor.
LARGE_PRIME, LARGE_COPRIME = 3_037_000_493, 3_036_999_999

KINDS: list[LabelMapping] = [
    MixedMapping(1000, [31, 37, 41, 43]),
    MixedMapping(900, [25, 8, 9, 49, 11], dimension=4),
    MixedMapping.one_hot(10),
    SimplexMapping(20901, 4, field_order=181),
    SimplexMapping(100, 5, field_order=7, dimension=3, points=[6, 0, 2, 5, 1]),
    EcocMapping(100),
]
kinds = pytest.mark.parametrize("mapping", KINDS, ids=repr)


# Weighted: small dimensions and few classes come often enough by themselves.
dimensions = st.sampled_from([2, 3, 2, 4, 3, 1])
redundancies = st.sampled_from([1, 2, 0, 3, 4])


def class_counts(limit: int) -> st.SearchStrategy[int]:
    """N up to `limit`, itself often."""
    return st.one_of(st.integers(1, limit), st.integers((limit + 1) // 2, limit), st.just(limit))


@st.composite
def mixed_mappings(draw: st.DrawFn, max_classes: int) -> MixedMapping:
    """Pairwise coprime alphabets, primes or not, in any order."""
    k = draw(dimensions)
    n_sites = k + draw(redundancies)
    sizes: list[int] = []
    for size in draw(st.permutations(range(2, 42))):
        if len(sizes) < n_sites and all(math.gcd(size, other) == 1 for other in sizes):
            sizes.append(size)
    capacity = math.prod(sorted(sizes)[:k])
    return MixedMapping(draw(class_counts(min(capacity, max_classes))), sizes, dimension=k)


@st.composite
def simplex_mappings(draw: st.DrawFn, max_classes: int) -> SimplexMapping:
    """Any prime up to 19, any points."""
    order = draw(st.sampled_from([7, 5, 11, 3, 13, 17, 19, 2]))
    k = min(draw(dimensions), order)
    n_sites = min(k + draw(redundancies), order)
    points = draw(st.one_of(st.none(), st.permutations(range(order)).map(lambda p: p[:n_sites])))
    n_classes = draw(class_counts(min(order**k, max_classes)))
    return SimplexMapping(n_classes, n_sites, field_order=order, dimension=k, points=points)


def any_mapping(max_classes: int) -> st.SearchStrategy[LabelMapping]:
    """A mapping of any kind."""
    makers: list[Callable[[int], LabelMapping]] = [EcocMapping, MixedMapping.one_hot]
    plain = st.builds(lambda n, make: make(n), class_counts(max_classes), st.sampled_from(makers))
    return st.one_of(mixed_mappings(max_classes), simplex_mappings(max_classes), plain)


def codeword_by_hand(mapping: LabelMapping, x: int) -> list[int]:
    """The definition, in Python's unbounded ints."""
    if isinstance(mapping, SimplexMapping):
        p = mapping.field_order
        digits = [x // p**j % p for j in range(mapping.dimension)]
        return [sum(d * int(t) ** j for j, d in enumerate(digits)) % p for t in mapping.points]
    if isinstance(mapping, EcocMapping):
        return [x >> i & 1 for i in range(mapping.n_sites)]
    return [x % q for q in mapping.alphabet_sizes]


# --- the paper's codes


@pytest.mark.parametrize(
    ("n_classes", "sizes"),
    [
        (100, [11, 13, 17, 19, 23]),
        (20901, CJK_PRIMES),
        (7409, [107, 109, 113, 127, 131, 137]),
    ],
)
def test_mixed_symbols_are_the_residues(n_classes: int, sizes: list[int]) -> None:
    mapping = MixedMapping(n_classes, sizes)
    codewords = mapping.encode(range(n_classes))
    assert codewords.tolist() == [[x % p for p in sizes] for x in range(n_classes)]
    assert (mapping.dimension, mapping.min_distance) == (2, len(sizes) - 1)
    assert mapping.capacity == sizes[0] * sizes[1]


@pytest.mark.parametrize(
    ("n_classes", "p", "lengths"),
    [(100, 11, [3, 4, 5, 6]), (20901, 181, [2, 3, 4, 5, 6]), (7409, 127, [2, 4, 6])],
)
def test_simplex_symbols_are_the_papers_formula(n_classes: int, p: int, lengths: list[int]) -> None:
    for n in lengths:
        mapping = SimplexMapping(n_classes, n, field_order=p)
        formula = [[((x % p) + x // p * i) % p for i in range(1, n + 1)] for x in range(n_classes)]
        assert mapping.encode(range(n_classes)).tolist() == formula
        assert mapping.alphabet_sizes == (p,) * n
        assert (mapping.dimension, mapping.min_distance, mapping.capacity) == (2, n - 1, p * p)
        assert (mapping.field_order, mapping.points) == (p, tuple(range(1, n + 1)))


@pytest.mark.parametrize(("n_classes", "n_bits"), [(100, 7), (20901, 15), (128, 7), (129, 8)])
def test_ecoc_symbols_are_the_binary_digits_lowest_first(n_classes: int, n_bits: int) -> None:
    mapping = EcocMapping(n_classes)
    assert mapping.alphabet_sizes == (2,) * n_bits
    codewords = mapping.encode(range(n_classes)).tolist()
    digits = [f"{x:0{n_bits}b}"[::-1] for x in range(n_classes)]
    assert ["".join(map(str, word)) for word in codewords] == digits
    assert (mapping.dimension, mapping.min_distance) == (n_bits, 1)
    assert mapping.capacity == 2**n_bits


def test_one_hot_has_one_site_and_the_id_as_its_symbol() -> None:
    mapping = MixedMapping.one_hot(20901)
    assert mapping.alphabet_sizes == (20901,)
    assert mapping.encode([0, 7, 20900]).tolist() == [[0], [7], [20900]]
    assert (mapping.dimension, mapping.min_distance, mapping.capacity) == (1, 1, 20901)


def test_default_primes_are_the_papers_where_it_takes_the_smallest() -> None:
    assert MixedMapping(100, n_sites=5).alphabet_sizes == (11, 13, 17, 19, 23)
    assert list(MixedMapping(20901, n_sites=7).alphabet_sizes) == CJK_PRIMES
    assert SimplexMapping(100, 3).field_order == 11


def test_defaults_hold_the_classes_exactly() -> None:
    # The root is rounded up, and an exact root stays.
    assert MixedMapping(121, n_sites=2).alphabet_sizes == (11, 13)
    assert MixedMapping(122, n_sites=2).alphabet_sizes == (13, 17)
    assert MixedMapping(10**6, n_sites=4, dimension=3).alphabet_sizes == (101, 103, 107, 109)
    assert SimplexMapping(121, 2).field_order == 11
    assert SimplexMapping(122, 2).field_order == 13
    assert SimplexMapping(5, 20).field_order == 23  # as many points as sites
    assert SimplexMapping(11**3, 3, dimension=3).field_order == 11
    assert MixedMapping(1000, n_sites=1).alphabet_sizes == (1009,)


def test_dimension_is_the_smallest_that_the_alphabets_allow() -> None:
    sizes = [13, 7, 11]
    assert MixedMapping(7, sizes).dimension == 1
    assert MixedMapping(8, sizes).dimension == 2
    assert MixedMapping(77, sizes).dimension == 2
    assert MixedMapping(78, sizes).dimension == 3
    assert MixedMapping(7, sizes, dimension=2).capacity == 77


@pytest.mark.parametrize(
    "mapping",
    [
        MixedMapping(1, n_sites=3),
        MixedMapping(1, [7, 11]),
        MixedMapping.one_hot(1),
        SimplexMapping(1, 2),
        EcocMapping(1),
    ],
    ids=repr,
)
def test_a_single_class_has_a_codeword(mapping: LabelMapping) -> None:
    assert mapping.encode([0]).tolist() == [[0] * mapping.n_sites]
    assert all(q >= 2 for q in mapping.alphabet_sizes)


# --- encode


@kinds
def test_encode_lifts_any_shape(mapping: LabelMapping) -> None:
    rng = np.random.default_rng(0)
    for shape in [(), (1,), (5,), (2, 3), (2, 1, 3), (0,), (3, 0), (0, 4)]:
        ids = rng.integers(0, mapping.n_classes, shape)
        codewords = mapping.encode(ids)
        assert codewords.dtype == np.int64
        assert codewords.shape == (*shape, mapping.n_sites)
        for place in np.ndindex(shape):
            assert codewords[place].tolist() == codeword_by_hand(mapping, int(ids[place]))
    assert mapping.encode([]).shape == (0, mapping.n_sites)
    assert mapping.encode([[], []]).shape == (2, 0, mapping.n_sites)
    assert mapping.encode(0).tolist() == [0] * mapping.n_sites


@pytest.mark.parametrize("dtype", "bhilqBHILQ")
def test_encode_takes_every_integer_dtype(dtype: str) -> None:
    mapping = MixedMapping(100_000, [317, 331, 337])  # more classes than int8 or int16 can name
    ids = np.array([0, 5, 100, 127], dtype)
    assert mapping.encode(ids).tolist() == mapping.encode([0, 5, 100, 127]).tolist()
    assert ids.tolist() == [0, 5, 100, 127]


def test_encode_reads_strided_big_endian_and_read_only_ids() -> None:
    mapping = SimplexMapping(100, 3)
    ids = np.arange(100, dtype=">i4")[::-3]
    ids.flags.writeable = False
    assert mapping.encode(ids).tolist() == mapping.encode(ids.tolist()).tolist()


@pytest.mark.parametrize(
    ("ids", "place", "value"),
    [
        ([0, 999, 1000], "ids[2]", 1000),
        ([0, 1006, -1], "ids[1]", 1006),
        ([-1], "ids[0]", -1),
        ([-100, 5], "ids[0]", -100),
        ([[1, 2], [3, 10**12]], "ids[1, 1]", 10**12),
        (np.array([5, -1], np.int8), "ids[1]", -1),
        (np.array([5, 2**63 + 1], np.uint64), "ids[1]", 2**63 + 1),
    ],
)
def test_encode_refuses_ids_out_of_range_with_value_place_and_range(
    ids: Any, place: str, value: int
) -> None:
    with pytest.raises(ArgumentError) as error:
        MixedMapping(1000, [7, 11, 13]).encode(ids)
    text = f"ids must lie in 0..999 (ids are 0-based, 1000 in all); {place} is {value}"
    assert str(error.value) == text


def test_encode_refuses_a_scalar_out_of_range() -> None:
    with pytest.raises(ArgumentError, match=r"0\.\.999 .*; got 1000$"):
        MixedMapping(1000, [7, 11, 13]).encode(1000)


@pytest.mark.parametrize(
    "ids",
    [
        1.0,
        [1.0, 2.0],
        np.array([], np.float64),
        np.array([1], np.float32),
        True,
        [True, False],
        "3",
        ["3"],
        [None],
        [2**63 + 1, -5],  # numpy reads these as float64, and would round them
        [10**20],
        [1 + 0j],
    ],
    ids=repr,
)
def test_encode_refuses_what_is_no_integer(ids: Any) -> None:
    for mapping in KINDS:
        with pytest.raises(ArgumentTypeError, match="ids must be integers, got an array of"):
            mapping.encode(ids)


LARGE = [
    MixedMapping(2**62, [LARGE_PRIME, LARGE_COPRIME]),
    MixedMapping(2**63 - 1, [2**63 - 1]),
    MixedMapping(10**8, [463, 467, 479]),
    MixedMapping(10**18, [1_000_003, 1_000_033, 1_000_037, 999_983], dimension=3),
    SimplexMapping(2**62, 3, field_order=LARGE_PRIME),
    SimplexMapping(LARGE_PRIME**2, 2, points=[LARGE_PRIME - 1, LARGE_PRIME - 2]),
    SimplexMapping(10**8, 4, dimension=3),
    SimplexMapping(2**61, 17, field_order=17, dimension=15),
    EcocMapping(2**62),
    EcocMapping(10**8),
]


@pytest.mark.parametrize("mapping", LARGE, ids=repr)
def test_large_ids_do_not_overflow(mapping: LabelMapping) -> None:
    n_classes, k = mapping.n_classes, mapping.dimension
    rng = np.random.default_rng(1)
    ids = [0, 1, n_classes // 2, *rng.integers(0, n_classes, 40).tolist()]
    ids += [n_classes - 1 - i for i in range(20)]
    codewords = mapping.encode(ids)
    assert codewords.tolist() == [codeword_by_hand(mapping, x) for x in ids]
    sites = rng.permutation(mapping.n_sites)[:k]
    assert mapping.resolve(sites.tolist(), codewords[:, sites]).tolist() == ids
    with pytest.raises(ArgumentError, match=rf"\[0\] is {n_classes}$"):
        mapping.encode([n_classes])


@kinds
def test_encode_and_classes_with_do_not_depend_on_the_block(
    mapping: LabelMapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = np.arange(mapping.n_classes).reshape(-1, 1)
    whole = mapping.encode(ids)
    runs = [mapping.classes_with(0, symbol).tolist() for symbol in range(2)]
    for block in (1, 7, mapping.n_classes - 1, mapping.n_classes):
        if mapping.n_classes / block < 1000:
            monkeypatch.setattr(base, "BLOCK", block)
            assert np.array_equal(mapping.encode(ids), whole)
            assert [mapping.classes_with(0, symbol).tolist() for symbol in range(2)] == runs


def test_encode_of_many_ids_needs_little_more_than_its_output() -> None:
    mapping = MixedMapping(10**8, [463, 467, 479])
    ids = np.arange(0, 10**8, 10, dtype=np.int32)
    tracemalloc.start()
    try:
        codewords = mapping.encode(ids)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert codewords.nbytes == 10**7 * 3 * 8
    # A table of the classes would be ten times the output.
    assert peak < codewords.nbytes + 20 * 2**20
    assert codewords[[0, 5, -1]].tolist() == [
        codeword_by_hand(mapping, x) for x in (0, 50, 99999990)
    ]


@pytest.mark.parametrize("mapping", KINDS + LARGE, ids=repr)
def test_symbols_of_torch_ids_equal_numpys(mapping: LabelMapping) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    ids = rng.integers(0, mapping.n_classes, (3, 50))
    ids[0, 0], ids[0, 1] = 0, mapping.n_classes - 1
    before = ids.copy()
    for site in range(mapping.n_sites):
        symbols = mapping.symbols_at(torch.from_numpy(ids), site)
        assert symbols.dtype == torch.int64
        expected = mapping.symbols_at(ids, site)
        assert np.array_equal(symbols.numpy(), expected)
        assert np.array_equal(mapping.encode(ids)[..., site], expected)
    assert np.array_equal(ids, before)
    assert np.array_equal(mapping.encode(torch.from_numpy(ids)), mapping.encode(ids))


# --- the way back


@settings(max_examples=300, deadline=None, derandomize=True)
@given(any_mapping(max_classes=200))
def test_classes_with_equals_a_look_at_the_table(mapping: LabelMapping) -> None:
    table = mapping.encode(range(mapping.n_classes))
    assert table.tolist() == [codeword_by_hand(mapping, x) for x in range(mapping.n_classes)]
    for site, size in enumerate(mapping.alphabet_sizes):
        assert (table[:, site] >= 0).all()
        assert (table[:, site] < size).all()
        for symbol in range(size):
            ids = mapping.classes_with(site, symbol)
            assert ids.dtype == np.int64
            assert ids.tolist() == np.flatnonzero(table[:, site] == symbol).tolist()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(any_mapping(max_classes=300), st.data())
def test_resolve_equals_a_search_in_the_table(mapping: LabelMapping, data: st.DataObject) -> None:
    k = mapping.dimension
    sites = data.draw(st.permutations(range(mapping.n_sites)), "sites")[:k]
    table = mapping.encode(range(mapping.n_classes))[:, sites]
    class_of = {tuple(symbols): x for x, symbols in enumerate(table.tolist())}
    assert len(class_of) == mapping.n_classes
    sizes = [mapping.alphabet_sizes[site] for site in sites]
    if math.prod(sizes) <= 2000:
        asked = np.array(list(product(*map(range, sizes))))
    else:
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
        asked = np.concatenate([table, rng.integers(0, sizes, (500, k))])
    classes = mapping.resolve(sites, asked)
    assert classes.dtype == np.int64
    assert classes.tolist() == [class_of.get(tuple(symbols), -1) for symbols in asked.tolist()]


@kinds
def test_resolve_lifts_any_shape(mapping: LabelMapping) -> None:
    k = mapping.dimension
    ids = np.array([[0, 3, 9], [1, 2, mapping.n_classes - 1]])
    sites = list(range(k))
    symbols = mapping.encode(ids)[..., sites]
    assert mapping.resolve(sites, symbols).tolist() == ids.tolist()
    assert mapping.resolve(sites, symbols[1, 2]).shape == ()
    assert mapping.resolve(sites, symbols[1, 2]).item() == mapping.n_classes - 1
    assert mapping.resolve(sites, symbols[:, :0]).shape == (2, 0)
    assert mapping.resolve(sites, symbols.astype(np.uint16)).tolist() == ids.tolist()


def test_classes_with_is_exact_where_float64_is_not() -> None:
    # numpy's arange with a step counts in float64 and lost the last class here.
    other = 2**22 + 3
    last = LARGE_PRIME * (2**22 + 1)
    run = MixedMapping(last + 1, [other, LARGE_PRIME]).classes_with(1, 0)
    assert run.size == 2**22 + 2
    assert run[-1] == last


@pytest.mark.parametrize(
    ("site", "symbol", "kind", "text"),
    [
        (4, 0, ArgumentError, "sites must lie in 0..3, got 4"),
        (-1, 0, ArgumentError, "sites[0] must be at least 0, got -1"),
        (1.0, 0, ArgumentTypeError, "must be an integer, got 1.0"),
        (1, 37, ArgumentError, "symbol must lie in 0..36 at site 1, got 37"),
        (1, -1, ArgumentError, "symbol must be at least 0, got -1"),
        (1, "0", ArgumentTypeError, "symbol must be an integer, got '0'"),
    ],
)
def test_classes_with_refuses_what_is_not_there(
    site: Any, symbol: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as error:
        KINDS[0].classes_with(site, symbol)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("sites", "symbols", "kind", "text"),
    [
        ([0], [1], ArgumentError, "sites must name 2 sites (the dimension), got 1"),
        ([0, 1, 2], [1, 1, 1], ArgumentError, "sites must name 2 sites (the dimension), got 3"),
        ([1, 1], [1, 1], ArgumentError, "sites must be different from each other, got [1, 1]"),
        ([0, 4], [1, 1], ArgumentError, "sites must lie in 0..3, got 4"),
        ([], [], ArgumentError, "sites must not be empty"),
        ("01", [1, 1], ArgumentTypeError, "sites must be a sequence of integers, got '01'"),
        ([0, 1], [1, 1, 1], ArgumentError, "symbols must have shape (..., 2), got (3,)"),
        ([0, 1], 1, ArgumentError, "symbols must have shape (..., 2), got ()"),
        ([3, 1], [[0, 0], [0, 37]], ArgumentError, "symbols of site 1[1] is 37"),
        ([3, 1], [-1, 0], ArgumentError, "symbols of site 3 must lie in 0..42"),
        ([0, 1], [1.0, 1.0], ArgumentTypeError, "symbols of site 0 must be integers"),
    ],
)
def test_resolve_refuses_bad_sites_and_symbols(
    sites: Any, symbols: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as error:
        KINDS[0].resolve(sites, symbols)
    assert text in str(error.value)


# --- recipes and values

RECIPES = [
    (
        MixedMapping(1000, n_sites=3),
        {"kind": "mixed", "n_classes": 1000, "alphabet_sizes": [37, 41, 43], "dimension": 2},
    ),
    (
        MixedMapping.one_hot(5),
        {"kind": "mixed", "n_classes": 5, "alphabet_sizes": [5], "dimension": 1},
    ),
    (
        SimplexMapping(100, 3),
        {
            "kind": "simplex",
            "n_classes": 100,
            "n_sites": 3,
            "field_order": 11,
            "dimension": 2,
            "points": [1, 2, 3],
        },
    ),
    (EcocMapping(100), {"kind": "ecoc", "n_classes": 100, "code": "binary"}),
]


@pytest.mark.parametrize(("mapping", "recipe"), RECIPES, ids=repr)
def test_the_recipe_is_as_written_in_earlier_files(
    mapping: LabelMapping, recipe: dict[str, Any]
) -> None:
    written = {"format": 1, **recipe}
    assert mapping.to_config() == written
    assert LabelMapping.from_config(written) == mapping


@settings(max_examples=150, deadline=None, derandomize=True)
@given(any_mapping(max_classes=300))
def test_a_recipe_goes_through_json_and_rebuilds_the_mapping(mapping: LabelMapping) -> None:
    text = json.dumps(mapping.to_config(), allow_nan=False)
    rebuilt = LabelMapping.from_config(json.loads(text))
    assert type(rebuilt) is type(mapping)
    assert rebuilt == mapping
    assert hash(rebuilt) == hash(mapping)
    assert rebuilt.to_config() == mapping.to_config()
    ids = np.arange(mapping.n_classes)
    assert np.array_equal(rebuilt.encode(ids), mapping.encode(ids))
    for name in ("n_sites", "alphabet_sizes", "dimension", "min_distance", "capacity"):
        assert getattr(rebuilt, name) == getattr(mapping, name)


@pytest.mark.parametrize("mapping", KINDS + LARGE, ids=repr)
def test_large_recipes_pickles_and_reprs_rebuild_the_mapping(mapping: LabelMapping) -> None:
    assert LabelMapping.from_config(json.loads(json.dumps(mapping.to_config()))) == mapping
    assert pickle.loads(pickle.dumps(mapping)) == mapping
    assert eval(repr(mapping)) == mapping
    # Nothing of size N is kept.
    assert len(pickle.dumps(mapping)) < 1000


def test_numpy_arguments_make_the_same_recipe() -> None:
    plain = SimplexMapping(100, 3, field_order=11, points=[4, 5, 6])
    lifted = SimplexMapping(
        np.int32(100),  # type: ignore[arg-type]
        np.int8(3),  # type: ignore[arg-type]
        field_order=np.uint64(11),  # type: ignore[arg-type]
        points=np.array([4, 5, 6]),  # type: ignore[arg-type]
    )
    assert json.dumps(lifted.to_config()) == json.dumps(plain.to_config())
    assert MixedMapping(990, range(31, 33)) == MixedMapping(990, [31, 32])


def test_equal_means_the_same_recipe() -> None:
    mapping = SimplexMapping(100, 3)
    assert mapping == SimplexMapping(100, 3, field_order=11, dimension=2, points=[1, 2, 3])
    different: list[object] = [
        SimplexMapping(99, 3),
        SimplexMapping(100, 4),
        SimplexMapping(100, 3, field_order=13),
        SimplexMapping(100, 3, dimension=3),
        SimplexMapping(100, 3, points=[1, 3, 2]),
        MixedMapping(100, n_sites=3),
        EcocMapping(100),
        mapping.to_config(),
        None,
    ]
    for other in different:
        assert mapping != other
    assert MixedMapping(100, [11, 13]) != MixedMapping(100, [13, 11])
    assert len({mapping, SimplexMapping(100, 3), SimplexMapping(99, 3)}) == 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "gray"}, "; got 'gray'"),
        ({"kind": None}, "kind of the recipe must be one of"),
        ({"kind": ["simplex"]}, "kind of the recipe must be one of"),
        ({"format": 2}, "must be at most 1, got 2: it was written by a newer labelmapping"),
        ({"format": 0}, "format of the recipe must be at least 1, got 0"),
        ({"format": "1"}, "format of the recipe must be an integer, got '1'"),
        ({"format": 1.0}, "format of the recipe must be an integer, got 1.0"),
        ({"colour": "red"}, "recipe of a simplex mapping: "),
        ({"n_classes": 100.0}, "n_classes must be an integer, got 100.0"),
        ({"points": "123"}, "points must be a sequence of integers"),
        ({"n_classes": 122}, "classes 0 and 121 would share a codeword"),
    ],
)
def test_a_bad_recipe_is_refused(change: dict[str, Any], text: str) -> None:
    recipe = {**SimplexMapping(100, 3).to_config(), **change}
    with pytest.raises(ArgumentError) as error:
        LabelMapping.from_config(recipe)
    assert text in str(error.value)


@pytest.mark.parametrize("mapping", KINDS, ids=repr)
def test_a_recipe_that_lacks_a_field_is_refused(mapping: LabelMapping) -> None:
    # Deduced instead, it might be deduced otherwise by another version.
    recipe = mapping.to_config()
    for field in recipe:
        with pytest.raises(ArgumentError, match=r"of the recipe|^recipe of a"):
            LabelMapping.from_config({k: v for k, v in recipe.items() if k != field})


def test_a_recipe_with_an_argument_that_is_no_field_is_refused() -> None:
    recipe = {**MixedMapping(100, [11, 13]).to_config(), "n_sites": 2}
    with pytest.raises(ArgumentError, match="must have the fields n_classes, alphabet_sizes, dim"):
        LabelMapping.from_config(recipe)


@kinds
def test_a_mapping_cannot_be_changed(mapping: LabelMapping) -> None:
    names = ["n_classes", "alphabet_sizes", "n_sites", "dimension", "min_distance", "capacity"]
    if isinstance(mapping, SimplexMapping):
        names += ["field_order", "points"]
    before = mapping.to_config()
    for name in names:
        with pytest.raises(AttributeError):
            setattr(mapping, name, getattr(mapping, name))
    # What was handed out is a copy.
    for value in mapping.to_config().values():
        if isinstance(value, list):
            value.clear()
    assert mapping.to_config() == before


def test_a_mapping_keeps_no_list_of_the_caller() -> None:
    sizes, points = [11, 13], [1, 2, 3]
    mixed, simplex = MixedMapping(100, sizes), SimplexMapping(100, 3, points=points)
    sizes[0], points[0] = 17, 9
    assert mixed.alphabet_sizes == (11, 13)
    assert simplex.points == (1, 2, 3)


# --- refusals, each with its witness


def refusals() -> list[tuple[Callable[[], object], list[str]]]:
    return [
        (
            lambda: MixedMapping(31, [6, 10]),
            ["alphabet_sizes", "6 and 10", "factor 2", "classes 0 and 30"],
        ),
        (lambda: MixedMapping(5, [7, 7]), ["7 and 7", "factor 7", "classes 0 and 7"]),
        (lambda: MixedMapping(5, [35, 9, 14]), ["35 and 14", "factor 7", "classes 0 and 70"]),
        (lambda: MixedMapping(5, [1, 11]), ["alphabet_sizes[0] must be at least 2, got 1"]),
        (lambda: MixedMapping(5, [11, 0]), ["alphabet_sizes[1] must be at least 2, got 0"]),
        (lambda: MixedMapping(5, []), ["alphabet_sizes must not be empty"]),
        (
            lambda: MixedMapping(1002, [13, 7, 11]),
            ["at most 1001 (7 x 11 x 13)", "got 1002", "classes 0 and 1001", "[7, 11, 13]"],
        ),
        (
            lambda: MixedMapping(100, [13, 7, 11], dimension=2),
            ["at most 77 (7 x 11)", "dimension 2", "got 100", "classes 0 and 77", "[7, 11]"],
        ),
        (lambda: MixedMapping(10, [3]), ["at most 3", "classes 0 and 3", "at least 3 sites"]),
        (lambda: MixedMapping(5, [7, 11], dimension=3), ["dimension", "at most", "2; got 3"]),
        (lambda: MixedMapping(5, [7, 11], dimension=0), ["dimension must be at least 1, got 0"]),
        (lambda: MixedMapping(5, [7, 11], n_sites=3), ["n_sites", "alphabet_sizes, 2; got 3"]),
        (lambda: MixedMapping(5), ["n_sites must be given where alphabet_sizes is not"]),
        (lambda: MixedMapping(5, n_sites=0), ["n_sites must be at least 1, got 0"]),
        (lambda: MixedMapping(5, n_sites=2, dimension=3), ["dimension", "2; got 3"]),
        (lambda: MixedMapping(0, [7, 11]), ["n_classes must be at least 1, got 0"]),
        (lambda: MixedMapping(2**64, n_sites=2), ["must stay below 2^63"]),
        (lambda: MixedMapping.one_hot(2**63), ["must stay below 2^63, got 9223372036854775808"]),
        (lambda: MixedMapping.one_hot(0), ["n_classes must be at least 1, got 0"]),
        (
            # Few classes, but the two largest alphabets overflow in `resolve`.
            lambda: MixedMapping(100, [11, 13, 2**31 - 1, 2**33], dimension=2),
            ["the product of the largest alphabets must stay below 2^63", str(2**64 - 2**33)],
        ),
        (
            lambda: MixedMapping(100, [11, 3_037_000_500], dimension=2),
            ["alphabet_sizes must be at most 3037000499, got 3037000500"],
        ),
        (
            lambda: SimplexMapping(122, 3, field_order=11),
            ["at most 121 (11^2)", "got 122", "classes 0 and 121", "holds them is 13"],
        ),
        (
            lambda: SimplexMapping(100, 3, field_order=12),
            ["field_order must be a prime or a power of one, got 12 = 2^2 x 3^1"],
        ),
        (lambda: SimplexMapping(4, 2, field_order=1), ["field_order must be at least 2, got 1"]),
        (
            # Two primes too large to be found: refused before their search.
            lambda: SimplexMapping(4, 2, field_order=(2**521 - 1) * (2**607 - 1)),
            ["field_order must be at most 3037000499"],
        ),
        (
            lambda: SimplexMapping(9, 7, field_order=1009, dimension=7),
            ["field_order ** dimension must stay below 2^63", str(1009**7)],
        ),
        (lambda: SimplexMapping(2**64, 2), ["field_order must be at most 3037000499"]),
        (lambda: SimplexMapping(9, 5, field_order=3), ["n_sites", "field_order + 1, 4", "got 5"]),
        (lambda: SimplexMapping(9, 2, dimension=3), ["dimension", "sites, 2; got 3"]),
        (lambda: SimplexMapping(9, 0), ["n_sites must be at least 1, got 0"]),
        (lambda: SimplexMapping(-3, 2), ["n_classes must be at least 1, got -3"]),
        (
            lambda: SimplexMapping(9, 3, field_order=5, points=[3, 1, 3]),
            ["points", "sites 0 and 2", "at 3"],
        ),
        (
            lambda: SimplexMapping(9, 2, field_order=5, points=[4, 5]),
            ["points must lie in 0..4, points[1] is 5"],
        ),
        (
            lambda: SimplexMapping(9, 2, field_order=5, points=[4, -1]),
            ["points[1] must be at least 0, got -1"],
        ),
        (
            lambda: SimplexMapping(9, 3, field_order=5, points=[4, 1]),
            ["points must have n_sites = 3 entries, got 2"],
        ),
        (lambda: EcocMapping(0), ["n_classes must be at least 1, got 0"]),
        (lambda: EcocMapping(2**62 + 1), ["n_classes must be at most", "= 2^62", str(2**62 + 1)]),
        (lambda: EcocMapping(9, "rndm"), ["code must be one of binary, bch, ", "; got 'rndm'"]),
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


@pytest.mark.parametrize("value", [10.0, 2.5, "10", True, np.True_, np.float64(3), None, [3]])
def test_sizes_that_are_no_integers_are_refused(value: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: MixedMapping(value, [7, 11, 13]),
        lambda: MixedMapping(5, [7, value]),
        lambda: MixedMapping.one_hot(value),
        lambda: SimplexMapping(value, 2),
        lambda: SimplexMapping(9, value),
        lambda: SimplexMapping(9, 2, dimension=value),
        lambda: SimplexMapping(9, 2, field_order=5, points=[1, value]),
        lambda: EcocMapping(value),
    ]
    if value is not None:
        makers += [
            lambda: MixedMapping(5, [7, 11], dimension=value),
            lambda: MixedMapping(5, n_sites=value),
            lambda: SimplexMapping(9, 2, field_order=value),
        ]
    for make in makers:
        with pytest.raises(ArgumentTypeError, match="must be an integer, got"):
            make()


@pytest.mark.parametrize(
    "sizes", ["7", b"7", 7, {7, 11}, iter([7, 11]), np.array(7), np.array([[7, 11]]), 7.0]
)
def test_alphabets_that_are_no_sequence_are_refused(sizes: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="alphabet_sizes must be a sequence of integers"):
        MixedMapping(5, sizes)
    with pytest.raises(ArgumentTypeError, match="points must be a sequence of integers"):
        SimplexMapping(5, 2, points=sizes)


# --- the checks on their own


def test_as_integer_is_exact_for_every_integer_type() -> None:
    for value in (2**70, np.int8(-3), np.uint64(2**64 - 1), np.array(5)):
        number = as_integer("x", value)
        assert type(number) is int
        assert number == value
    assert as_integer("x", 3, 3) == 3
    with pytest.raises(ArgumentError, match=r"^x must be at least 3, got 2$"):
        as_integer("x", 2, 3)


def test_as_integers_names_the_entry() -> None:
    assert as_integers("x", (1, np.int8(2))) == (1, 2)
    assert as_integers("x", range(3)) == (0, 1, 2)
    with pytest.raises(ArgumentTypeError, match=r"^x\[1\] must be an integer, got 2.0 of type flo"):
        as_integers("x", [1, 2.0])
    with pytest.raises(ArgumentError, match=r"^x\[2\] must be at least 1, got 0$"):
        as_integers("x", [1, 2, 0], 1)


def test_check_choice_lists_the_choices() -> None:
    assert check_choice("x", "a", ("a", "b")) == "a"
    with pytest.raises(ArgumentError, match=r"^x must be one of a, b; got 'c'$"):
        check_choice("x", "c", ("a", "b"))


@given(
    st.lists(st.integers(-5, 20), max_size=20),
    st.integers(1, 20),
    st.sampled_from([np.int8, np.int16, np.int64]),
)
@settings(deadline=None, derandomize=True)
def test_as_class_ids_refuses_exactly_the_ids_out_of_range(
    values: list[int], n_classes: int, dtype: type[np.signedinteger[Any]]
) -> None:
    bad = [place for place, value in enumerate(values) if not 0 <= value < n_classes]
    array = np.array(values, dtype)
    if bad:
        with pytest.raises(ArgumentError) as error:
            as_class_ids("ids", array, n_classes)
        assert str(error.value).endswith(f"; ids[{bad[0]}] is {values[bad[0]]}")
    else:
        assert as_class_ids("ids", array, n_classes).tolist() == values
