"""Next-item logs: what is read, what is refused, and which item is for what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelmapping.atomic import file_sha256
from labelmapping.datasets import sequences
from labelmapping.datasets.sequences import (
    ItemSequences,
    download_sequences,
    load_sequences,
    read_sequences,
)
from labelmapping.errors import ArgumentError, ArgumentTypeError, DataNotFoundError

LOG = "1 1 2 3 4 5\n7 6 1 2 9\n"


def write(folder: Path, text: str, name: str = "log") -> Path:
    path = folder / f"{name}.txt"
    path.write_text(text, encoding="utf-8")
    return path


def known(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make a small file the known log "Beauty"."""
    monkeypatch.setitem(sequences.CHECKSUMS, "Beauty", file_sha256(path))


def test_items_are_counted_from_0_and_the_last_two_left_out(tmp_path: Path) -> None:
    log = read_sequences(write(tmp_path, LOG, "shop"))
    assert (log.name, log.n_items) == ("shop", 9)  # items that never occur count too
    assert [items.tolist() for items in log.train] == [[0, 1, 2], [5, 0]]
    assert log.validation.tolist() == [3, 1]
    assert log.test.tolist() == [4, 8]
    assert {items.dtype for items in (*log.train, log.validation, log.test)} == {np.dtype(np.int64)}


def test_windows_by_hand(tmp_path: Path) -> None:
    log = read_sequences(write(tmp_path, LOG))
    histories, items = log.windows("train", 2)
    assert histories.tolist() == [[-1, 0], [0, 1], [-1, 5]]
    assert items.tolist() == [1, 2, 0]
    histories, items = log.windows("validation", 2)
    assert histories.tolist() == [[1, 2], [5, 0]]
    assert items.tolist() == [3, 1]
    histories, items = log.windows("test", 4)
    assert histories.tolist() == [[0, 1, 2, 3], [-1, 5, 0, 1]]
    assert items.tolist() == [4, 8]
    assert histories.dtype == items.dtype == np.int64


@given(
    st.lists(st.lists(st.integers(0, 99), min_size=4, max_size=9), min_size=1, max_size=5),
    st.integers(1, 11),
)
def test_windows_hold_what_came_before(users: list[list[int]], length: int) -> None:
    log = ItemSequences("drawn", 100, [np.array(items) for items in users])
    expected = {"train": [], "validation": [], "test": []}  # type: dict[str, list[list[int]]]
    for items in users:
        for place in range(1, len(items)):
            part = {1: "test", 2: "validation"}.get(len(items) - place, "train")
            before = [-1] * length + items[:place]
            expected[part].append([*before[-length:], items[place]])
    for part, rows in expected.items():
        histories, following = log.windows(part, length)
        assert np.column_stack([histories, following]).tolist() == rows


def test_windows_refuse_other_parts_and_lengths(tmp_path: Path) -> None:
    log = read_sequences(write(tmp_path, LOG))
    with pytest.raises(ArgumentError, match="part must be one of train, validation, test; got 'a'"):
        log.windows("a", 3)
    with pytest.raises(ArgumentError, match="length must be at least 1, got 0"):
        log.windows("train", 0)
    with pytest.raises(ArgumentTypeError, match="length must be an integer"):
        log.windows("train", 2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"log\.txt must have a line a user, it has none"),
        ("1 1 2 3 4\n\n2 1 2 3 4\n", "line 2 must have a user .* got an empty line"),
        ("1 1 2 3 4\n2 5 6 7\n", "line 2 must have a user and 4 items or more, got 3 items"),
        ("1\n", "line 1 must have .* got 0 items"),
        ("1 1 2 3 4\n2 1 x 3 4\n", "line 2 must have integers of up to 18 digits, got 'x'"),
        ("1 1 2.0 3 4\n", "line 1 must have integers .* got '2.0'"),
        ("1 1 1_0 3 4\n", "line 1 must have integers .* got '1_0'"),
        ("1 1 ² 3 4\n", "line 1 must have integers .* got '²'"),
        ("1 1 9999999999999999999 3 4\n", "up to 18 digits, got '9999999999999999999'"),
        ("1 1 2 3 0\n", "line 1 must have items from 1 on, got 0"),
        ("1 1 -2 3 4\n", "line 1 must have items from 1 on, got -2"),
        ("5 1 2 3 4\n6 1 2 3 4\n5 1 2 3 4\n", "line 3 must be another user .* 5 has line 1"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_sequences(write(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"1 1 2 3 \xff4\n")
    with pytest.raises(ArgumentError, match=r"log\.txt must be UTF-8 text"):
        read_sequences(tmp_path / "log.txt")
    with pytest.raises(DataNotFoundError, match=r"path must be a log, .*none\.txt is not there"):
        read_sequences(tmp_path / "none.txt")


def test_a_known_log_lies_in_the_folder_or_one_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sequences").mkdir()
    known(monkeypatch, write(tmp_path / "sequences", LOG, "Beauty"))
    assert load_sequences(data_dir=tmp_path).test.tolist() == [4, 8]
    assert load_sequences("Beauty", data_dir=tmp_path / "sequences").name == "Beauty"
    monkeypatch.setenv("LABELMAPPING_DATA", str(tmp_path))
    assert load_sequences().n_items == 9
    # The nearer one is read, and read only if it is the known one.
    write(tmp_path, LOG.replace("9", "8"), "Beauty")
    with pytest.raises(ArgumentError, match=r"Beauty\.txt must have the SHA-256 .*, it has "):
        load_sequences()


def test_a_missing_log_says_where_it_may_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataNotFoundError, match=r"must hold Beauty\.txt or sequences"):
        load_sequences(data_dir=tmp_path)
    monkeypatch.delenv("LABELMAPPING_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="LABELMAPPING_DATA"):
        load_sequences()
    with pytest.raises(ArgumentError, match="name must be one of Beauty, Sports_and_Outdoors"):
        load_sequences("Toys", data_dir=tmp_path)


def test_download_checks_before_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The download itself, from a file URL instead of the net."""
    source = write(tmp_path, LOG, "Beauty")
    monkeypatch.setattr(sequences, "SOURCE", f"{tmp_path.as_uri()}/{{name}}.txt")
    with pytest.raises(ArgumentError, match=r"file:.*Beauty\.txt must have the SHA-256"):
        download_sequences("Beauty", tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())
    known(monkeypatch, source)
    log = load_sequences(data_dir=tmp_path / "new", download=True)
    assert log.test.tolist() == [4, 8]
    assert (tmp_path / "new" / "Beauty.txt").read_text(encoding="utf-8") == LOG
    monkeypatch.setattr(sequences, "SOURCE", "file:///nowhere/{name}.txt")
    assert load_sequences(data_dir=tmp_path / "new", download=True).n_items == 9  # not again


@pytest.mark.parametrize(
    ("name", "users", "items", "entries"),
    [("Beauty", 22_363, 12_101, 198_502), ("Sports_and_Outdoors", 35_598, 18_357, 296_337)],
)
def test_the_known_logs(data_dir: Path, name: str, users: int, items: int, entries: int) -> None:
    log = load_sequences(name, data_dir=data_dir)
    assert (len(log.sequences), log.n_items) == (users, items)
    everything = np.concatenate(log.sequences)
    assert everything.size == entries
    assert np.bincount(everything).min() == 5
    # Nobody has an item twice, so ranking the items of a history cannot win anything.
    assert all(len(np.unique(items)) == len(items) for items in log.sequences)
