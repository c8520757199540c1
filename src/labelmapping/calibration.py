"""One temperature for the sites' answers, so that their sum is a probability to rely on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .arguments import as_integer
from .decoding import log_partition
from .errors import ArgumentError, MissingExtraError
from .learners import Ensemble
from .learners.ensemble import tempered
from .mappings import LabelMapping
from .scoring import answers, class_scores, labelled_rows

__all__ = ["FittedTemperature", "best_temperature", "class_log_probs", "fit_temperature"]

LOWEST, HIGHEST = 0.02, 200.0
# Of the temperature, relative: so near the best one the loss is flat.
PRECISION = 1e-2
# Log-probs at a temperature that are held at a time.
BLOCK = 1 << 22


@dataclass(frozen=True)
class FittedTemperature:
    """What `fit_temperature` found.

    Attributes
    ----------
    temperature : float
        In 0.02..200.
    rows : int
        That it was fitted to.
    sites : tuple of int
        That it holds for: others, or fewer, want another temperature.
    log_loss, log_loss_at_1 : float
        Mean of -log P(class) over these rows, in nats, at the temperature and as the sites answer.
    """

    temperature: float
    rows: int
    sites: tuple[int, ...]
    log_loss: float
    log_loss_at_1: float

    def to_dict(self) -> dict[str, float | int | list[int]]:
        """As JSON values."""
        return {**asdict(self), "sites": list(self.sites)}


def fit_temperature(
    ensemble: Ensemble,
    batches: Iterable[tuple[Tensor, Tensor]],
    max_rows: int | None = 2000,
) -> FittedTemperature:
    """The temperature at which the classes' probabilities have the least log-loss.

    Separate learners see the same input and err together, so the sum of n of their log-probs is
    too sure: probabilities are too near 0 and 1. `Ensemble.with_temperature` divides every site's
    log-probs by the temperature and normalises them again (Guo et al., "On Calibration of Modern
    Neural Networks", 2017, with one temperature for all sites). The order of the classes stays
    as it is; where sites abstain (ternary codes), it may not.

    Parameters
    ----------
    ensemble : Ensemble
        All its sites answer, at temperature 1, whichever it has.
    batches : iterable of (inputs, ids)
        As in `scoring.evaluate`; rows that no learner was trained on, and other ones than those
        that the result is judged by. Rows of no class or an unknown one (-100, -1) are left out.
    max_rows : int or None, default 2000
        Of those, the first so many are taken, at least 1: a few hundred, in random order, are
        enough for one number. None for all.

    Notes
    -----
    Memory is that of the rows' site log-probs, 4 bytes a symbol, twice. Each of some ten
    temperatures that are tried takes a scan of the classes for every row.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        As `scoring.evaluate`; no row has a known class, or a row's class was held impossible.

    Warns
    -----
    UserWarning
        The best temperature is above 200: the answers say nothing of these rows. Or it is below
        0.02: almost all rows are right, and are too few to tell.
    """
    left = math.inf if max_rows is None else as_integer("max_rows", max_rows, 1)
    ensemble = ensemble.with_temperature(1.0)
    parts: list[list[NDArray[np.float32]]] = []
    kept = []
    for batch in batches:
        inputs, ids = labelled_rows(batch, ensemble.mapping.n_classes)
        known = np.flatnonzero(ids >= 0)
        known = known if len(known) <= left else known[: int(left)]
        if len(known):
            parts.append(answers(ensemble, inputs[torch.from_numpy(known).to(inputs.device)]))
            kept.append(ids[known])
            left -= len(known)
        if not left:
            break
    if not parts:
        raise ArgumentError("batches must have at least one row of a known class")
    log_probs = [np.concatenate(of_site) for of_site in zip(*parts, strict=True)]
    found = best_temperature(ensemble.mapping, log_probs, np.concatenate(kept), ensemble.sites)
    end = None
    if found.temperature > 0.99 * HIGHEST:
        end = f"{HIGHEST:g} or more: the sites' answers say nothing of these rows"
    elif found.temperature < 1.01 * LOWEST:
        end = f"{LOWEST:g} or less: almost all of these rows are right, and are too few"
    if end is not None:
        warnings.warn(f"the best temperature is {end}", UserWarning, stacklevel=2)
    return found


def best_temperature(
    mapping: LabelMapping,
    log_probs: Sequence[NDArray[np.float32]],
    ids: NDArray[np.int64],
    sites: Sequence[int],
) -> FittedTemperature:
    """The same of log-probs (B, q_i), one array for each of `sites`, and class ids (B,)."""
    try:
        from scipy.optimize import minimize_scalar
    except ImportError as error:
        raise MissingExtraError(
            "a temperature needs scipy: pip install 'labelmapping[sklearn]'"
        ) from error

    def log_loss(log_temperature: float) -> float:
        temperature = math.exp(log_temperature)
        return float(-class_log_probs(mapping, log_probs, ids, sites, temperature).mean())

    said = class_log_probs(mapping, log_probs, ids, sites, 1.0)
    if not np.isfinite(said).all():
        row = int(np.flatnonzero(~np.isfinite(said))[0])
        raise ArgumentError(
            "batches must have rows whose class is possible to the sites: class "
            f"{ids[row]}, the {row + 1}. known row's, has probability 0 at any temperature"
        )
    bounds = (math.log(LOWEST), math.log(HIGHEST))
    found = minimize_scalar(log_loss, bounds=bounds, method="bounded", options={"xatol": PRECISION})
    return FittedTemperature(
        math.exp(found.x), len(ids), tuple(sites), float(found.fun), float(-said.mean())
    )


def class_log_probs(
    mapping: LabelMapping,
    log_probs: Sequence[NDArray[np.float32]],
    ids: NDArray[np.int64],
    sites: Sequence[int],
    temperature: float,
) -> NDArray[np.float64]:
    """Log-probability over the N classes of each row's class (B,), at a temperature."""
    found = np.empty(len(ids))
    step = max(1, BLOCK // sum(of_site.shape[1] for of_site in log_probs))
    for start in range(0, len(ids), step):
        rows = slice(start, start + step)
        warm = [tempered(of_site[rows], temperature) for of_site in log_probs]
        total = log_partition(mapping, warm, sites=sites).upper
        found[rows] = class_scores(mapping, warm, ids[rows], sites) - total
    return found
