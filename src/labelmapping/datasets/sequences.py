"""Next-item logs: what each user bought, in time order, with the last two items left out.

The logs are Amazon reviews in the form that S3-Rec (Zhou et al., 2020) made common: users and
items with five entries or more, a line a user, the user's number and then the items' numbers,
from 1. Other logs in that form can be read too. Knows no code and no network.
"""

from __future__ import annotations

import os
import re
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..arguments import as_integer, check_choice
from ..atomic import file_sha256, replacing
from ..errors import ArgumentError, DataNotFoundError

__all__ = [
    "CHECKSUMS",
    "PADDING",
    "ItemSequences",
    "download_sequences",
    "load_sequences",
    "read_sequences",
]

# The repository of ICLRec (Chen et al., 2022) at one commit: files never change there.
SOURCE = (
    "https://raw.githubusercontent.com/salesforce/ICLRec/"
    "4afb54a036ebbf4166ed5858122d89c0642251a7/data/{name}.txt"
)
CHECKSUMS = {
    "Beauty": "226cce9c3105299ca0db9615d7d3fb32b3175e90da43100ae352599f0f0107b8",
    "Sports_and_Outdoors": "2a095e0648872beb9982408958290f5d655db5be2911c3756b5446de9f0b8de2",
}
PARTS = ("train", "validation", "test")
# What stands before a history that is shorter than its window.
PADDING = -1
# One item to learn from and one to predict in training, then validation and test.
SHORTEST = 4


@dataclass(frozen=True, eq=False)
class ItemSequences:
    """The items of each user, in time order, from 0.

    Attributes
    ----------
    name : str
        Of the log.
    n_items : int
        N: the largest item number of the file.
    sequences : list of int64 arrays
        A user each, four items or more. The last item is for the test, the one before
        it for validation, the rest for training.
    """

    name: str
    n_items: int
    sequences: list[NDArray[np.int64]] = field(repr=False)

    @property
    def train(self) -> list[NDArray[np.int64]]:
        """The training items of each user: all but the last two."""
        return [items[:-2] for items in self.sequences]

    @property
    def validation(self) -> NDArray[np.int64]:
        """The item of each user that settings are chosen by: the last but one."""
        return np.array([items[-2] for items in self.sequences])

    @property
    def test(self) -> NDArray[np.int64]:
        """The last item of each user."""
        return np.array([items[-1] for items in self.sequences])

    def windows(self, part: str, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Histories and what followed them.

        Parameters
        ----------
        part : {"train", "validation", "test"}
            A row for each training item but a user's first; or a row for each user, whose
            history is everything before the validation, or before the test item.
        length : int
            Items of a history that are kept, the last ones; at least 1.

        Returns
        -------
        histories : int64 array (n, length)
            With -1 (`PADDING`) to the left of short ones.
        items : int64 array (n,)
            The next item of each.
        """
        check_choice("part", part, PARTS)
        length = as_integer("length", length, 1)
        # How many of a user's last items are out of the part's sight.
        left_out = {"train": 2, "validation": 1, "test": 0}[part]
        pieces, following = [], []
        for items in self.sequences:
            seen = items[: len(items) - left_out]
            padded = np.concatenate([np.full(length, PADDING), seen[:-1]])
            spans = np.lib.stride_tricks.sliding_window_view(padded, length)[1:]
            first = 0 if part == "train" else len(spans) - 1
            pieces.append(spans[first:])
            following.append(seen[1 + first :])
        return np.concatenate(pieces), np.concatenate(following)


def load_sequences(
    name: str = "Beauty", *, data_dir: str | Path | None = None, download: bool = False
) -> ItemSequences:
    """Read one of the known logs, checked to be the file that published figures are made with.

    Parameters
    ----------
    name : {"Beauty", "Sports_and_Outdoors"}
        22,363 users and 12,101 items; 35,598 users and 18,357 items.
    data_dir : path, optional
        Has ``NAME.txt`` or ``sequences/NAME.txt``. Default: the environment variable
        ``LABELMAPPING_DATA``.
    download : bool, default False
        Fetch the file into that folder where it is missing.

    Raises
    ------
    DataNotFoundError
        No folder is named, or it has no such file.
    ArgumentError
        The name is unknown, or the file is another one (both checksums are shown).
    """
    check_choice("name", name, CHECKSUMS)
    folder = data_dir if data_dir is not None else os.environ.get("LABELMAPPING_DATA")
    if folder is None:
        raise DataNotFoundError(
            f"the log {name!r} is needed: pass data_dir (--data-dir), or set LABELMAPPING_DATA, "
            f"to a folder with {name}.txt"
        )
    for path in (Path(folder) / f"{name}.txt", Path(folder) / "sequences" / f"{name}.txt"):
        if path.is_file():
            _check_file(path, name, str(path))
            return read_sequences(path)
    if download:
        return read_sequences(download_sequences(name, folder))
    raise DataNotFoundError(
        f"data_dir must hold {name}.txt or sequences/{name}.txt, {folder} holds neither; "
        "download=True fetches it"
    )


def download_sequences(name: str, data_dir: str | Path) -> Path:
    """Fetch a known log into ``NAME.txt`` of a folder; a file that is another one is not kept."""
    check_choice("name", name, CHECKSUMS)
    source, path = SOURCE.format(name=name), Path(data_dir) / f"{name}.txt"
    with urllib.request.urlopen(source, timeout=60) as answer, replacing(path) as temporary:
        temporary.write_bytes(answer.read())
        _check_file(temporary, name, source)
    return path


def read_sequences(path: str | Path) -> ItemSequences:
    """Read a log: a line a user, the user's number, then four items' numbers or more, from 1.

    Raises
    ------
    DataNotFoundError
        There is no such file.
    ArgumentError
        A line is empty, has something that is no integer, an item below 1, fewer than
        four items, or the number of an earlier user; the line and the value are named.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise DataNotFoundError(f"path must be a log, {path} is not there") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} must be UTF-8 text: {error}") from error
    if not lines:
        raise ArgumentError(f"{path} must have a line a user, it has none")
    line_of: dict[int, int] = {}
    sequences = []
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        values = [_number(place, word) for word in line.split()]
        if len(values) <= SHORTEST:
            raise ArgumentError(
                f"{place} must have a user and {SHORTEST} items or more, "
                f"got {f'{len(values) - 1} items' if values else 'an empty line'}"
            )
        user, *items = values
        if user in line_of:
            raise ArgumentError(
                f"{place} must be another user than those before, {user} has line {line_of[user]}"
            )
        if min(items) < 1:
            raise ArgumentError(f"{place} must have items from 1 on, got {min(items)}")
        line_of[user] = number
        sequences.append(np.array(items, np.int64) - 1)
    n_items = int(max(items.max() for items in sequences)) + 1
    return ItemSequences(path.stem, n_items, sequences)


def _number(place: str, word: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", word):
        raise ArgumentError(f"{place} must have integers of up to 18 digits, got {word!r}")
    return int(word)


def _check_file(path: Path, name: str, source: str) -> None:
    found = file_sha256(path)
    if found != CHECKSUMS[name]:
        raise ArgumentError(
            f"{source} must have the SHA-256 {CHECKSUMS[name]}, it has {found}: "
            f"it is not the known log {name!r}; read_sequences reads others"
        )
