"""`decode_topk` against a scan of the whole table in plain numpy, and what it refuses."""

import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config
from numpy.typing import NDArray

from labelmapping import EcocMapping, LabelMapping, MixedMapping, SimplexMapping, decode_topk
from labelmapping.decoding import TopK, exhaustive, problem
from labelmapping.errors import ArgumentError, ArgumentTypeError

from .test_mappings import any_mapping

Scores = NDArray[np.float64]
MIXED = MixedMapping(1000, [31, 37, 41, 43])
KINDS: list[LabelMapping] = [
    MIXED,
    MixedMapping.one_hot(50),
    SimplexMapping(300, 5, field_order=7, dimension=3),
    EcocMapping(100),
]
kinds = pytest.mark.parametrize("mapping", KINDS, ids=repr)


def all_scores(
    mapping: LabelMapping,
    log_probs: Sequence[Scores],
    sites: Sequence[int] | None = None,
    prior: Scores | None = None,
) -> Scores:
    """Score of every class, (B, N): the sum of its symbols' log-probs, site after site."""
    codewords = mapping.encode(np.arange(mapping.n_classes))
    scores = np.zeros((len(log_probs[0]), mapping.n_classes))
    for site, array in zip(sites or range(mapping.n_sites), log_probs, strict=True):
        scores = scores + array[:, codewords[:, site]]
    return scores if prior is None else scores + prior


def brute_force(
    scores: Scores, k: int, allowed: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The k best of each row by a full stable sort on (-score, id)."""
    ids = np.arange(scores.shape[1]) if allowed is None else allowed
    kept = scores[:, ids]
    order = np.argsort(-kept, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(kept, order, 1).astype(np.float32), ids[order]


def check(answer: TopK, scores: Scores, k: int, allowed: NDArray[np.int64] | None = None) -> None:
    expected_scores, expected_ids = brute_force(scores, k, allowed)
    n_rows, n_candidates = len(scores), scores.shape[1] if allowed is None else len(allowed)
    assert answer.ids.shape == answer.scores.shape == (n_rows, min(k, n_candidates))
    assert answer.ids.tolist() == expected_ids.tolist()
    assert answer.scores.tolist() == expected_scores.tolist()
    assert answer.scores.dtype == np.float32
    assert answer.ids.dtype == np.int64
    assert answer.n_scored.dtype == np.int64
    assert answer.n_scored.tolist() == [n_candidates] * n_rows
    assert answer.certified_by.tolist() == ["scan"] * n_rows


def random_log_probs(
    mapping: LabelMapping, n_rows: int, seed: int, style: str = "normal"
) -> list[Scores]:
    """One array (B, q_i) a site: spread, with many ties, with -inf, or normalised."""
    rng = np.random.default_rng(seed)
    arrays = []
    for size in mapping.alphabet_sizes:
        values = rng.normal(size=(n_rows, size))
        if style == "ties":
            values = rng.integers(-2, 1, (n_rows, size)).astype(float)
        elif style == "equal":
            values = np.zeros((n_rows, size))
        elif style == "-inf":
            values = np.round(values)
            values[rng.random((n_rows, size)) < 0.5] = -np.inf
        elif style == "log-softmax":
            values = 4 * values
            values -= np.log(np.exp(values).sum(axis=1, keepdims=True))
        arrays.append(values)
    return arrays


styles = st.sampled_from(["ties", "normal", "-inf", "log-softmax", "equal"])
seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(any_mapping(max_classes=250), st.data())
def test_decode_equals_brute_force(mapping: LabelMapping, data: st.DataObject) -> None:
    n_classes = mapping.n_classes
    style, seed = data.draw(styles, "style"), data.draw(seeds, "seed")
    rng = np.random.default_rng(seed)
    n_rows = data.draw(st.sampled_from([1, 3, 0, 2]), "rows")
    arrays = random_log_probs(mapping, n_rows, seed, style)
    k = data.draw(st.sampled_from([1, 2, 5, n_classes, n_classes + 1, 10 * n_classes]), "k")

    sites = None
    if data.draw(st.booleans(), "with sites"):
        order = data.draw(st.permutations(range(mapping.n_sites)), "sites")
        sites = order[: data.draw(st.integers(mapping.dimension, mapping.n_sites), "present")]
        arrays = [arrays[site] for site in sites]

    prior: Scores | None = None
    if data.draw(st.booleans(), "with prior"):
        prior = rng.integers(-3, 3, n_classes).astype(float)
        prior[rng.random(n_classes) < 0.1] = -np.inf
    as_function = data.draw(st.booleans(), "prior as a function")
    argument: Any = prior.__getitem__ if as_function and prior is not None else prior

    allowed, bitmap = None, None
    if data.draw(st.booleans(), "with allowed"):
        bitmap = rng.random(n_classes) < 0.4
        bitmap[rng.integers(n_classes)] = True
        allowed = np.flatnonzero(bitmap)
    as_bitmap = data.draw(st.booleans(), "allowed as a bitmap")

    answer = decode_topk(
        mapping,
        arrays,
        k,
        sites=sites,
        prior=argument,
        allowed=bitmap if as_bitmap else allowed,
    )
    check(answer, all_scores(mapping, arrays, sites, prior), k, allowed)


@pytest.mark.parametrize(
    "mapping",
    [MixedMapping(40, [7, 11, 13]), SimplexMapping(27, 3, dimension=3), EcocMapping(40)],
    ids=repr,
)
@pytest.mark.parametrize("style", ["ties", "-inf"])
@pytest.mark.parametrize("restricted", [False, True])
def test_the_block_makes_no_difference(
    mapping: LabelMapping, style: str, restricted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_classes = mapping.n_classes
    arrays = random_log_probs(mapping, 4, seed=3, style=style)
    prior: Scores = -(np.arange(n_classes, dtype=np.float64) % 3)
    allowed = np.arange(n_classes - 1, -1, -3)[::-1] if restricted else None
    scores = all_scores(mapping, arrays, prior=prior)
    seen: list[int] = []

    def function(ids: NDArray[np.int64]) -> Scores:
        seen.append(ids.size)
        return prior[ids]

    n_candidates = n_classes if allowed is None else allowed.size
    monkeypatch.setattr(problem, "FEW_FOR_A_TABLE", 0)
    for block in (1, 7, n_candidates - 1, n_candidates, n_candidates + 1):
        monkeypatch.setattr(exhaustive, "BLOCK", block)
        for k in (1, 6, n_classes):
            seen.clear()
            answer = decode_topk(mapping, arrays, k, prior=function, allowed=allowed)
            check(answer, scores, k, allowed)
            assert sum(seen) == n_candidates
            assert max(seen) == min(block, n_candidates)


def test_ties_go_to_the_lower_id_in_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = random_log_probs(MIXED, 3, seed=0, style="equal")
    for block in (13, 999, 8192):
        monkeypatch.setattr(exhaustive, "BLOCK", block)
        assert decode_topk(MIXED, arrays, 4).ids.tolist() == [[0, 1, 2, 3]] * 3
        barred = decode_topk(MIXED, [a - np.inf for a in arrays], 4)
        assert barred.ids.tolist() == [[0, 1, 2, 3]] * 3
        assert (barred.scores == -np.inf).all()


@pytest.mark.parametrize("n_threads", [1, 2, 5, 100])
def test_the_number_of_threads_makes_no_difference(
    n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "NUMBA_NUM_THREADS", n_threads)
    monkeypatch.setattr(exhaustive, "BLOCK", 400)
    for n_rows in (0, 1, 2, 7, 64):
        arrays = random_log_probs(MIXED, n_rows, seed=2, style="ties")
        check(decode_topk(MIXED, arrays, 6), all_scores(MIXED, arrays), 6)


@pytest.mark.parametrize("n_threads", [1, 3, 8])
def test_every_row_is_worked_on_once(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "NUMBA_NUM_THREADS", n_threads)
    for n_rows in (0, 1, 2, 3, 7, 8, 9, 100):
        slices: list[slice] = []
        exhaustive.for_rows(n_rows, slices.append)
        rows = [row for part in slices for row in range(n_rows)[part]]
        assert sorted(rows) == list(range(n_rows))
        assert len(slices) == max(1, min(n_threads, n_rows))


def test_an_error_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "NUMBA_NUM_THREADS", 3)

    def work(rows: slice) -> None:
        if rows.start > 0:
            raise ZeroDivisionError(rows.start)

    with pytest.raises(ZeroDivisionError, match="1"):
        exhaustive.for_rows(3, work)


def test_decoding_leaves_torchs_threads_alone() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            decode_topk(MIXED, random_log_probs(MIXED, 8, seed=1), 2)
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)


def test_the_papers_rule_finds_the_class_whose_symbols_all_sites_favour() -> None:
    mapping = SimplexMapping(20901, 4, field_order=181)
    ids = [0, 180, 181, 20900, 12345]
    arrays = [np.log(np.full((5, 181), 1 / 362)) for _ in range(4)]
    for row, word in enumerate(mapping.encode(ids)):
        for site, symbol in enumerate(word):
            arrays[site][row, symbol] = np.log(1 / 2)
    answer = decode_topk(mapping, arrays, 2)
    assert answer.ids[:, 0].tolist() == ids
    np.testing.assert_allclose(answer.scores[:, 0], 4 * np.log(1 / 2), rtol=1e-6)
    # Another class shares one symbol at most.
    second = np.log(1 / 2) + 3 * np.log(1 / 362)
    np.testing.assert_allclose(answer.scores[:, 1], second, rtol=1e-6)


# --- what may be handed in


@kinds
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, ">f4"])
def test_numpy_floats_of_any_width(mapping: LabelMapping, dtype: Any) -> None:
    arrays = [a.astype(dtype) for a in random_log_probs(mapping, 3, seed=4)]
    # As the array really holds them; float64 has every value but longdouble's.
    held = [a.astype(np.float64) for a in arrays]
    check(decode_topk(mapping, arrays, 7), all_scores(mapping, held), 7)


@kinds
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_torch_tensors_of_any_float_type(mapping: LabelMapping, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    arrays = random_log_probs(mapping, 3, seed=5)
    tensors = [torch.from_numpy(a).to(getattr(torch, dtype)).requires_grad_() for a in arrays]
    held = [t.detach().double().numpy() for t in tensors]
    check(decode_topk(mapping, tensors, 7), all_scores(mapping, held), 7)
    # The type has rounded them, so a cast elsewhere would show.
    assert (dtype == "float64") == all(map(np.array_equal, held, arrays))


def test_lists_strided_and_read_only_arrays() -> None:
    arrays = random_log_probs(MIXED, 4, seed=6)
    scores = all_scores(MIXED, arrays)
    check(decode_topk(MIXED, [a.tolist() for a in arrays], 3), scores, 3)
    check(decode_topk(MIXED, [np.asfortranarray(a) for a in arrays], 3), scores, 3)
    doubled = [np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)[::2, ::3] for a in arrays]
    for a in doubled:
        a.flags.writeable = False
    check(decode_topk(MIXED, tuple(doubled), 3), scores, 3)


def test_one_stacked_array_serves_where_alphabets_are_equal() -> None:
    mapping = SimplexMapping(100, 3)
    arrays = random_log_probs(mapping, 4, seed=7)
    check(decode_topk(mapping, np.stack(arrays), 3), all_scores(mapping, arrays), 3)  # type: ignore[arg-type]


def test_allowed_of_any_integer_type() -> None:
    arrays = random_log_probs(MIXED, 2, seed=8)
    ids = np.array([3, 77, 100, 101, 999])
    scores = all_scores(MIXED, arrays)
    for allowed in (ids.tolist(), ids.astype(np.uint16), ids.astype(np.uint64), tuple(ids)):
        check(decode_topk(MIXED, arrays, 9, allowed=allowed), scores, 9, ids)
    bitmap = np.isin(np.arange(1000), ids)
    check(decode_topk(MIXED, arrays, 2, allowed=bitmap.tolist()), scores, 2, ids)
    check(decode_topk(MIXED, arrays, 2, allowed=[5]), scores, 2, np.array([5]))


def test_priors_of_any_number_type() -> None:
    arrays = random_log_probs(MIXED, 2, seed=9)
    counts = np.arange(1000) % 7
    scores = all_scores(MIXED, arrays, prior=counts.astype(float))
    makers: list[Callable[[], Any]] = [
        lambda: counts,
        lambda: counts.astype(np.float32),
        counts.tolist,
        lambda: lambda ids: ids % 7,
        lambda: lambda ids: (ids % 7).tolist(),
    ]
    for make in makers:
        check(decode_topk(MIXED, arrays, 5, prior=make()), scores, 5)


def test_a_prior_function_sees_only_the_allowed_classes() -> None:
    arrays = random_log_probs(MIXED, 2, seed=10)
    seen: list[int] = []

    def prior(ids: NDArray[np.int64]) -> Scores:
        assert ids.dtype == np.int64
        seen.extend(ids.tolist())
        return np.zeros(ids.size)

    decode_topk(MIXED, arrays, 1, prior=prior, allowed=[4, 8, 500])
    assert seen == [4, 8, 500]


@kinds
def test_the_inputs_are_not_modified(mapping: LabelMapping) -> None:
    arrays = random_log_probs(mapping, 3, seed=11, style="-inf")
    prior = np.arange(mapping.n_classes, dtype=float)
    allowed = np.arange(0, mapping.n_classes, 2)
    inputs = [*arrays, prior, allowed]
    before = [a.copy() for a in inputs]
    answer = decode_topk(mapping, arrays, 5, prior=prior, allowed=allowed)
    for a, b in zip(inputs, before, strict=True):
        assert np.array_equal(a, b)
    # And the answer is no view of them.
    answer.ids[:] = -7
    answer.scores[:] = 7
    assert all(np.array_equal(a, b) for a, b in zip(inputs, before, strict=True))


def test_k_may_be_any_integer_type_and_any_size() -> None:
    arrays = random_log_probs(MIXED, 1, seed=12)
    scores = all_scores(MIXED, arrays)
    for k in (np.int8(3), np.uint64(3), np.array(3)):
        check(decode_topk(MIXED, arrays, k), scores, 3)  # type: ignore[arg-type]
    check(decode_topk(MIXED, arrays, 10**30), scores, 1000)


def test_the_answer_is_a_named_tuple_in_the_documented_order() -> None:
    scores, ids, n_scored, certified_by = decode_topk(MIXED, random_log_probs(MIXED, 2, 0), 3)
    assert TopK._fields == ("scores", "ids", "n_scored", "certified_by")
    assert (scores.shape, ids.shape) == ((2, 3), (2, 3))
    assert n_scored.shape == certified_by.shape == (2,)


def test_sums_are_made_in_float64() -> None:
    # In float32 the small differences would drown: 2^24 + 1 is not a float32.
    mapping = MixedMapping(143, [11, 13, 17])
    arrays = [np.zeros((1, q)) for q in mapping.alphabet_sizes]
    arrays[0] -= 2.0**24
    arrays[1][0, 5] = 0.25
    arrays[2] += 2.0**24
    answer = decode_topk(mapping, arrays, 1)
    assert answer.scores.tolist() == [[0.25]]
    assert answer.ids.tolist() == [[5]]


def test_sums_below_float32_come_back_as_minus_infinity_in_order() -> None:
    # Logits masked with the lowest float32 overflow it as soon as two are added.
    mapping = MixedMapping(143, [11, 13])
    lowest = np.finfo(np.float32).min
    arrays = [np.full((1, q), lowest, np.float32) for q in mapping.alphabet_sizes]
    arrays[0][0, 3] = 0
    answer = decode_topk(mapping, arrays, 14)
    run = mapping.classes_with(0, 3).tolist()
    assert answer.ids.tolist() == [[*run, 0]]
    assert answer.scores.tolist() == [[float(lowest)] * 13 + [-np.inf]]


@pytest.mark.parametrize("searched", [True, False])
def test_memory_is_that_of_a_block(searched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "FEW_FOR_A_TABLE", 0)
    prior = None if searched else lambda ids: np.zeros(ids.size)
    mapping = MixedMapping(3 * 10**6, n_sites=3)
    arrays = random_log_probs(mapping, 1, seed=13)
    decode_topk(mapping, arrays, 5)  # compiles outside the count
    decode_topk(mapping, arrays, 5, allowed=[1, 2])
    tracemalloc.start()
    try:
        answer = decode_topk(mapping, arrays, 5, prior=prior)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.n_scored[0] < 10**4) == searched
    assert answer.certified_by[0] == ("bound" if searched else "scan")
    assert peak < 3 * 2**20  # one float64 a class would be 23 MiB
    best = mapping.encode(answer.ids[0])
    sums = [sum(a[0, s] for a, s in zip(arrays, word, strict=True)) for word in best]
    np.testing.assert_allclose(answer.scores[0], sums, rtol=1e-6)


# --- refusals


def broken(site: int, row: int, symbol: int, value: float) -> list[Scores]:
    arrays = random_log_probs(MIXED, 3, seed=14)
    arrays[site][row, symbol] = value
    return arrays


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_plus_inf_are_refused_with_site_and_row(value: float) -> None:
    text = f"site 2, row 1, symbol 30 is {value}"
    arrays = broken(2, 1, 30, value)
    with pytest.raises(ArgumentError, match=rf"site_log_probs must not be NaN or \+inf: {text}$"):
        decode_topk(MIXED, arrays, 1)
    # The site is the mapping's, not the place in the list.
    with pytest.raises(ArgumentError, match=text):
        decode_topk(MIXED, [arrays[3], arrays[2]], 1, sites=[3, 2])
    half = [a.astype(np.float16) for a in arrays]
    with pytest.raises(ArgumentError, match=text):
        decode_topk(MIXED, half, 1)


def test_the_first_bad_value_is_named() -> None:
    arrays = broken(1, 2, 3, np.nan)
    arrays[1][1, 36] = np.inf
    arrays[3][0, 0] = np.nan
    with pytest.raises(ArgumentError, match="site 1, row 1, symbol 36 is inf"):
        decode_topk(MIXED, arrays, 1)


def shapes(*changes: tuple[int, tuple[int, ...]]) -> list[Scores]:
    arrays = random_log_probs(MIXED, 3, seed=15)
    for site, shape in changes:
        arrays[site] = np.zeros(shape)
    return arrays


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (shapes((1, (3, 36))), "site 1 must have shape (3, 37), got (3, 36)"),
        (shapes((1, (3, 38))), "site 1 must have shape (3, 37), got (3, 38)"),
        (shapes((2, (2, 41))), "site 2 must have shape (3, 41), got (2, 41)"),
        (shapes((0, (1, 31))), "site 1 must have shape (1, 37), got (3, 37)"),
        (shapes((0, (31,))), "site 0 must have shape"),
        (shapes((0, ())), "site 0 must have shape"),
        (shapes((3, (3, 1, 43))), "site 3 must have shape (3, 43), got (3, 1, 43)"),
        (shapes()[:3], "one array for each of 4 sites, got 3"),
        (shapes() * 2, "one array for each of 4 sites, got 8"),
        ([], "one array for each of 4 sites, got 0"),
    ],
)
def test_wrong_shapes_are_refused(arrays: list[Scores], text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        decode_topk(MIXED, arrays, 1)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("sites", "kind", "text"),
    [
        ([1], ArgumentError, "at least 2 sites (the dimension of the code), got 1"),
        ([], ArgumentError, "sites must not be empty"),
        ([0, 4], ArgumentError, "sites must lie in 0..3, got 4"),
        ([0, -1], ArgumentError, "sites[1] must be at least 0, got -1"),
        ([2, 2], ArgumentError, "sites must be different from each other, got [2, 2]"),
        ([0, 1.0], ArgumentTypeError, "sites[1] must be an integer, got 1.0"),
        (3, ArgumentTypeError, "sites must be a sequence of integers, got 3"),
        ([0, 1, 2], ArgumentError, "one array for each of 3 sites, got 4"),
        ([1, 0, 2, 3], ArgumentError, "site 1 must have shape (3, 37), got (3, 31)"),
    ],
)
def test_bad_sites_are_refused(sites: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as error:
        decode_topk(MIXED, shapes(), 1, sites=sites)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("k", "kind", "text"),
    [
        (0, ArgumentError, "k must be at least 1, got 0"),
        (-1, ArgumentError, "k must be at least 1, got -1"),
        (2.5, ArgumentTypeError, "k must be an integer, got 2.5"),
        (2.0, ArgumentTypeError, "k must be an integer, got 2.0"),
        (True, ArgumentTypeError, "k must be an integer, got the bool True"),
        ("3", ArgumentTypeError, "k must be an integer, got '3'"),
        (None, ArgumentTypeError, "k must be an integer, got None"),
        (np.nan, ArgumentTypeError, "k must be an integer, got nan"),
    ],
)
def test_bad_k_is_refused(k: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as error:
        decode_topk(MIXED, shapes(), k)
    assert text in str(error.value)
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    ("allowed", "kind", "text"),
    [
        ([], ArgumentError, "allowed must be a non-empty one-dimensional array"),
        (np.zeros((1, 3), int), ArgumentError, "got shape (1, 3)"),
        (5, ArgumentError, "got shape ()"),
        ([3, 2], ArgumentError, "ascending ids without repeats: allowed[1] is 2 after 3"),
        ([1, 4, 4], ArgumentError, "ascending ids without repeats: allowed[2] is 4 after 4"),
        ([0, 1000], ArgumentError, "allowed must lie in 0..999"),
        ([-1, 5], ArgumentError, "allowed[0] is -1"),
        ([0.0, 1.0], ArgumentTypeError, "allowed must be integers, got an array of float64"),
        (["a"], ArgumentTypeError, "allowed must be integers"),
        (np.ones(999, bool), ArgumentError, "one flag a class, 1000; got 999"),
        (np.zeros(1000, bool), ArgumentError, "at least one class, all flags are False"),
    ],
)
def test_bad_allowed_is_refused(allowed: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as error:
        decode_topk(MIXED, shapes(), 1, allowed=allowed)
    assert text in str(error.value)


def prior_with(value: float) -> Scores:
    prior = np.zeros(1000)
    prior[7] = value
    return prior


@pytest.mark.parametrize(
    ("prior", "text"),
    [
        (np.zeros(999), "prior must have shape (1000,), got (999,)"),
        (np.zeros((1, 1000)), "prior must have shape (1000,), got (1, 1000)"),
        (0.0, "prior must have shape (1000,), got ()"),
        (prior_with(np.nan), "prior must not be NaN or +inf: class 7 has nan"),
        (prior_with(np.inf), "prior must not be NaN or +inf: class 7 has inf"),
        (lambda ids: np.zeros(ids.size + 1), "prior must return shape (1000,), got (1001,)"),
        (lambda ids: 0.0, "prior must return shape (1000,), got ()"),
        (lambda ids: np.where(ids == 12, np.nan, 0.0), "class 12 has nan"),
    ],
)
def test_bad_priors_are_refused(prior: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        decode_topk(MIXED, shapes(), 1, prior=prior)
    assert text in str(error.value)


@pytest.mark.parametrize(
    "prior", [["a"] * 1000, np.zeros(1000, complex), lambda ids: [None] * len(ids)]
)
def test_priors_that_are_no_numbers_are_refused(prior: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="prior must be real numbers, got an array of"):
        decode_topk(MIXED, shapes(), 1, prior=prior)


def taken(values: torch.Tensor, ids: NDArray[np.int64]) -> Any:
    return values[torch.as_tensor(ids)]


def test_a_prior_function_may_return_tensors() -> None:
    weights = torch.linspace(-1, 0, 1000, requires_grad=True)
    for dtype in (torch.float32, torch.bfloat16):
        tensor = weights.to(dtype)
        found = decode_topk(MIXED, shapes(), 5, prior=partial(taken, tensor))
        wanted = decode_topk(MIXED, shapes(), 5, prior=tensor.detach().double().numpy())
        assert found.ids.tolist() == wanted.ids.tolist()


@pytest.mark.parametrize("change", [np.asarray("a"), np.asarray(1j), np.asarray(None)])
def test_log_probs_that_are_no_numbers_are_refused(change: NDArray[Any]) -> None:
    arrays: list[Any] = shapes()
    arrays[1] = np.broadcast_to(change, arrays[1].shape)
    with pytest.raises(ArgumentTypeError, match="site_log_probs of site 1 must be real numbers"):
        decode_topk(MIXED, arrays, 1)


def test_a_bad_prior_is_named_by_class_in_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "BLOCK", 5)
    with pytest.raises(ArgumentError, match="class 7 has nan"):
        decode_topk(MIXED, shapes(), 1, prior=prior_with(np.nan))


def test_an_error_of_the_prior_function_passes_through() -> None:
    def prior(ids: NDArray[np.int64]) -> Scores:
        raise KeyError("no such table")

    with pytest.raises(KeyError, match="no such table"):
        decode_topk(MIXED, shapes(), 1, prior=prior)
