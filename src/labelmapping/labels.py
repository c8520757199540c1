"""Labels to class ids and back, exactly: nothing is converted, stripped, rounded or merged.

Knows numpy only; pandas and polars columns are read by what they offer.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ArgumentError, ArgumentTypeError, LabelMappingError

__all__ = ["LabelSet", "LookalikeLabelsWarning", "UnknownLabelsError", "read_labels"]

# From here on a float of this many bits may already stand for several integers.
EXACT = {2: 2**11, 4: 2**24, 8: 2**53}
SHOWN = 5


class UnknownLabelsError(LabelMappingError, ValueError):
    """Labels that were not there when the classes were made.

    Attributes
    ----------
    labels : list
        The unknown ones, each once, in the order in which they came.
    """

    def __init__(self, labels: list[Any], count: int, name: str = "y") -> None:
        self.labels = labels
        shown = ", ".join(repr(label) for label in labels[:SHOWN])
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        super().__init__(
            f"{name} must have known labels only, and {count} rows have others: {shown}{more}"
        )


class LookalikeLabelsWarning(UserWarning):
    """Different labels that are equal but for white space around them or their Unicode form."""


def read_labels(y: Any, name: str = "y") -> NDArray[Any]:
    """Labels as a numpy array of one type, (n,): int, uint, bool, float, str, bytes or object.

    Objects are all str, or all Python ints beyond int64; whole numbers that fit come as
    int64 (or uint64). Floats must be whole and below where their precision ends.

    Parameters
    ----------
    y : array-like (n,), (n, 1) with a warning
        Lists, numpy arrays, columns of pandas or polars.

    Raises
    ------
    ArgumentError
        A label is missing (None, NaN, NA; with how many and the first row), not whole, or too
        large a float.
    ArgumentTypeError
        Labels of two types (both are named, with a row of each), or of none that is known.
    """
    values = _as_array(y, name)
    if values.ndim == 2 and values.shape[1] == 1:
        # sklearn's own warning for this is a subclass of UserWarning.
        warnings.warn(
            f"{name} has shape {values.shape}; it is read as {(len(values),)}", stacklevel=2
        )
        values = values[:, 0]
    if values.ndim != 1:
        raise ArgumentError(f"{name} must have shape (n,), got {values.shape}")
    if values.dtype.kind == "O":
        values = _homogeneous(values, name)
    if values.dtype.kind == "T" and hasattr(values.dtype, "na_object"):
        _refuse_missing(np.array([_is_missing(v) for v in values.tolist()], np.bool_), name)
    if values.dtype.kind in "mM":
        _refuse_missing(np.isnat(values), name)
    elif values.dtype.kind == "f":
        _check_whole(values, name)
    elif values.dtype.kind == "c":
        raise ArgumentTypeError(f"Complex data not supported: {name} is {values.dtype}")
    elif values.dtype.kind not in "iubUSTO":
        raise ArgumentTypeError(f"{name} must be integers, strings or bools, got {values.dtype}")
    return values


class LabelSet:
    """The distinct labels of a data set, in ascending order; a label's place is its class id.

    Parameters
    ----------
    classes : array (N,)
        Ascending and distinct, as ``numpy.unique`` gives them of what `read_labels` gives.

    Examples
    --------
    >>> labels, ids = LabelSet.of(["01", "1 ", "01", "1"])
    >>> labels.classes.tolist(), ids.tolist()
    (['01', '1', '1 '], [0, 2, 0, 1])
    >>> labels.encode(["1"]).tolist()
    [1]
    """

    def __init__(self, classes: NDArray[Any]) -> None:
        self.classes = classes
        self._places: dict[tuple[bool, Any], int] | None = None

    @classmethod
    def of(cls, y: Any, name: str = "y") -> tuple[LabelSet, NDArray[np.int64]]:
        """The labels of y, and each row's class id; errors as in `read_labels`."""
        values = read_labels(y, name)
        classes = np.unique(values)
        # Less memory than `return_inverse`, which sorts places.
        return cls(classes), np.searchsorted(classes, values).astype(np.int64, copy=False)

    def __len__(self) -> int:
        return len(self.classes)

    def find(self, y: Any, name: str = "y") -> NDArray[np.int64]:
        """Class ids of labels, -1 where one is unknown; memory does not depend on their values."""
        values = read_labels(y, name)
        if len(self.classes) == 0 or len(values) == 0:
            return np.full(len(values), -1, np.int64)
        kinds = [_family(array.dtype.kind) for array in (values, self.classes)]
        if "object" not in kinds and kinds[0] != kinds[1]:
            return np.full(len(values), -1, np.int64)
        if "object" in kinds:
            return self._looked_up(values)
        if {values.dtype.kind, self.classes.dtype.kind} == {"u", "i"}:
            return self._looked_up(values)  # numpy would compare them as floats
        places = np.searchsorted(self.classes, values)
        places = np.minimum(places, len(self.classes) - 1)
        return np.where(self.classes[places] == values, places, -1).astype(np.int64)

    def _looked_up(self, values: NDArray[Any]) -> NDArray[np.int64]:
        if self._places is None:
            self._places = {_key(label): i for i, label in enumerate(self.classes.tolist())}
        found = [self._places.get(_key(label), -1) for label in values.tolist()]
        return np.array(found, np.int64)

    def encode(self, y: Any, name: str = "y") -> NDArray[np.int64]:
        """Class ids of labels.

        Raises
        ------
        UnknownLabelsError
            Has the labels that are not among the classes.
        """
        ids = self.find(y, name)
        unknown = np.flatnonzero(ids < 0)
        if unknown.size:
            values = read_labels(y, name)[unknown].tolist()
            raise UnknownLabelsError(list(dict.fromkeys(values)), len(values), name)
        return ids

    def warn_of_lookalikes(self) -> None:
        """One warning where strings differ in outer white space or Unicode form (NFC) alone.

        They stay different labels: nothing is stripped or normalised.
        """
        if self.classes.dtype.kind not in "UTO":
            return
        seen: dict[str, str] = {}
        pairs = []
        for label in self.classes.tolist():
            if not isinstance(label, str):
                return
            plain = unicodedata.normalize("NFC", label).strip()
            if plain in seen:
                pairs.append((seen[plain], label))
            seen.setdefault(plain, label)
        if pairs:
            warnings.warn(
                f"{len(pairs)} labels equal others but for white space or Unicode form, and are "
                f"classes of their own: {pairs[0][0]!r} and {pairs[0][1]!r}",
                LookalikeLabelsWarning,
                stacklevel=3,
            )

    def decode(self, ids: ArrayLike) -> NDArray[Any]:
        """Labels of class ids, of any shape."""
        found: NDArray[Any] = self.classes[np.asarray(ids)]
        return found


def _as_array(y: Any, name: str) -> NDArray[Any]:
    """A numpy array that merges no types: lists of unlike objects stay objects."""
    if isinstance(y, np.ndarray):
        if np.ma.isMaskedArray(y):
            _refuse_missing(np.ma.getmaskarray(y).ravel(), name)
        return np.ma.getdata(y)
    for question in ("isna", "is_null"):  # pandas, polars
        ask = getattr(y, question, None)
        if callable(ask):
            _refuse_missing(np.asarray(ask()), name)
            return _from_column(y)
    if hasattr(y, "__array__") and not isinstance(y, Sequence):
        return np.asarray(y)
    if isinstance(y, (str, bytes)) or not hasattr(y, "__len__") or not hasattr(y, "__iter__"):
        raise ArgumentTypeError(f"{name} must be array-like, got {type(y).__name__}")
    if len(y) and all(isinstance(row, (list, tuple, np.ndarray)) for row in y):
        return np.array(y, object)  # so that no list merges types
    values = np.empty(len(y), object)
    values[:] = list(y)
    return values


def _from_column(y: Any) -> NDArray[Any]:
    """The values of a pandas or polars column that has no missing ones."""
    categories = getattr(getattr(y, "dtype", None), "categories", None)
    if categories is not None and hasattr(y, "astype"):  # pandas' categories, by value
        y = y.astype(categories.dtype)
    exact = getattr(getattr(y, "dtype", None), "numpy_dtype", None)  # pandas' nullable numbers
    values = y.to_numpy(dtype=exact) if exact is not None else y.to_numpy()
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind not in "iubfUSTOmM" else array


def _homogeneous(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Objects of one type: whole numbers as integers where they fit, else as they are."""
    missing = np.fromiter((_is_missing(v) for v in values), np.bool_, len(values))
    _refuse_missing(missing, name)
    kinds: dict[str, int] = {}
    for row, value in enumerate(values):
        kinds.setdefault(_kind(value), row)
    if not kinds:
        return values
    if len(kinds) > 1:
        (first, a), (second, b) = list(kinds.items())[:2]
        raise ArgumentTypeError(
            f"{name} must have labels of one type, got {first} (row {a}: {values[a]!r}) and "
            f"{second} (row {b}: {values[b]!r})"
        )
    (kind,) = kinds
    if kind == "int":
        low, high = int(min(values)), int(max(values))
        if low >= -(2**63) and high < 2**63:
            return values.astype(np.int64)
        if low >= 0 and high < 2**64:
            return values.astype(np.uint64)
        return np.array([int(v) for v in values], object)
    if kind in ("bool", "float"):
        return values.astype(kind)
    if kind in ("str", "bytes"):
        return values
    raise ArgumentTypeError(f"{name} must be integers, strings or bools, got {kind}")


def _kind(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "int"
    if isinstance(value, (float, np.floating)):
        return "float"
    for kind in (str, bytes):
        if isinstance(value, kind):
            return kind.__name__
    return type(value).__name__


def _family(kind: str) -> str:
    """What numpy's kinds can be compared with: numbers, bools, text, bytes, dates, objects."""
    families = {"i": "number", "u": "number", "f": "number", "U": "text", "T": "text"}
    return families.get(kind, "object" if kind == "O" else kind)


def _key(label: Any) -> tuple[bool, Any]:
    """A label as a dict's key: True is not 1."""
    return isinstance(label, bool), label


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def _refuse_missing(missing: NDArray[np.bool_], name: str) -> None:
    rows = np.flatnonzero(missing)
    if rows.size:
        raise ArgumentError(
            f"{name} must have a label in every row; {rows.size} are missing (NaN, None or NA), "
            f"the first in row {rows[0]}"
        )


def _check_whole(values: NDArray[np.floating], name: str) -> None:
    _refuse_missing(np.isnan(values), name)
    bad = np.flatnonzero(~np.isfinite(values) | (values != np.trunc(values)))
    if bad.size:
        raise ArgumentError(
            f"Unknown label type: continuous. {name} must be whole numbers, strings or bools; "
            f"{name}[{bad[0]}] is {values[bad[0]]}"
        )
    limit = EXACT.get(values.dtype.itemsize, 2**53)
    large = np.flatnonzero(np.abs(values) >= limit)
    if large.size:
        raise ArgumentError(
            f"{name} must be below {limit} as {values.dtype}, where every whole number is told "
            f"apart; {name}[{large[0]}] is {values[large[0]]:.0f}: different labels may be one "
            "already. Give integers or strings"
        )
