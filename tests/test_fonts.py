"""Finding faces: by name, by path, in given folders, and the script that installs them."""

import logging
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from labelmapping.datasets import fonts
from labelmapping.datasets.fonts import (
    KNOWN_FACES,
    Face,
    choose_faces,
    font_folders,
    installed_faces,
    missing_packages,
    resolve_face,
)
from labelmapping.errors import ArgumentError, DataNotFoundError

SCRIPT = Path(__file__).parents[1] / "scripts" / "install_fonts.sh"
TRUETYPE = b"\x00\x01\x00\x00" + bytes(8)


def put_fonts(folder: Path, *names: str) -> None:
    """Puts files where the known faces of these names are looked for."""
    folder.mkdir(parents=True, exist_ok=True)
    for known in KNOWN_FACES:
        if known.name in names:
            (folder / known.file_name).write_bytes(TRUETYPE)


def test_known_faces_have_distinct_names() -> None:
    assert len({known.name for known in KNOWN_FACES}) == len(KNOWN_FACES) == 8
    assert len({known.file_name for known in KNOWN_FACES}) == 8


def test_installed_faces_come_in_the_tables_order_first_folder_first(tmp_path: Path) -> None:
    put_fonts(tmp_path / "b" / "deep" / "er", "wqy-zenhei", "tw-kai")
    put_fonts(tmp_path / "a", "wqy-zenhei", "noto-sans-cjk")
    faces = installed_faces([tmp_path / "absent", tmp_path / "a", tmp_path / "b"])
    assert faces == [
        Face("noto-sans-cjk", tmp_path / "a" / "NotoSansCJK-Regular.ttc", 2),
        Face("tw-kai", tmp_path / "b" / "deep" / "er" / "TW-Kai-98_1.ttf", 0),
        Face("wqy-zenhei", tmp_path / "a" / "wqy-zenhei.ttc", 0),
    ]
    assert installed_faces([]) == []


def test_missing_packages_are_named_once_each(tmp_path: Path) -> None:
    every = list(dict.fromkeys(known.package for known in KNOWN_FACES))
    assert missing_packages([]) == every
    put_fonts(tmp_path, "noto-sans-cjk", "hanazono")
    # The other Noto face is absent, so its package still counts.
    assert missing_packages([tmp_path]) == [p for p in every if p != "fonts-hanazono"]
    put_fonts(tmp_path, *(known.name for known in KNOWN_FACES))
    assert missing_packages([tmp_path]) == []


def test_font_folders_follow_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    folders = font_folders()
    assert folders[0] == tmp_path / "data" / "fonts"
    assert tmp_path / "local" / "Microsoft/Windows/Fonts" in folders
    assert {Path("/usr/share/fonts"), Path("/usr/local/share/fonts")} < set(folders)
    assert len(set(folders)) == len(folders)
    put_fonts(tmp_path / "data" / "fonts", "tw-sung")
    assert tmp_path / "data" / "fonts" / "TW-Sung-98_1.ttf" in [f.path for f in installed_faces()]


def test_a_face_is_resolved_by_name_or_path(tmp_path: Path) -> None:
    put_fonts(tmp_path, "tw-kai")
    path = tmp_path / "Some.Font.TTF"
    path.write_bytes(TRUETYPE)
    collection = tmp_path / "three.ttc"
    collection.write_bytes(b"ttcf" + struct.pack(">II", 0x10000, 3))
    assert resolve_face("tw-kai", [tmp_path]).path == tmp_path / "TW-Kai-98_1.ttf"
    assert resolve_face(str(path)) == Face("Some.Font", path, 0)
    assert resolve_face(f"{collection}:2") == Face("three:2", collection, 2)
    assert resolve_face(f"{collection}:0") == Face("three", collection, 0)
    with pytest.raises(ArgumentError, match="has 3 faces, so no index 3"):
        resolve_face(f"{collection}:3")
    with pytest.raises(ArgumentError, match="has 1 faces, so no index 1"):
        resolve_face(f"{path}:1")


@pytest.mark.parametrize("text", ["comic-sans", "", "tw-kai:0", "face.woff", "face.ttf:x"])
def test_an_unknown_face_is_refused_with_what_there_is(tmp_path: Path, text: str) -> None:
    put_fonts(tmp_path, "tw-kai")
    with pytest.raises(ArgumentError, match=r"installed: tw-kai$") as refusal:
        resolve_face(text, [tmp_path])
    assert repr(text) in str(refusal.value)
    assert all(known.name in str(refusal.value) for known in KNOWN_FACES)


def test_an_absent_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="its Debian package is fonts-hanazono"):
        resolve_face("hanazono", [tmp_path])
    with pytest.raises(DataNotFoundError, match="there is no file"):
        resolve_face(str(tmp_path / "absent.ttf"))
    for content in (b"", b"OTTO", b"<html>no font</html>"):
        (tmp_path / "broken.otf").write_bytes(content)
        with pytest.raises(ArgumentError, match="must be a font file"):
            resolve_face(str(tmp_path / "broken.otf"))


def test_all_installed_faces_are_chosen_and_absent_ones_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=fonts.logger.name)
    put_fonts(tmp_path, "tw-kai", "wqy-zenhei")
    monkeypatch.setattr(fonts, "font_folders", lambda: [tmp_path])
    assert [face.name for face in choose_faces()] == ["tw-kai", "wqy-zenhei"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "fonts-hanazono" in record.getMessage()
    assert record.getMessage().endswith("using tw-kai, wqy-zenhei")

    caplog.clear()
    put_fonts(tmp_path, *(known.name for known in KNOWN_FACES))
    assert len(choose_faces()) == 8
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_named_faces_are_chosen_in_the_order_given(tmp_path: Path) -> None:
    put_fonts(tmp_path, "tw-kai", "tw-sung", "hanazono")
    chosen = choose_faces(["hanazono", "tw-kai"], [tmp_path])
    assert [face.name for face in chosen] == ["hanazono", "tw-kai"]


@pytest.mark.parametrize("present", [[], ["tw-kai"]])
def test_fewer_than_two_installed_faces_are_refused_in_one_sentence(
    tmp_path: Path, present: list[str]
) -> None:
    put_fonts(tmp_path, *present)
    with pytest.raises(DataNotFoundError) as refusal:
        choose_faces(folders=[tmp_path])
    message = str(refusal.value)
    assert all(package in message for package in missing_packages([tmp_path]))
    assert (present or ["none"])[0] in message
    assert "\n" not in message
    assert re.findall(r"\.(?=\s|$)", message) == ["."]


def test_too_few_or_duplicate_named_faces_are_refused(tmp_path: Path) -> None:
    put_fonts(tmp_path, "tw-kai", "tw-sung")
    put_fonts(tmp_path / "copy", "tw-kai")
    kai = str(tmp_path / "TW-Kai-98_1.ttf")
    with pytest.raises(ArgumentError, match="two or more"):
        choose_faces(["tw-kai"], [tmp_path])
    for names in (
        ["tw-kai", "tw-sung", "tw-kai"],
        ["tw-kai", kai],  # one file under two names
        [kai, str(tmp_path / "copy" / "TW-Kai-98_1.ttf")],  # two files under one name
    ):
        with pytest.raises(ArgumentError, match="must be distinct"):
            choose_faces(names, [tmp_path])


def bash() -> str:
    found = shutil.which("bash")
    if found is None:
        pytest.skip("bash is not installed")
    return found


def test_the_install_script_lists_the_packages_of_the_table() -> None:
    listed = re.search(r"^packages=\(\n(.*?)^\)", SCRIPT.read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert listed[1].split() == missing_packages([])
    subprocess.run([bash(), "-n", SCRIPT], check=True)


def test_the_install_script_names_the_packages_where_it_cannot_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [bash(), SCRIPT], env={"PATH": str(tmp_path)}, check=True, capture_output=True, text=True
    )
    assert len(done.stderr.splitlines()) == 1
    assert all(package in done.stderr for package in missing_packages([]))


def test_the_install_script_goes_on_after_a_package_that_fails(tmp_path: Path) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("the script installs as root only")
    log = tmp_path / "log"
    stand_ins = {
        "dpkg-query": "case $* in *wenkai*) echo 'install ok installed';; *) exit 1;; esac",
        "apt-get": f'echo "$*" >> {log}; case $* in *hanazono*) exit 100;; esac',
    }
    for name, body in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [bash(), SCRIPT], env={"PATH": str(tmp_path)}, check=True, capture_output=True, text=True
    )
    calls = log.read_text().splitlines()
    assert calls[0] == "update"
    assert [call.split()[-1] for call in calls[1:]] == [
        package for package in missing_packages([]) if package != "fonts-lxgw-wenkai"
    ]
    assert done.stderr.splitlines() == [
        "apt-get could not install fonts-hanazono; going on without it."
    ]
