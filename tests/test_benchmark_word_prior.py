"""The benchmark of temperature and prior: its figures are those of the decoder's sums."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import word_prior

from labelmapping import MixedMapping, decode_topk, log_partition


def test_a_line_has_the_best_of_the_grid() -> None:
    """Chosen by one half of the rows, and measured on the other."""
    rng = np.random.default_rng(0)
    mapping = MixedMapping(30, (7, 11, 13))
    ids = rng.choice(30, 160, p=np.arange(30) / 435)  # high ids are frequent
    words = mapping.encode(np.arange(30))
    log_prior = np.log(np.arange(1, 31) / 465)
    log_probs = [np.log(rng.dirichlet(np.ones(q), 160)) for q in mapping.alphabet_sizes]
    scores = sum(site[:, words[:, n]] for n, site in enumerate(log_probs))
    assert isinstance(scores, np.ndarray)

    chosen_on = np.arange(160) < 80

    def perplexity(temperature: float, weight: float, rows: slice) -> float:
        warm = [site[rows] / temperature for site in log_probs]
        total = log_partition(mapping, warm, prior=weight * log_prior).upper
        right = scores[np.arange(160), ids][rows]
        said = right / temperature + weight * log_prior[ids[rows]] - total
        return float(np.exp(-said.mean()))

    first, second = slice(80), slice(80, 160)
    grid = [(t, w) for t in word_prior.TEMPERATURES for w in word_prior.WEIGHTS]
    best = min(grid, key=lambda at: perplexity(at[0], at[1], first))
    assert best[1] > 0
    warmest = min(word_prior.TEMPERATURES, key=lambda t: perplexity(t, 0, first))
    line = word_prior.line(scores, log_prior, ids, chosen_on)
    plain, warm, both, at, accuracy, with_prior = line
    assert at == f"{best[0]:g}, {best[1]:g}"
    assert both == f"{perplexity(best[0], best[1], second):.0f}"
    assert plain == f"{perplexity(1, 0, second):.0f}"
    assert warm == f"{perplexity(warmest, 0, second):.0f}"
    halves = [site[second] for site in log_probs]
    answers = decode_topk(mapping, halves, 1).ids[:, 0]
    assert float(accuracy) == pytest.approx(100 * (answers == ids[second]).mean(), abs=0.06)
    warmed = [site / best[0] for site in halves]
    answers = decode_topk(mapping, warmed, 1, prior=best[1] * log_prior).ids[:, 0]
    assert float(with_prior) == pytest.approx(100 * (answers == ids[second]).mean(), abs=0.06)
