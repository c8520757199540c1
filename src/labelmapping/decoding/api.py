"""`decode_topk`: from the learners' log-probs to the best classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_integer
from ..mappings import LabelMapping
from .exhaustive import scan
from .kernels import BOUND
from .problem import ClassPrior, Problem
from .search import search

__all__ = ["TopK", "best_classes", "decode_topk"]


class TopK(NamedTuple):
    """The best classes of each row, best first, ties to the lower id.

    Attributes
    ----------
    scores : ndarray of float32, shape (B, min(k, classes))
        Sum of the present sites' log-probs, plus the prior.
    ids : ndarray of int64, the same shape
    n_scored : ndarray of int64, shape (B,)
        Classes scored for the row; one reached in two ways counts twice.
    certified_by : ndarray of str, shape (B,)
        How the row's answer is known to be exact: "bound" (no other class can reach
        the last one) or "scan" (every class was scored).
    """

    scores: NDArray[np.float32]
    ids: NDArray[np.int64]
    n_scored: NDArray[np.int64]
    certified_by: NDArray[np.str_]


def decode_topk(
    mapping: LabelMapping,
    site_log_probs: Sequence[Any],
    k: int,
    *,
    sites: Sequence[int] | None = None,
    prior: ArrayLike | ClassPrior | None = None,
    allowed: ArrayLike | None = None,
) -> TopK:
    """The k classes whose symbols have the largest sum of log-probs, exactly.

    By a search that scores a small share of the classes (docs/architecture.md,
    "Decoding"); by a scan where that is less work, where the prior is a function of more
    than 4·10^6 classes or beside `allowed`, and for codes whose tuples of symbols do not
    resolve (hashed, ternary and long binary codes; tables of too many combinations).

    Parameters
    ----------
    mapping : LabelMapping
    site_log_probs : sequence of arrays, shapes (B, q_i)
        One a site, in the order of `sites`: numpy arrays or torch tensors of
        any float type; summed in float64. -inf is legal.
    k : int
        At least 1; more than there are classes gives all of them.
    sites : sequence of int, optional
        The sites that are there, at least `mapping.dimension` of them. Default all.
    prior : array (N,) or function of ids, optional
        A term added to each class's score; the function takes int64 ids (m,)
        and returns (m,), and is asked for every class that may be answered. -inf is
        legal.
    allowed : array, optional
        The classes that may be answered: ascending ids, or a boolean array (N,).

    Returns
    -------
    TopK

    Raises
    ------
    ArgumentError
        A shape does not fit, a value is NaN (the message names site and row) or
        +inf, too few sites are there, or `allowed` is empty or out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from labelmapping import MixedMapping
    >>> mapping = MixedMapping(30, [7, 11])
    >>> probs = [np.full((1, 7), 0.1), np.full((1, 11), 0.05)]
    >>> probs[0][0, 3], probs[1][0, 2] = 0.4, 0.5   # 24 = 3 (mod 7) = 2 (mod 11)
    >>> decode_topk(mapping, [np.log(p) for p in probs], 2).ids.tolist()
    [[24, 2]]
    """
    k = as_integer("k", k, 1)
    problem = Problem.check(mapping, site_log_probs, sites, prior, allowed)
    k = min(k, problem.n_candidates)
    n_rows = problem.n_rows
    found = TopK(
        np.empty((n_rows, k), np.float32),
        np.empty((n_rows, k), np.int64),
        np.empty(n_rows, np.int64),
        np.full(n_rows, "scan", "U5"),
    )
    for rows, scores, ids, n_scored, by_bound in best_classes(problem, k):
        with np.errstate(over="ignore"):  # a sum below float32's range, of masked logits, is -inf
            found.scores[rows] = scores
        found.ids[rows], found.n_scored[rows] = ids, n_scored
        found.certified_by[rows] = np.where(by_bound, "bound", "scan")
    return found


def best_classes(problem: Problem, k: int) -> Iterator[tuple[slice, Any, Any, Any, Any]]:
    """Batches of rows with their best k: scores in float64, ids, classes scored, by bound or not.

    k is at most the number of candidates.
    """
    for rows, log_probs in problem.batches():
        if problem.code is None:
            scores, ids = scan(
                problem.mapping,
                log_probs,
                problem.sites,
                k,
                problem.prior_of(),
                problem.allowed_ids(),
            )
            yield rows, scores, ids, problem.n_candidates, False
        else:
            table = np.ascontiguousarray(np.concatenate(log_probs, axis=1))
            scores, ids, n_scored, how = search(
                problem.code, table, k, problem.filters(), problem.prior_max
            )
            yield rows, scores, ids, n_scored, how == BOUND
