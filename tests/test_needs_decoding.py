"""NEEDS.md, the rows about decoding. Each test is named after its row."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from labelmapping import LabelMapping, MixedMapping, SimplexMapping, decode_topk

MODULI = [7, 11, 13]


def log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_probs


def some_log_probs(mapping: LabelMapping, n_rows: int) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(10)
    return [log_softmax(rng.normal(size=(n_rows, q))) for q in mapping.alphabet_sizes]


@pytest.mark.parametrize("k", [3, 4, 10])
def test_N10_more_than_all_classes_are_all_classes_in_order(k: int) -> None:
    mapping = MixedMapping(3, MODULI, dimension=2)
    log_probs = some_log_probs(mapping, 20)
    answer = decode_topk(mapping, log_probs, k)
    assert answer.ids.shape == answer.scores.shape == (20, 3)
    assert (np.sort(answer.ids, axis=1) == [0, 1, 2]).all()  # none beyond, none twice
    assert (np.diff(answer.scores, axis=1) <= 0).all()


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_N10_a_k_that_is_no_count_is_a_value_error(k: Any) -> None:
    mapping = MixedMapping(3, MODULI, dimension=2)
    with pytest.raises(ValueError, match=rf"k must be .*got {k}"):
        decode_topk(mapping, some_log_probs(mapping, 1), k)


@pytest.mark.parametrize("n_rows", [1, 64])
@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_N11_equal_scores_go_to_the_lowest_ids(n_rows: int, k: int, dtype: Any) -> None:
    for mapping in (
        MixedMapping(1000, MODULI),
        MixedMapping(1000, n_sites=4),
        SimplexMapping(1000, 4),
    ):
        uniform = [np.full((n_rows, q), -np.log(q), dtype) for q in mapping.alphabet_sizes]
        answer = decode_topk(mapping, uniform, k)
        assert answer.ids.tolist() == [list(range(k))] * n_rows
        assert np.unique(answer.scores).size == 1


def test_N11_torch_tensors_give_the_same_order() -> None:
    torch = pytest.importorskip("torch")
    mapping = MixedMapping(1000, MODULI)
    uniform = [torch.zeros(64, q).log_softmax(1) for q in MODULI]
    assert decode_topk(mapping, uniform, 5).ids.tolist() == [[0, 1, 2, 3, 4]] * 64


def test_N13_each_site_is_normalised_on_its_own() -> None:
    mapping = MixedMapping(77, [7, 11])
    logits = [np.zeros((1, 7)), np.full((1, 11), 10.0)]
    log_probs = [log_softmax(site) for site in logits]
    answer = decode_topk(mapping, log_probs, 77)
    np.testing.assert_allclose(answer.scores, np.log(1 / 7) + np.log(1 / 11), rtol=1e-6)
    assert answer.ids.tolist() == [list(range(77))]


def test_N13_a_constant_added_to_a_site_changes_no_ranking() -> None:
    mapping = MixedMapping(77, [7, 11])
    log_probs = some_log_probs(mapping, 8)
    shifted = [log_probs[0], log_probs[1] + 10.0]
    plain, moved = decode_topk(mapping, log_probs, 77), decode_topk(mapping, shifted, 77)
    assert plain.ids.tolist() == moved.ids.tolist()
    np.testing.assert_allclose(moved.scores, plain.scores + 10.0, rtol=1e-5)


@pytest.mark.parametrize("kind", ["numpy float16", "torch float16", "torch bfloat16"])
def test_N58_half_precision_log_probs_are_summed_in_better(kind: str) -> None:
    # Class 1 has symbol 1 at all 40 sites, class 0 has symbol 0.
    mapping = SimplexMapping(2, 40, field_order=41)
    log_probs: list[Any] = [np.full((1, 41), -20.0) for _ in range(40)]
    log_probs[23][0, 1] = -19.9
    half = [p.astype(np.float16) for p in log_probs]
    sums = [np.float16(0), np.float16(0)]
    for p in half:
        sums = [sums[0] + p[0, 0], sums[1] + p[0, 1]]
    assert sums[0] == sums[1] == -800  # the trap: a sum in half precision loses the winner
    if kind == "numpy float16":
        log_probs, winner = half, float(np.float16(-19.9))
    else:
        torch = pytest.importorskip("torch")
        dtype = getattr(torch, kind.removeprefix("torch "))
        log_probs = [torch.from_numpy(p).to(dtype) for p in log_probs]
        winner = log_probs[23][0, 1].item()
    answer = decode_topk(mapping, log_probs, 2)
    assert answer.ids.tolist() == [[1, 0]]
    assert answer.scores.tolist() == [[np.float32(39 * -20 + winner), -800.0]]


def test_N58_half_precision_scores_are_finite() -> None:
    mapping = MixedMapping(1000, MODULI)
    log_probs = []
    for q in MODULI:
        logits = np.full((1, q), 3.0)
        logits[0, 0] = 12.0
        log_probs.append(log_softmax(logits).astype(np.float16))
    answer = decode_topk(mapping, log_probs, 1000)
    assert np.isfinite(answer.scores).all()
    assert answer.ids[0, 0] == 0
    assert 0 < np.exp(answer.scores.astype(np.float64)).max() <= 1


def test_N60_an_impossible_class_has_score_minus_infinity_and_no_nan() -> None:
    mapping = MixedMapping(1000, n_sites=3)
    log_probs = some_log_probs(mapping, 2)
    log_probs[1][:, 0] = -np.inf
    answer = decode_topk(mapping, log_probs, 1000)
    impossible = set(mapping.classes_with(1, 0).tolist())
    for ids, scores in zip(answer.ids.tolist(), answer.scores.tolist(), strict=True):
        assert {x for x, s in zip(ids, scores, strict=True) if s == -np.inf} == impossible
        assert ids[-len(impossible) :] == sorted(impossible)
    assert not np.isnan(answer.scores).any()


def test_N60_where_all_classes_are_impossible_the_lowest_ids_come_with_minus_infinity() -> None:
    mapping = MixedMapping(100, n_sites=3)
    log_probs = some_log_probs(mapping, 2)
    log_probs[2][1] = -np.inf
    answer = decode_topk(mapping, log_probs, 3)
    assert np.isfinite(answer.scores[0]).all()
    assert answer.ids[1].tolist() == [0, 1, 2]
    assert answer.scores[1].tolist() == [-np.inf] * 3
