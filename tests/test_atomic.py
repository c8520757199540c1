"""Files that appear whole or not at all: failures, a real kill, JSON and modes."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelmapping.atomic import TEMPORARY, file_sha256, replacing, write_json, write_text

needs_posix = pytest.mark.skipif(os.name != "posix", reason="signals and modes are POSIX here")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_new_content_takes_the_old_ones_place(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for content in ("first", "second, longer", "3"):
        with replacing(path) as temporary:
            temporary.write_text(content)
        assert path.read_text() == content
        assert names(tmp_path) == ["run.json"]


def test_the_old_content_is_there_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        # A rename within a folder cannot cross file systems; writers that look
        # at the suffix see the right one.
        assert temporary.parent == path.parent
        assert temporary.name.startswith(TEMPORARY)
        assert temporary.name.endswith(path.name)
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("existed", [True, False])
def test_a_failure_leaves_the_old_content_and_no_other_file(
    tmp_path: Path, error: BaseException, existed: bool
) -> None:
    path = tmp_path / "run.json"
    if existed:
        path.write_text("old")

    def write() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    assert caught.value is error
    assert names(tmp_path) == (["run.json"] if existed else [])
    assert not existed or path.read_text() == "old"


def test_a_block_that_wrote_elsewhere_fails_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as temporary:
            temporary.unlink()

    with pytest.raises(FileNotFoundError):
        write()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["run.json"]


def test_a_folder_in_the_files_place_stays(tmp_path: Path) -> None:
    (tmp_path / "run.json" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match=r"run\.json"):
        write_text(tmp_path / "run.json", "new")
    assert names(tmp_path) == ["run.json"]
    assert names(tmp_path / "run.json") == ["inside"]


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with replacing(path) as first:
        first.write_text("first")
        with replacing(path) as second:
            assert second != first
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert names(tmp_path) == ["run.json"]


def test_bytes_reach_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    events: list[object] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(handle: int) -> None:
        events.append(os.fstat(handle).st_size)
        fsync(handle)

    def record_replace(source: Path, target: Path) -> None:
        events.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_text(path, "12345")
    assert events == [5, path]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a" / "site-07" / "metrics.csv"
    write_text(path, "x")
    assert path.read_text() == "x"


KILLED = """
import os, sys
from pathlib import Path
from labelmapping import atomic

def wait(*_):
    print("ready", flush=True)
    sys.stdin.read()  # for ever: the parent writes nothing

path = Path(sys.argv[1])
if sys.argv[2] == "while writing":
    with atomic.replacing(path) as temporary:
        with temporary.open("w") as file:
            file.write("half of the n")
            file.flush()
            wait()
else:
    os.replace = wait
    atomic.write_json(path, {"state": "new"})
"""


@needs_posix
@pytest.mark.parametrize("moment", ["while writing", "before the rename"])
def test_a_kill_leaves_the_old_file_whole(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "run.json"
    write_json(path, {"state": "old"})
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, path, moment],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.kill()
    assert child.returncode == -9
    assert json.loads(path.read_text()) == {"state": "old"}
    # What was begun lies under a name that says so, and is in nobody's way.
    left = [name for name in names(tmp_path) if name != "run.json"]
    assert len(left) == 1
    assert left[0].startswith(TEMPORARY)
    write_json(path, {"state": "new"})
    assert json.loads(path.read_text()) == {"state": "new"}


@needs_posix
def test_the_mode_does_not_depend_on_the_umask_or_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    before = os.umask(0o077)
    try:
        write_text(path, "x")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o600)
        write_text(path, "y")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(before)


def test_text_is_utf8_and_json_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    write_text(path, "甲乙\n")
    assert path.read_bytes() == "甲乙\n".encode()
    write_json(path, {"labels": ["甲", 2**62, 0.1, None]})
    text = path.read_bytes().decode("utf-8")
    assert "甲" in text
    assert text.endswith("}\n")
    assert json.loads(text) == {"labels": ["甲", 2**62, 0.1, None]}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), ValueError),
        ({"loss": [1.0, float("inf")]}, ValueError),
        ({"loss": -float("inf")}, ValueError),
        ({1, 2}, TypeError),
        ({"path": Path("x")}, TypeError),
    ],
    ids=repr,
)
def test_what_json_has_no_word_for_is_refused_and_the_old_file_stays(
    tmp_path: Path, value: Any, kind: type[Exception]
) -> None:
    path = tmp_path / "run.json"
    write_json(path, {"state": "old"})
    with pytest.raises(kind):
        write_json(path, value)
    assert json.loads(path.read_text()) == {"state": "old"}
    assert names(tmp_path) == ["run.json"]


@pytest.mark.parametrize(
    "content", [lambda: b"", lambda: b"abc", lambda: bytes(range(256)) * 5000], ids=range(3)
)
def test_the_checksum_is_sha256_of_the_bytes(tmp_path: Path, content: Callable[[], bytes]) -> None:
    path = tmp_path / "weights"
    path.write_bytes(content())
    assert file_sha256(path) == hashlib.sha256(content()).hexdigest()
