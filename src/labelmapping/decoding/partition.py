"""How much probability the N valid codewords have: what is needed to normalise a top-k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..compiled import compiled
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .api import best_classes
from .exhaustive import for_rows, id_blocks, score_blocks, symbol_columns, with_abstentions
from .problem import ClassPrior, Problem

__all__ = ["LogPartition", "log_partition"]

# How many of the best classes are summed before a row is scanned.
LOOKS = (64, 512)
# Rows whose classes are scored together when all are.
ROWS = 256
# Rows whose probabilities are multiplied side by side: their tables stay in the second cache.
SIDE_BY_SIDE = 32


class LogPartition(NamedTuple):
    """log of the sum over classes of exp(score), as an interval that holds it.

    Attributes
    ----------
    lower, upper : ndarray of float64, shape (B,)
        Equal where every class was scored; -inf where every class is impossible.
    seen : ndarray of float64, shape (B,)
        The share of ``exp(upper)`` that was scored, at least.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    seen: NDArray[np.float64]


def log_partition(
    mapping: LabelMapping,
    site_log_probs: Sequence[Any],
    *,
    sites: Sequence[int] | None = None,
    prior: ArrayLike | ClassPrior | None = None,
    allowed: ArrayLike | None = None,
    tolerance: float | None = None,
) -> LogPartition:
    """The log of the sum of exp(score) over the classes that may be answered.

    A score less this is a log-probability over the classes. Site softmaxes give
    probability to codewords that no class has (there are ``prod(alphabet_sizes)``), so
    the sum is below 1 and scores alone are not normalised.

    Parameters
    ----------
    mapping, site_log_probs, sites, prior, allowed
        As in `decode_topk`.
    tolerance : float, optional
        Stop where ``upper - lower`` is at most this: the best classes are summed and
        the others bounded by the last of them. Rows that stay wider, and all rows by
        default, are scanned: exact to float64, memory of one block.

    Raises
    ------
    ArgumentError
        As `decode_topk`; or `tolerance` is not positive.
    """
    if tolerance is not None and not 0 < tolerance < np.inf:
        raise ArgumentError(f"tolerance must be positive and finite, got {tolerance}")
    site_log_probs = [g if hasattr(g, "shape") else np.asarray(g) for g in site_log_probs]
    problem = Problem.check(mapping, site_log_probs, sites, prior, allowed)
    lower = np.full(problem.n_rows, -np.inf)
    upper = np.full(problem.n_rows, np.inf)
    undecided = np.full(problem.n_rows, tolerance is not None and problem.code is not None)
    for look in LOOKS:
        if 4 * look > problem.n_candidates or not undecided.any():
            break
        for rows, scores, _, _, by_bound in best_classes(problem, look):
            with np.errstate(invalid="ignore"):
                lower[rows] = np.logaddexp.reduce(scores, axis=1)
                rest = scores[:, -1] + np.log(problem.n_candidates - look)
                upper[rows] = np.logaddexp(lower[rows], rest)
            # A row that was scanned for the best is better scanned for the sum.
            undecided[rows] &= by_bound & (_width(lower, upper)[rows] > (tolerance or 0.0))
    left = np.flatnonzero(_width(lower, upper) > (tolerance or 0.0))
    if left.size:
        whole = Problem.check(mapping, [g[left] for g in site_log_probs], sites, prior, allowed)
        lower[left] = upper[left] = _exact(whole)
    return LogPartition(lower, upper, np.exp(-_width(lower, upper)))


def _width(lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """How wide each interval is; 0 where both ends are -inf."""
    return np.subtract(upper, lower, out=np.zeros_like(upper), where=~np.isneginf(upper))


def _exact(problem: Problem) -> NDArray[np.float64]:
    total = np.full(problem.n_rows, -np.inf)
    for rows, log_probs in problem.batches():
        left = np.arange(rows.stop - rows.start)
        if problem.prior_of() is None:
            total[rows] = _by_products(problem, log_probs)
            # Too small a sum: by logarithms, which do not underflow.
            left = np.flatnonzero(np.isneginf(total[rows]))
        # A block holds the scores of all its rows: narrow codes come with many rows.
        for start in range(0, len(left), ROWS):
            places = left[start : start + ROWS]
            part, some = [site[places] for site in log_probs], rows.start + places
            for scores in score_blocks(
                problem.mapping, part, problem.sites, problem.prior_of(), problem.allowed_ids()
            ):
                total[some] = np.logaddexp(total[some], np.logaddexp.reduce(scores, axis=1))
    return total


def _by_products(problem: Problem, log_probs: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sum from products of the symbols' probabilities; -inf where those are below 1e-290.

    A product and a sum a class in place of an exponential, for some rows side by side.
    """
    log_probs = with_abstentions(problem.mapping, log_probs)
    tops = [site.max(axis=1) for site in log_probs]
    finite = [np.where(np.isfinite(top), top, 0.0) for top in tops]
    table = np.concatenate(
        [np.exp(site - top[:, None]) for site, top in zip(log_probs, finite, strict=True)], axis=1
    )
    parts = [
        np.ascontiguousarray(table[start : start + SIDE_BY_SIDE].T)
        for start in range(0, len(table), SIDE_BY_SIDE)
    ]
    sums = [np.zeros(part.shape[1]) for part in parts]
    for block in id_blocks(problem.mapping.n_classes, problem.allowed_ids()):
        columns = symbol_columns(problem.mapping, problem.sites, log_probs, block)

        def work(places: slice, columns: NDArray[np.int64] = columns) -> None:
            for part, total in zip(parts[places], sums[places], strict=True):
                _add_products(part, columns, total)

        for_rows(len(parts), work)
    found = np.concatenate(sums)
    with np.errstate(divide="ignore"):
        logs: NDArray[np.float64] = np.log(np.where(found < 1e-290, 0.0, found)) + sum(finite)
    return logs


@compiled
def _add_products(table, columns, sums):  # type: ignore[no-untyped-def]
    """Add each class's product of probabilities, from a table (symbols, rows), to the sums."""
    products = np.empty_like(sums)
    for c in range(columns.shape[0]):
        products[:] = table[columns[c, 0]]
        for i in range(1, columns.shape[1]):
            symbol = columns[c, i]
            for row in range(sums.size):
                products[row] *= table[symbol, row]
        for row in range(sums.size):
            sums[row] += products[row]
