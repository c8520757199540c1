"""One row of the benchmark `linear` by a code: ``PYTHON linear_row.py FOLDER SETTINGS``.

Reads data.npz of the folder, fits the code and linear learners, answers the held-out rows,
prints a line of JSON. No torch: importing it would be most of the memory.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelmapping import LabelMapping, LearnedMapping, MixedMapping, SimplexMapping, decode_topk

Floats = NDArray[np.float32]
# Logits at a time, but of 64 rows at least.
BLOCK = 2**18


def main(folder: Path, settings: dict[str, Any]) -> None:
    """Fit, train, predict, print; `settings` has code, sites, q and seed."""
    started = usage()
    with np.load(folder / "data.npz", allow_pickle=False) as data:
        rows, ids, held_out = data["rows"], data["ids"], data["held_out"]
    n_classes = len(held_out)
    before = usage()
    counts, means = class_means(rows, ids, n_classes)
    mapping: LabelMapping
    if settings["code"] == "one-hot":
        mapping = MixedMapping.one_hot(n_classes)
    elif settings["code"] == "simplex":
        mapping = SimplexMapping(n_classes, settings["sites"], field_order=settings["q"])
    else:
        # The class means of the training rows stand for the classes.
        mapping = LearnedMapping.fit(
            means, settings["sites"], alphabet_size=settings["q"], seed=settings["seed"]
        )
    fitted = usage()
    weights = discriminants(mapping, counts, means, rows)
    trained = usage()
    predict(mapping, weights, held_out[:1])  # loads what is compiled
    loaded = usage()
    answers = predict(mapping, weights, held_out)
    done = usage()
    row_of_table = {
        "weights": weights.size,
        "held_out": float(np.mean(answers == np.arange(n_classes))),
        "fit": fitted["s"] - before["s"],
        "train": trained["s"] - fitted["s"],
        "predict": done["s"] - loaded["s"],
        "start_mib": started["mib"],
        "peak_mib": usage()["mib"],
    }
    print(json.dumps(row_of_table))  # noqa: T201


def class_means(
    rows: Floats, ids: NDArray[np.int64], n_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows of each class (N,), and their means (N, d)."""
    counts = np.bincount(ids, minlength=n_classes)
    sums = np.stack([np.bincount(ids, column, n_classes) for column in rows.T], axis=1)
    return counts, sums / counts[:, None]


def discriminants(
    mapping: LabelMapping,
    counts: NDArray[np.int64],
    means: NDArray[np.float64],
    rows: Floats,
) -> Floats:
    """Weights (d + 1, sum of q_i), biases last: a linear discriminant analysis a site.

    The closed form of a softmax whose logits are linear: each symbol's rows are taken for normal,
    with one covariance for all symbols of the site (Hastie, Tibshirani, Friedman 2009, 4.3).
    """
    n_classes, width = means.shape
    moments = (rows.T @ rows).astype(np.float64)
    codewords = mapping.encode(np.arange(n_classes))
    blocks = []
    for site, size in enumerate(mapping.alphabet_sizes):
        symbols = codewords[:, site]
        there = np.bincount(symbols, counts, size)
        sums = np.zeros((size, width))
        np.add.at(sums, symbols, means * counts[:, None])
        middles = sums / np.maximum(there, 1)[:, None]
        covariance = (moments - sums.T @ middles) / len(rows)
        directions = np.linalg.solve(covariance, middles.T)
        with np.errstate(divide="ignore"):  # a symbol that no class has
            biases = np.log(there / len(rows)) - (middles.T * directions).sum(axis=0) / 2
        blocks.append(np.vstack([directions, biases]).astype(np.float32))
    return np.concatenate(blocks, axis=1)


def predict(mapping: LabelMapping, weights: Floats, rows: Floats) -> NDArray[np.int64]:
    """The best class of each row."""
    ends = np.cumsum(mapping.alphabet_sizes)[:-1]
    step = max(64, BLOCK // weights.shape[1])
    answers = []
    for start in range(0, len(rows), step):
        logits = rows[start : start + step] @ weights[:-1]
        logits += weights[-1]
        log_probs = [log_softmax(site) for site in np.split(logits, ends, axis=1)]
        answers.append(decode_topk(mapping, log_probs, 1).ids[:, 0])
    return np.concatenate(answers)


def log_softmax(logits: Floats) -> Floats:
    """Of each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_probs


def usage() -> dict[str, float]:
    """CPU seconds so far, and the peak of resident memory (Linux; since exec, unlike ru_maxrss)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = status.partition("VmHWM:")[2].split()[0]
    return {"s": time.process_time(), "mib": int(peak) / 1024}


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
