"""Plato's "Republic" as the paper reads it: 118,684 words, 7,409 of them distinct.

The text is the dialogue of Project Gutenberg's eBook 1497 (Jowett), from the last
"BOOK I." on. The paper's rule a) is read as: the double dash becomes a space;
so read, the procedure gives the paper's counts exactly. Knows no code and no network.
"""

from __future__ import annotations

import hashlib
import os
import string
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..atomic import write_text
from ..errors import ArgumentError, DataNotFoundError

__all__ = ["Republic", "download_republic", "load_republic", "split_words"]

SOURCE = "https://www.gutenberg.org/ebooks/1497.txt.utf-8"
N_WORDS, N_DISTINCT = 118_684, 7_409
# sha256 of the words, one space between them: of the procedure's result, since
# Project Gutenberg alters headers and line ends of its files now and then.
WORDS_SHA256 = "192a316795bb7ff61072d940c4d15336e621807e7880dc0af2804b35b7cde918"
CONTEXT = 50


@dataclass(frozen=True, eq=False)
class Republic:
    """The text as word ids.

    Attributes
    ----------
    vocabulary : list of str
        By falling frequency in the training part, then by the alphabet.
    ids : int64 array (118684,)
        The text.
    n_train_words : int
        The words before the held-out tail.
    """

    vocabulary: list[str] = field(repr=False)
    ids: NDArray[np.int64] = field(repr=False)
    n_train_words: int

    def windows(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """All 118,634 windows: 50 words (n, 50), the next word (n,), and which are held out.

        A window is held out where its next word lies in the tail, so no word of
        the tail is ever a target of training.
        """
        spans = np.lib.stride_tricks.sliding_window_view(self.ids, CONTEXT + 1)
        held_out = np.arange(CONTEXT, len(self.ids)) >= self.n_train_words
        return spans[:, :-1].copy(), spans[:, -1].copy(), held_out


def split_words(text: str) -> list[str]:
    """Steps a) to e) of the paper: dash, spaces, punctuation, letters only, lower case."""
    punctuation = str.maketrans("", "", string.punctuation)
    words = (word.translate(punctuation) for word in text.replace("--", " ").split())
    return [word.lower() for word in words if word.isalpha()]


def load_republic(data_dir: str | Path | None = None, *, held_out: float = 0.1) -> Republic:
    """Read the text from a folder.

    Parameters
    ----------
    data_dir : path, optional
        Has ``republic.txt`` or ``text/republic.txt``. Default: the environment
        variable ``LABELMAPPING_DATA``.
    held_out : float, default 0.1
        Share of the text at its end that is held out, in (0, 1).

    Raises
    ------
    DataNotFoundError
        No folder is named, or it has no such file.
    ArgumentError
        The procedure gives other words than the paper's; the counts are shown.
    """
    if not 0.0 < held_out < 1.0:
        raise ArgumentError(f"held_out must lie in (0, 1), got {held_out}")
    path = _find_text(data_dir)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} must be UTF-8 text: {error}") from error
    words = _check_words(split_words(_dialogue(text)), str(path))
    n_train = len(words) - int(len(words) * held_out)
    seen = Counter(words[:n_train])
    vocabulary = sorted(set(words), key=lambda word: (-seen[word], word))
    number = {word: i for i, word in enumerate(vocabulary)}
    return Republic(vocabulary, np.array([number[word] for word in words], np.int64), n_train)


def download_republic(data_dir: str | Path) -> Path:
    """Fetch the eBook from Project Gutenberg into ``republic.txt`` of a folder, checked."""
    with urllib.request.urlopen(SOURCE, timeout=60) as answer:
        text = answer.read().decode("utf-8-sig")
    _check_words(split_words(_dialogue(text)), SOURCE)
    path = Path(data_dir) / "republic.txt"
    write_text(path, text)
    return path


def _find_text(data_dir: str | Path | None) -> Path:
    folder = data_dir if data_dir is not None else os.environ.get("LABELMAPPING_DATA")
    if folder is None:
        raise DataNotFoundError(
            "the text of Plato's Republic is needed: pass data_dir (--data-dir), or set "
            "LABELMAPPING_DATA, to a folder with republic.txt"
        )
    for path in (Path(folder) / "republic.txt", Path(folder) / "text" / "republic.txt"):
        if path.is_file():
            return path
    raise DataNotFoundError(
        f"data_dir must hold republic.txt or text/republic.txt, {folder} holds neither; "
        "labelmapping.datasets.republic.download_republic fetches it"
    )


def _dialogue(text: str) -> str:
    """From the last "BOOK I." on (the table of contents has one too), without the licence."""
    body = text.partition("*** END OF")[0]
    start = body.rfind("\nBOOK I.")
    return body[start:] if start >= 0 else body


def _check_words(words: list[str], source: str) -> list[str]:
    counts = (len(words), len(set(words)))
    if counts != (N_WORDS, N_DISTINCT):
        raise ArgumentError(
            f"{source} must give {N_WORDS} words, {N_DISTINCT} of them distinct; "
            f"found {counts[0]} words, {counts[1]} distinct"
        )
    if hashlib.sha256(" ".join(words).encode()).hexdigest() != WORDS_SHA256:
        raise ArgumentError(f"{source} has the right number of words but not the right words")
    return words
