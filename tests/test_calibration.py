"""`calibration.fit_temperature`: against a fine grid, and against answers whose scale is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labelmapping import LabelMapping, MixedMapping, SimplexMapping
from labelmapping.calibration import fit_temperature
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.learners import Ensemble
from labelmapping.scoring import evaluate

from .test_scoring import MAPPINGS, ensemble_of


def drawn(ensemble: Ensemble, temperature: float, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs, and classes drawn with the probabilities of the summed answers at a temperature."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 8, generator=generator)
    ids = np.arange(ensemble.mapping.n_classes)
    scores = np.zeros((rows, len(ids)))
    for site, log_probs in enumerate(ensemble.site_log_probs(inputs)):
        scores += log_probs[:, ensemble.mapping.symbols_at(ids, site)]
    chances = torch.softmax(torch.from_numpy(scores / temperature), dim=1)
    return inputs, torch.multinomial(chances, 1, generator=generator)[:, 0]


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(MAPPINGS), st.integers(0, 1000), st.integers(5, 60))
def test_no_temperature_of_a_grid_is_better(mapping: LabelMapping, seed: int, rows: int) -> None:
    ensemble = ensemble_of(mapping, seed)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 8, generator=generator)
    best = ensemble.topk(inputs, 1).ids[:, 0]
    ids = torch.randint(0, mapping.n_classes, (rows,), generator=generator)
    ids[::2] = torch.from_numpy(best)[::2]  # half right: neither end of the range is the best
    batches = [(inputs, ids)]
    found = fit_temperature(ensemble, batches)

    def loss(temperature: float) -> float:
        at = evaluate(ensemble.with_temperature(temperature), batches).log_loss
        assert at is not None
        return at

    assert found.log_loss == pytest.approx(loss(found.temperature), abs=2e-4)
    assert found.log_loss_at_1 == pytest.approx(loss(1.0), abs=2e-4)
    for temperature in np.geomspace(0.1, 100, 40):
        assert found.log_loss <= loss(float(temperature)) + 3e-4
    assert (found.rows, found.sites) == (rows, ensemble.sites)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_that_drew_the_classes_is_found(temperature: float) -> None:
    ensemble = ensemble_of(SimplexMapping(50, 3, field_order=11))
    batches = [drawn(ensemble, temperature, 4000, seed=1)]
    found = fit_temperature(ensemble, batches, None)
    assert found.rows == 4000
    assert found.temperature == pytest.approx(temperature, rel=0.1)
    # On other rows: the answers are as sure as they are right.
    others = [drawn(ensemble, temperature, 4000, seed=2)]
    warm = evaluate(ensemble.with_temperature(found.temperature), others)
    plain = evaluate(ensemble, others)
    assert warm.calibration_error is not None
    assert plain.calibration_error is not None
    assert warm.calibration_error < 0.03
    if temperature != 1:
        assert warm.calibration_error < plain.calibration_error
    assert warm.top == plain.top


def test_copies_of_one_learner_want_as_many_times_the_temperature() -> None:
    """Sites that say the same thing count it as often: the fault that this is for."""
    mapping = MixedMapping(20, (20, 21, 23))
    one = ensemble_of(MixedMapping.one_hot(20))
    inputs, classes = drawn(one, 1.0, 3000, seed=3)

    class Copied(Ensemble):
        """Three sites of wider alphabets whose first 20 symbols have one learner's log-probs."""

        def site_log_probs(self, inputs: Tensor, batch_size: int = 256) -> list[np.ndarray]:
            found = one.site_log_probs(inputs, batch_size)[0]
            never = np.full((len(found), 3), -60, np.float32)
            return [np.hstack([found, never[:, : size - 20]]) for size in (20, 21, 23)]

    copied = Copied(mapping, [str(n) for n in range(20)], [])
    copied.sites = (0, 1, 2)
    assert (mapping.encode(np.arange(20)) == np.arange(20)[:, None]).all()
    found = fit_temperature(copied, [(inputs, classes)], None)
    alone = fit_temperature(one, [(inputs, classes)], None)
    assert found.temperature == pytest.approx(3 * alone.temperature, rel=0.01)
    assert found.log_loss == pytest.approx(alone.log_loss, abs=1e-3)
    assert found.log_loss_at_1 > found.log_loss + 0.1


def test_an_ensemble_at_a_temperature_answers_everywhere_with_it() -> None:
    ensemble = ensemble_of(SimplexMapping(50, 3, field_order=11))
    inputs = torch.randn(7, 8, generator=torch.Generator().manual_seed(0))
    warm = ensemble.with_temperature(2.5)
    for plain, other in zip(
        ensemble.site_log_probs(inputs), warm.site_log_probs(inputs), strict=True
    ):
        expected = torch.log_softmax(torch.from_numpy(plain).double() / 2.5, dim=1)
        assert other.dtype == np.float32
        np.testing.assert_allclose(other, expected, atol=1e-6)
    cold, hot = ensemble.topk(inputs, 5), warm.topk(inputs, 5)
    np.testing.assert_array_equal(cold.ids, hot.ids)
    in_time, sites = warm.topk_within(inputs, 5, 60.0)
    assert sites == (0, 1, 2)
    np.testing.assert_allclose(in_time.scores, hot.scores)
    assert (ensemble.temperature, warm.temperature) == (1.0, 2.5)
    # Fitted is the whole temperature, whichever the ensemble has.
    batches = [(inputs, torch.from_numpy(cold.ids[:, 1].copy()))]
    assert fit_temperature(warm, batches) == fit_temperature(ensemble, batches)


def test_rows_without_a_class_are_left_out_and_rows_are_counted() -> None:
    ensemble = ensemble_of(SimplexMapping(50, 3, field_order=11))
    inputs, ids = drawn(ensemble, 1.0, 30, seed=4)
    mixed_in = ids.clone()
    mixed_in[::3] = -1
    mixed_in[1::3] = -100
    found = fit_temperature(
        ensemble, zip(torch.split(inputs, 7), torch.split(mixed_in, 7), strict=True)
    )
    same = fit_temperature(ensemble, [(inputs[2::3], ids[2::3])])
    assert found.rows == same.rows == 10
    # Products of other batches differ in their last bits.
    assert found.log_loss == pytest.approx(same.log_loss, abs=1e-5)
    few = fit_temperature(
        ensemble, zip(torch.split(inputs, 4), torch.split(ids, 4), strict=True), 6
    )
    same = fit_temperature(ensemble, [(inputs[:6], ids[:6])])
    assert few.rows == same.rows == 6
    assert few.log_loss == pytest.approx(same.log_loss, abs=1e-5)


def test_bad_questions() -> None:
    ensemble = ensemble_of(MixedMapping.one_hot(20))
    inputs, ids = torch.randn(4, 8), torch.arange(4)
    for bad in (0, -1.0, math.inf, math.nan):
        with pytest.raises(ArgumentError, match="temperature must be positive and finite, got"):
            ensemble.with_temperature(bad)
    for unfit in ("2", True, None):
        with pytest.raises(ArgumentTypeError, match="temperature must be a number, got"):
            ensemble.with_temperature(unfit)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="at least one row of a known class"):
        fit_temperature(ensemble, [(inputs, torch.full((4,), -1))])
    with pytest.raises(ArgumentError, match="max_rows must be at least 1, got 0"):
        fit_temperature(ensemble, [(inputs, ids)], 0)
    with pytest.raises(ArgumentError, match=r"ids must lie in -1\.\.19"):
        fit_temperature(ensemble, [(inputs, ids + 17)])


def test_a_class_held_impossible_is_named() -> None:
    ensemble = ensemble_of(MixedMapping.one_hot(20))
    head = ensemble._networks[0][1].head
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            if name.endswith("bias"):
                parameter[3] = -torch.inf
    inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ArgumentError, match=r"class 3, the 2\. known row's, has probability 0"):
        fit_temperature(ensemble, [(inputs, torch.tensor([1, 3, 2, 3]))])


def test_answers_that_say_nothing_are_told() -> None:
    ensemble = ensemble_of(MixedMapping.one_hot(20), scale=30.0)
    inputs = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    worst = torch.from_numpy(ensemble.site_log_probs(inputs)[0].argmin(axis=1))
    with pytest.warns(UserWarning, match="say nothing of these rows"):
        found = fit_temperature(ensemble, [(inputs, worst)])
    assert found.temperature > 190
    best = torch.from_numpy(ensemble.site_log_probs(inputs)[0].argmax(axis=1))
    with pytest.warns(UserWarning, match=r"0\.02 or less: almost all of these rows are"):
        found = fit_temperature(ensemble, [(inputs, best)])
    assert found.temperature < 0.021


def test_results_are_json_values(tmp_path: Path) -> None:
    ensemble = ensemble_of(MixedMapping(60, (7, 11, 13)))
    found = fit_temperature(ensemble, [drawn(ensemble, 1.0, 20, seed=5)])
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    assert found.to_dict()["sites"] == [0, 1, 2]
