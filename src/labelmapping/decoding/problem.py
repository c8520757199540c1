"""What a decoder is asked, checked: log-probs, present sites, prior and candidates.

Every refusal names the argument, the rule and the value; nothing of size N is
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arguments import as_class_ids, without_torch
from ..errors import ArgumentError, ArgumentTypeError
from ..mappings import LabelMapping
from .codes import CodeArrays, code_arrays

__all__ = ["ClassPrior", "Filters", "Problem"]

ClassPrior = Callable[[NDArray[np.int64]], ArrayLike]
# The prior (N,), the allowed ids (m,) and the allowed mask (N,); empty where absent.
Filters = tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.bool_]]

# Bytes of the float64 copy of the log-probs that is decoded at a time.
BATCH_BYTES = 1 << 24
# Values of a prior checked at a time.
BLOCK = 1 << 20
# A prior given as a function is evaluated once, into a table, up to so many classes.
FEW_FOR_A_TABLE = 4_000_000
# So few candidates are scored one by one.
FEW_CANDIDATES = 20_000


@dataclass(frozen=True, eq=False)
class Problem:
    """Checked arguments of a decoder; see `decode_topk` for their meaning.

    Attributes
    ----------
    sites : tuple of int
        The present sites.
    n_rows : int
    n_candidates : int
        Classes that may be answered.
    code : CodeArrays or None
        None where the reference decoder has to answer: a code that is only known by
        encoding (hashed, ternary), a prior that is a function of many classes, or few
        candidates.
    prior_max : float
    """

    mapping: LabelMapping
    sites: tuple[int, ...]
    n_rows: int
    n_candidates: int
    code: CodeArrays | None
    prior_max: float
    _given: Sequence[Any]
    _dense_prior: NDArray[np.floating] | None
    _function_prior: ClassPrior | None
    _ids: NDArray[np.int64] | None
    _mask: NDArray[np.bool_] | None

    @classmethod
    def check(
        cls,
        mapping: LabelMapping,
        site_log_probs: Sequence[Any],
        sites: Sequence[int] | None,
        prior: ArrayLike | ClassPrior | None,
        allowed: ArrayLike | None,
    ) -> Problem:
        """Check everything but the values of the log-probs, which `batches` does."""
        chosen = tuple(range(mapping.n_sites)) if sites is None else mapping.check_sites(sites)
        if len(chosen) < mapping.dimension:
            smallest = sorted(mapping.alphabet_sizes[site] for site in chosen)
            share = 1.0
            for size in smallest:
                share *= size
            raise ArgumentError(
                f"sites must name at least {mapping.dimension} sites (the dimension of the code), "
                f"got {len(chosen)}: about {max(1.0, mapping.n_classes / share):,.0f} classes "
                "share each answer of so few"
            )
        n_rows = _check_shapes(mapping, site_log_probs, chosen)
        ids, mask = (None, None) if allowed is None else _check_allowed(allowed, mapping.n_classes)
        n_candidates = mapping.n_classes
        if ids is not None:
            n_candidates = ids.size
        elif mask is not None:
            n_candidates = int(np.count_nonzero(mask))
        dense = function = None
        prior_max = 0.0
        if callable(prior):
            function = prior
            if allowed is None and mapping.n_classes <= FEW_FOR_A_TABLE:
                dense, prior_max = _check_dense_prior(
                    _values(function, mapping.n_classes), mapping.n_classes
                )
                function = None
        elif prior is not None:
            dense, prior_max = _check_dense_prior(prior, mapping.n_classes)
        few = allowed is not None and n_candidates <= FEW_CANDIDATES
        code = None if few or function is not None else code_arrays(mapping, chosen)
        return cls(
            mapping, chosen, n_rows, n_candidates, code, prior_max,
            site_log_probs, dense, function, ids, mask,
        )  # fmt: skip

    def batches(self) -> Iterator[tuple[slice, list[NDArray[np.float64]]]]:
        """Slices of rows with their log-probs in float64, a few MB at a time, each checked."""
        width = 8 * sum(self.mapping.alphabet_sizes[site] for site in self.sites)
        step = max(1, BATCH_BYTES // width)
        for start in range(0, self.n_rows, step):
            rows = slice(start, min(start + step, self.n_rows))
            arrays = []
            for site, given in zip(self.sites, self._given, strict=True):
                array = _as_float64(f"site_log_probs of site {site}", given[rows])
                if array.size and not array.max() < np.inf:  # a NaN is its own maximum
                    bad = np.isnan(array) | (array == np.inf)
                    row, symbol = np.argwhere(bad)[0]
                    raise ArgumentError(
                        f"site_log_probs must not be NaN or +inf: site {site}, "
                        f"row {row + start}, symbol {symbol} is {array[row, symbol]}"
                    )
                arrays.append(array)
            yield rows, arrays

    def filters(self) -> Filters:
        """Prior and candidates for the compiled loops."""
        return (
            np.empty(0) if self._dense_prior is None else self._dense_prior,
            np.empty(0, np.int64) if self._ids is None else self._ids,
            np.empty(0, np.bool_) if self._mask is None else self._mask,
        )

    def prior_of(self) -> Callable[[NDArray[np.int64]], NDArray[np.float64]] | None:
        """The prior as a function of ids, its values checked; None where there is none."""
        if self._dense_prior is not None:
            dense = self._dense_prior
            return lambda ids: dense[ids].astype(np.float64)
        if self._function_prior is None:
            return None
        function = self._function_prior

        def checked(ids: NDArray[np.int64]) -> NDArray[np.float64]:
            values = _called(function, ids)
            _refuse_bad_prior(values, ids)
            return values

        return checked

    def allowed_ids(self) -> NDArray[np.int64] | None:
        """The candidates as ascending ids; None where every class is one."""
        return np.flatnonzero(self._mask) if self._mask is not None else self._ids


def _check_shapes(
    mapping: LabelMapping, site_log_probs: Sequence[Any], sites: tuple[int, ...]
) -> int:
    if len(site_log_probs) != len(sites):
        raise ArgumentError(
            f"site_log_probs must have one array for each of {len(sites)} sites, "
            f"got {len(site_log_probs)}"
        )
    n_rows = -1
    for site, given in zip(sites, site_log_probs, strict=True):
        shape = tuple(given.shape) if hasattr(given, "shape") else np.shape(given)
        n_rows = shape[0] if n_rows < 0 and shape else n_rows
        if shape != (n_rows, mapping.alphabet_sizes[site]):
            raise ArgumentError(
                f"site_log_probs of site {site} must have shape "
                f"({max(n_rows, 0)}, {mapping.alphabet_sizes[site]}), got {shape}"
            )
    return n_rows


def _as_array(name: str, given: Any) -> NDArray[Any]:
    """Real numbers as an array, of a torch tensor's type where numpy has it.

    Raises
    ------
    ArgumentTypeError
        They are complex, text or objects.
    """
    array = np.asarray(without_torch(given))
    if array.dtype.kind not in "fiub":
        raise ArgumentTypeError(f"{name} must be real numbers, got an array of {array.dtype}")
    return array


def _as_float64(name: str, given: Any) -> NDArray[np.float64]:
    return _as_array(name, given).astype(np.float64, copy=False)


def _check_allowed(
    allowed: ArrayLike, n_classes: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.bool_] | None]:
    """Ascending ids, or a mask."""
    array = np.asarray(allowed)
    if array.ndim != 1 or array.size == 0:
        raise ArgumentError(
            f"allowed must be a non-empty one-dimensional array, got shape {array.shape}"
        )
    if array.dtype == np.bool_:
        if array.size != n_classes:
            raise ArgumentError(
                f"allowed must have one flag a class, {n_classes}; got {array.size}"
            )
        if not array.any():
            raise ArgumentError("allowed must hold at least one class, all flags are False")
        return None, np.ascontiguousarray(array)
    ids = np.ascontiguousarray(as_class_ids("allowed", array, n_classes), dtype=np.int64)
    falls = np.flatnonzero(ids[1:] <= ids[:-1])
    if falls.size:
        place = int(falls[0]) + 1
        raise ArgumentError(
            f"allowed must be ascending ids without repeats: allowed[{place}] is {ids[place]} "
            f"after {ids[place - 1]}"
        )
    return ids, None


def _called(function: ClassPrior, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    values = _as_float64("prior", function(ids.copy()))
    if values.shape != ids.shape:
        raise ArgumentError(f"prior must return shape {ids.shape}, got {values.shape}")
    return values


def _values(function: ClassPrior, n_classes: int) -> NDArray[np.float64]:
    """The function's values for all classes, asked for in blocks."""
    values = np.empty(n_classes)
    for start in range(0, n_classes, BLOCK):
        stop = min(start + BLOCK, n_classes)
        values[start:stop] = _called(function, np.arange(start, stop))
    return values


def _check_dense_prior(prior: Any, n_classes: int) -> tuple[NDArray[np.floating], float]:
    dense = _as_array("prior", prior)
    if dense.shape != (n_classes,):
        raise ArgumentError(f"prior must have shape ({n_classes},), got {dense.shape}")
    dense = np.ascontiguousarray(dense)
    if dense.dtype not in (np.float32, np.float64):
        dense = dense.astype(np.float64)
    largest = -np.inf
    for start in range(0, n_classes, BLOCK):
        block = dense[start : start + BLOCK]
        _refuse_bad_prior(block, np.arange(start, start + block.size))
        largest = max(largest, float(block.max()))
    return dense, largest


def _refuse_bad_prior(values: NDArray[np.floating], ids: NDArray[np.int64]) -> None:
    bad = np.isnan(values) | (values == np.inf)
    if bad.any():
        place = int(np.argmax(bad))
        raise ArgumentError(
            f"prior must not be NaN or +inf: class {ids[place]} has {values[place]}"
        )
