"""What comes next in sequences of tokens, from text files: words, or the items of a log.

Knows no network: histories suit `NextItemAttention`, and full ones `NextWordLstm`.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arguments import as_integer, check_choice
from ..datasets.sequences import PADDING
from ..errors import ArgumentError
from ..labels import LabelSet
from .rows import UNSEEN, LearningRows, Rows, RowsModule, find_files, warn_of_unseen

__all__ = ["TokenSequences"]

logger = logging.getLogger(__name__)
SPLITS = ("lines", "tokens")
TRAIN, HELD_OUT, TEST = range(3)
# A line that is split by tokens: two make a row to train on, the others go to the other parts.
SHORTEST = 4


class TokenSequences(RowsModule):
    """Next-token prediction: a line of a UTF-8 text file is a sequence, of tokens between spaces.

    Inputs are int64 (B, length): the class ids of the tokens before, at most `length` of
    them, with -1 to the left of a short history. The class is the token that follows. Every
    token of a line but its first is a row; histories do not pass a line's start, so running
    text goes on one line. Empty lines are passed over, but to predict. Classes are the tokens
    of the training part, the most frequent first, equal ones in ascending order. In memory are
    the vocabulary and some 40 bytes a token; histories are cut out batch by batch.

    Parameters
    ----------
    files
        Paths or patterns ("text/*.txt"); a file named twice is read once.
    length
        Tokens of a history that are kept, the last ones.
    id_first
        The first token of a line is a number or name of the sequence (a user's), and no class.
    split
        "lines": the last `held_out` share of the lines is held out, and `test_files` are for
        the test. "tokens", usual for logs: of each line of 4 tokens or more the last is for the
        test and the one before it is held out; what comes before these is trained on, and
        shorter lines whole.
    held_out
        Share of the lines, in [0, 1), rounded to whole ones. For "tokens" it says nothing.
    min_count
        Tokens that are fewer in the training part are unknown.
    unknown
        The label of a class that all unknown tokens share, "<unk>" for example. Default: no
        such class. Unknown tokens are then left out of histories; where one follows, or nothing
        known went before, is no row to train on or to hold out. In the test it is a row, and the
        id of an unknown token is -1, which counts as an error.
    full_windows
        Only rows whose history has `length` tokens, as `NextWordLstm` needs them.
    test_files
        Sequences to evaluate on, for "lines": every token but a line's first.
    predict_files
        Sequences to go on with: a row a line, its history is the end of the line. A line
        without known tokens is a history of -1 alone.
    batch_size
        Rows a batch.
    seed
        Decides the order of training, and of the held-out rows.
    num_workers
        Processes that put batches together; 0, none, is fastest for most.

    Raises
    ------
    DataNotFoundError
        In setup: a file is missing.
    ArgumentError
        In setup: a file that is no UTF-8; nothing to train on; with `full_windows`, a line
        to go on with that is too short. The message has the file and the line, counted from 1.
    """

    def __init__(
        self,
        files: str | Sequence[str],
        *,
        length: int = 50,
        id_first: bool = False,
        split: Literal["lines", "tokens"] = "lines",
        held_out: float = 0.1,
        min_count: int = 1,
        unknown: str | None = None,
        full_windows: bool = False,
        test_files: str | Sequence[str] | None = None,
        predict_files: str | Sequence[str] | None = None,
        batch_size: int = 128,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        super().__init__(held_out, batch_size, seed, num_workers)
        self.files, self.test_files, self.predict_files = files, test_files, predict_files
        self.length = as_integer("length", length, 1)
        self.id_first = id_first
        self.split = check_choice("split", split, SPLITS)
        if split == "tokens" and test_files is not None:
            raise ArgumentError(
                "test_files must not be given with split='tokens', whose test is the last token "
                f"of each line; got {test_files!r}"
            )
        self.min_count = as_integer("min_count", min_count, 1)
        if unknown is not None and (not isinstance(unknown, str) or unknown.split() != [unknown]):
            raise ArgumentError(f"unknown must be one token without white space, got {unknown!r}")
        self.unknown = unknown
        self.full_windows = full_windows

    def _read_learning(self) -> LearningRows:
        labels, lines, parts = self._read_training()
        LabelSet.of(labels)[0].warn_of_lookalikes()
        windows = self._windows(lines, labels)
        # A history of unknown tokens alone teaches nothing.
        kept = (windows.targets >= 0) & (windows.known_before > 0)
        part = parts[windows.places]
        train, held_out = (np.flatnonzero(kept & (part == one)) for one in (TRAIN, HELD_OUT))
        return LearningRows(labels, windows, windows.targets, train, held_out)

    def _read_test(self) -> tuple[list[str], Rows]:
        labels, lines, parts = self._read_training()
        if self.split == "lines":
            lines = _Lines.read(find_files("test_files", self.test_files), self.id_first)
            parts = np.full(len(lines.tokens), TEST)
        windows = self._windows(lines, labels)
        windows = windows.only(parts[windows.places] == TEST)
        unseen = lines.tokens[windows.places[windows.targets == UNSEEN]]
        warn_of_unseen([lines.vocabulary[token] for token in np.unique(unseen)], len(unseen))
        return labels, windows

    def _read_predict(self) -> tuple[list[str], Rows]:
        labels, _, _ = self._read_training()
        paths = find_files("predict_files", self.predict_files)
        lines = _Lines.read(paths, self.id_first, keep_empty=True)
        tokens, before = self._known(lines, labels)
        firsts, ends = before[lines.starts[:-1]], before[lines.starts[1:]]
        short = np.flatnonzero(ends - firsts < self.length)
        if self.full_windows and short.size:
            raise ArgumentError(
                f"predict_files must have {self.length} known tokens in each line, as "
                f"full_windows asks for; {lines.place(int(short[0]))} has "
                f"{(ends - firsts)[short[0]]}"
            )
        return labels, _Histories(tokens, firsts, ends, self.length)

    def _settings(self) -> dict[str, Any]:
        return {
            name: getattr(self, name)
            for name in ("length", "id_first", "split", "min_count", "unknown", "full_windows")
        }

    def _read_training(self) -> tuple[list[str], _Lines, NDArray[np.int64]]:
        """The vocabulary, the lines, and which part each token is a target of."""
        lines = _Lines.read(find_files("files", self.files), self.id_first)
        parts = np.full(len(lines.tokens), TRAIN)
        if self.split == "lines":
            n_lines = len(lines.starts) - 1
            n_held_out = round(n_lines * self.held_out)
            if self.held_out and not n_held_out:
                logger.warning(
                    "held_out=%g of %d lines is none: nothing is watched", self.held_out, n_lines
                )
            parts[lines.starts[n_lines - n_held_out] :] = HELD_OUT
        else:
            ends = lines.starts[1:][np.diff(lines.starts) >= SHORTEST]
            parts[ends - 1], parts[ends - 2] = TEST, HELD_OUT
        counts = np.bincount(lines.tokens[parts == TRAIN], minlength=len(lines.vocabulary))
        kept = {
            token: count
            for token, count in zip(lines.vocabulary, counts.tolist(), strict=True)
            if count >= self.min_count and token != self.unknown
        }
        if self.unknown is not None:
            kept[self.unknown] = int(counts.sum()) - sum(kept.values())
        return sorted(kept, key=lambda token: (-kept[token], token)), lines, parts

    def _known(
        self, lines: _Lines, labels: list[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Class ids of the known tokens, then -1; and how many come before each token."""
        found = lines.ids(labels, self.unknown)
        before = np.concatenate([[0], np.cumsum(found >= 0)])
        return np.append(found[found >= 0], PADDING), before

    def _windows(self, lines: _Lines, labels: list[str]) -> _Windows:
        """A row for each token of a line but its first."""
        tokens, before = self._known(lines, labels)
        first = np.repeat(lines.starts[:-1], np.diff(lines.starts))
        places = np.flatnonzero(np.arange(len(first)) > first)
        histories = _Histories(tokens, before[first[places]], before[places], self.length)
        windows = _Windows(histories, places, lines.ids(labels, self.unknown)[places])
        return windows.only(windows.known_before >= self.length) if self.full_windows else windows


@dataclass(frozen=True, eq=False)
class _Lines:
    """Lines of text files as numbers of tokens, in the order in which these first came."""

    vocabulary: list[str] = field(repr=False)
    tokens: NDArray[np.int64] = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)  # of each line, and the end of the last
    counts: dict[str, int]  # lines of each file

    @classmethod
    def read(cls, paths: Sequence[str], id_first: bool, keep_empty: bool = False) -> _Lines:
        number: dict[str, int] = {}
        tokens, starts = array("q"), array("q", [0])
        counts = {}
        for path in paths:
            before = len(starts)
            with open(path, "rb") as file:
                for line, raw in enumerate(file, start=1):
                    try:
                        words = raw.decode("utf-8-sig" if line == 1 else "utf-8").split()
                    except UnicodeDecodeError as error:
                        raise ArgumentError(
                            f"{path}, line {line} must be UTF-8 text: {error}"
                        ) from error
                    if words or keep_empty:
                        tokens.extend(number.setdefault(w, len(number)) for w in words[id_first:])
                        starts.append(len(tokens))
            counts[path] = len(starts) - before
        return cls(list(number), np.array(tokens, np.int64), np.array(starts, np.int64), counts)

    def ids(self, labels: list[str], unknown: str | None) -> NDArray[np.int64]:
        """The class id of each token, -1 where it has none."""
        known = {label: number for number, label in enumerate(labels)}
        rest = UNSEEN if unknown is None else known[unknown]
        table = np.array([known.get(token, rest) for token in self.vocabulary], np.int64)
        return table[self.tokens]

    def place(self, line: int) -> str:
        """File and number of a line, where empty ones were kept."""
        for path, count in self.counts.items():
            if line < count:
                return f"{path}, line {line + 1}"
            line -= count
        raise IndexError(line)


@dataclass(frozen=True, eq=False)
class _Histories:
    """Rows that are the last `length` of tokens[first:end]; the last of all tokens is padding."""

    tokens: NDArray[np.int64]
    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]
    length: int

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, numbers: Tensor) -> Tensor:
        rows = numbers.numpy()
        places = self.ends[rows, None] + np.arange(-self.length, 0)
        inside = places >= self.firsts[rows, None]
        return torch.from_numpy(self.tokens[np.where(inside, places, -1)])


@dataclass(frozen=True, eq=False)
class _Windows:
    """Rows that are histories and what followed: where that stands, and its class id."""

    histories: _Histories
    places: NDArray[np.int64]
    targets: NDArray[np.int64]

    @property
    def known_before(self) -> NDArray[np.int64]:
        """How many known tokens each history could have."""
        return self.histories.ends - self.histories.firsts

    def only(self, chosen: NDArray[np.bool_]) -> _Windows:
        h = self.histories
        histories = _Histories(h.tokens, h.firsts[chosen], h.ends[chosen], h.length)
        return _Windows(histories, self.places[chosen], self.targets[chosen])

    def contents(self) -> Iterator[bytes | memoryview]:
        for values in (self.histories.tokens, self.histories.firsts, self.histories.ends):
            yield str(len(values)).encode()
            yield values.data

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        return self.histories[numbers], torch.from_numpy(self.targets[numbers.numpy()])
