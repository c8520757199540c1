"""Decoding symbols instead of probabilities: the nearest codewords, and losses of margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_integer, check_choice
from ..errors import ArgumentError, ArgumentTypeError
from ..mappings import EcocMapping, LabelMapping
from .api import decode_topk

__all__ = ["Nearest", "decode_symbols", "margin_scores"]

# The losses and what each is at a margin of 0.
LOSS_OF_NOTHING = {"l1": 0.5, "hinge": 1.0, "exponential": 1.0, "logistic": np.log(2.0)}


class Nearest(NamedTuple):
    """The nearest codewords of received symbols, nearest first, ties to the lower id.

    Attributes
    ----------
    ids : ndarray of int64, shape (B, min(k, N))
    distances : ndarray of int64, the same shape
        Sites, erased ones left out, at which the codeword differs from what came.
    certain : ndarray of bool, shape (B,)
        Whether the first is sure to be the only one so near: twice its distance and
        the erasures together stay below the code's minimum distance.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.int64]
    certain: NDArray[np.bool_]


def decode_symbols(
    mapping: LabelMapping, symbols: ArrayLike, *, erased: ArrayLike | None = None, k: int = 1
) -> Nearest:
    """The k classes whose codewords are nearest in Hamming distance, exactly.

    Up to floor((d - 1 - erasures) / 2) wrong symbols are corrected, d being
    ``mapping.min_distance``; beyond it the nearest codeword may be another one.

    Parameters
    ----------
    symbols : array-like of int, shape (B, n_sites)
        One symbol a site; what stands at an erased site is not looked at.
    erased : array-like of bool, shape (B, n_sites) or (n_sites,), optional
        The sites that are not there; at least `dimension` must be left in each row.
    k : int, default 1

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A symbol is outside its alphabet or no integer, a shape does not fit, too
        few sites are left (with how many classes share such an answer), or the code
        abstains: `margin_scores` then tells how far a class is.

    Examples
    --------
    >>> from labelmapping import MixedMapping
    >>> mapping = MixedMapping(1000, [31, 37, 41, 43, 47])
    >>> received = mapping.encode([123])
    >>> received[0, 2] += 1
    >>> decode_symbols(mapping, received).ids.item()
    123
    """
    if mapping.has_abstentions:
        raise ArgumentError(
            "mapping must have a symbol for every class at every site, and this one abstains; "
            "use margin_scores and decode_topk"
        )
    array = np.asarray(symbols)
    if array.ndim != 2 or array.shape[1] != mapping.n_sites:
        raise ArgumentError(
            f"symbols must have shape (B, {mapping.n_sites}), got {tuple(array.shape)}"
        )
    gone = np.zeros(array.shape, np.bool_)
    if erased is not None:
        flags = np.asarray(erased)
        if flags.dtype != np.bool_ or flags.shape not in ((mapping.n_sites,), array.shape):
            raise ArgumentError(
                f"erased must be bools of shape ({mapping.n_sites},) or {array.shape}, "
                f"got {flags.dtype} of shape {flags.shape}"
            )
        gone[:] = flags
    k = min(as_integer("k", k, 1), mapping.n_classes)
    found = Nearest(
        np.empty((len(array), k), np.int64),
        np.empty((len(array), k), np.int64),
        np.empty(len(array), np.bool_),
    )
    for site, size in enumerate(mapping.alphabet_sizes):
        column = np.where(gone[:, site], 0, array[:, site])
        if column.size and not np.issubdtype(column.dtype, np.integer):
            raise ArgumentTypeError(
                f"symbols of site {site} must be integers, got an array of {array.dtype}"
            )
        bad = np.flatnonzero((column < 0) | (column >= size))
        if bad.size:
            raise ArgumentError(
                f"symbols of site {site} must lie in 0..{size - 1}: in row {bad[0]} it is "
                f"{column[bad[0]]}"
            )
    patterns, pattern_of = np.unique(gone, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = np.flatnonzero(pattern_of.reshape(-1) == number)
        sites = np.flatnonzero(~pattern).tolist()
        votes = []
        for site in sites:
            size = mapping.alphabet_sizes[site]
            vote = np.full((rows.size, size), -1.0, np.float32)
            vote[np.arange(rows.size), array[rows, site]] = 0.0
            votes.append(vote)
        if len(sites) < mapping.dimension:
            raise ArgumentError(
                f"erased must leave at least {mapping.dimension} sites (the dimension of the "
                f"code), row {rows[0]} has {len(sites)}"
            )
        top = decode_topk(mapping, votes, k, sites=sites)
        found.ids[rows] = top.ids
        found.distances[rows] = -top.scores.astype(np.int64)
        found.certain[rows] = 2 * found.distances[rows, 0] + pattern.sum() < mapping.min_distance
    return found


def margin_scores(
    mapping: LabelMapping, margins: ArrayLike, loss: str = "hinge"
) -> list[NDArray[np.float64]]:
    """Site scores of a binary code for `decode_topk` from real-valued outputs of its learners.

    Loss-based decoding (Allwein, Schapire and Singer, 2000): the answer is the class
    whose signs z in {-1, 0, 1} have the least sum of losses L(z f). Symbol 1 is z = 1,
    symbol 0 is z = -1, and where a site abstains z = 0.

    Parameters
    ----------
    mapping : EcocMapping
    margins : array-like of float, shape (B, n_sites)
        f, positive for symbol 1; for "l1" in [-1, 1].
    loss : {"l1", "hinge", "exponential", "logistic"}
        "l1": |z - f| / 2, the distance of Dietterich and Bakiri between codeword and
        outputs; "hinge": max(0, 1 - z f); "exponential": exp(-z f); "logistic":
        log(1 + exp(-2 z f)).

    Returns
    -------
    list of float64 arrays (B, 2)
        Minus the loss of each symbol, a site each. Of a ternary code more by L(0) - log 2,
        since `decode_topk` gives log 1/2 where a site abstains, and L(0) is due there.
    """
    check_choice("loss", loss, LOSS_OF_NOTHING)
    if not isinstance(mapping, EcocMapping):
        raise ArgumentError(f"mapping must be a binary code, got {mapping!r}")
    values = np.asarray(margins, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != mapping.n_sites:
        raise ArgumentError(f"margins must have shape (B, {mapping.n_sites}), got {values.shape}")
    if loss == "l1" and np.any(np.abs(values) > 1):
        row, site = np.argwhere(np.abs(values) > 1)[0]
        raise ArgumentError(
            f"margins must lie in [-1, 1] for l1, margins[{row}, {site}] is {values[row, site]}"
        )
    signed: Sequence[NDArray[np.float64]] = (-values, values)
    if loss == "l1":
        losses = [(1 - z) / 2 for z in signed]
    elif loss == "hinge":
        losses = [np.maximum(0.0, 1 - z) for z in signed]
    elif loss == "exponential":
        with np.errstate(over="ignore"):  # a loss beyond float64 is infinite
            losses = [np.exp(-z) for z in signed]
    else:
        losses = [np.logaddexp(0.0, -2 * z) for z in signed]
    shift = LOSS_OF_NOTHING[loss] - np.log(2.0) if mapping.has_abstentions else 0.0
    return [shift - np.stack(sides, axis=1) for sides in zip(losses[0].T, losses[1].T, strict=True)]
