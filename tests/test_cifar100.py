"""CIFAR-100: the author's archive, the sheets, and what is refused of both."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from labelmapping.datasets import cifar100
from labelmapping.datasets.cifar100 import download_cifar100, load_cifar100
from labelmapping.errors import ArgumentError, DataNotFoundError, MissingExtraError

LABELS = ["apple", "bee", "can"]
FILES = ("meta", "test", "train")


@pytest.fixture(autouse=True)
def three_classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three classes of 4 + 2 images are all there are, but for the test of the real sheets."""
    if "data_dir" not in request.fixturenames:
        for name, value in (
            ("N_CLASSES", 3), ("TRAIN_ROWS", 4), ("TEST_ROWS", 2), ("SHEET_COLUMNS", 3),
        ):  # fmt: skip
            monkeypatch.setattr(cifar100, name, value)


def images(n_rows: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n_rows, 3072), dtype=np.uint8)


def python_2_pickle(content: dict[str, Any]) -> bytes:
    """As Python 2 wrote the author's files: byte strings, arrays by `numpy.core.multiarray`."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def of(value: Any) -> bytes:
        if isinstance(value, str):
            return text(value.encode())
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(map(of, value)) + b"e"
        rows, columns = value.shape
        dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
        dtype += b"(K\x03" + text(b"|") + b"NNN" + 2 * (b"J" + struct.pack("<i", -1)) + b"K\x00tb"
        return (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
            + b"\x87R(K\x01" + of(rows) + of(columns) + b"\x86" + dtype + b"\x89"
            + text(value.tobytes()) + b"tb"
        )  # fmt: skip

    items = b"".join(of(key) + of(value) for key, value in content.items())
    return b"\x80\x02}(" + items + b"u."


def author_files() -> dict[str, bytes]:
    return {
        "meta": python_2_pickle({"fine_label_names": LABELS}),
        "test": python_2_pickle({"fine_labels": [2, 1, 0, 0, 1, 2], "data": images(6, 1)}),
        "train": python_2_pickle({"fine_labels": [0, 1, 2] * 4, "data": images(12, 0)}),
    }


def write_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch, **changed: bytes
) -> dict[str, bytes]:
    """The author's three files, with their checksums as those that are expected."""
    files = author_files() | changed
    sums = {name: hashlib.md5(files[name]).hexdigest() for name in FILES}
    monkeypatch.setattr(cifar100, "FILES_MD5", sums)
    folder = place / "cifar-100-python"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return files


def archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def test_the_authors_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_folder(tmp_path, monkeypatch)
    data = load_cifar100(tmp_path)
    assert data.labels == LABELS
    assert (data.train_images == images(12, 0).reshape(12, 3, 32, 32)).all()
    assert (data.test_images == images(6, 1).reshape(6, 3, 32, 32)).all()
    assert data.train_ids.tolist() == [0, 1, 2] * 4
    assert data.test_ids.tolist() == [2, 1, 0, 0, 1, 2]
    assert data.train_images.dtype == np.uint8
    assert data.train_ids.dtype == np.int64
    assert data.split == "the official split"
    # The archive, fetched and read without unpacking, is the same.
    packed = archive(files)
    monkeypatch.setattr(cifar100, "ARCHIVE_MD5", hashlib.md5(packed).hexdigest())
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(packed))
    path = download_cifar100(tmp_path / "new")
    assert path.name == "cifar-100-python.tar.gz"
    again = load_cifar100(tmp_path / "new")
    assert (again.train_images == data.train_images).all()
    assert (again.test_ids == data.test_ids).all()


def test_another_download_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(b"<html>"))
    with pytest.raises(ArgumentError, match="must have the MD5 sum eb9058c3a382"):
        download_cifar100(tmp_path)
    assert not list(tmp_path.iterdir())


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("called",))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train", pickle.dumps(Evil()), r"train must be a pickle of arrays: it asks for"),
        ("train", pickle.dumps(np.float64(1.0)), "it asks for numpy.*scalar"),
        ("train", b"\x80\x02}(", "train must be a pickle of arrays"),
        ("test", pickle.dumps([1]), "test must hold a dict; found list"),
        ("test", pickle.dumps({"data": 1}), r"test is no file of CIFAR-100: KeyError"),
        (
            "test",
            python_2_pickle({"fine_labels": [0] * 6, "data": images(5, 0)}),
            r"test must have data uint8 \(6, 3072\); found uint8 \(5, 3072\)",
        ),
        (
            "test",
            python_2_pickle({"fine_labels": [0] * 5, "data": images(6, 0)}),
            r"test must have 6 labels; found \(5,\)",
        ),
        (
            "test",
            python_2_pickle({"fine_labels": [0, 1, 2, 3, 0, 0], "data": images(6, 0)}),
            r"must lie in 0..2 .*\[3\] is 3",
        ),
        ("meta", pickle.dumps({}), "meta must have fine_label_names, 3 strings"),
        (
            "meta",
            python_2_pickle({"fine_label_names": LABELS[:2]}),
            "meta must have fine_label_names, 3 strings",
        ),
    ],
)
def test_files_that_are_not_the_authors(
    name: str,
    content: bytes,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the checksum that is expected: nothing in a pickle may be called, whatever it is."""
    write_folder(tmp_path, monkeypatch, **{name: content})
    with pytest.raises(ArgumentError, match=message):
        load_cifar100(tmp_path)
    assert capsys.readouterr().out == ""


def test_altered_and_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path, monkeypatch)
    folder = tmp_path / "cifar-100-python"
    (folder / "test").write_bytes((folder / "test").read_bytes() + b" ")
    with pytest.raises(ArgumentError, match="cifar-100-python: test must have the MD5 sum"):
        load_cifar100(tmp_path)
    (folder / "test").unlink()
    with pytest.raises(DataNotFoundError, match=r"must hold meta, test, train; \['test'\]"):
        load_cifar100(tmp_path)
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(b"no archive")
    with pytest.raises(ArgumentError, match="must be the archive at https"):
        load_cifar100(tmp_path)
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(archive({"meta": b""}))
    with pytest.raises(ArgumentError, match=r"must be the archive .*test"):
        load_cifar100(tmp_path)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo("cifar-100-python/meta")
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(stream.getvalue())
    with pytest.raises(ArgumentError, match=r"must be the archive .*meta is no file there"):
        load_cifar100(tmp_path)


def write_sheets(folder: Path) -> NDArray[np.uint8]:
    """Three sheets of 2 rows of 3 images; the images by class (3, 6, 32, 32, 3)."""
    image = pytest.importorskip("PIL.Image")
    tiles = np.random.default_rng(2).integers(0, 256, (3, 6, 32, 32, 3), dtype=np.uint8)
    (folder / "cifar100").mkdir()
    for number, label in enumerate(LABELS):
        rows = [np.concatenate(list(tiles[number, r : r + 3]), axis=1) for r in (0, 3)]
        sheet = image.fromarray(np.concatenate(rows))
        sheet.save(folder / "cifar100" / f"{number:02d}-{label}.webp", lossless=True)
    return tiles


def test_sheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = write_sheets(tmp_path)
    monkeypatch.setenv("LABELMAPPING_DATA", str(tmp_path))
    data = load_cifar100()
    assert data.labels == LABELS
    by_channel = tiles.transpose(0, 1, 4, 2, 3)
    assert (data.train_images == by_channel[:, :4].reshape(12, 3, 32, 32)).all()
    assert (data.test_images == by_channel[:, 4:].reshape(6, 3, 32, 32)).all()
    assert data.train_ids.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.test_ids.tolist() == [0, 0, 1, 1, 2, 2]
    assert "not the official one" in data.split

    sheet = tmp_path / "cifar100" / "01-bee.webp"
    whole = sheet.read_bytes()
    sheet.write_bytes(whole[:40])
    with pytest.raises(ArgumentError, match=r"01-bee\.webp must be an image"):
        load_cifar100(tmp_path)
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (96, 32)).save(sheet)
    with pytest.raises(ArgumentError, match="96 pixels wide and 64 high; found 96 and 32"):
        load_cifar100(tmp_path)
    sheet.rename(sheet.with_name("03-bee.webp"))
    with pytest.raises(ArgumentError, match=r"for each of the classes 00 to 02; found 3 files"):
        load_cifar100(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"labelmapping\[experiments\]"):
        load_cifar100(tmp_path)


def test_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABELMAPPING_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="or set LABELMAPPING_DATA"):
        load_cifar100()
    with pytest.raises(DataNotFoundError, match=r"holds none; .*download_cifar100"):
        load_cifar100(tmp_path)


@pytest.mark.slow
def test_the_real_sheets(data_dir: Path) -> None:
    if not (data_dir / "cifar100").is_dir():
        pytest.skip("the data folder has no sheets of CIFAR-100")
    data = load_cifar100(data_dir)
    assert len(data.labels) == 100
    assert data.labels == sorted(data.labels)
    assert data.train_images.shape == (50_000, 3, 32, 32)
    assert data.test_images.shape == (10_000, 3, 32, 32)
    assert (np.bincount(data.train_ids) == 500).all()
    assert (np.bincount(data.test_ids) == 100).all()
    # The official sets' mean colour, over both parts together.
    means = data.train_images.mean(axis=(0, 2, 3)) / 255
    assert np.abs(means - [0.507, 0.487, 0.441]).max() < 0.003
