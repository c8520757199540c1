"""Rows of numbers with a label, from parquet files, held in memory. Knows pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ArgumentError, ArgumentTypeError, MissingExtraError
from ..labels import LabelSet
from .rows import LearningRows, Rows, RowsModule, find_files, warn_of_unseen

__all__ = ["ParquetRows"]


class ParquetRows(RowsModule):
    """Rows of parquet files: columns of numbers as inputs, one column as the label.

    Inputs are float32 (B, d). Labels are strings, kept as they are and in ascending order, or
    integers, which become their decimal digits in numeric order. All rows are in memory:
    4 n d + 8 n bytes for n rows of d numbers; only the columns that are needed are read,
    65,536 rows at a time.

    Parameters
    ----------
    files
        Paths or patterns ("rows/part-*.parquet", "rows/**/*.parquet"); a file named twice is
        read once.
    label
        The column of labels.
    features
        Columns of numbers (integers, floats, bools), in this order; or one column of lists, all of
        a length. Default: all columns but the label and what pandas stored as the index, in the
        order of the first of `files`. Numbers become float32: integers beyond 2^24 are rounded.
    held_out
        Share of the rows, in [0, 1), that are watched and not trained on, drawn from the seed
        in every class as evenly as its number allows. A class keeps one row at least, so one of
        a single row stays in training.
    test_files
        Rows with labels to evaluate on. The id of a label that `files` lack is -1: such rows
        count as errors.
    predict_files
        Rows to predict; a column of labels is not read.
    batch_size
        Rows a batch.
    seed
        Decides what is held out, and the order of training.
    num_workers
        Processes that put batches together; 0, none, is fastest for rows in memory.

    Raises
    ------
    MissingExtraError
        In setup, where pyarrow is absent.
    DataNotFoundError
        In setup: a file is missing.
    ArgumentError, ArgumentTypeError
        In setup: a file that is no parquet; a column that is missing or has another type; a label
        that is null; a feature that is null, NaN or infinite as float32; lists of several
        lengths. The message has the file, the column and the row, counted from 0 in the file.
    """

    def __init__(
        self,
        files: str | Sequence[str],
        *,
        label: str,
        features: str | Sequence[str] | None = None,
        held_out: float = 0.1,
        test_files: str | Sequence[str] | None = None,
        predict_files: str | Sequence[str] | None = None,
        batch_size: int = 128,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(held_out, batch_size, seed, num_workers)
        if not isinstance(label, str):
            raise ArgumentTypeError(f"label must be a column's name, got {label!r}")
        named = [features] if isinstance(features, str) else features
        if named is not None and (not named or label in named):
            raise ArgumentError(
                f"features must be columns other than the label, {label!r}; got {features!r}"
            )
        self.files = {"files": files, "test_files": test_files, "predict_files": predict_files}
        self.label = label
        self.features = None if named is None else list(named)

    def _read_learning(self) -> LearningRows:
        files = self._open("files")
        labels, ids = self._read_labels(files)
        labels.warn_of_lookalikes()
        rows = _Table(self._read_features(files), ids)
        train, held_out = self._stratified(ids, len(labels))
        return LearningRows(_names(labels), rows, ids, train, held_out)

    def _read_test(self) -> tuple[list[str], Rows]:
        known, _ = self._read_labels(self._open("files"))
        files = self._open("test_files")
        labels, places = self._read_labels(files)
        kinds = [type(value).__name__ for s in (known, labels) for value in s.classes[:1].tolist()]
        if len(set(kinds)) > 1:
            raise ArgumentTypeError(
                f"test_files must have labels of the type that files have: column {self.label!r} "
                f"has {kinds[0]} in files and {kinds[1]} in test_files"
            )
        found = known.find(labels.classes)
        ids = found[places]
        rows = _Table(self._read_features(files), ids)
        warn_of_unseen(map(str, labels.classes[found < 0].tolist()), int((ids < 0).sum()))
        return _names(known), rows

    def _read_predict(self) -> tuple[None, Rows]:
        return None, _Table(self._read_features(self._open("predict_files")), None)

    def _settings(self) -> dict[str, Any]:
        return {"label": self.label, "features": self.features}

    def _open(self, name: str) -> list[_File]:
        return [_File(path) for path in find_files(name, self.files[name])]

    def _read_labels(self, files: Sequence[_File]) -> tuple[LabelSet, NDArray[np.int64]]:
        """The labels of files, and the class id of each row."""
        parts = [file.labels(self.label) for file in files]
        kinds = {
            type(v): file for file, (values, _) in zip(files, parts, strict=True) for v in values
        }
        if len(kinds) > 1:
            (one, first), (other, second) = list(kinds.items())[:2]
            raise ArgumentTypeError(
                f"label must be of one type in all files: column {self.label!r} has {one.__name__} "
                f"in {first.path} and {other.__name__} in {second.path}"
            )
        classes, ids = LabelSet.of([value for values, _ in parts for value in values])
        starts = np.cumsum([0, *(len(values) for values, _ in parts)])
        rows = [ids[start:][places] for start, (_, places) in zip(starts[:-1], parts, strict=True)]
        return classes, np.concatenate(rows)

    def _read_features(self, files: Sequence[_File]) -> NDArray[np.float32]:
        """Inputs (n, d); d is known when the first rows are."""
        columns = self.features
        if columns is None:
            # By name and in the order of training, wherever the columns lie in these files.
            first = _File(find_files("files", self.files["files"])[0])
            columns = [name for name in first.names if name not in (self.label, *first.index)]
            if not columns:
                raise ArgumentError(
                    f"features must be at least one column, {first.path} has {first.names} only"
                )
        for file in files:
            file.check_features(columns)
        inputs: NDArray[np.float32] | None = None
        done, total = 0, sum(file.n_rows for file in files)
        for file in files:
            for block in file.features(columns):
                if inputs is None:
                    inputs = np.empty((total, block.shape[1]), np.float32)
                if block.shape[1] != inputs.shape[1]:
                    raise ArgumentError(
                        f"features must have one number of values in all rows, {inputs.shape[1]}; "
                        f"{file.path} has {block.shape[1]} in column {columns[0]!r}"
                    )
                inputs[done : done + len(block)] = block
                done += len(block)
        if inputs is None:
            raise ArgumentError(f"{files[0].path} must have rows, it has none")
        return inputs


class _File:
    """One parquet file; what is wrong with it is said with its path."""

    def __init__(self, path: str) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise MissingExtraError(
                "ParquetRows needs pyarrow: pip install 'labelmapping[fit]'"
            ) from error
        self.path = path
        try:
            self.file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise ArgumentError(
                f"{path} must be a parquet file that can be read: {error}"
            ) from error
        self.schema = self.file.schema_arrow
        self.names: list[str] = self.schema.names
        pandas: dict[str, Any] = self.schema.pandas_metadata or {}
        # Of row labels that pandas stored; where it has no column for them it says how they go.
        self.index = [name for name in pandas.get("index_columns", []) if isinstance(name, str)]
        self.n_rows: int = self.file.metadata.num_rows

    def _type(self, column: str) -> Any:
        if self.names.count(column) != 1:
            raise ArgumentError(
                f"{self.path} must have one column {column!r}, it has {self.names.count(column)}; "
                f"its columns are {', '.join(map(repr, self.names))}"
            )
        return self.schema.field(column).type

    def _batches(self, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Blocks of rows, each with the number of its first."""
        import pyarrow as pa

        row = 0
        try:
            for batch in self.file.iter_batches(columns=list(columns)):
                yield row, batch
                row += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise ArgumentError(f"{self.path} must be sound, reading it failed: {error}") from error

    def labels(self, column: str) -> tuple[list[Any], NDArray[np.int64]]:
        """The distinct labels, as they come, and the place of each row's label among them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = self._type(column)
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (text or pa.types.is_string_view(kind) or pa.types.is_integer(kind)):
            raise ArgumentTypeError(
                f"label must be a column of strings or integers, {column!r} of {self.path} "
                f"is {kind}"
            )
        place: dict[Any, int] = {}
        parts = [np.empty(0, np.int64)]
        for row, batch in self._batches([column]):
            values = batch.column(0).cast(kind)
            if values.null_count:
                where = row + pc.index(values.is_null(), True).as_py()
                raise ArgumentError(
                    f"label must be there in every row, {column!r} of {self.path} is null in "
                    f"row {where}"
                )
            coded = values.dictionary_encode()
            here = [place.setdefault(v, len(place)) for v in coded.dictionary.to_pylist()]
            parts.append(np.array(here, np.int64)[coded.indices.to_numpy()])
        return list(place), np.concatenate(parts)

    def check_features(self, columns: Sequence[str]) -> None:
        """Refuse columns that are missing, or that are neither numbers nor one column of lists."""
        kinds = {column: self._type(column) for column in columns}
        lists = [column for column, kind in kinds.items() if _is_list(kind)]
        wrong = {
            column: kind
            for column, kind in kinds.items()
            if not _is_number(kind.value_type if column in lists else kind)
        }
        if wrong:
            shown = ", ".join(f"{column!r} ({kind})" for column, kind in wrong.items())
            raise ArgumentTypeError(
                f"features must be columns of numbers, {self.path} has {shown}; "
                "features=[...] names others"
            )
        if lists and len(columns) > 1:
            raise ArgumentError(
                f"features must be columns of numbers or one column of lists, {self.path} has "
                f"lists in {', '.join(map(repr, lists))} beside others; features=[...] names one"
            )

    def features(self, columns: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Blocks (rows, d) of columns that `check_features` let pass."""
        for row, batch in self._batches(columns):
            if not len(batch):
                continue
            if _is_list(self._type(columns[0])):
                block = self._lists(columns[0], batch.column(columns[0]), row)
            else:
                values = [self._numbers(c, batch.column(c), row) for c in columns]
                block = np.stack(values, axis=1)
            bad = np.argwhere(~np.isfinite(block))
            if bad.size:
                place, column = map(int, bad[0])
                name = columns[min(column, len(columns) - 1)]
                raise ArgumentError(
                    f"features must be finite as float32, {name!r} of {self.path} is not in "
                    f"row {row + place}"
                )
            yield block

    def _lists(self, column: str, values: Any, row: int) -> NDArray[np.float32]:
        import pyarrow.compute as pc

        self._refuse_nulls(column, values, row)
        sizes = pc.list_value_length(values).to_numpy(zero_copy_only=False)
        uneven = np.flatnonzero(sizes != sizes[0])
        if uneven.size or not sizes[0]:
            where = int(uneven[0]) if uneven.size else 0
            raise ArgumentError(
                f"features must be lists of one length, {column!r} of {self.path} has "
                f"{sizes[where]} values in row {row + where}"
                + (f" and {sizes[0]} in row {row}" if uneven.size else "")
            )
        numbers = self._numbers(column, values.flatten(), row, int(sizes[0]))
        return numbers.reshape(len(values), -1)

    def _numbers(self, column: str, values: Any, row: int, each: int = 1) -> NDArray[np.float32]:
        """Values as float32; of lists, `each` is how many a row has."""
        self._refuse_nulls(column, values, row, each)
        with np.errstate(over="ignore"):  # what became infinite is refused with its row
            numbers: NDArray[np.float32] = values.to_numpy(zero_copy_only=False).astype(np.float32)
        return numbers

    def _refuse_nulls(self, column: str, values: Any, row: int, each: int = 1) -> None:
        import pyarrow.compute as pc

        if values.null_count:
            where = row + pc.index(values.is_null(), True).as_py() // each
            raise ArgumentError(
                f"features must be there in every row, {column!r} of {self.path} has a null in "
                f"row {where}"
            )


@dataclass(frozen=True, eq=False)
class _Table:
    """Rows in memory: batches (inputs, ids), or inputs alone."""

    inputs: NDArray[np.float32]
    ids: NDArray[np.int64] | None

    def contents(self) -> Iterator[bytes | memoryview]:
        yield str(self.inputs.shape).encode()
        yield self.inputs.data

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, numbers: Tensor) -> Any:
        inputs = torch.from_numpy(self.inputs[numbers.numpy()])
        if self.ids is None:
            return inputs
        return inputs, torch.from_numpy(self.ids[numbers.numpy()])


def _names(labels: LabelSet) -> list[str]:
    return [str(label) for label in labels.classes.tolist()]


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )
