"""One row of the benchmark `estimator`: ``PYTHON estimator_row.py FOLDER SETTINGS``.

Reads what `estimator.write` left in the folder, fits one classifier, answers the held-out rows,
prints a line of JSON. torch is imported by the rows that need it, for it is most of the memory.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import SGDClassifier
from sklearn.multiclass import OneVsRestClassifier, OutputCodeClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB

from labelmapping.estimator import ArbitraryCodeWarning, LabelMappingClassifier

TOP = 10
# Rows at a time that classifiers with a score a class answer; ours makes blocks itself.
BLOCK = 500


def main(folder: Path, settings: dict[str, Any]) -> None:
    """Fit, predict, print; `settings` has learner, its params, how, and what that needs."""
    rows, labels, held_out, truth = read(folder)
    classifier = make(labels, **settings)
    start = peak_mib()
    begun = time.process_time()
    classifier.fit(rows, labels)
    fit, fit_mib = time.process_time() - begun, peak_mib()
    classifier.predict(held_out[:1])  # loads what is compiled
    begun = time.process_time()
    answers = blockwise(classifier.predict, classifier, held_out)
    predict = time.process_time() - begun
    found: dict[str, Any] = {
        "held_out": float(np.mean(answers == truth)),
        "fit": fit,
        "predict": predict,
        "start_mib": start,
        "fit_mib": fit_mib,
        "peak_mib": peak_mib(),
    }
    best = best_of(classifier)
    if best is not None:
        begun = time.process_time()
        top = blockwise(best, classifier, held_out)
        found["top_s"] = time.process_time() - begun
        found["top_10"] = float(np.mean((top == truth[:, None]).any(axis=1)))
        found["peak_mib"] = peak_mib()
    if isinstance(classifier, LabelMappingClassifier):
        sizes = classifier.mapping_.alphabet_sizes
        found |= {"code": classifier.mapping_.kind, "sites": len(sizes), "q": max(sizes)}
    print(json.dumps(found))  # noqa: T201


def read(folder: Path) -> tuple[Any, NDArray[Any], Any, NDArray[Any]]:
    """Training rows and labels, held-out rows and labels."""
    with np.load(folder / "data.npz", allow_pickle=False) as data:
        labels = data["labels"]
        rows, held_out = matrix(data, "rows"), matrix(data, "held_out")
        return rows, labels[data["ids"]], held_out, labels[data["held_out_ids"]]


def matrix(data: Any, name: str) -> Any:
    """A dense matrix, or a sparse one from its three arrays."""
    if name in data:
        return data[name]
    parts = tuple(data[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    return csr_matrix(parts, shape=tuple(data[f"{name}_shape"]))


def make(
    labels: NDArray[Any],
    *,
    learner: str,
    how: str,
    params: dict[str, Any] | None = None,
    seed: int = 0,
    bits: int | None = None,
    **code: Any,
) -> Any:
    """A classifier: the estimator with a `code`, or a peer, around one learner."""
    base = make_learner(learner, params or {}, seed)
    if how == "estimator":
        warnings.simplefilter("ignore", ArbitraryCodeWarning)  # the table says it
        return LabelMappingClassifier(base, random_state=seed, **code)
    if how == "output code":
        size = 1.5 if bits is None else bits / len(np.unique(labels))
        return OutputCodeClassifier(base, code_size=size, random_state=seed)
    return {"own": lambda: base, "one vs rest": lambda: OneVsRestClassifier(base)}[how]()


def make_learner(name: str, params: dict[str, Any], seed: int) -> Any:
    """A base learner by its short name."""
    if name == "perceptron":
        from labelmapping.torch_estimator import TorchSiteClassifier

        return TorchSiteClassifier(random_state=seed, **params)
    kinds: dict[str, Callable[..., Any]] = {
        "LDA": lambda **params: LinearDiscriminantAnalysis(solver="lsqr", **params),
        "GaussianNB": GaussianNB,
        "MultinomialNB": MultinomialNB,
        "SGD": lambda **params: SGDClassifier(loss="log_loss", random_state=seed, **params),
    }
    return kinds[name](**params)


def best_of(classifier: Any) -> Callable[[Any], NDArray[Any]] | None:
    """What gives the ten best labels of rows, where anything does."""
    if isinstance(classifier, LabelMappingClassifier):
        return lambda rows: classifier.predict_topk(rows, TOP).labels
    scores = getattr(classifier, "predict_proba", None)
    if scores is None:
        return None

    def best(rows: Any) -> NDArray[Any]:
        shares = scores(rows)
        places = np.argpartition(-shares, min(TOP, shares.shape[1]) - 1, axis=1)[:, :TOP]
        labels: NDArray[Any] = classifier.classes_[places]
        return labels

    return best


def blockwise(
    answer: Callable[[Any], NDArray[Any]], classifier: Any, held_out: Any
) -> NDArray[Any]:
    """Answers to all rows."""
    n_rows = held_out.shape[0]
    size = n_rows if isinstance(classifier, LabelMappingClassifier) else BLOCK
    return np.concatenate([answer(held_out[at : at + size]) for at in range(0, n_rows, size)])


def peak_mib() -> float:
    """The peak of resident memory so far (Linux; since exec, unlike ru_maxrss)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except MemoryError:
        print(json.dumps({"failed": "memory"}))  # noqa: T201
