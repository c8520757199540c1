"""`decode_topk`: from the learners' log-probs to the best classes. Checks everything handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_class_ids, as_integer
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .exhaustive import scan

__all__ = ["TopK", "decode_topk"]

ClassPrior = Callable[[NDArray[np.int64]], ArrayLike]


class TopK(NamedTuple):
    """The best classes of each row, best first, ties to the lower id.

    Attributes
    ----------
    scores : ndarray of float32, shape (B, min(k, classes))
        Sum of the present sites' log-probs, plus the prior.
    ids : ndarray of int64, the same shape
    n_scored : ndarray of int64, shape (B,)
        Classes scored for the row.
    certified_by : ndarray of str, shape (B,)
        How the row's answer is known to be exact: "scan" (every class was scored).
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
        and returns (m,). -inf is legal.
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
    chosen = tuple(range(mapping.n_sites)) if sites is None else mapping.check_sites(sites)
    if len(chosen) < mapping.dimension:
        raise ArgumentError(
            f"sites must name at least {mapping.dimension} sites (the dimension of the code), "
            f"got {len(chosen)}: fewer do not determine the class"
        )
    arrays = _check_log_probs(mapping, site_log_probs, chosen)
    candidates = None if allowed is None else _check_allowed(allowed, mapping.n_classes)
    n_candidates = mapping.n_classes if candidates is None else candidates.size
    scores, ids = scan(
        mapping,
        arrays,
        chosen,
        min(k, n_candidates),
        _check_prior(prior, mapping.n_classes),
        candidates,
    )
    n_rows = scores.shape[0]
    with np.errstate(over="ignore"):  # a sum below float32's range, as of masked logits, is -inf
        scores32 = scores.astype(np.float32)
    return TopK(
        scores32,
        ids,
        np.full(n_rows, n_candidates, np.int64),
        np.full(n_rows, "scan"),
    )


def _check_log_probs(
    mapping: LabelMapping, site_log_probs: Sequence[Any], sites: tuple[int, ...]
) -> list[NDArray[np.float64]]:
    if len(site_log_probs) != len(sites):
        raise ArgumentError(
            f"site_log_probs must have one array for each of {len(sites)} sites, "
            f"got {len(site_log_probs)}"
        )
    arrays: list[NDArray[np.float64]] = []
    for site, given in zip(sites, site_log_probs, strict=True):
        array = _as_float64(given)
        n_rows = arrays[0].shape[0] if arrays else array.shape[0] if array.ndim else 0
        if array.shape != (n_rows, mapping.alphabet_sizes[site]):
            raise ArgumentError(
                f"site_log_probs of site {site} must have shape "
                f"({n_rows}, {mapping.alphabet_sizes[site]}), got {array.shape}"
            )
        bad = np.isnan(array) | (array == np.inf)
        if bad.any():
            row, symbol = np.argwhere(bad)[0]
            raise ArgumentError(
                f"site_log_probs must not be NaN or +inf: site {site}, row {row}, "
                f"symbol {symbol} is {array[row, symbol]}"
            )
        arrays.append(array)
    return arrays


def _as_float64(given: Any) -> NDArray[np.float64]:
    if hasattr(given, "detach"):  # a torch tensor; bfloat16 has no numpy type
        given = given.detach().cpu().double().numpy()
    return np.asarray(given, dtype=np.float64)


def _check_allowed(allowed: ArrayLike, n_classes: int) -> NDArray[np.int64]:
    array = np.asarray(allowed)
    if array.ndim != 1 or array.size == 0:
        raise ArgumentError(
            f"allowed must be a non-empty one-dimensional array, got shape {array.shape}"
        )
    if array.dtype == bool:
        if array.size != n_classes:
            raise ArgumentError(
                f"allowed must have one flag a class, {n_classes}; got {array.size}"
            )
        array = np.flatnonzero(array)
        if array.size == 0:
            raise ArgumentError("allowed must hold at least one class, all flags are False")
        return array.astype(np.int64)
    ids = as_class_ids("allowed", array, n_classes).astype(np.int64)
    falls = np.flatnonzero(np.diff(ids) <= 0)
    if falls.size:
        place = int(falls[0]) + 1
        raise ArgumentError(
            f"allowed must be ascending ids without repeats: allowed[{place}] is {ids[place]} "
            f"after {ids[place - 1]}"
        )
    return ids


def _check_prior(
    prior: ArrayLike | ClassPrior | None, n_classes: int
) -> Callable[[NDArray[np.int64]], NDArray[np.float64]] | None:
    if prior is None:
        return None
    if not callable(prior):
        dense = np.asarray(prior)
        if dense.shape != (n_classes,):
            raise ArgumentError(f"prior must have shape ({n_classes},), got {dense.shape}")
    function: ClassPrior = prior if callable(prior) else dense.__getitem__

    def checked(ids: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.asarray(function(ids), dtype=np.float64)
        if values.shape != ids.shape:
            raise ArgumentError(f"prior must return shape {ids.shape}, got {values.shape}")
        bad = np.isnan(values) | (values == np.inf)
        if bad.any():
            place = int(np.argmax(bad))
            raise ArgumentError(
                f"prior must not be NaN or +inf: class {ids[place]} has {values[place]}"
            )
        return values

    return checked
