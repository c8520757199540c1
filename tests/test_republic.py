"""The text of "Republic": the paper's procedure, its counts, its windows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from labelmapping.datasets import republic
from labelmapping.datasets.republic import load_republic, split_words
from labelmapping.errors import ArgumentError, DataNotFoundError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The State--what is it?", ["the", "state", "what", "is", "it"]),
        ("well-known 'tis (Bendis,", ["wellknown", "tis", "bendis"]),
        ("in 380 BC, p. 7a -- yes", ["in", "bc", "p", "yes"]),
        ("", []),
    ],
)
def test_the_five_steps(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_the_paper_s_counts(data_dir: Path) -> None:
    text = load_republic(data_dir)
    assert text.ids.shape == (118_684,)
    assert len(text.vocabulary) == len(set(text.vocabulary)) == 7_409
    words = [text.vocabulary[i] for i in text.ids]
    assert words[:8] == ["book", "i", "i", "went", "down", "yesterday", "to", "the"]


def test_ids_follow_frequency_in_the_training_part(data_dir: Path) -> None:
    text = load_republic(data_dir)
    counts = np.bincount(text.ids[: text.n_train_words], minlength=7_409)
    assert (np.diff(counts) <= 0).all()
    assert text.vocabulary[0] == Counter(text.vocabulary[i] for i in text.ids).most_common(1)[0][0]


def test_windows_and_the_held_out_tail(data_dir: Path) -> None:
    text = load_republic(data_dir)
    contexts, targets, held_out = text.windows()
    assert contexts.shape == (118_634, 50)
    assert targets.shape == held_out.shape == (118_634,)
    for n in (0, 1, 70_000, 118_633):
        assert (contexts[n] == text.ids[n : n + 50]).all()
        assert targets[n] == text.ids[n + 50]
    assert held_out.sum() == 118_684 // 10
    assert held_out[-118_684 // 10 + 1 :].all()
    # No word of the tail is in a training window.
    train = np.flatnonzero(~held_out)
    assert train.max() + 50 == text.n_train_words - 1
    half = load_republic(data_dir, held_out=0.5)
    assert half.n_train_words == 118_684 // 2
    with pytest.raises(ArgumentError, match=r"held_out must lie in \(0, 1\), got 1"):
        load_republic(data_dir, held_out=1.0)


def test_the_whole_ebook_gives_the_same_words(data_dir: Path, tmp_path: Path) -> None:
    """With the licence around it, a table of contents, and other line ends."""
    body = republic._find_text(data_dir).read_text(encoding="utf-8-sig")
    ebook = (
        f"The Project Gutenberg eBook\n\nBOOK I.\nBOOK X.\n\n{body}\n*** END OF THE EBOOK\nLicence"
    )
    (tmp_path / "republic.txt").write_text("\ufeff" + ebook.replace("\n", "\r\n"), encoding="utf-8")
    assert (load_republic(tmp_path).ids == load_republic(data_dir).ids).all()


def test_a_wrong_text_is_refused_with_its_counts(tmp_path: Path) -> None:
    (tmp_path / "republic.txt").write_text("BOOK I.\nI went down yesterday to the Piraeus.")
    with pytest.raises(
        ArgumentError, match=r"118684 words, 7409 of them distinct; found 9 words, 8 distinct"
    ):
        load_republic(tmp_path)


def test_a_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "republic.txt").write_text("BOOK I.\nI went", encoding="utf-16")
    with pytest.raises(ArgumentError, match=r"republic\.txt must be UTF-8 text"):
        load_republic(tmp_path)


def test_a_text_with_one_word_replaced_is_refused(data_dir: Path, tmp_path: Path) -> None:
    body = republic._find_text(data_dir).read_text(encoding="utf-8-sig")
    (tmp_path / "republic.txt").write_text(body.replace(" said ", " the ", 1), encoding="utf-8")
    with pytest.raises(ArgumentError, match="right number of words but not the right words"):
        load_republic(tmp_path)


def test_a_missing_text_says_where_it_may_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataNotFoundError, match="data_dir must hold"):
        load_republic(tmp_path)
    monkeypatch.delenv("LABELMAPPING_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="LABELMAPPING_DATA"):
        load_republic()
    monkeypatch.setenv("LABELMAPPING_DATA", str(tmp_path))
    with pytest.raises(DataNotFoundError, match=str(tmp_path)):
        load_republic()


def test_download_checks_before_it_writes(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The download itself, from a file URL instead of the net."""
    body = republic._find_text(data_dir)
    monkeypatch.setattr(republic, "SOURCE", body.resolve().as_uri())
    republic.download_republic(tmp_path / "new")
    assert (load_republic(tmp_path / "new").ids == load_republic(data_dir).ids).all()
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("404 not found")
    monkeypatch.setattr(republic, "SOURCE", wrong.as_uri())
    with pytest.raises(ArgumentError, match="found 2 words"):
        republic.download_republic(tmp_path / "other")
    assert not (tmp_path / "other").exists()
