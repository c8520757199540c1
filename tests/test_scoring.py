"""`scoring.evaluate`: streaming figures against figures counted by hand over all rows at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from labelmapping import EcocMapping, LabelMapping, MixedMapping, SimplexMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.learners import Ensemble
from labelmapping.learners.recipe import LearnerNetwork
from labelmapping.nn import LabelMappingHead
from labelmapping.scoring import evaluate, log_probabilities


def ensemble_of(mapping: LabelMapping, seed: int = 0, scale: float = 3.0) -> Ensemble:
    """Untrained linear learners, one a site, with answers that differ."""
    torch.manual_seed(seed)
    networks = []
    for site in range(mapping.n_sites):
        head = LabelMappingHead(8, mapping, sites=[site])
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.mul_(scale)
        networks.append(((site,), LearnerNetwork(nn.Identity(), head)))
    return Ensemble(mapping, [str(n) for n in range(mapping.n_classes)], networks)


def all_scores(ensemble: Ensemble, inputs: Tensor) -> np.ndarray:
    """Scores (B, N), summed in float64 here."""
    ids = np.arange(ensemble.mapping.n_classes)
    total = np.zeros((len(inputs), len(ids)))
    for site, log_probs in zip(ensemble.sites, ensemble.site_log_probs(inputs), strict=True):
        symbols = ensemble.mapping.symbols_at(ids, site)
        found = log_probs.astype(np.float64)[:, np.maximum(symbols, 0)]
        total += np.where(symbols >= 0, found, np.log(0.5))
    return total


MAPPINGS = [
    SimplexMapping(50, 3, field_order=11),
    MixedMapping(60, (7, 11, 13)),
    EcocMapping(12, "one-versus-one"),
    MixedMapping.one_hot(20),
]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(MAPPINGS),
    st.integers(0, 1000),
    st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any),
)
def test_any_batches_give_what_all_rows_at_once_give(
    mapping: LabelMapping, seed: int, sizes: list[int]
) -> None:
    ensemble = ensemble_of(mapping, seed)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(sum(sizes), 8, generator=generator)
    ids = torch.randint(-1, mapping.n_classes, (sum(sizes),), generator=generator)
    parts = zip(torch.split(inputs, sizes), torch.split(ids, sizes), strict=True)
    found = evaluate(ensemble, parts, (1, 3))

    scores, truth = all_scores(ensemble, inputs), ids.numpy()
    known = truth >= 0
    log_probs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    order = np.argsort(-scores, axis=1, kind="stable")
    right = order == truth[:, None]
    assert found.rows == len(ids)
    assert found.unknown_rows == int((~known).sum())
    assert found.top == {1: right[:, :1].any(1).mean(), 3: right[:, :3].any(1).mean()}
    if known.any():
        assert found.log_loss == pytest.approx(-log_probs[known, truth[known]].mean(), abs=2e-4)
    assert sum(b.rows for b in found.bins) == len(ids)
    confidence = np.exp(log_probs.max(axis=1))
    mean = sum(b.rows * b.confidence for b in found.bins) / len(ids)
    assert mean == pytest.approx(confidence.mean(), abs=2e-4)
    bins = np.minimum(np.ceil(confidence * 15).astype(int) - 1, 14)
    at_edges = np.abs(confidence * 15 - np.round(confidence * 15)) < 1e-2
    if not at_edges.any():
        for b in found.bins:
            inside = bins == round(15 * b.upper) - 1
            assert b.rows == inside.sum()
            assert b.accuracy == pytest.approx(right[inside, 0].mean())
        error = sum(
            abs(right[bins == b, 0].mean() - confidence[bins == b].mean()) * (bins == b).mean()
            for b in np.unique(bins)
        )
        assert found.calibration_error == pytest.approx(error, abs=5e-4)
    for site, accuracy in zip(found.sites, found.site_accuracies, strict=True):
        symbols = mapping.symbols_at(truth[known], site)
        asked = symbols >= 0
        best = ensemble.site_log_probs(inputs[torch.from_numpy(known)])[site].argmax(axis=1)
        if asked.any():
            assert accuracy == pytest.approx((best == symbols)[asked].mean())
        else:
            assert np.isnan(accuracy)


def test_bins_hold_rows_by_the_probability_of_their_answer() -> None:
    ensemble = ensemble_of(MAPPINGS[3], scale=6)
    inputs = torch.randn(200, 8, generator=torch.Generator().manual_seed(1))
    scores = all_scores(ensemble, inputs)
    confidence = np.exp(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))).max(axis=1)
    found = evaluate(ensemble, [(inputs, torch.zeros(200, dtype=torch.int64))])
    for b in found.bins:
        inside = (confidence > b.upper - 1 / 15 + 1e-6) & (confidence <= b.upper - 1e-6)
        assert abs(int(inside.sum()) - b.rows) <= 1
    assert [b.upper for b in found.bins] == sorted(b.upper for b in found.bins)
    assert len(found.bins) > 5


def test_probabilities_of_all_classes_sum_to_one() -> None:
    ensemble = ensemble_of(MAPPINGS[0])
    inputs = torch.randn(4, 8)
    found = np.exp(
        log_probabilities(
            ensemble,
            ensemble.site_log_probs(inputs),
            all_scores(ensemble, inputs).astype(np.float32),
        )
    )
    assert np.allclose(found.sum(axis=1), 1, atol=1e-3)


def test_rows_of_no_class_are_left_out() -> None:
    ensemble = ensemble_of(MAPPINGS[0])
    inputs = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
    ids = torch.tensor([3, -100, 5, -100, -1, 9])
    found = evaluate(ensemble, [(inputs, ids)])
    assert found == evaluate(ensemble, [(inputs[ids != -100], ids[ids != -100])])
    assert (found.rows, found.unknown_rows) == (4, 1)


def test_without_calibration_nothing_is_summed_over_classes() -> None:
    ensemble = ensemble_of(MAPPINGS[0])
    found = evaluate(ensemble, [(torch.zeros(2, 8), torch.tensor([0, 1]))], (1,), calibration=False)
    assert found.log_loss is None
    assert found.calibration_error is None
    assert found.bins == []
    assert found.to_dict()["top"] == {"1": found.top[1]}


def test_what_is_no_finite_number_is_none_in_json() -> None:
    ensemble = ensemble_of(MAPPINGS[2])  # sites of one-versus-one abstain on most classes
    found = evaluate(ensemble, [(torch.zeros(1, 8), torch.tensor([0]))])
    assert any(np.isnan(found.site_accuracies))
    assert None in found.to_dict()["site_accuracies"]


PAIR = (torch.zeros(2, 8), torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("batches", "ks", "error", "words"),
    [
        ([], (1,), ArgumentError, "at least one row"),
        ([(torch.zeros(0, 8), torch.zeros(0, dtype=torch.int64))], (1,), ArgumentError, "row"),
        ([PAIR], (), ArgumentError, "ks"),
        ([PAIR], (0,), ArgumentError, "at least 1"),
        ([(PAIR[0], torch.tensor([0, 50]))], (1,), ArgumentError, r"-1\.\.49, got 0\.\.50"),
        ([(PAIR[0], torch.tensor([-2, 0]))], (1,), ArgumentError, r"got -2\.\.0"),
        ([(PAIR[0], torch.tensor([0.0, 1.0]))], (1,), ArgumentTypeError, "float32"),
        ([(PAIR[0], torch.tensor([0]))], (1,), ArgumentTypeError, "one a row"),
        ([PAIR[0]], (1,), ArgumentTypeError, "pairs"),
        ([(PAIR[0].numpy(), PAIR[1])], (1,), ArgumentTypeError, "ndarray"),
    ],
)
def test_bad_batches(
    batches: list[object], ks: tuple[int, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        evaluate(ensemble_of(MAPPINGS[0]), batches, ks)  # type: ignore[arg-type]
