"""The search over linear codes: prime powers, infinity and polynomials, against brute force."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelmapping import (
    EcocMapping,
    LabelMapping,
    PolynomialMapping,
    SimplexMapping,
    decode_symbols,
    decode_topk,
)
from labelmapping.decoding import exhaustive, kernels, problem, search
from labelmapping.decoding.codes import LINEAR, code_arrays

from .test_decoding import all_scores, brute_force, random_log_probs
from .test_mappings import class_counts
from .test_polynomial import polynomial_mappings
from .test_search import (
    HARD_STYLES,
    NO_SCAN,
    SLICES,
    STYLES,
    compare_with_brute_force,
    draw_log_probs,
)
from .test_simplex_fields import field_mappings

INFINITY = "infinity"


@pytest.fixture(autouse=True)
def search_small_codes() -> Iterator[None]:
    """Let the search run where a scan would be chosen because there are few classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FEW_CLASSES", 0)
        patch.setattr(problem, "FEW_CANDIDATES", 0)
        yield


@st.composite
def wide_mappings(draw: st.DrawFn, max_classes: int) -> LabelMapping:
    """Alphabets of some ten symbols, up to seven sites."""
    order = draw(st.sampled_from([16, 25, 27, 32, 49, 64, 31]))
    k = draw(st.sampled_from([2, 2, 3, 1]))
    n_sites = draw(st.integers(k, 7))
    n_classes = draw(class_counts(min(order**k, max_classes)))
    if draw(st.booleans()) and order in (16, 32, 64):
        degree = order.bit_length() - 1
        n_sites = min(n_sites, 3 if degree == 4 else 6)
        return PolynomialMapping(n_classes, max(k, n_sites), degree=degree, dimension=k)
    points: list[Any] = draw(st.permutations([*range(order), INFINITY]))[:n_sites]
    if order == 31 and INFINITY not in points:
        points[0] = INFINITY
    return SimplexMapping(n_classes, n_sites, field_order=order, dimension=k, points=points)


def linear_mappings(max_classes: int) -> st.SearchStrategy[LabelMapping]:
    return st.one_of(
        field_mappings(max_classes), polynomial_mappings(max_classes), wide_mappings(max_classes)
    )


@pytest.mark.parametrize(
    "costs", [search.COSTS, NO_SCAN, SLICES], ids=["costs", "no scan", "slices"]
)
@settings(max_examples=300, deadline=None, derandomize=True)
@given(mapping=linear_mappings(max_classes=2500), data=st.data())
def test_the_search_equals_brute_force(
    costs: tuple[float, ...], mapping: LabelMapping, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "COSTS", costs)
        compare_with_brute_force(mapping, data)


def codes_for(k: int) -> list[LabelMapping]:
    """Of one dimension, over several fields; some sites have larger alphabets than others."""
    order = {1: 2048, 2: 64, 3: 16}[k]
    codes: list[LabelMapping] = [
        SimplexMapping(order**k, k + 3, field_order=order, dimension=k),
        SimplexMapping(2187, k + 2, field_order=3 ** -(-7 // k), dimension=k),
        PolynomialMapping(2**12, k + 2, dimension=k),
        PolynomialMapping(2500, k + 2, field_order=4, degree={1: 6, 2: 3, 3: 2}[k], dimension=k),
    ]
    for points in ([1, INFINITY, 3, 0, 2], [INFINITY, 5, 7, 4, 6]):
        chosen: list[Any] = points[: k + 2]
        prime = {1: 3001, 2: 59, 3: 17}[k]
        codes.append(SimplexMapping(3000, k + 2, field_order=prime, dimension=k, points=chosen))
        codes.append(
            SimplexMapping(3000, k + 2, field_order=5 ** -(-5 // k), dimension=k, points=chosen)
        )
    if k > 1:
        moduli = [0b1000000, 0b1000011, 0b10000011, 0b10001001, 0b101111111]
        codes.append(PolynomialMapping(2**12, moduli=moduli, dimension=k))
        # Over F_3, one not monic: degrees 4, 4, 5 and 1.
        moduli = [167, 100, 250, 3]
        codes.append(PolynomialMapping(3 ** (4 * k - 3), field_order=3, moduli=moduli, dimension=k))
    return codes


@pytest.mark.parametrize("costs", [NO_SCAN, SLICES], ids=["no scan", "slices"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_hard_rows_with_subsets_of_sites_priors_and_candidates(
    k: int, costs: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "COSTS", costs)
    for number, mapping in enumerate(codes_for(k)):
        for style_number, style in enumerate(HARD_STYLES):
            seed = 100 * number + style_number
            rng = np.random.default_rng(seed)
            few = np.random.default_rng([number, style_number % 3])  # sites that come again
            n_present = int(few.integers(k, mapping.n_sites + 1))
            sites = tuple(few.permutation(mapping.n_sites)[:n_present].tolist())
            arrays = [draw_log_probs(mapping, 2, seed, style)[site] for site in sites]
            options: dict[str, Any] = {}
            prior = allowed = None
            if seed % 3 == 0:
                prior = np.round(rng.normal(size=mapping.n_classes), 1)
                options["prior"] = prior
            if seed % 2 == 0:
                allowed = np.flatnonzero(rng.random(mapping.n_classes) < 0.3)
                options["allowed"] = allowed
            top = int(rng.choice([1, 10, 60]))
            answer = decode_topk(mapping, arrays, top, sites=sites, **options)
            with np.errstate(over="ignore"):
                scores, ids = brute_force(all_scores(mapping, arrays, sites, prior), top, allowed)
            assert answer.ids.tolist() == ids.tolist(), (mapping, style, sites)
            assert answer.scores.tolist() == scores.tolist()


@pytest.mark.parametrize("costs", [NO_SCAN, SLICES], ids=["no scan", "slices"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_finite_row_of_small_codes_can_be_certified_by_the_bound(
    k: int, costs: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "COSTS", costs)
    for mapping in codes_for(k):
        code = code_arrays(mapping, tuple(range(mapping.n_sites)))
        assert code is not None
        assert code.kind == LINEAR
        assert code.searchable
        assert code.sliceable == (k > 1)
        for style in ("peaked", "normal", "log-softmax"):
            arrays = draw_log_probs(mapping, 3, k, style)
            answer = decode_topk(mapping, arrays, 2)
            scores, ids = brute_force(all_scores(mapping, arrays), 2)
            assert answer.ids.tolist() == ids.tolist()
            assert answer.scores.tolist() == scores.tolist()
            assert set(answer.certified_by) == {"bound"}


def test_peaked_rows_are_certified_by_the_bound_with_few_classes_scored() -> None:
    found: Counter[str] = Counter()
    for number, mapping in enumerate(large_codes()):
        arrays = draw_log_probs(mapping, 4, number, "peaked")
        answer = decode_topk(mapping, arrays, 2)
        scores, ids = brute_force(all_scores(mapping, arrays), 2)
        assert answer.ids.tolist() == ids.tolist()
        assert answer.scores.tolist() == scores.tolist()
        by_bound = answer.certified_by == "bound"
        assert (answer.n_scored[by_bound] < 0.2 * mapping.n_classes).all()
        assert (answer.n_scored[~by_bound] >= mapping.n_classes).all()
        found.update(answer.certified_by.tolist())
    assert found["bound"] >= 0.9 * found.total()


def large_codes() -> list[LabelMapping]:
    return [
        SimplexMapping(60_000, 4, field_order=256),
        SimplexMapping(60_000, 5, field_order=256, points=[INFINITY, 7, 0, 255, 100]),
        SimplexMapping(59_049, 3, field_order=243, points=[242, INFINITY, 81]),
        SimplexMapping(60_000, 4, field_order=251, points=[3, 0, INFINITY, 250]),
        SimplexMapping(60_000, 5, field_order=64, dimension=3, points=[1, 2, INFINITY, 3, 0]),
        PolynomialMapping(60_000, 6),
        PolynomialMapping(59_049, field_order=9, moduli=[738, 739, 741, 745]),
        PolynomialMapping(60_000, 5, dimension=3, degree=6),
    ]


@pytest.mark.parametrize("style", STYLES)
def test_larger_codes_agree_with_the_reference(style: str) -> None:
    for number, mapping in enumerate(large_codes()):
        arrays = draw_log_probs(mapping, 2, number, style)
        for k in (1, 10, 100):
            sites = tuple(range(mapping.n_sites))
            scores, ids = exhaustive.scan(mapping, arrays, sites, k, None, None)
            answer = decode_topk(mapping, arrays, k)
            assert answer.ids.tolist() == ids.tolist(), mapping
            assert answer.scores.tolist() == scores.astype(np.float32).tolist()


def test_every_move_decides_some_rows() -> None:
    """By the counter: seeds alone, peeled symbols, tuples within the slack, the scan."""
    mapping = SimplexMapping(100_000, 4, field_order=2**9, points=[1, 2, INFINITY, 0])
    words = mapping.encode([71_717])
    seeds = 6 * 36  # six pairs of sites, six symbols each
    arrays = [np.linspace(-60, -50, q)[None, :].copy() for q in mapping.alphabet_sizes]
    for site, array in enumerate(arrays):
        array[0, words[0, site]] = 0.0
    seeded = decode_topk(mapping, arrays, 1)
    assert seeded.ids.tolist() == [[71_717]]
    assert seeded.certified_by.tolist() == ["bound"]
    assert seeds <= seeded.n_scored[0] <= seeds + 2
    peeled = decode_topk(mapping, arrays, 10)
    assert peeled.certified_by.tolist() == ["bound"]
    assert seeds < peeled.n_scored[0] < 5_000
    assert peeled.ids.tolist() == brute_force(all_scores(mapping, arrays), 10)[1].tolist()
    flat = decode_topk(mapping, draw_log_probs(mapping, 4, 0, "normal"), 1)
    assert set(flat.certified_by) == {"bound"}
    assert seeds + 2 < flat.n_scored.min() <= flat.n_scored.max() < 20_000
    equal = decode_topk(mapping, draw_log_probs(mapping, 4, 0, "equal"), 1)
    assert set(equal.certified_by) == {"scan"}
    assert equal.n_scored.min() >= 100_000
    assert equal.ids[:, 0].tolist() == [0, 0, 0, 0]


def test_without_all_pairs_of_sites_nothing_is_sliced_and_answers_stay_exact() -> None:
    """13 sites have 78 pairs: only the groups are seeds, and symbols of pairs are not resolved."""
    mapping = SimplexMapping(3_000, 13, field_order=64)
    code = code_arrays(mapping, tuple(range(13)))
    assert code is not None
    assert not code.sliceable
    for style in ("peaked", "normal", "ties"):
        arrays = draw_log_probs(mapping, 3, 1, style)
        answer = decode_topk(mapping, arrays, 3)
        scores, ids = brute_force(all_scores(mapping, arrays), 3)
        assert answer.ids.tolist() == ids.tolist()
        assert answer.scores.tolist() == scores.tolist()


@pytest.mark.parametrize(
    "mapping",
    [
        SimplexMapping(10**8, 4, field_order=2**14),
        SimplexMapping(10**8, 5, field_order=2**14, points=[INFINITY, 1, 0, 16_383, 5]),
        PolynomialMapping(10**8, 4),
        SimplexMapping(10**8, 4, field_order=10_007, points=[1, INFINITY, 0, 2]),
    ],
    ids=repr,
)
def test_a_hundred_million_classes_over_2_to_the_14_symbols(mapping: LabelMapping) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 10**8, 3)
    truth[0] = 10**8 - 1
    words = mapping.encode(truth)
    arrays = [rng.normal(size=(3, q)).astype(np.float32) for q in mapping.alphabet_sizes]
    for site, array in enumerate(arrays):
        array[np.arange(3), words[:, site]] += 9
    answer = decode_topk(mapping, arrays, 10)  # also compiles and makes the tables
    assert answer.ids[:, 0].tolist() == truth.tolist()
    assert set(answer.certified_by) == {"bound"}
    assert answer.n_scored.max() < 100_000
    scores = np.zeros((3, 10))
    for site, array in enumerate(arrays):
        found = mapping.encode(answer.ids)[..., site]
        scores += np.take_along_axis(array.astype(np.float64), found, axis=1)
    assert answer.scores.tolist() == scores.astype(np.float32).tolist()
    tracemalloc.start()
    try:
        decode_topk(mapping, arrays, 10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20


def test_few_candidates_of_a_hundred_million_are_as_many_lookups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(problem, "FEW_CANDIDATES", 20_000)
    mapping = SimplexMapping(10**8, 4, field_order=2**14)
    arrays = [np.zeros((1, q), np.float32) for q in mapping.alphabet_sizes]
    answer = decode_topk(mapping, arrays, 5, allowed=[7, 10**7, 10**8 - 1])
    assert answer.ids.tolist() == [[7, 10**7, 10**8 - 1]]
    assert answer.n_scored.tolist() == [3]


SCANNED: list[LabelMapping] = [
    SimplexMapping(50_001, 3, field_order=256),
    SimplexMapping(50_001, 4, field_order=256, points=[0, INFINITY, 1, 200]),
    SimplexMapping(50_001, 4, field_order=243, points=[0, INFINITY, 1, 200]),
    SimplexMapping(50_001, 4, field_order=49, dimension=3),
    SimplexMapping(50_001, 4, field_order=41, dimension=3, points=[40, INFINITY, 0, 7]),
    SimplexMapping(60, 2, field_order=64, dimension=1),
    SimplexMapping(60, 2, field_order=61, dimension=1, points=[INFINITY, 5]),
    PolynomialMapping(50_001, 4),
    PolynomialMapping(50_001, moduli=[0b10000000, 0b1000010001, 0b100000000101]),
    PolynomialMapping(2_001, field_order=3, moduli=[167, 100, 250, 3], dimension=3),
    PolynomialMapping(2_001, field_order=9, moduli=[84, 91, 9]),
    EcocMapping(50_001, "bch", distance=5),
    EcocMapping(127, "bch", distance=11),
    EcocMapping(200, "hadamard"),
    EcocMapping(2, "hadamard"),
    SimplexMapping(10**6, 3, field_order=2**14),
]


@pytest.mark.parametrize("mapping", SCANNED, ids=repr)
def test_the_run_wise_scan_equals_the_reference(mapping: LabelMapping) -> None:
    sites = tuple(range(mapping.n_sites))
    code = code_arrays(mapping, sites)
    assert code is not None
    assert code.kind == LINEAR
    arrays = random_log_probs(mapping, 2, 1, "ties")
    k = min(7, mapping.n_classes)
    expected = exhaustive.scan(mapping, arrays, sites, k, None, None)
    scores, ids = np.full((2, k), -np.inf), np.full((2, k), -1, np.int64)
    kernels.scan_rows(
        (
            code.kind,
            code.n_classes,
            code.dimension,
            code.sizes,
            code.points,
            1.0 / code.sizes,
            code.linear,
        ),
        np.concatenate(arrays, axis=1),
        np.cumsum(code.sizes) - code.sizes,
        (np.empty(0), np.empty(0, np.int64), np.empty(0, np.bool_)),
        scores,
        ids,
    )
    assert ids.tolist() == expected[1].tolist()
    assert scores.tolist() == expected[0].tolist()


@pytest.mark.parametrize("code", ["bch", "hadamard"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(n_classes=class_counts(500), data=st.data())
def test_linear_binary_codes_are_scanned_exactly(
    code: str, n_classes: int, data: st.DataObject
) -> None:
    options: dict[str, Any] = {}
    if code == "bch":
        options["distance"] = data.draw(st.sampled_from([3, 5, 7]), "distance")
    mapping = EcocMapping(n_classes, code, **options)
    compare_with_brute_force(mapping, data)
    assert set(decode_topk(mapping, random_log_probs(mapping, 1, 0), 1).certified_by) == {"scan"}


def test_a_long_code_that_is_only_scanned_makes_no_tuples_of_sites() -> None:
    # Windows of 1,024 of its 2,047 sites would fill 17 GB.
    mapping = EcocMapping(2**11, "hadamard")
    code = code_arrays(mapping, tuple(range(mapping.n_sites)))
    assert code is not None
    assert not code.searchable
    assert code.tuples.size == code.inverses.size == code.others.size == 0
    symbols = mapping.encode([3, 2**11 - 1])
    symbols[:, ::5] ^= 1  # 410 of at most 511 errors that are corrected
    found = decode_symbols(mapping, symbols)
    assert found.ids[:, 0].tolist() == [3, 2**11 - 1]
    assert found.certain.all()


@pytest.mark.parametrize(
    "mapping",
    [
        SimplexMapping(500, 6, field_order=25, points=[1, 2, 24, 0, INFINITY, 5]),
        SimplexMapping(500, 6, field_order=8, dimension=3),
        PolynomialMapping(500, 5, degree=5),
        EcocMapping(100, "bch", distance=7),
    ],
    ids=repr,
)
def test_errors_up_to_half_the_distance_are_corrected(mapping: LabelMapping) -> None:
    rng = np.random.default_rng(1)
    for n_erased in range(min(3, mapping.min_distance)):
        n_errors = (mapping.min_distance - 1 - n_erased) // 2
        ids = rng.integers(0, mapping.n_classes, 20)
        symbols = mapping.encode(ids)
        gone = np.zeros(symbols.shape, np.bool_)
        for row in range(20):
            order = rng.permutation(mapping.n_sites)
            gone[row, order[:n_erased]] = True
            for site in order[n_erased : n_erased + n_errors]:
                size = mapping.alphabet_sizes[site]
                symbols[row, site] = (symbols[row, site] + rng.integers(1, size)) % size
        found = decode_symbols(mapping, symbols, erased=gone)
        assert found.ids[:, 0].tolist() == ids.tolist()
        assert found.distances[:, 0].tolist() == [n_errors] * 20
        assert found.certain.all()


def test_a_row_does_not_depend_on_the_others_or_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = SimplexMapping(40_000, 6, field_order=256)
    arrays = draw_log_probs(mapping, 9, 5, "normal")
    whole = decode_topk(mapping, arrays, 4)
    monkeypatch.setattr(problem, "BATCH_BYTES", 1)
    single = decode_topk(mapping, arrays, 4)
    for name in ("scores", "ids", "n_scored", "certified_by"):
        assert getattr(whole, name).tolist() == getattr(single, name).tolist()


def test_a_code_over_a_prime_searches_alike_with_and_without_its_matrix() -> None:
    """With infinity among its points, a code over a prime is a matrix: same classes, same order."""
    finite = SimplexMapping(30_000, 4, field_order=181)
    with_infinity = SimplexMapping(30_000, 5, field_order=181, points=[1, 2, 3, 4, INFINITY])
    arrays = draw_log_probs(finite, 4, 2, "peaked")
    by_formula = decode_topk(finite, arrays, 20)
    by_matrix = decode_topk(with_infinity, arrays, 20, sites=[0, 1, 2, 3])
    assert by_formula.ids.tolist() == by_matrix.ids.tolist()
    assert by_formula.scores.tolist() == by_matrix.scores.tolist()
    assert math.prod(finite.alphabet_sizes[:2]) >= 30_000
