"""The command: bad input ends in one sentence, exit code 2, and nothing half-written."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import labelmapping
from labelmapping import cli
from labelmapping.cli import main
from labelmapping.datasets.fonts import installed_faces


@pytest.fixture(autouse=True)
def untouched_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("labelmapping")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, ours.level = before


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command says, having ended with 2 and nothing on standard output."""
    try:
        code = main(arguments)
    except SystemExit as error:  # argparse's own way out
        code = int(error.code or 0)
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert "Traceback" not in said.err
    return said.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("reproduce republic --data-dir nowhere", "nowhere holds neither"),
        ("reproduce republic --data-dir DATA --profile fast", "one of quick, paper; got 'fast'"),
        ("reproduce republic --data-dir DATA --rows ecoc", "one-hot, negative-sampling, cut-off"),
        ("reproduce republic --data-dir DATA --epochs 0", "epochs must be at least 1, got 0"),
        ("reproduce republic --data-dir WRONG", "found 5 words, 4 distinct"),
        ("demo --steps 0", "steps must be at least 1, got 0"),
        ("demo --steps many", "invalid int value: 'many'"),
        ("demo --class-set big5", "got 'big5'"),
        ("demo --side 7", "side must be"),
        ("demo --sites 1", "n_sites must be at least 2, got 1"),
        ("demo --alphabets 3 5 7 11", "n_classes must be at most 1155 (3 x 5 x 7 x 11)"),
        ("demo --alphabets 62 64 67 71", "62 and 64 share the factor 2"),
        ("demo --field-order 61", "n_classes must be at most 3721 (61^2)"),
        ("demo --field-order 180", "180 = 2^2 x 3^2 x 5^1"),
        ("demo --learning-rate 0", "learning_rate must be positive and finite in float32, got 0.0"),
        ("demo --seed -1", "seed must be at least 0, got -1"),
        ("demo --learning-rate inf", "finite in float32, got inf"),
        ("demo --batch-size 1", "batch_size must be at least 2, got 1"),
        ("demo --faces nothing other", "nothing"),
        ("reproduce", "the following arguments are required: EXPERIMENT"),
        ("reproduce imagenet", "invalid choice: 'imagenet'"),
        ("", "the following arguments are required: COMMAND"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    arguments: str,
    sentence: str,
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "republic.txt").write_text("BOOK I.\nI went down")
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("LABELMAPPING_CACHE", str(tmp_path / "cache"))
    names = {"DATA": str(data_dir.resolve()), "WRONG": str(wrong)}
    said = refusal(capsys, *(names.get(word, word) for word in arguments.split()))
    assert sentence in said
    assert not list(place.iterdir())
    assert not (tmp_path / "cache").exists()


def test_a_run_folder_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if len(installed_faces()) < 2:
        pytest.skip("fewer than two known CJK faces are installed (scripts/install_fonts.sh)")
    (tmp_path / "one-hot").mkdir()
    (tmp_path / "one-hot" / "thesis.txt").write_text("mine")
    said = refusal(capsys, "demo", "--steps", "2", "--run-dir", str(tmp_path))
    assert "is no run folder" in said
    assert [p.name for p in tmp_path.rglob("*")] == ["one-hot", "thesis.txt"]
    (tmp_path / "file").write_text("")
    said = refusal(capsys, "demo", "--steps", "2", "--run-dir", str(tmp_path / "file"))
    assert "file" in said


def test_interrupted_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_demo", interrupted)
    assert main(["demo"]) == 130
    assert "start again to go on" in capsys.readouterr().err


def test_without_the_extra_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert "pip install 'labelmapping[experiments]'" in refusal(capsys, "demo")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["demo", "--help"], ["reproduce", "republic", "-h"]]
)
def test_help_and_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    assert "usage: labelmapping" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert labelmapping.__version__ in capsys.readouterr().out


def test_help_comes_without_torch() -> None:
    code = (
        "import sys; from labelmapping.cli import main\n"
        "try: main(['demo', '--help'])\n"
        "except SystemExit: assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "labelmapping", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"labelmapping {labelmapping.__version__}\n"
