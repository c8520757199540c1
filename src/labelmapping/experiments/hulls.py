"""Which of N points are vertices of their convex hull. Knows points only, no network.

A point is a vertex where a direction puts it strictly before all others. Either that direction or
a convex combination of the others that is the point is found and checked: no answer rests on a
solver's word.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, MissingExtraError

try:
    from scipy.optimize import nnls
    from scipy.special import betainc, ndtri
except ImportError as error:
    raise MissingExtraError(
        "convex hulls need scipy: pip install 'labelmapping[experiments,sklearn]'"
    ) from error

__all__ = [
    "are_vertices",
    "convex_position_bound",
    "convex_position_doubt",
    "in_convex_position",
    "wilson_interval",
]

Points = NDArray[np.float64]

# A combination is a point where it is this near, in units of the farthest point's distance.
NEAR = 1e-9
# Others that are looked at together, for each dimension and one more.
GROUP = 16
EPSILON = float(np.finfo(np.float64).eps)


def are_vertices(points: Points, chosen: Iterable[int] | None = None) -> list[bool | None]:
    """Whether points are vertices of the hull of all.

    Parameters
    ----------
    points : float array (N, d)
        Of two equal points neither is a vertex.
    chosen : iterable of int, optional
        Rows to decide about, in this order. Default: all.

    Returns
    -------
    list of bool or None
        None where neither answer could be checked: the point is within 1e-9 of the hull of the
        others, and no direction was found to hold in spite of rounding.

    Examples
    --------
    >>> are_vertices(np.array([[0, 0], [2, 0], [0, 2], [2, 2], [1, 1.5]]))
    [True, True, True, True, False]
    """
    points, mean, unit = _checked(points)
    rows = range(len(points)) if chosen is None else chosen
    return [_is_vertex(points, mean, unit, row) for row in rows]


def in_convex_position(points: Points) -> bool | None:
    """Whether every point is a vertex of the hull of all: the paper's convex property.

    None where some point could not be decided and all others are vertices.
    """
    points, mean, unit = _checked(points)
    # The first one inside ends it, and it is most likely in the middle.
    answers = []
    for row in np.argsort(((points - mean) ** 2).sum(axis=1), kind="stable"):
        answers.append(_is_vertex(points, mean, unit, int(row)))
        if answers[-1] is False:
            return False
    return None if None in answers else True


def convex_position_bound(n_points: int, dimension: int) -> float:
    """How probable it is, at least, that N standard Gaussian points are in convex position.

    One point's own direction puts it before another with probability
    1 - I_{1/2}(d/2, 1/2) / 2, I the regularised incomplete beta function; there are N (N - 1)
    ordered pairs.

    Examples
    --------
    >>> convex_position_bound(100, 2), 1 - convex_position_bound(20901, 128) < 1e-10
    (0.0, True)
    """
    return max(0.0, 1 - convex_position_doubt(n_points, dimension))


def convex_position_doubt(n_points: int, dimension: int) -> float:
    """What `convex_position_bound` leaves to 1; may be as small as a float can be, or above 1."""
    pair = float(betainc(dimension / 2, 0.5, 0.5)) / 2
    return n_points * (n_points - 1) * pair


def wilson_interval(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a probability.

    Examples
    --------
    >>> [round(end, 4) for end in wilson_interval(0, 100)]
    [0.0, 0.037]
    """
    z = float(ndtri((1 + level) / 2))
    share, weight = hits / trials, z**2 / trials
    middle = (share + weight / 2) / (1 + weight)
    half = z * np.sqrt(share * (1 - share) / trials + weight / (4 * trials)) / (1 + weight)
    # The ends that are exact are so in spite of rounding.
    low = 0.0 if hits == 0 else middle - float(half)
    return low, 1.0 if hits == trials else middle + float(half)


def _checked(points: Points) -> tuple[Points, Points, float]:
    """The points as they are, their mean, and the largest distance from it."""
    points = np.asarray(points, np.float64)
    if points.ndim != 2 or len(points) < 2 or points.shape[1] < 1:
        raise ArgumentError(f"points must be an array (N, d), N >= 2, got {points.shape}")
    if not np.isfinite(points).all():
        raise ArgumentError("points must be finite")
    mean = points.mean(axis=0)
    return points, mean, float(np.sqrt(((points - mean) ** 2).sum(axis=1).max())) or 1.0


def _is_vertex(points: Points, mean: Points, unit: float, row: int) -> bool | None:
    # Differences of what was given: a point moved before would be another one.
    offsets = (points[row] - np.delete(points, row, axis=0)) / unit
    # Away from the mean, or from the origin, which suits points on a sphere.
    if _is_before(offsets, points[row] - mean) or _is_before(offsets, points[row]):
        return True
    group = GROUP * (offsets.shape[1] + 1)
    among = np.argsort((offsets**2).sum(axis=1), kind="stable")[:group]
    while True:
        try:
            combination, direction = _nearest_combination(offsets[among])
        except RuntimeError:  # it did not end in 3 N rounds
            return None
        if np.linalg.norm(combination) <= NEAR:
            return False
        if _is_before(offsets, direction):
            return True
        # The direction is right for some of the others; so add those that it is most wrong for.
        wrong = np.setdiff1d(np.argsort(offsets @ direction, kind="stable")[:group], among)
        if not wrong.size:
            return None
        among = np.concatenate([among, wrong])


def _nearest_combination(offsets: Points) -> tuple[Points, Points]:
    """How far a point is from a convex combination of others, and a direction, both (d,).

    By least squares with weights >= 0 whose sum is 1 up to an error that counts as much: 0 is
    reached where the point is in their hull. What is left over puts it before them, where one
    can.
    """
    system = np.vstack([-offsets.T, np.ones(len(offsets))])
    target = np.zeros(len(system))
    target[-1] = 1
    weights, _ = nnls(system, target)
    return weights @ offsets / weights.sum(), (target - system @ weights)[:-1]


def _is_before(offsets: Points, direction: Points) -> bool:
    """Whether direction @ offset > 0 for all offsets, whatever rounding did."""
    error = 4 * (len(direction) + 2) * EPSILON * (np.abs(offsets) @ np.abs(direction))
    return bool((offsets @ direction > error).all())
