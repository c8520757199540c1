"""One site of a code as a scikit-learn classifier: fitted on symbols, answering in log-probs.

Knows nothing of mappings: a site is a number of symbols.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.pipeline import Pipeline

from .arguments import check_choice
from .errors import ArgumentError, ArgumentTypeError
from .labels import LabelSet

__all__ = [
    "FittedSite",
    "SiteTask",
    "fit_site",
    "partial_fit_site",
    "read_target",
    "seeded",
    "weight_name",
]

PROBABILITIES = ("auto", "softmax")
# The share of a site's probability that goes evenly to all its symbols: a learner's flat "no"
# (a tree's leaf, a symbol it never saw) would else rule out what all other sites agree on.
SMOOTHING = 1e-6


@dataclass(frozen=True)
class SiteTask:
    """What a site's learner is asked for.

    Attributes
    ----------
    n_symbols : int
        q of the site.
    seed : int
        For every `random_state` among the learner's parameters that is None.
    probabilities : {"auto", "softmax"}
        "auto": `predict_proba` where the learner has it, else as "softmax": of
        `decision_function` (the logistic function where it has seen two symbols).
    """

    n_symbols: int
    seed: int
    probabilities: str = "auto"

    def __post_init__(self) -> None:
        check_choice("probabilities", self.probabilities, PROBABILITIES)


@dataclass(frozen=True)
class FittedSite:
    """A site's learner and the symbols it knows.

    Attributes
    ----------
    task : SiteTask
    estimator : object or None
        None where it saw a single symbol: it then answers that one.
    symbols : int64 array (m,)
        Ascending: the classes of the estimator.
    """

    task: SiteTask
    estimator: Any
    symbols: NDArray[np.int64]

    def log_probs(self, X: Any, n_rows: int) -> NDArray[np.float32]:
        """Log-probabilities of all symbols, (n_rows, q); those never seen have the floor."""
        size = self.task.n_symbols
        shares = np.full((n_rows, size), SMOOTHING / size)
        if self.estimator is None:
            shares[:, self.symbols] += 1 - SMOOTHING
        elif n_rows:
            shares[:, self.symbols] += (1 - SMOOTHING) * self._seen(X)
        logs: NDArray[np.float32] = np.log(shares).astype(np.float32)
        return logs

    def _seen(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the symbols it has seen, (n_rows, m)."""
        if self.task.probabilities == "auto" and hasattr(self.estimator, "predict_proba"):
            shares = np.asarray(self.estimator.predict_proba(X), np.float64)
        else:
            scores = np.asarray(self.estimator.decision_function(X), np.float64)
            if scores.ndim == 1:  # of the second of two symbols
                scores = np.stack([np.zeros_like(scores), scores], axis=1)
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
        if shares.shape[1:] != self.symbols.shape:
            raise ArgumentError(
                f"estimator must answer with {len(self.symbols)} columns, one for each class it "
                f"has seen; {type(self.estimator).__name__} gave {shares.shape[1:]}"
            )
        if not np.isfinite(shares).all():
            raise ArgumentError(
                f"estimator must give finite probabilities; {type(self.estimator).__name__} "
                "diverged, or X has values that it cannot take"
            )
        return shares


def fit_site(
    estimator: Any,
    X: Any,
    symbols: NDArray[np.integer],
    task: SiteTask,
    fit_params: Mapping[str, Any],
) -> FittedSite:
    """Fit a clone of a classifier to the symbols of one site.

    Parameters
    ----------
    estimator : classifier
        With `predict_proba` or `decision_function`.
    X : array-like (n, d)
        Passed on as it is.
    symbols : integer array (n,)
        Passed on as int64.
    fit_params
        Passed on to its `fit`.

    Raises
    ------
    ArgumentTypeError
        The classifier has neither method.
    """
    seen = np.unique(symbols)
    if len(seen) == 1:
        return FittedSite(task, None, seen.astype(np.int64))
    learner = seeded(estimator, task.seed)
    learner.fit(X, symbols.astype(np.int64), **fit_params)
    return FittedSite(task, check_answers(learner), np.asarray(learner.classes_, np.int64))


def partial_fit_site(
    site: FittedSite | None,
    estimator: Any,
    X: Any,
    symbols: NDArray[np.integer],
    task: SiteTask,
    fit_params: Mapping[str, Any],
) -> FittedSite:
    """Go on fitting a site by its learner's `partial_fit`; all symbols are known from the start.

    Raises
    ------
    ArgumentError
        `fit_site` made it, of rows that had some of the symbols only.
    """
    everything = np.arange(task.n_symbols)
    if site is not None and len(site.symbols) < len(everything):
        raise ArgumentError(
            f"partial_fit must come first here: fit left a learner that knows {len(site.symbols)} "
            f"of its site's {len(everything)} symbols, and it cannot learn others"
        )
    # A copy: where another site fails, this one must be as it was.
    learner = seeded(estimator, task.seed) if site is None else copy.deepcopy(site.estimator)
    if len(everything) == 1:
        return FittedSite(task, None, everything)
    learner.partial_fit(X, symbols.astype(np.int64), classes=everything, **fit_params)
    return FittedSite(task, check_answers(learner), everything)


def seeded(estimator: Any, seed: int) -> Any:
    """A clone whose parameters `random_state`, nested ones too, are `seed` where they are None."""
    learner = clone(estimator)
    states = {
        name: seed
        for name, value in learner.get_params(deep=True).items()
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    }
    return learner.set_params(**states) if states else learner


def check_answers(learner: Any) -> Any:
    """The learner, where it can say how likely its classes are."""
    if not hasattr(learner, "predict_proba") and not hasattr(learner, "decision_function"):
        raise ArgumentTypeError(
            "estimator must have predict_proba or decision_function, and "
            f"{type(learner).__name__} has neither"
        )
    if getattr(learner, "decision_function_shape", None) == "ovo":
        raise ArgumentError(
            'decision_function_shape must be "ovr", whose columns are classes; got "ovo"'
        )
    return learner


def read_target(y: Any, name: str) -> tuple[LabelSet, NDArray[np.int64]]:
    """The labels of y and each row's id; `name` is the estimator's, for scikit-learn's words."""
    if y is None:
        raise ArgumentError(f"{name} requires y to be passed, but the target y is None")
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        warnings.warn(
            f"A column-vector y was passed when a 1d array was expected: y of shape {y.shape} "
            f"is read as {(len(y),)}",
            DataConversionWarning,
            stacklevel=4,
        )
        y = np.asarray(y)[:, 0]
    return LabelSet.of(y)


def weight_name(estimator: Any) -> str:
    """The name of the argument by which a classifier's `fit` takes sample weights.

    Raises
    ------
    ArgumentTypeError
        It takes none.
    """
    if isinstance(estimator, Pipeline):
        step, last = estimator.steps[-1]
        return f"{step}__{weight_name(last)}"
    if "sample_weight" not in inspect.signature(estimator.fit).parameters:
        raise ArgumentTypeError(
            f"sample_weight must not be given: {type(estimator).__name__}.fit does not take it"
        )
    return "sample_weight"
