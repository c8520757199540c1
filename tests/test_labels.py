"""Labels to class ids and back: kept exactly, or refused with the row and the reason."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.labels import (
    LabelSet,
    LookalikeLabelsWarning,
    UnknownLabelsError,
    read_labels,
)


def round_trip(y: Any) -> list[Any]:
    labels, ids = LabelSet.of(y)
    assert ids.dtype == np.int64
    found: list[Any] = labels.decode(ids).tolist()
    assert np.array_equal(labels.encode(y), ids)
    return found


@given(
    st.lists(st.text(), min_size=1)
    | st.lists(st.integers(), min_size=1)
    | st.lists(st.booleans(), min_size=1)
    | st.lists(st.binary(), min_size=1)
)
def test_lists_of_one_type_come_back_as_they_were(y: list[Any]) -> None:
    found = round_trip(y)
    assert found == y
    assert [type(v) for v in found] == [type(v) for v in y]
    classes = LabelSet.of(y)[0].classes.tolist()
    assert classes == sorted(set(y))


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "bool", "U3"])
def test_classes_keep_the_arrays_type(dtype: str) -> None:
    y = np.array([1, 0, 1, 1]).astype(dtype)
    labels, ids = LabelSet.of(y)
    assert labels.classes.dtype == y.dtype
    assert ids.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("values", [[16777216, 16777217], [2**53, 2**53 + 1]])
def test_N19_large_integers_stay_two_classes(values: list[int]) -> None:
    for y in (np.array(values, np.int64), values, np.array(values, object)):
        assert round_trip(y) == values
    assert round_trip(np.array([16777216.0, 16777217.0])) == [16777216, 16777217]


@pytest.mark.parametrize(
    ("y", "limit"),
    [
        (np.array([3, 16777216], np.float32), 2**24),
        (np.array([2.0**53, 1]), 2**53),
        (np.array([2048], np.float16), 2048),
    ],
)
def test_N19_floats_that_may_have_merged_labels_are_refused(y: Any, limit: int) -> None:
    with pytest.raises(ArgumentError, match=rf"y must be below {limit} as float"):
        LabelSet.of(y)


def test_N22_labels_of_21_digits_stay_what_they_are() -> None:
    y = [10**20 + 7, 10**20 + 8, 3]
    assert round_trip(y) == y
    assert round_trip([str(v) for v in y]) == [str(v) for v in y]
    assert LabelSet.of(y)[0].find([10**20 + 7, 10**20, 3]).tolist() == [1, -1, 0]


def test_N23_unsigned_labels_and_negative_ones_are_never_rounded() -> None:
    y = np.array([2**63 + 1, 5], np.uint64)
    labels, _ = LabelSet.of(y)
    assert labels.classes.dtype == np.uint64
    assert round_trip(y) == [2**63 + 1, 5]
    assert round_trip([2**63 + 1, -5]) == [2**63 + 1, -5]
    assert labels.find([-1, 5, 2**63, 2**63 + 1]).tolist() == [-1, 0, -1, 1]
    assert labels.find(np.array([5, -1])).tolist() == [0, -1]


@pytest.mark.parametrize(
    "y",
    [[v for v in range(25) if v != 5], [10**12, -5, 7], [0, 2, 4]],
    ids=["gap", "far", "even"],
)
def test_N42_gaps_and_negative_labels_are_labels(y: list[int]) -> None:
    assert round_trip(y) == y
    assert LabelSet.of(y)[0].classes.tolist() == sorted(y)


@pytest.mark.parametrize(
    "make", [list, lambda y: np.array(y, object), pd.Series], ids=["list", "array", "series"]
)
def test_N43_mixed_types_are_refused_by_name(make: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"got int \(row 0: 1\) and str \(row 1: 'a'\)"):
        LabelSet.of(make([1, "a", 2, "b"]))
    with pytest.raises(TypeError, match="bool"):
        read_labels([True, 2])


def test_N43_strings_are_kept_verbatim() -> None:
    with pytest.warns(LookalikeLabelsWarning):
        LabelSet.of(["1", "01", "1 "])[0].warn_of_lookalikes()
    assert LabelSet.of(["1", "01", "1 "])[0].classes.tolist() == ["01", "1", "1 "]


def test_N45_unknown_labels_have_an_error_that_carries_them() -> None:
    labels, _ = LabelSet.of(np.arange(10**6))
    y = np.arange(10**6)
    y[[7, 900_000, 12]] = [-1, 10**6, -1]
    with pytest.raises(UnknownLabelsError, match="3 rows have others: -1, 1000000") as refusal:
        labels.encode(y)
    assert refusal.value.labels == [-1, 10**6]
    assert isinstance(refusal.value, ValueError)
    assert LabelSet.of(["a"])[0].find([1, 2]).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("y", "n_pairs"), [(["sku1", "sku1\n", " sku1"], 2), (["\u00e9", "e\u0301"], 1)]
)
def test_N46_lookalikes_stay_apart_with_one_warning(y: list[str], n_pairs: int) -> None:
    assert round_trip(y) == y
    with pytest.warns(LookalikeLabelsWarning, match=f"^{n_pairs} labels equal others") as told:
        LabelSet.of(y)[0].warn_of_lookalikes()
    assert len(told) == 1
    LabelSet.of(["a", "b"])[0].warn_of_lookalikes()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([5, 9, 5], dtype="Int64", index=[7, 1, 3]), [5, 9, 5]),
        (pd.Series([5, 9, 5], dtype="UInt8"), [5, 9, 5]),
        (pd.Series(["b", "a", "b"], dtype="string"), ["b", "a", "b"]),
        (pd.Series(["b", "a", "b"], dtype="object"), ["b", "a", "b"]),
        (pd.Series([True, False], dtype="boolean"), [True, False]),
        (pd.Categorical(["x", "z"], categories=["z", "y", "x"]), ["x", "z"]),
        (pd.Series(pd.Categorical([3, 1], categories=[1, 2, 3])), [3, 1]),
        (pl.Series([5, 9, 5]), [5, 9, 5]),
        (pl.Series(["b", "a"]), ["b", "a"]),
        (pl.Series(["b", "a"], dtype=pl.Categorical), ["b", "a"]),
    ],
    ids=lambda c: str(getattr(c, "dtype", "")),
)
def test_N48_columns_of_data_frames_are_read_like_lists(column: Any, expected: list[Any]) -> None:
    labels, ids = LabelSet.of(column)
    assert labels.classes.tolist() == sorted(set(expected))
    assert labels.decode(ids).tolist() == expected


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([5, pd.NA, 5, pd.NA], dtype="Int64"),
        pd.Series(["a", None, "a", None]),
        pd.Series(pd.Categorical(["a", None, "b", None])),
        pl.Series([5, None, 5, None]),
        ["a", None, "b", None],
        [1.0, float("nan"), 2.0, float("nan")],
        np.array([1.0, np.nan, 2.0, np.nan]),
        np.array(["a", np.nan, "a", None], object),
        np.array(["2020-01-01", "NaT", "2020-01-01", "NaT"], "datetime64[D]"),
        np.ma.array([1, 2, 1, 7], mask=[False, True, False, True]),
        np.array(["a", np.nan, "b", np.nan], np.dtypes.StringDType(na_object=np.nan)),
    ],
    ids=lambda c: type(c).__name__,
)
def test_N48_missing_labels_are_refused_with_their_number_and_row(column: Any) -> None:
    with pytest.raises(ArgumentError, match=r"2 are missing .*the first in row 1"):
        LabelSet.of(column)


def test_N48_a_column_vector_is_flattened_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"y has shape \(3, 1\); it is read as \(3,\)"):
        assert read_labels(np.array([[5], [9], [5]])).tolist() == [5, 9, 5]
    with pytest.raises(ArgumentError, match=r"shape \(n,\), got \(2, 2\)"):
        read_labels([[1, 2], [3, 4]])


def test_N49_memory_does_not_depend_on_the_values() -> None:
    labels, ids = LabelSet.of([0, 5999999, 10**12, -3])
    assert len(labels) == 4
    assert ids.tolist() == [1, 2, 3, 0]
    assert labels.find([10**12, 10**13]).tolist() == [3, -1]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0.5, 1.0], r"Unknown label type: continuous.*y\[0\] is 0.5"),
        ([1.0, np.inf], r"y\[1\] is inf"),
        ("abc", "y must be array-like, got str"),
        (7, "y must be array-like, got int"),
        ([{1}, {2}], "got set"),
        (np.array([1 + 2j]), "Complex data not supported"),
    ],
    ids=str,
)
def test_what_is_no_label_is_refused(y: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_labels(y)


def test_labels_of_other_types_are_unknown_and_never_equal() -> None:
    numbers, words = LabelSet.of([0, 1])[0], LabelSet.of(np.array(["0", "1"]))[0]
    assert numbers.find([True, False]).tolist() == [-1, -1]
    assert LabelSet.of([True, False])[0].find([0, 1]).tolist() == [-1, -1]
    assert LabelSet.of([10**20, 1])[0].find([True]).tolist() == [-1]
    assert words.find([0, 1]).tolist() == [-1, -1]
    assert words.find(np.array(["2020-01-01"], "datetime64[D]")).tolist() == [-1]
    assert words.find(["1", "0"]).tolist() == [1, 0]
    with (
        pytest.raises(ArgumentTypeError, match="and int"),
        pytest.warns(UserWarning, match="is read as"),
    ):
        LabelSet.of([["a"], [1]])


def test_no_labels_are_no_classes() -> None:
    labels, ids = LabelSet.of([])
    assert len(labels) == 0
    assert len(ids) == 0
    assert labels.find(["a"]).tolist() == [-1]
    assert LabelSet.of(["a"])[0].find([]).tolist() == []
