"""Accuracies from site log-probs. One pass of the networks, many ways to decode it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..decoding import decode_topk
from ..learners import Ensemble
from ..mappings import LabelMapping

__all__ = ["SiteAnswers", "accuracy", "answer", "sample_rows"]

# Rows decoded at a time: bounds the float64 copy of the log-probs.
ROWS = 2048


@dataclass(frozen=True, eq=False)
class SiteAnswers:
    """What learners said of some rows: log-probs (B, q_i) for each of `sites`, and the truth."""

    mapping: LabelMapping
    sites: tuple[int, ...]
    log_probs: list[NDArray[np.float32]]
    ids: NDArray[np.int64]

    def topk(
        self, k: int, sites: Sequence[int] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k best class ids of each row by some of the sites, and their scores; (B, k)."""
        chosen = self.sites if sites is None else tuple(sites)
        of_site = dict(zip(self.sites, self.log_probs, strict=True))
        parts = [
            decode_topk(
                self.mapping, [of_site[s][start : start + ROWS] for s in chosen], k, sites=chosen
            )
            for start in range(0, len(self.ids), ROWS)
        ]
        return (
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.scores for part in parts]),
        )

    def accuracy(self, k: int = 1, sites: Sequence[int] | None = None) -> float:
        """Share of rows whose class is among the k best."""
        return float((self.topk(k, sites)[0] == self.ids[:, None]).any(axis=1).mean())

    def site_accuracies(self) -> list[float]:
        """Share of rows whose symbol each site gets right."""
        found = []
        for site, log_probs in zip(self.sites, self.log_probs, strict=True):
            symbols = self.mapping.symbols_at(self.ids, site)
            hits = log_probs.argmax(axis=1)[symbols >= 0] == symbols[symbols >= 0]
            found.append(float(hits.mean()) if hits.size else float("nan"))
        return found


def answer(ensemble: Ensemble, inputs: torch.Tensor, ids: torch.Tensor) -> SiteAnswers:
    """Run the learners over rows once."""
    return SiteAnswers(
        ensemble.mapping, ensemble.sites, ensemble.site_log_probs(inputs), ids.numpy()
    )


def accuracy(ensemble: Ensemble, inputs: torch.Tensor, ids: torch.Tensor) -> float:
    """Share of rows answered rightly by all sites; log-probs are held for a batch at a time."""
    hits = 0
    for start in range(0, len(ids), ROWS):
        best = ensemble.topk(inputs[start : start + ROWS], 1).ids[:, 0]
        hits += int((best == ids[start : start + ROWS].numpy()).sum())
    return hits / len(ids)


def sample_rows(n_rows: int, size: int, seed: int) -> torch.Tensor:
    """`size` row numbers without repeats, ascending, from a seed; all where there are fewer."""
    chosen = np.random.default_rng(seed).permutation(n_rows)[:size]
    return torch.from_numpy(np.sort(chosen))
