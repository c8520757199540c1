"""The reference decoder: scores every class, in blocks of classes.

Exact by construction, for every mapping; memory O(block), beside the answer
and one float64 copy of the log-probs. The search is checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import config
from numpy.typing import NDArray

from ..compiled import compiled
from ..mappings import LabelMapping

__all__ = [
    "for_rows",
    "id_blocks",
    "scan",
    "score_blocks",
    "symbol_columns",
    "with_abstentions",
]

# Classes scored at a time: a block's symbols (8 bytes a site) stay in the cache.
BLOCK = 8192


def scan(
    mapping: LabelMapping,
    log_probs: list[NDArray[np.float64]],
    sites: tuple[int, ...],
    k: int,
    prior: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None,
    allowed: NDArray[np.int64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The k best classes of each row, ties to the lower id; arguments are checked already.

    Scores are summed in float64 in the order of `sites`, the prior last.

    Parameters
    ----------
    log_probs : list of float64 arrays (B, q_i)
        One a site, in the order of `sites`.
    allowed : int64 array (m,), optional
        Ascending ids; else every class.

    Returns
    -------
    scores : float64 array (B, k)
    ids : int64 array (B, k)
    """
    n_rows = log_probs[0].shape[0]
    log_probs = with_abstentions(mapping, log_probs)
    table = np.ascontiguousarray(np.concatenate(log_probs, axis=1))
    scores = np.full((n_rows, k), -np.inf)
    ids = np.full((n_rows, k), -1, np.int64)
    found = np.zeros(n_rows, np.int64)
    for block in id_blocks(mapping.n_classes, allowed):
        columns = symbol_columns(mapping, sites, log_probs, block)
        extra = np.zeros(block.size) if prior is None else prior(block.copy())
        for_rows(
            n_rows,
            lambda rows, c=columns, e=extra, b=block: _keep_best(  # type: ignore[misc]
                table[rows], c, e, b, scores[rows], ids[rows], found[rows]
            ),
        )
    return scores, ids


def score_blocks(
    mapping: LabelMapping,
    log_probs: list[NDArray[np.float64]],
    sites: tuple[int, ...],
    prior: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None,
    allowed: NDArray[np.int64] | None,
) -> Iterator[NDArray[np.float64]]:
    """The scores of all classes, a block (B, block) of them at a time; arguments as in `scan`."""
    log_probs = with_abstentions(mapping, log_probs)
    for block in id_blocks(mapping.n_classes, allowed):
        scores = np.zeros((log_probs[0].shape[0], block.size))
        for site, site_log_probs in zip(sites, log_probs, strict=True):
            scores += site_log_probs[:, mapping.symbols_at(block, site)]
        yield scores if prior is None else scores + prior(block.copy())


def with_abstentions(
    mapping: LabelMapping, log_probs: list[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """Where sites abstain (symbol -1), a last column with what that adds to a score: log 1/2."""
    if not mapping.has_abstentions:
        return log_probs
    return [np.pad(p, ((0, 0), (0, 1)), constant_values=np.log(0.5)) for p in log_probs]


def symbol_columns(
    mapping: LabelMapping,
    sites: tuple[int, ...],
    log_probs: list[NDArray[np.float64]],
    ids: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Where classes' symbols are when all sites' log-probs are side by side, (m, n_sites)."""
    columns = np.empty((ids.size, len(sites)), np.int64)
    offset = 0
    for i, site in enumerate(sites):
        symbols, width = mapping.symbols_at(ids, site), log_probs[i].shape[1]
        columns[:, i] = np.where(symbols < 0, width - 1, symbols) + offset
        offset += width
    return columns


def for_rows(n_rows: int, work: Callable[[slice], None]) -> None:
    """Call `work` on slices that cover the rows, on all cores; it must release the GIL.

    Plain threads, not numba's parallel loops: those share OpenMP with torch and
    change its number of threads, and with it the last bits of a training that
    follows in the same process. ``NUMBA_NUM_THREADS`` limits them too.
    """
    n_threads = min(config.NUMBA_NUM_THREADS, n_rows)
    if n_threads < 2:
        work(slice(0, n_rows))
        return
    cuts = [n_rows * i // n_threads for i in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, map(slice, cuts[:-1], cuts[1:])))


def id_blocks(n_classes: int, allowed: NDArray[np.int64] | None) -> Iterator[NDArray[np.int64]]:
    size = n_classes if allowed is None else allowed.size
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        yield np.arange(start, stop, dtype=np.int64) if allowed is None else allowed[start:stop]


@compiled
def _keep_best(table, columns, extra, block, scores, ids, found):  # type: ignore[no-untyped-def]
    """Merge one block's classes, ascending by id, into each row's list of the best k.

    A class enters only with a score above the last one kept, so among equals
    the lower id stays.
    """
    k = scores.shape[1]
    for row in range(table.shape[0]):
        count = found[row]
        for c in range(block.size):
            score = 0.0
            for i in range(columns.shape[1]):
                score += table[row, columns[c, i]]
            score += extra[c]
            if count == k and not score > scores[row, k - 1]:
                continue
            place = count if count < k else k - 1
            while place > 0 and score > scores[row, place - 1]:
                scores[row, place] = scores[row, place - 1]
                ids[row, place] = ids[row, place - 1]
                place -= 1
            scores[row, place] = score
            ids[row, place] = block[c]
            if count < k:
                count += 1
        found[row] = count
