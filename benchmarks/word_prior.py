"""Republic's perplexity with a temperature and the words' frequencies as a prior.

    python -m benchmarks.word_prior RUN_DIR DATA_DIR [--epoch 4]

Reads the runs of ``labelmapping reproduce republic --run-dir RUN_DIR``, and prints for each row the
perplexity of every eighth held-out window as the sites answer, at the best temperature, and at the
best temperature and weight of the prior. Both are chosen from a grid on these very windows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from labelmapping.experiments.rows import load_experiment
from labelmapping.learners import Ensemble, RunFolder

TEMPERATURES = (0.8, 0.9, 1, 1.1, 1.3, 1.6, 2, 2.5, 3, 4, 5, 6, 8)
WEIGHTS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
ROWS = ("one-hot", "mixed-6-4", "mixed-6-6", "joint-mixed-6", "class-mixed-6", "joint-learned-6")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--epoch", type=int, default=4)
    given = parser.parse_args()
    experiment = load_experiment("republic")
    data = experiment.load(experiment.profiles["paper"], given.data_dir).data
    inputs, ids = data.held_out_inputs[::8], data.held_out_ids[::8].numpy()
    counts = np.bincount(data.train_ids.numpy(), minlength=data.n_classes) + 0.5
    log_prior = np.log(counts / counts.sum())
    print("| row | as it is | temperature | both | at | accuracy, as it is | both |")  # noqa: T201
    for name in ROWS:
        row = experiment.row(name)
        folder = given.run_dir / experiment.folder(row.run, 0)
        learners = row.learners(RunFolder.load(folder).recipe)
        ensemble = Ensemble.load(folder, learners=learners, epoch=given.epoch)
        scores = np.zeros((len(ids), data.n_classes))
        words = ensemble.mapping.encode(np.arange(data.n_classes))
        for site, answers in zip(ensemble.sites, ensemble.site_log_probs(inputs), strict=True):
            scores += answers[:, words[:, site]]
        found = {
            (temperature, weight): _judged(scores / temperature + weight * log_prior, ids)
            for temperature in TEMPERATURES
            for weight in WEIGHTS
        }
        plain = found[1, 0]
        warm = min(value for (_, weight), value in found.items() if weight == 0)
        best = min(found, key=lambda at: found[at])
        shown = (
            name, f"{plain[0]:,.0f}", f"{warm[0]:,.0f}", f"{found[best][0]:,.0f}", str(best),
            f"{plain[1]:.1f}", f"{found[best][1]:.1f}",
        )  # fmt: skip
        print("| " + " | ".join(shown) + " |", flush=True)  # noqa: T201


def _judged(scores: np.ndarray, ids: np.ndarray) -> tuple[float, float]:
    """Perplexity and accuracy in percent of scores (B, N)."""
    top = scores.max(axis=1, keepdims=True)
    total = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0]
    said = scores[np.arange(len(ids)), ids] - total
    return float(np.exp(-said.mean())), 100 * float((scores.argmax(axis=1) == ids).mean())


if __name__ == "__main__":
    main()
