"""The search over tables, whose tuples of symbols are looked up, against brute force."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import (
    EcocMapping,
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
    TableMapping,
    decode_symbols,
    decode_topk,
    log_partition,
)
from labelmapping.decoding import codes, exhaustive, kernels, problem, search
from labelmapping.decoding.codes import TABLE, CodeArrays, code_arrays

from .test_decoding import all_scores, brute_force, random_log_probs
from .test_search import (
    HARD_STYLES,
    NO_SCAN,
    SLICES,
    compare_with_brute_force,
    draw_log_probs,
)

NO_FILTERS = (np.empty(0), np.empty(0, np.int64), np.empty(0, np.bool_))
every_cost = pytest.mark.parametrize(
    "costs", [search.COSTS, NO_SCAN, SLICES], ids=["costs", "no scan", "slices"]
)


@pytest.fixture(autouse=True)
def search_small_codes() -> Iterator[None]:
    """Let the search run where a scan would be chosen because there are few classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FEW_CLASSES", 0)
        patch.setattr(problem, "FEW_CANDIDATES", 0)
        yield


@pytest.fixture
def fresh_arrays() -> Iterator[None]:
    """No lookups made under other limits, before and after."""
    code_arrays.cache_clear()
    yield
    code_arrays.cache_clear()


def permuted(mapping: LabelMapping, seed: int = 0) -> LearnedMapping:
    """The codewords of a code with a closed form, for other classes: a table of its distance."""
    order = np.random.default_rng(seed).permutation(mapping.n_classes)
    return LearnedMapping(mapping.encode(order), mapping.alphabet_sizes, mapping.dimension)


def arrays_of(mapping: LabelMapping, sites: Sequence[int] | None = None) -> CodeArrays:
    code = code_arrays(mapping, tuple(sites or range(mapping.n_sites)))
    assert code is not None
    assert code.kind == TABLE
    return code


@st.composite
def permuted_mappings(draw: st.DrawFn) -> LearnedMapping:
    """At the full distance, alphabets equal or not, one class to as many as there can be."""
    seed = draw(st.integers(0, 2**32 - 1), "seed of the order")
    k = draw(st.sampled_from([2, 2, 2, 3, 1]))
    if draw(st.booleans(), "equal alphabets"):
        order = draw(st.sampled_from([5, 7, 13, 31, 47]))
        n_sites = draw(st.integers(k, min(order, 7)))
        n_classes = draw(st.integers(1, min(order**k, 2200)))
        return permuted(SimplexMapping(n_classes, n_sites, field_order=order, dimension=k), seed)
    coprime = draw(st.sampled_from([[5, 7, 8, 9, 11, 13, 17], [43, 47, 53, 59, 61, 64]]))
    sizes = draw(st.permutations(coprime))[: draw(st.integers(k, 6))]
    n_classes = draw(st.integers(1, min(math.prod(sorted(sizes)[:k]), 2200)))
    return permuted(MixedMapping(n_classes, sizes, dimension=k), seed)


@st.composite
def any_tables(draw: st.DrawFn) -> TableMapping:
    """Different codewords of any distance, the dimension up to the number of sites."""
    sizes = np.array(draw(st.lists(st.integers(2, 9), min_size=1, max_size=6), "sizes"))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), "seed of the table"))
    n_rows = draw(st.integers(1, 300), "rows")
    rows = np.unique(rng.integers(0, sizes, (n_rows, sizes.size)), axis=0)
    return TableMapping(rng.permutation(rows), sizes.tolist())


@st.composite
def drawn_tables(draw: st.DrawFn) -> LabelMapping:
    """Random tables, and binary codes that are tables."""
    seed = draw(st.integers(0, 1000), "seed of the code")
    kind = draw(st.sampled_from(["random", "hill-climbing", "one-versus-rest", "table"]), "kind")
    if kind == "table":
        n_sites, size = draw(st.sampled_from([(2, 40), (3, 12), (4, 6), (8, 2)]))
        return RandomMapping(draw(st.integers(1, 250)), n_sites, size, seed=seed)
    if kind == "one-versus-rest":
        return EcocMapping(draw(st.integers(2, 12)), kind)
    n_classes = draw(st.integers(2, 60))
    n_sites = draw(st.integers(max(1, (n_classes - 1).bit_length()), 14))
    return EcocMapping(n_classes, kind, n_sites=n_sites, seed=seed)


tables = st.one_of(permuted_mappings(), permuted_mappings(), any_tables(), drawn_tables())


# --- the same answers


@pytest.mark.slow
@every_cost
@settings(max_examples=300, deadline=None, derandomize=True)
@given(mapping=tables, data=st.data())
def test_the_search_equals_brute_force(
    costs: tuple[float, ...], mapping: LabelMapping, data: st.DataObject
) -> None:
    arrays_of(mapping)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "COSTS", costs)
        compare_with_brute_force(mapping, data)


@every_cost
@pytest.mark.parametrize("style", HARD_STYLES)
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_hard_rows_of_larger_tables_equal_the_reference(
    dimension: int, style: str, costs: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With subsets of the sites, a prior, and classes that may be answered."""
    monkeypatch.setattr(search, "COSTS", costs)
    sizes = {1: [2503, 2521, 2531, 2539, 2543], 2: [61, 59, 67, 71, 73], 3: [17, 19, 23, 29, 31]}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n_sites = int(rng.integers(dimension, 6))
        chosen = rng.permutation(sizes[dimension])[:n_sites].tolist()
        n_classes = int(rng.integers(500, min(2500, math.prod(sorted(chosen)[:dimension]))))
        mapping = permuted(MixedMapping(n_classes, chosen, dimension=dimension), seed)
        sites = rng.permutation(n_sites)[: rng.integers(dimension, n_sites + 1)].tolist()
        arrays = [draw_log_probs(mapping, 2, seed, style)[site] for site in sites]
        allowed = np.flatnonzero(rng.random(n_classes) < 0.2) if seed % 2 else None
        prior = np.round(rng.normal(size=n_classes), 1) if seed % 3 else None
        k = int(rng.choice([1, 10, n_classes if allowed is None else allowed.size]))
        look = None if prior is None else prior.__getitem__
        expected = exhaustive.scan(mapping, arrays, tuple(sites), k, look, allowed)
        filters = (
            NO_FILTERS[0] if prior is None else prior,
            NO_FILTERS[1] if allowed is None else allowed,
            NO_FILTERS[2],
        )
        highest = 0.0 if prior is None else float(prior.max())
        table = np.concatenate(arrays, axis=1)
        found = search.search(arrays_of(mapping, sites), table, k, filters, highest)
        assert found[1].tolist() == expected[1].tolist()
        assert found[0].tolist() == expected[0].tolist()


@pytest.mark.parametrize("n_sites", [12, 13])
def test_more_than_eleven_sites_are_searched_though_not_all_pairs_are_seeds(
    n_sites: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best class may stand out at two sites that are no group; symbols are not peeled."""
    monkeypatch.setattr(search, "COSTS", NO_SCAN)
    mapping = permuted(SimplexMapping(2_000, n_sites, field_order=47))
    code = arrays_of(mapping)
    assert len(code.tuples) == code.n_groups == (6 if n_sites == 12 else 13)
    assert code.searchable
    assert not code.sliceable
    for seed in range(6):
        rng = np.random.default_rng(seed)
        arrays = [-rng.random((1, q)) for q in mapping.alphabet_sizes]
        word = mapping.encode(int(rng.integers(2_000)))
        first, second = rng.choice(n_sites, 2, replace=False)
        for site, array in enumerate(arrays):
            array[0, word[site]] = 20.0 if site in (first, second) else -1.5
        for k in (1, 3):
            answer = decode_topk(mapping, arrays, k)
            scores, ids = brute_force(all_scores(mapping, arrays), k)
            assert answer.ids.tolist() == ids.tolist()
            assert answer.scores.tolist() == scores.tolist()
    for style in HARD_STYLES:
        arrays = draw_log_probs(mapping, 1, 1, style)
        expected = exhaustive.scan(mapping, arrays, tuple(range(n_sites)), 5, None, None)
        found = search.search(code, np.concatenate(arrays, axis=1), 5, NO_FILTERS, 0.0)
        assert found[1].tolist() == expected[1].tolist()
        assert found[0].tolist() == expected[0].tolist()


def test_every_pair_of_symbols_resolves_to_its_class_or_to_none() -> None:
    """Also where windows of neighbours close the circle, and a pair is asked for either way."""
    for sizes in ([7, 9, 11], [11, 8, 7, 9], [13, 7, 9, 11, 8]):
        mapping = permuted(MixedMapping(50, sizes))
        code = arrays_of(mapping)
        assert len(code.tuples) == math.comb(len(sizes), 2)
        for places, lookup in zip(code.tuples.tolist(), code.inverses[:, 0], strict=True):
            pairs = np.argwhere(np.ones([sizes[p] for p in places]))
            expected = mapping.resolve(places, pairs)
            assert lookup[: len(pairs)].tolist() == expected.tolist()
            assert (lookup[len(pairs) :] == -1).all()
            assert np.count_nonzero(lookup >= 0) == 50
            for site, other in (places, places[::-1]):
                t, second = divmod(int(code.pairs[site, other]), 2)
                assert code.tuples[t].tolist() == ([other, site] if second else [site, other])


def test_two_tables_of_one_shape_do_not_answer_for_each_other() -> None:
    plain = SimplexMapping(900, 3, field_order=31)
    first, second = permuted(plain, 1), permuted(plain, 2)
    assert hash(first) == hash(second)
    assert first != second
    arrays = draw_log_probs(first, 3, 0, "normal")
    for mapping in (first, second, first, second):
        expected = brute_force(all_scores(mapping, arrays), 5)[1]
        assert decode_topk(mapping, arrays, 5).ids.tolist() == expected.tolist()
    again = permuted(plain, 1)
    assert arrays_of(again) is arrays_of(first)


def test_the_scan_of_a_table_equals_the_reference() -> None:
    for mapping in (
        RandomMapping(5_000, 3, 40, seed=1),
        EcocMapping(200, "random", n_sites=9),
        permuted(MixedMapping(4_500, [67, 71, 73])),
    ):
        code, sites = arrays_of(mapping), tuple(range(mapping.n_sites))
        arrays = random_log_probs(mapping, 2, 1, "ties")
        expected = exhaustive.scan(mapping, arrays, sites, 7, None, None)
        scores, ids = np.full((2, 7), -np.inf), np.full((2, 7), -1, np.int64)
        plain = (
            code.kind, code.n_classes, code.dimension, code.sizes, code.points, 1.0 / code.sizes,
            code.linear,
        )  # fmt: skip
        offsets = np.cumsum(code.sizes) - code.sizes
        kernels.scan_rows(plain, np.concatenate(arrays, axis=1), offsets, NO_FILTERS, scores, ids)
        assert ids.tolist() == expected[1].tolist()
        assert scores.tolist() == expected[0].tolist()


# --- by the counter


def test_rows_of_a_large_learned_code_are_certified_by_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the limits as they are: a small share of 22,801 classes is scored."""
    monkeypatch.undo()
    monkeypatch.setattr(search, "FEW_CLASSES", 20_000)
    mapping = permuted(SimplexMapping(22_801, 4, field_order=151))
    for style in ("peaked", "log-softmax", "normal"):
        arrays = draw_log_probs(mapping, 8, 3, style)
        scores = all_scores(mapping, arrays)
        for k in (1, 10):
            answer = decode_topk(mapping, arrays, k)
            assert set(answer.certified_by) == {"bound"}
            assert answer.n_scored.max() < (22_801 // 20 if style == "peaked" else 22_801 // 4)
            expected, ids = brute_force(scores, k)
            assert answer.ids.tolist() == ids.tolist()
            assert answer.scores.tolist() == expected.tolist()
    equal = decode_topk(mapping, draw_log_probs(mapping, 2, 0, "equal"), 1)
    assert equal.certified_by.tolist() == ["scan", "scan"]
    assert equal.ids.tolist() == [[0], [0]]
    few = permuted(SimplexMapping(20_000, 4, field_order=151))
    answer = decode_topk(few, draw_log_probs(few, 1, 0, "peaked"), 1)
    assert answer.n_scored.tolist() == [20_000]


def test_a_table_is_searched_like_the_code_whose_words_it_has() -> None:
    """The same row, the same tuples: the counters agree where nothing is peeled by runs."""
    plain = SimplexMapping(22_801, 4, field_order=151)
    order = np.random.default_rng(0).permutation(plain.n_classes)
    mapping = permuted(plain)
    arrays = draw_log_probs(plain, 6, 1, "peaked")
    by_table, by_form = decode_topk(mapping, arrays, 1), decode_topk(plain, arrays, 1)
    assert order[by_table.ids].tolist() == by_form.ids.tolist()
    assert by_table.n_scored.tolist() == by_form.n_scored.tolist()
    assert set(by_table.certified_by) == set(by_form.certified_by) == {"bound"}


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_any_dimension_is_searched_not_scanned(dimension: int) -> None:
    found: Counter[str] = Counter()
    for n_sites in (dimension, dimension + 1, dimension + 2):
        order = {1: 4_001, 2: 67, 3: 17}[dimension]
        plain = SimplexMapping(4_000, n_sites, field_order=order, dimension=dimension)
        mapping = permuted(plain)
        arrays = draw_log_probs(mapping, 4, dimension, "peaked")
        answer = decode_topk(mapping, arrays, 1)
        scores, ids = brute_force(all_scores(mapping, arrays), 1)
        assert answer.ids.tolist() == ids.tolist()
        assert answer.scores.tolist() == scores.tolist()
        found.update(answer.certified_by)
    assert found["bound"] >= 10


# --- what is not searched


@pytest.mark.usefixtures("fresh_arrays")
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_lookups_that_would_be_too_large_are_not_made_and_the_answer_is_the_same(
    dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "COSTS", NO_SCAN)
    mapping = permuted(MixedMapping(600, [607, 601, 613, 617], dimension=1), 1)
    if dimension > 1:
        mapping = permuted(MixedMapping(600, [29, 31, 37, 41], dimension=dimension), 1)
    cells = math.prod(sorted(mapping.alphabet_sizes)[-dimension:])
    n_groups = 4 if dimension == 3 else 4 // dimension
    all_tuples = math.comb(4, dimension)
    arrays = draw_log_probs(mapping, 3, 2, "peaked")
    scores, ids = brute_force(all_scores(mapping, arrays), 2)
    for most, n_tuples in [
        (1, 0),
        (cells - 1, 0),
        (cells * n_groups - 1, 0),
        (cells * n_groups, n_groups),
        (cells * (all_tuples - 1), max(n_groups, all_tuples - 1) if n_groups < all_tuples else 0),
        (cells * all_tuples, all_tuples),
    ]:
        monkeypatch.setattr(codes, "MOST_CELLS", most)
        code_arrays.cache_clear()
        code = arrays_of(mapping)
        assert code.tuples.shape == (n_tuples, dimension)
        assert code.others.shape == (n_tuples, 4 - dimension)
        assert code.inverses.size <= most
        assert code.searchable == (n_tuples > 0)
        assert code.sliceable == (dimension == 2 and n_tuples == all_tuples)
        answer = decode_topk(mapping, arrays, 2)
        assert answer.ids.tolist() == ids.tolist()
        assert answer.scores.tolist() == scores.tolist()
        if n_tuples == 0:
            assert set(answer.certified_by) == {"scan"}
            assert answer.n_scored.tolist() == [600] * 3
        else:
            assert set(answer.certified_by) == {"bound"}


def test_long_words_of_few_classes_are_scanned() -> None:
    for mapping in (RandomMapping(1000, 40, 41), EcocMapping(40, "random")):
        assert not arrays_of(mapping).searchable
        arrays = draw_log_probs(mapping, 2, 0, "normal")
        answer = decode_topk(mapping, arrays, 3)
        assert answer.n_scored.tolist() == [mapping.n_classes] * 2
        assert answer.ids.tolist() == brute_force(all_scores(mapping, arrays), 3)[1].tolist()


def scores_with_silence(
    mapping: LabelMapping, arrays: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Where a site abstains it adds log 1/2."""
    total = np.zeros((len(arrays[0]), mapping.n_classes))
    for array, column in zip(arrays, mapping.encode(range(mapping.n_classes)).T, strict=True):
        total = total + np.where(column < 0, np.log(0.5), array[:, np.maximum(column, 0)])
    return total


@pytest.mark.parametrize(
    "mapping",
    [
        EcocMapping(9, "one-versus-one"),
        EcocMapping(40, "sparse-random"),
        TableMapping([[0, 1, -1, 2], [1, -1, 0, 0], [2, 0, 1, -1], [-1, 2, 1, 1], [0, 2, 0, -1]]),
    ],
    ids=repr,
)
def test_tables_with_abstentions_still_go_to_the_reference(mapping: LabelMapping) -> None:
    assert code_arrays(mapping, tuple(range(mapping.n_sites))) is None
    for style in ("normal", "ties", "-inf", "equal"):
        arrays = draw_log_probs(mapping, 3, 0, style)
        for k in (1, 3):
            answer = decode_topk(mapping, arrays, k)
            scores, ids = brute_force(scores_with_silence(mapping, arrays), k)
            assert answer.ids.tolist() == ids.tolist()
            assert answer.scores.tolist() == scores.tolist()
            assert set(answer.certified_by) == {"scan"}


def test_hashed_codes_still_go_to_the_reference() -> None:
    mapping = HashedMapping(300, 6, 20)
    assert code_arrays(mapping, tuple(range(6))) is None


# --- what is built on it


@settings(max_examples=80, deadline=None, derandomize=True)
@given(permuted_mappings(), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_nearest_codewords_of_a_table_are_found(
    mapping: LearnedMapping, seed: int, k: int
) -> None:
    rng = np.random.default_rng(seed)
    words = mapping.codewords
    received = rng.integers(0, mapping.alphabet_sizes, (4, mapping.n_sites))
    near = words[rng.integers(0, len(words), 4)]
    received = np.where(rng.random(received.shape) < 0.3, received, near)
    erased = np.zeros(received.shape, np.bool_)
    for row in erased[:2]:
        row[rng.permutation(mapping.n_sites)[mapping.dimension :]] = True
    found = decode_symbols(mapping, received, erased=erased, k=k)
    differ = (received[:, None] != words[None]) & ~erased[:, None]
    distances = differ.sum(axis=2)
    expected = np.argsort(distances, axis=1, kind="stable")[:, :k]
    assert found.ids.tolist() == expected.tolist()
    assert found.distances.tolist() == np.take_along_axis(distances, expected, 1).tolist()


def test_the_partition_of_a_table_lies_in_its_interval() -> None:
    mapping = permuted(SimplexMapping(4_000, 4, field_order=67))
    arrays: list[Any] = draw_log_probs(mapping, 5, 0, "peaked")
    exact = np.logaddexp.reduce(all_scores(mapping, arrays), axis=1)
    for tolerance in (None, 0.5, 1e-3):
        found = log_partition(mapping, arrays, tolerance=tolerance)
        assert (found.lower <= exact + 1e-9).all()
        assert (found.upper >= exact - 1e-9).all()
        assert (found.upper - found.lower <= (tolerance or 1e-12)).all()
