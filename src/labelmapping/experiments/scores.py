"""Accuracies of several rows of a table from one pass of their networks, a few inputs at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ..calibration import best_temperature, class_log_probs
from ..decoding import decode_topk
from ..learners import Ensemble
from ..mappings import LabelMapping

__all__ = ["TOP", "Scores"]

TOP = 10
# Inputs whose site log-probs are held at a time: a one-hot network's have N columns.
ROWS = 2048
# Every so many rows a temperature is fitted to one, and the others are judged at it.
FITTED = 8


class Scores:
    """Counts of right answers over rows that come a few at a time, for rows of several lengths."""

    def __init__(
        self, mapping: LabelMapping, sizes: Mapping[str, int], *, perplexity: bool = False
    ) -> None:
        self.mapping = mapping
        self.sizes = sizes
        self.with_perplexity = perplexity
        self.n_rows = 0
        self.hits = {(name, k): 0 for name in sizes for k in (1, TOP)}
        self.site_hits = np.zeros(mapping.n_sites)
        self.site_rows = np.zeros(mapping.n_sites)
        # All rows' answers, where perplexity is asked for.
        self.kept: list[tuple[Sequence[NDArray[np.float32]], NDArray[np.int64]]] = []

    def add_all(self, ensemble: Ensemble, inputs: torch.Tensor, ids: torch.Tensor) -> None:
        for start in range(0, len(ids), ROWS):
            rows = slice(start, start + ROWS)
            self.add(ensemble.site_log_probs(inputs[rows]), ids[rows].numpy())

    def add(self, log_probs: Sequence[NDArray[np.float32]], ids: NDArray[np.int64]) -> None:
        self.n_rows += len(ids)
        for site, answers in enumerate(log_probs):
            symbols = self.mapping.symbols_at(ids, site)
            self.site_hits[site] += (answers.argmax(axis=1) == symbols).sum()
            self.site_rows[site] += (symbols >= 0).sum()
        for name, n_sites in self.sizes.items():
            some, sites = list(log_probs[:n_sites]), range(n_sites)
            best = decode_topk(self.mapping, some, TOP, sites=sites).ids == ids[:, None]
            self.hits[name, 1] += int(best[:, 0].sum())
            self.hits[name, TOP] += int(best.sum())
        if self.with_perplexity:
            self.kept.append((log_probs, ids))

    def accuracy(self, name: str, k: int) -> float:
        return self.hits[name, k] / self.n_rows

    def site_accuracies(self, name: str) -> list[float]:
        n_sites = self.sizes[name]
        return [float(s) for s in (self.site_hits / np.maximum(self.site_rows, 1))[:n_sites]]

    def perplexity(self, name: str) -> float:
        """Of one softmax over all classes: exp of the mean negative log-prob of the right ones."""
        log_probs, ids = self._kept(name)
        return _perplexity(class_log_probs(self.mapping, log_probs, ids, range(len(log_probs)), 1))

    def calibrated(self, name: str) -> tuple[float, float]:
        """A temperature, fitted to every eighth row, and the perplexity of the others at it."""
        log_probs, ids = self._kept(name)
        sites = range(len(log_probs))
        fitted = np.arange(len(ids)) % FITTED == 0
        found = best_temperature(self.mapping, [p[fitted] for p in log_probs], ids[fitted], sites)
        said = class_log_probs(
            self.mapping, [p[~fitted] for p in log_probs], ids[~fitted], sites, found.temperature
        )
        return found.temperature, _perplexity(said)

    def _kept(self, name: str) -> tuple[list[NDArray[np.float32]], NDArray[np.int64]]:
        """All rows' answers of a row's sites, and their classes."""
        parts = [log_probs[: self.sizes[name]] for log_probs, _ in self.kept]
        log_probs = [np.concatenate(of_site) for of_site in zip(*parts, strict=True)]
        return log_probs, np.concatenate([ids for _, ids in self.kept])


def _perplexity(log_probs: NDArray[np.float64]) -> float:
    return float(np.exp(-log_probs.mean()))
