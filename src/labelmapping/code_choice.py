"""Which code an estimator takes for its classes, and why."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import check_array

from .arguments import as_integer
from .errors import ArgumentError
from .mappings import LabelMapping, LearnedMapping, MixedMapping, SimplexMapping
from .mappings.prototypes import WIDEST, class_statistics

__all__ = ["CODES", "ChosenCode", "choose_code"]

CODES = ("auto", "one-hot", "learned", "simplex", "mixed")
# Up to 400 classes a learnt code of eight sites has more outputs than there are classes. On
# Omniglot's first 200, 400 and 800, and on all 1,623, one-hot was more accurate, and up to 800 the
# default learner took half the time (benchmarks/README.md, "Estimator").
ONE_HOT_UP_TO = 1000
SITES = 8
# Symbols of a learnt code's site: so many times the root of N. Natural symbols need room
# (benchmarks/README.md, "Linear learners").
ROOM = 2.5
# Rows of X that are averaged at a time, and dimensions that wide ones are projected to.
BLOCK, PROJECTED = 4096, 256


class ChosenCode(NamedTuple):
    """A code and the reason for it, a clause."""

    mapping: LabelMapping
    reason: str


class CodeWish(NamedTuple):
    """What the caller asked for; see `LabelMappingClassifier`."""

    mapping: str | LabelMapping
    n_sites: int | None
    prototypes: ArrayLike | None
    max_classes: int | None


def choose_code(
    wish: CodeWish,
    n_classes: int,
    X: Any,
    ids: NDArray[np.int64] | None,
    seed: int,
) -> ChosenCode:
    """The code for N classes.

    Parameters
    ----------
    wish : CodeWish
    n_classes : int
        N.
    X : array-like (n, d)
        Rows whose class means a learnt code may follow.
    ids : int64 array (n,), optional
        Their classes; None where more rows are to come.
    seed : int

    Raises
    ------
    ArgumentError, ArgumentTypeError
        The wish cannot be met, with what would be needed.
    """
    if isinstance(wish.mapping, LabelMapping):
        return _given(wish, n_classes)
    if wish.mapping not in CODES:
        raise ArgumentError(
            f"mapping must be a LabelMapping or one of {', '.join(CODES)}; got {wish.mapping!r}"
        )
    room = n_classes
    if wish.max_classes is not None:
        room = as_integer("max_classes", wish.max_classes, n_classes)
    _refuse_idle(wish, n_classes, room)
    code, reason = _kind(wish, n_classes, room, X, ids)
    if code == "one-hot":
        return ChosenCode(MixedMapping.one_hot(n_classes), reason)
    n_sites = SITES if wish.n_sites is None else as_integer("n_sites", wish.n_sites, 2)
    if code == "learned":
        return ChosenCode(_learned(wish, n_classes, n_sites, X, ids, seed), reason)
    kind = MixedMapping if code == "mixed" else SimplexMapping
    mapping = kind(max(room, 2), n_sites=n_sites)
    return ChosenCode(_with_classes(mapping, n_classes), reason)


def _refuse_idle(wish: CodeWish, n_classes: int, room: int) -> None:
    """Refuse what would do nothing with the code that is asked for by name."""
    for name, idle, codes in (
        ("n_sites", wish.n_sites is not None, ("one-hot",)),
        ("prototypes", wish.prototypes is not None, ("one-hot", "simplex", "mixed")),
        ("max_classes", room > n_classes, ("one-hot", "learned")),
    ):
        if idle and wish.mapping in codes:
            raise ArgumentError(
                f"{name} must be None with mapping={wish.mapping!r}, which has no use for it"
            )


def _kind(
    wish: CodeWish,
    n_classes: int,
    room: int,
    X: Any,
    ids: NDArray[np.int64] | None,
) -> tuple[str, str]:
    """The kind of code, and why."""
    assert isinstance(wish.mapping, str)
    reasons = (
        (wish.mapping != "auto", wish.mapping, "asked for"),
        (
            room == n_classes <= ONE_HOT_UP_TO
            and ids is not None
            and wish.prototypes is None
            and wish.n_sites is None,
            "one-hot",
            f"{n_classes} classes are few, and no code is better there",
        ),
        (
            room > n_classes,
            "simplex",
            f"room for {room} classes is wanted, and new ones have no prototypes yet",
        ),
        (wish.prototypes is not None, "learned", "prototypes are given"),
        (ids is None, "simplex", "classes are to come, and a learnt code needs their prototypes"),
    )
    for holds, code, reason in reasons:
        if holds:
            return code, reason
    try:
        _matrix(X)
    except (ValueError, TypeError):
        return "simplex", "X is no matrix of finite numbers, whose class means a code could follow"
    return "learned", f"{n_classes} classes have means that a code can follow"


def _given(wish: CodeWish, n_classes: int) -> ChosenCode:
    mapping = wish.mapping
    assert isinstance(mapping, LabelMapping)
    for name, value in (("n_sites", wish.n_sites), ("prototypes", wish.prototypes)):
        if value is not None:
            raise ArgumentError(f"{name} must be None where the mapping itself is given")
    if wish.max_classes is not None and wish.max_classes > mapping.capacity:
        raise ArgumentError(
            f"max_classes must be at most the mapping's capacity, {mapping.capacity}; got "
            f"{wish.max_classes}"
        )
    if mapping.has_abstentions:
        raise ArgumentError("mapping must have a symbol for every class at every site")
    return ChosenCode(_with_classes(mapping, n_classes), "given")


def _with_classes(mapping: LabelMapping, n_classes: int) -> LabelMapping:
    """The mapping with N classes: grown, or its first codewords by the same recipe."""
    if mapping.n_classes == n_classes:
        return mapping
    if mapping.n_classes < n_classes:
        return mapping.grow(n_classes)
    refusal = f"mapping must have the {n_classes} classes of y, and has {mapping.n_classes}"
    try:
        fewer = LabelMapping.from_config({**mapping.to_config(), "n_classes": n_classes})
    except ArgumentError as error:
        raise ArgumentError(refusal) from error
    # Where the length follows from N (binary codes) the recipe for fewer is another code.
    ids = np.arange(n_classes)
    same = fewer.alphabet_sizes == mapping.alphabet_sizes and fewer.capacity == mapping.capacity
    if not (same and np.array_equal(fewer.encode(ids), mapping.encode(ids))):
        raise ArgumentError(
            f"{refusal}; a code of this kind for {n_classes} classes has other codewords"
        )
    return fewer


def _learned(
    wish: CodeWish,
    n_classes: int,
    n_sites: int,
    X: Any,
    ids: NDArray[np.int64] | None,
    seed: int,
) -> LabelMapping:
    covariance = None
    if wish.prototypes is not None:
        means = np.asarray(wish.prototypes)
        if means.ndim != 2 or len(means) != n_classes:
            raise ArgumentError(
                f"prototypes must have shape ({n_classes}, d), a row for each class in ascending "
                f"order of the labels; got {means.shape}"
            )
    elif ids is None:
        raise ArgumentError(
            'prototypes must be given for mapping="learned" where rows come in parts'
        )
    else:
        means, covariance = _statistics(_matrix(X), ids, n_classes)
    if n_classes == 1:
        return MixedMapping.one_hot(1)
    size = max(2, math.ceil(ROOM * math.sqrt(n_classes)))
    return LearnedMapping.fit(
        means, n_sites, alphabet_size=min(size, n_classes), covariance=covariance, seed=seed
    )


def _statistics(
    X: Any, ids: NDArray[np.int64], n_classes: int
) -> tuple[NDArray[np.float32], NDArray[np.float64] | None]:
    """Class means (N, d'), and how rows scatter about them, if they do; wide ones are projected."""
    width = X.shape[1]
    project = width > (PROJECTED if issparse(X) else WIDEST)
    batches = (
        (X[start : start + BLOCK], ids[start : start + BLOCK])
        for start in range(0, len(ids), BLOCK)
    )
    means, covariance = class_statistics(
        batches, n_classes, n_components=PROJECTED if project else None
    )
    # Rows alone in their classes, or all alike there, scatter by rounding errors.
    scatters = np.diag(covariance) > 1e-9 * means.var(axis=0, dtype=np.float64)
    return means, covariance if scatters.any() else None


def _matrix(X: Any) -> Any:
    """X as a matrix of finite numbers, dense or CSR; scikit-learn's errors where it is none."""
    return check_array(X, accept_sparse="csr", accept_large_sparse=True)
