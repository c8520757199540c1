"""Republic's perplexity with a temperature and the words' frequencies as a prior.

For each of some rows that ``labelmapping reproduce republic --profile paper`` has trained: the
perplexity of every eighth held-out window as the sites answer, at the best temperature, and at the
best temperature and weight of the prior, both chosen from a grid on as many other held-out windows.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelmapping.experiments.rows import load_experiment
from labelmapping.experiments.tables import markdown_table
from labelmapping.learners import Ensemble, RunFolder

TEMPERATURES = (0.8, 0.9, 1, 1.1, 1.3, 1.6, 2, 2.5, 3, 4, 5, 6, 8)
WEIGHTS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
ROWS = ("one-hot", "mixed-6-4", "mixed-6-6", "joint-mixed-6", "class-mixed-6", "joint-learned-6")
HEADER = ["row", "as it is", "temperature", "with prior", "at", "accuracy, as it is", "with prior"]


def run(*, run_dir: Path, data_dir: Path | None, epoch: int, csv_path: Path | None) -> None:
    """Print the table; with `csv_path`, write it too."""
    experiment = load_experiment("republic")
    data = experiment.load(experiment.profiles["paper"], data_dir).data
    inputs, ids = data.held_out_inputs[::4], data.held_out_ids[::4].numpy()
    chosen_on = np.arange(len(ids)) % 2 == 1
    counts = np.bincount(data.train_ids.numpy(), minlength=data.n_classes) + 0.5
    log_prior = np.log(counts / counts.sum())
    lines = []
    for name in ROWS:
        row = experiment.row(name)
        folder = run_dir / experiment.folder(row.run, 0)
        learners = row.learners(RunFolder.load(folder).recipe)
        ensemble = Ensemble.load(folder, learners=learners, epoch=epoch)
        words = ensemble.mapping.encode(np.arange(data.n_classes))
        scores = np.zeros((len(ids), data.n_classes))
        for site, answers in zip(ensemble.sites, ensemble.site_log_probs(inputs), strict=True):
            scores += answers[:, words[:, site]]
        lines.append([name, *line(scores, log_prior, ids, chosen_on)])
    print(markdown_table((HEADER, lines)))  # noqa: T201
    if csv_path is not None:
        with csv_path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *lines])


def line(
    scores: NDArray[np.float64],
    log_prior: NDArray[np.float64],
    ids: NDArray[np.int64],
    chosen_on: NDArray[np.bool_],
) -> list[str]:
    """The figures of HEADER, of scores (B, N), log-priors (N,) and the right classes (B,).

    Temperature and weight are the best of the rows `chosen_on`, the figures those of the others.
    """
    tried = {
        (temperature, weight): judged(
            scores[chosen_on] / temperature + weight * log_prior, ids[chosen_on]
        )
        for temperature in TEMPERATURES
        for weight in WEIGHTS
    }
    warmest = min((at for at in tried if at[1] == 0), key=tried.__getitem__)
    at = min(tried, key=tried.__getitem__)
    plain, warm, best = (
        judged(scores[~chosen_on] / temperature + weight * log_prior, ids[~chosen_on])
        for temperature, weight in ((1, 0), warmest, at)
    )
    perplexities = [f"{perplexity:.0f}" for perplexity, _ in (plain, warm, best)]
    return [*perplexities, f"{at[0]:g}, {at[1]:g}", f"{plain[1]:.1f}", f"{best[1]:.1f}"]


def judged(scores: NDArray[np.float64], ids: NDArray[np.int64]) -> tuple[float, float]:
    """Perplexity, and accuracy in percent."""
    top = scores.max(axis=1, keepdims=True)
    total = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0]
    said = scores[np.arange(len(ids)), ids] - total
    return float(np.exp(-said.mean())), 100 * float((scores.argmax(axis=1) == ids).mean())
