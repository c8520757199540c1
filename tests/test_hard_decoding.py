"""Nearest codewords, loss-based decoding, and the sum over valid codewords."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from labelmapping import (
    EcocMapping,
    LabelMapping,
    MixedMapping,
    SimplexMapping,
    decode_symbols,
    decode_topk,
    log_partition,
)
from labelmapping.decoding import margin_scores
from labelmapping.errors import ArgumentError, ArgumentTypeError

from .test_decoding import all_scores, random_log_probs

CODES: list[LabelMapping] = [
    MixedMapping(500, [23, 29, 31, 37, 41]),
    SimplexMapping(500, 6, field_order=23),
    SimplexMapping(300, 5, field_order=7, dimension=3),
    EcocMapping(100),
]


@pytest.mark.parametrize("mapping", CODES, ids=repr)
def test_the_nearest_codewords_by_brute_force(mapping: LabelMapping) -> None:
    rng = np.random.default_rng(0)
    symbols = np.stack([rng.integers(0, q, 40) for q in mapping.alphabet_sizes], axis=1)
    table = mapping.encode(np.arange(mapping.n_classes))
    distances = (symbols[:, None] != table[None]).sum(axis=2)
    order = np.argsort(distances, axis=1, kind="stable")[:, :3]
    found = decode_symbols(mapping, symbols, k=3)
    assert found.ids.tolist() == order.tolist()
    assert found.distances.tolist() == np.take_along_axis(distances, order, 1).tolist()


@pytest.mark.parametrize("mapping", CODES[:3], ids=repr)
def test_every_correctable_pattern_is_corrected(mapping: LabelMapping) -> None:
    """All erasure patterns, and errors up to half of the distance that is left."""
    rng = np.random.default_rng(1)
    for n_erased in range(mapping.min_distance):
        n_errors = (mapping.min_distance - 1 - n_erased) // 2
        for erased in combinations(range(mapping.n_sites), n_erased):
            left = [site for site in range(mapping.n_sites) if site not in erased]
            ids = rng.integers(0, mapping.n_classes, 5)
            symbols = mapping.encode(ids)
            for row in range(5):
                for site in rng.permutation(left)[:n_errors]:
                    size = mapping.alphabet_sizes[site]
                    symbols[row, site] = (symbols[row, site] + rng.integers(1, size)) % size
            gone = np.isin(np.arange(mapping.n_sites), erased)
            symbols[:, gone] = 10**6  # not looked at
            found = decode_symbols(mapping, symbols, erased=gone)
            assert found.ids[:, 0].tolist() == ids.tolist()
            assert found.distances[:, 0].tolist() == [n_errors] * 5
            assert found.certain.all()


def test_rows_may_have_different_erasures() -> None:
    mapping = CODES[0]
    symbols = mapping.encode([3, 400, 77])
    erased = np.zeros((3, 5), bool)
    erased[0, :3] = erased[2, 4] = True
    found = decode_symbols(mapping, symbols, erased=erased)
    assert found.ids[:, 0].tolist() == [3, 400, 77]
    assert found.certain.tolist() == [True, True, True]
    symbols[0, 3] = (symbols[0, 3] + 1) % 37
    wrong = decode_symbols(mapping, symbols, erased=erased)
    assert not wrong.certain[0] or wrong.distances[0, 0] == 0


def test_a_hundred_million_classes() -> None:
    mapping = MixedMapping(10**8, n_sites=7)
    symbols = mapping.encode([123_456_789 % 10**8, 5])
    symbols[0, [1, 4]] = 0
    symbols[1, [0, 6]] = 17
    found = decode_symbols(mapping, symbols)
    assert found.ids[:, 0].tolist() == [123_456_789 % 10**8, 5]
    assert found.certain.all()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"symbols": [1, 2, 3]}, ArgumentError, r"symbols must have shape \(B, 5\)"),
        ({"symbols": [[1, 2, 31, 3, 4]]}, ArgumentError, r"site 2 .* in row 0 it is 31"),
        ({"symbols": [[1.0, 2, 3, 4, 5]]}, ArgumentTypeError, "symbols of site 0 must be integers"),
        ({"erased": [True] * 4}, ArgumentError, r"erased must be bools of shape \(5,\)"),
        ({"erased": [1, 0, 0, 0, 0]}, ArgumentError, "erased must be bools"),
        ({"erased": [True] * 4 + [False]}, ArgumentError, "at least 2 sites .* row 0 has 1"),
        ({"k": 0}, ArgumentError, "k must be at least 1"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"symbols": [[1, 2, 3, 4, 5]]} | changes
    with pytest.raises(error, match=message):
        decode_symbols(CODES[0], **arguments)


def test_a_wrong_symbol_is_found_by_its_row() -> None:
    mapping = CODES[0]
    symbols = mapping.encode([5, 7, 9])
    erased = np.zeros(symbols.shape, bool)
    erased[0, 0] = True
    symbols[0, 0] = 999  # not looked at
    assert decode_symbols(mapping, symbols, erased=erased).ids[:, 0].tolist() == [5, 7, 9]
    symbols[1, 0] = -1
    with pytest.raises(ArgumentError, match=r"site 0 must lie in 0\..*in row 1 it is -1"):
        decode_symbols(mapping, symbols, erased=erased)


def test_no_rows_have_no_answers() -> None:
    for dtype in (np.int64, np.float64):
        found = decode_symbols(CODES[0], np.empty((0, 5), dtype), k=2)
        assert found.ids.shape == (0, 2)


def test_too_few_sites_says_how_many_classes_share_an_answer() -> None:
    arrays = random_log_probs(CODES[0], 1, 0)[:1]
    with pytest.raises(ArgumentError, match="got 1: about 22 classes share each answer"):
        decode_topk(CODES[0], arrays, 1, sites=[0])


@pytest.mark.parametrize("loss", ["l1", "hinge", "exponential", "logistic"])
def test_losses_of_margins(loss: str) -> None:
    mapping = EcocMapping(100)
    margins = np.random.default_rng(2).uniform(-1, 1, (6, 7))
    signs = 2 * mapping.encode(np.arange(100)) - 1
    formulas: dict[str, Callable[[Any], Any]] = {
        "l1": lambda z: np.abs(1 - z) / 2,
        "hinge": lambda z: np.maximum(0, 1 - z),
        "exponential": lambda z: np.exp(-z),
        "logistic": lambda z: np.log(1 + np.exp(-2 * z)),
    }
    losses = formulas[loss](signs[None] * margins[:, None]).sum(axis=2)
    top = decode_topk(mapping, margin_scores(mapping, margins, loss), 4)
    assert top.ids.tolist() == np.argsort(losses, axis=1, kind="stable")[:, :4].tolist()
    np.testing.assert_allclose(-top.scores, np.sort(losses, axis=1)[:, :4], rtol=1e-6)


def test_bad_margins_are_refused() -> None:
    mapping = EcocMapping(100)
    with pytest.raises(ArgumentError, match="loss must be one of l1, hinge"):
        margin_scores(mapping, np.zeros((1, 7)), "squared")
    with pytest.raises(ArgumentError, match="mapping must be a binary code"):
        margin_scores(CODES[0], np.zeros((1, 5)))
    with pytest.raises(ArgumentError, match=r"margins must have shape \(B, 7\)"):
        margin_scores(mapping, np.zeros(7))
    with pytest.raises(ArgumentError, match=r"margins\[0, 3\] is 1.5"):
        margin_scores(mapping, [[0, 0, 0, 1.5, 0, 0, 0]], "l1")


def log_sum(scores: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, Any]:
    total: np.ndarray[Any, Any] = np.logaddexp.reduce(scores, axis=1)
    return total


@pytest.mark.parametrize("mapping", CODES, ids=repr)
@pytest.mark.parametrize("style", ["log-softmax", "-inf", "normal"])
def test_log_partition_is_exact(mapping: LabelMapping, style: str) -> None:
    arrays = random_log_probs(mapping, 5, 3, style)
    found = log_partition(mapping, arrays)
    expected = log_sum(all_scores(mapping, arrays))
    np.testing.assert_allclose(found.lower, expected, rtol=1e-12, atol=1e-14)
    assert (found.lower == found.upper).all()
    assert (found.seen == 1).all()
    if style == "log-softmax":
        assert (found.upper < 0).all()  # some probability is on codewords of no class


def test_log_partition_of_more_rows_than_are_scored_together() -> None:
    mapping = EcocMapping(50)
    arrays = random_log_probs(mapping, 600, 8, "log-softmax")
    expected = log_sum(all_scores(mapping, arrays))
    found = log_partition(mapping, arrays).lower
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_log_partition_with_sites_prior_and_candidates() -> None:
    mapping = CODES[0]
    arrays = random_log_probs(mapping, 3, 4, "log-softmax")
    prior = np.random.default_rng(0).normal(size=500)
    allowed = np.arange(3, 400, 7)
    found = log_partition(
        mapping, [arrays[i] for i in (4, 1)], sites=[4, 1], prior=prior, allowed=allowed
    )
    scores = all_scores(mapping, [arrays[i] for i in (4, 1)], [4, 1], prior)[:, allowed]
    np.testing.assert_allclose(found.lower, log_sum(scores), rtol=1e-12)


def test_a_tolerance_gives_an_interval_that_holds_the_sum() -> None:
    mapping = SimplexMapping(50_000, 4)
    arrays = random_log_probs(mapping, 4, 5, "log-softmax")
    words = mapping.encode([1, 2, 3, 4])
    for site, array in enumerate(arrays):
        array[[0, 1], words[:2, site]] = np.log(0.9)
    exact = log_partition(mapping, arrays).lower
    for tolerance in (0.5, 1e-2, 1e-9):
        found = log_partition(mapping, arrays, tolerance=tolerance)
        assert (found.lower <= exact + 1e-12).all()
        assert (found.upper >= exact - 1e-12).all()
        assert (found.upper - found.lower <= tolerance).all()
        assert ((found.seen > 0) & (found.seen <= 1)).all()
    loose = log_partition(mapping, arrays, tolerance=0.5)
    assert (loose.lower < loose.upper)[:2].all()  # by the search, not by the scan
    with pytest.raises(ArgumentError, match="tolerance must be positive"):
        log_partition(mapping, arrays, tolerance=0.0)


@pytest.mark.parametrize("shift", [1e39, -1e39])
def test_sums_beyond_float32_hold_too(shift: float) -> None:
    mapping = MixedMapping(140_000, n_sites=4)
    arrays = [np.zeros((1, q)) for q in mapping.alphabet_sizes]
    arrays[0] += shift
    found = log_partition(mapping, arrays, tolerance=1e-3)
    assert found.lower[0] == found.upper[0] == shift  # log N is below its last digit
    assert found.seen.tolist() == [1.0]


def test_top_k_probabilities_sum_to_one_over_all_classes() -> None:
    mapping = CODES[1]
    arrays = random_log_probs(mapping, 2, 6, "log-softmax")
    top = decode_topk(mapping, arrays, mapping.n_classes)
    probabilities = np.exp(top.scores - log_partition(mapping, arrays).upper[:, None])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_nothing_possible_is_minus_infinity() -> None:
    arrays = [np.full((1, q), -np.inf) for q in CODES[0].alphabet_sizes]
    found = log_partition(CODES[0], arrays, tolerance=0.1)
    assert found.upper.tolist() == [-np.inf]
