"""How good an ensemble's answers are, over batches that come one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .arguments import as_integer
from .decoding import decode_topk, log_partition
from .errors import ArgumentError, ArgumentTypeError
from .learners import Ensemble
from .mappings import LabelMapping

__all__ = [
    "CalibrationBin",
    "Evaluation",
    "answers",
    "class_scores",
    "evaluate",
    "labelled_rows",
    "log_probabilities",
]

BINS = 15
# Of the log of a class's probability: far below what a bin or a printed digit shows.
TOLERANCE = 1e-4
# An id that stands for no class.
IGNORED = -100
# What a site that abstains adds to a class's score.
ABSTAINS = np.log(0.5)


@dataclass(frozen=True)
class CalibrationBin:
    """The rows whose best class has a probability in ``(upper - 1/15, upper]``.

    Attributes
    ----------
    upper : float
    rows : int
    confidence, accuracy : float
        Means over these rows: of the best class's probability, and of its being right.
    """

    upper: float
    rows: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Attributes
    ----------
    rows : int
    unknown_rows : int
        Those whose class is not among the N (id -1): no answer to them is right.
    sites : tuple of int
        That answered.
    top : dict of int to float
        For each k the share of all rows whose class is among the k best.
    site_accuracies : list of float
        For each of `sites`, the share of known rows whose symbol is its best one; a site that
        abstains on a row's class is not asked. NaN where it never was.
    log_loss : float, optional
        Mean of -log P(class) over known rows, in nats; its exponential is the perplexity.
        Infinite where a class was held impossible.
    calibration_error : float, optional
        Expected calibration error in 15 even bins (Guo et al., 2017): the mean over rows of
        how far a bin's accuracy is from its confidence.
    bins : list of CalibrationBin
        Those that have rows.
    """

    rows: int
    unknown_rows: int
    sites: tuple[int, ...]
    top: dict[int, float]
    site_accuracies: list[float]
    log_loss: float | None
    calibration_error: float | None
    bins: list[CalibrationBin]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values: figures that are no finite number are None."""
        values = asdict(self)
        values["top"] = {str(k): share for k, share in self.top.items()}
        values["site_accuracies"] = [a if np.isfinite(a) else None for a in self.site_accuracies]
        if self.log_loss is not None and not np.isfinite(self.log_loss):
            values["log_loss"] = None
        return values


def evaluate(
    ensemble: Ensemble,
    batches: Iterable[tuple[Tensor, Tensor]],
    ks: Sequence[int] = (1, 5),
    *,
    calibration: bool = True,
) -> Evaluation:
    """Accuracy, site accuracies, log-loss and calibration of an ensemble on labelled rows.

    One pass, and in memory no more than a batch's answers: its site log-probs and the largest k
    classes a row.

    Parameters
    ----------
    ensemble : Ensemble
        All its sites answer.
    batches : iterable of (inputs, ids)
        Inputs (B, ...), and int64 class ids (B,) in -1..N-1, -1 for a class that the ensemble
        does not know. Rows with -100, which stands for no class, are left out.
    ks : sequence of int, default (1, 5)
        Each at least 1; above N, N answers are looked at.
    calibration : bool, default True
        Also log-loss and calibration, which need every row's sum over the classes: cheap for a
        hundred thousand of them, and up to a scan of all classes a row for more.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        There is no row, an id is out of range, or a batch is no pair of tensors.
    """
    mapping = ensemble.mapping
    ks = sorted({as_integer("ks", k, 1) for k in ks})
    if not ks:
        raise ArgumentError("ks must have at least one k")
    rows = unknown = 0
    hits = dict.fromkeys(ks, 0)
    site_hits, site_rows = (np.zeros(len(ensemble.sites), np.int64) for _ in range(2))
    loss = 0.0
    bins = np.zeros((BINS, 3))  # rows, sums of confidence, rows that are right
    for batch in batches:
        inputs, ids = labelled_rows(batch, mapping.n_classes)
        if not len(ids):
            continue
        log_probs = answers(ensemble, inputs)
        best = decode_topk(mapping, log_probs, min(ks[-1], mapping.n_classes), sites=ensemble.sites)
        right = best.ids == ids[:, None]
        for k in ks:
            hits[k] += int(right[:, :k].any(axis=1).sum())
        known = ids >= 0
        rows, unknown = rows + len(ids), unknown + int((~known).sum())
        for n, (site, of_site) in enumerate(zip(ensemble.sites, log_probs, strict=True)):
            symbols = mapping.symbols_at(np.maximum(ids, 0), site)
            asked = known & (symbols >= 0)
            site_rows[n] += int(asked.sum())
            site_hits[n] += int((of_site.argmax(axis=1) == symbols)[asked].sum())
        if calibration:
            truth = class_scores(mapping, log_probs, np.maximum(ids, 0), ensemble.sites)
            total = _log_totals(ensemble, log_probs)
            loss += float((total - truth)[known].sum())
            confidence = np.exp(np.minimum(best.scores[:, 0] - total, 0.0))
            at = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
            np.add.at(bins, at, np.stack([np.ones(len(ids)), confidence, right[:, 0]], axis=1))
    if not rows:
        raise ArgumentError("batches must have at least one row")
    with np.errstate(invalid="ignore"):
        accuracies = (site_hits / site_rows).tolist()
    filled = [
        CalibrationBin((n + 1) / BINS, int(count), sums / count, hit / count)
        for n, (count, sums, hit) in enumerate(bins.tolist())
        if count
    ]
    error = sum(b.rows * abs(b.accuracy - b.confidence) for b in filled) / rows
    return Evaluation(
        rows,
        unknown,
        ensemble.sites,
        {k: hits[k] / rows for k in ks},
        accuracies,
        loss / (rows - unknown) if calibration and rows > unknown else None,
        error if calibration else None,
        filled,
    )


def answers(ensemble: Ensemble, inputs: Tensor) -> list[NDArray[np.float32]]:
    """The sites' log-probs (B, q_i) of a batch.

    Raises
    ------
    ArgumentError
        The networks do not take such inputs.
    """
    try:
        return ensemble.site_log_probs(inputs, max(1, len(inputs)))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ArgumentError(
            f"inputs must be what the networks were trained on, got {inputs.dtype} of shape "
            f"{tuple(inputs.shape)}: {lines[0]}"
        ) from error


def class_scores(
    mapping: LabelMapping,
    log_probs: Sequence[NDArray[np.float32]],
    ids: NDArray[np.int64],
    sites: Sequence[int],
) -> NDArray[np.float64]:
    """The score of each row's own class (B,): log-probs (B, q_i), an array for each of `sites`."""
    total = np.zeros(len(ids))
    for site, of_site in zip(sites, log_probs, strict=True):
        symbols = mapping.symbols_at(ids, site)
        said = of_site[np.arange(len(ids)), np.maximum(symbols, 0)].astype(np.float64)
        total += np.where(symbols >= 0, said, ABSTAINS)
    return total


def log_probabilities(
    ensemble: Ensemble, log_probs: Sequence[NDArray[np.float32]], scores: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Scores (B, k) as log-probabilities over the N classes, good to 1e-4; at most 0."""
    return np.minimum(scores - _log_totals(ensemble, log_probs)[:, None], 0.0)


def _log_totals(
    ensemble: Ensemble, log_probs: Sequence[NDArray[np.float32]]
) -> NDArray[np.float64]:
    found = log_partition(ensemble.mapping, log_probs, sites=ensemble.sites, tolerance=TOLERANCE)
    return (found.lower + found.upper) / 2


def labelled_rows(batch: Any, n_classes: int) -> tuple[Tensor, NDArray[np.int64]]:
    """A batch's inputs and ids (-1 for an unknown class), checked; without rows of no class."""
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        raise ArgumentTypeError(
            f"batches must be pairs of inputs and class ids, got {type(batch).__name__}"
        )
    inputs, ids = batch
    if not isinstance(inputs, Tensor) or not isinstance(ids, Tensor):
        raise ArgumentTypeError(
            "batches must be pairs of tensors, got "
            f"{type(inputs).__name__} and {type(ids).__name__}"
        )
    if ids.is_floating_point() or ids.ndim != 1 or len(ids) != len(inputs):
        raise ArgumentTypeError(
            f"ids must be integers of shape ({len(inputs)},), one a row; got {ids.dtype} of shape "
            f"{tuple(ids.shape)}"
        )
    known = ids != IGNORED
    if not bool(known.all()):
        inputs, ids = inputs[known.to(inputs.device)], ids[known]
    plain = ids.cpu().numpy().astype(np.int64)
    if len(plain) and not -1 <= plain.min() <= plain.max() < n_classes:
        raise ArgumentError(
            f"ids must lie in -1..{n_classes - 1}, got {plain.min()}..{plain.max()}"
        )
    return inputs, plain
