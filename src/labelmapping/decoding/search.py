"""The exact search: rows to compiled searches, what they leave to the scan.

Seed, peel, pigeonhole (docs/architecture.md, "Decoding"). Knows which rows need
what; the loops are in `kernels`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .codes import TABLE, CodeArrays
from .exhaustive import for_rows
from .kernels import BOUND, SCAN, scan_rows, search_rows
from .problem import Filters

__all__ = ["search"]

# Fewer classes than this are scanned at once: the search would only add to it.
FEW_CLASSES = 20_000
# More answers than this are found by the scan: their list is kept in order by insertion.
MANY_ANSWERS = 1000
# They decide which move comes next, never the answer. In look-ups of the scan (0.7 ns each
# on the machine of benchmarks/README.md): a tuple, and a peeled class. In scans: what rounds
# may cost that may not pay; and how costly a search may look to be begun at all, among many
# classes, where later rounds may make it cheaper, and among few. In tuples: what is not worth
# planning any peeling for.
COSTS = (40.0, 32.0, 0.04, 8.0, 1.5, 256.0)


def search(
    code: CodeArrays,
    table: NDArray[np.float64],
    k: int,
    filters: Filters,
    prior_max: float,
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The k best classes of each row, ties to the lower id; arguments are checked already.

    Parameters
    ----------
    table : float64 array (B, sum of sizes)
        The present sites' log-probs, one site behind the other.
    k : int
        At most the number of classes that may be answered.
    filters : tuple
        Prior, allowed ids and allowed mask; empty arrays where absent.
    prior_max : float
        The largest prior, 0 where there is none.

    Returns
    -------
    scores : float64 array (B, k)
    ids : int64 array (B, k)
    n_scored : int64 array (B,)
        Classes scored; one reached in two ways counts twice.
    how : int64 array (B,)
        `kernels.BOUND` or `kernels.SCAN`.
    """
    n_rows = table.shape[0]
    offsets = np.cumsum(code.sizes) - code.sizes
    scores = np.full((n_rows, k), -np.inf)
    ids = np.full((n_rows, k), -1, np.int64)
    scored = np.zeros(n_rows, np.int64)
    how = np.full(n_rows, SCAN, np.int64)
    arrays = (
        code.kind, code.n_classes, code.dimension, code.sizes, code.points, 1.0 / code.sizes,
        code.linear,
    )  # fmt: skip
    groups = (
        code.tuples, code.inverses, code.others, code.n_groups, code.share, code.pairs,
        code.sliceable,
    )  # fmt: skip
    # A table has no runs: a symbol's classes are searched, whatever that costs.
    costs = (COSTS[0], 1e30, *COSTS[2:]) if code.kind == TABLE else COSTS
    few = code.n_classes <= FEW_CLASSES or table.shape[1] > 2 * code.n_classes * code.sizes.size
    if code.searchable and not few and k <= min(MANY_ANSWERS, code.n_classes // 4):
        for_rows(
            n_rows,
            lambda rows: search_rows(
                arrays,
                table[rows],
                offsets,
                groups,
                costs,
                prior_max,
                filters,
                scores[rows],
                ids[rows],
                scored[rows],
                how[rows],
            ),
        )
    left = np.flatnonzero(how != BOUND)
    if left.size:
        left_table = table[left]
        left_scores = np.full((left.size, k), -np.inf)
        left_ids = np.full((left.size, k), -1, np.int64)
        for_rows(
            left.size,
            lambda rows: scan_rows(
                arrays, left_table[rows], offsets, filters, left_scores[rows], left_ids[rows]
            ),
        )
        scores[left], ids[left] = left_scores, left_ids
        scored[left] += code.n_classes
    return scores, ids, scored, how
