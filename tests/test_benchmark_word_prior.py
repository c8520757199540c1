"""The benchmark of temperature and prior: its figures are those of the decoder's sums."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import word_prior

from labelmapping import MixedMapping, decode_topk, log_partition


def test_a_line_has_the_best_of_the_grid() -> None:
    rng = np.random.default_rng(0)
    mapping = MixedMapping(30, (7, 11, 13))
    ids = rng.choice(30, 80, p=np.arange(30) / 435)  # high ids are frequent
    words = mapping.encode(np.arange(30))
    log_prior = np.log(np.arange(1, 31) / 465)
    log_probs = [np.log(rng.dirichlet(np.ones(q), 80)) for q in mapping.alphabet_sizes]
    scores = sum(site[:, words[:, n]] for n, site in enumerate(log_probs))
    assert isinstance(scores, np.ndarray)

    def perplexity(temperature: float, weight: float) -> float:
        warm = [site / temperature for site in log_probs]
        total = log_partition(mapping, warm, prior=weight * log_prior).upper
        said = scores[np.arange(80), ids] / temperature + weight * log_prior[ids] - total
        return float(np.exp(-said.mean()))

    grid = [(t, w) for t in word_prior.TEMPERATURES for w in word_prior.WEIGHTS]
    best = min(grid, key=lambda at: perplexity(*at))
    assert best[1] > 0
    plain, warm, both, at, accuracy, with_prior = word_prior.line(scores, log_prior, ids)
    assert at == f"{best[0]:g}, {best[1]:g}"
    assert both == f"{perplexity(*best):,.0f}"
    assert plain == f"{perplexity(1, 0):,.0f}"
    assert warm == f"{min(perplexity(t, 0) for t in word_prior.TEMPERATURES):,.0f}"
    answers = decode_topk(mapping, log_probs, 1).ids[:, 0]
    assert float(accuracy) == pytest.approx(100 * (answers == ids).mean(), abs=0.06)
    warmed = [site / best[0] for site in log_probs]
    answers = decode_topk(mapping, warmed, 1, prior=best[1] * log_prior).ids[:, 0]
    assert float(with_prior) == pytest.approx(100 * (answers == ids).mean(), abs=0.06)
