"""Omniglot: the file, the drawers held out, and the archives it can be made from."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelmapping.datasets import omniglot
from labelmapping.datasets.omniglot import download_omniglot, load_omniglot
from labelmapping.errors import ArgumentError, DataNotFoundError, MissingExtraError

NAMES = ["Greek/character01", "Greek/character02", "Latin/character01"]


@pytest.fixture(autouse=True)
def three_classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three classes are all there are, but for the tests of the real file."""
    if "data_dir" not in request.fixturenames:
        monkeypatch.setattr(omniglot, "N_CLASSES", 3)


def tiny() -> dict[str, Any]:
    """Three classes whose images tell class and drawer: ink in row `class`, column `drawer`."""
    y, drawer = np.repeat(np.arange(3), 20), np.tile(np.arange(1, 21), 3)
    x = np.zeros((60, 28, 28), np.uint8)
    x[np.arange(60), y, drawer] = 255
    return {
        "x": x,
        "y": y.astype(np.int16),
        "drawer": drawer.astype(np.int8),
        "name": np.array(NAMES),
    }


def write(folder: Path, arrays: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "omniglot28.npz"
    np.savez_compressed(path, **arrays)
    return path


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny file, its rows in another order."""
    folder = tmp_path_factory.mktemp("omniglot")
    order = np.random.default_rng(0).permutation(60)
    write(folder, {k: v if k == "name" else v[order] for k, v in tiny().items()})
    return folder


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 19), min_size=1, max_size=19, unique=True),
)
def test_rows_are_split_by_drawer(shuffled: Path, held_out: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(omniglot, "N_CLASSES", 3)
        data = load_omniglot(data_dir=shuffled, held_out_drawers=held_out)
    assert data.labels == NAMES
    kept = [drawer for drawer in range(20) if drawer not in held_out]
    for images, ids, drawers, expected in (
        (data.train_images, data.train_ids, data.train_drawers, kept),
        (data.held_out_images, data.held_out_ids, data.held_out_drawers, sorted(held_out)),
    ):
        assert ids.tolist() == np.repeat(np.arange(3), len(expected)).tolist()
        assert drawers.tolist() == expected * 3
        assert images.dtype == np.uint8
        assert ids.dtype == drawers.dtype == np.int64
        assert images.shape == (len(ids), 28, 28)
        # Each image belongs to its class and drawer.
        assert (images[np.arange(len(ids)), ids, drawers + 1] == 255).all()


def test_the_last_four_drawers_are_held_out(shuffled: Path) -> None:
    data = load_omniglot(data_dir=shuffled)
    assert sorted(set(data.held_out_drawers.tolist())) == [16, 17, 18, 19]
    assert sorted(set(data.train_drawers.tolist())) == list(range(16))


@pytest.mark.parametrize(
    ("held_out", "message"),
    [
        ([], "held_out_drawers must not be empty"),
        ([20], r"held_out_drawers must lie in 0\.\.19 .*held_out_drawers\[0\] is 20"),
        ([-1], r"held_out_drawers\[0\] must be at least 0, got -1"),
        ([3, 4, 3], r"different from each other .* got \(3, 4, 3\)"),
        (range(20), "leave one of the 20"),
        ([1.0], r"held_out_drawers\[0\] must be an integer"),
        ("16", "must be a sequence of integers"),
    ],
)
def test_bad_drawers_are_refused(shuffled: Path, held_out: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        load_omniglot(data_dir=shuffled, held_out_drawers=held_out)


def change(key: str, place: Any, value: Any) -> dict[str, Any]:
    arrays = tiny()
    arrays[key][place] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({**tiny(), "x": tiny()["x"][:59]}, r"x of .* must be uint8 of shape \(60, 28, 28\); .*59"),
        ({**tiny(), "x": tiny()["x"] / 255.0}, r"x of .* must be uint8 .* found float64"),
        ({**tiny(), "y": tiny()["y"] * 1.0}, r"y of .* must be integer of shape \(60,\).*float64"),
        ({**tiny(), "name": tiny()["name"][:2]}, r"name of .* must be str_ of shape \(3,\)"),
        ({**tiny(), "name": np.array(NAMES[::-1])}, "name of .* must be sorted"),
        ({**tiny(), "name": np.array([NAMES[0]] * 3)}, "without repeats"),
        (change("y", 7, 3), r"y of .* must lie in 0\.\.2 .*\[7\] is 3"),
        (change("drawer", 9, 0), r"drawer - 1 of .* must lie in 0\.\.19 .*\[9\] is -1"),
        (change("drawer", 25, 7), "one image .* drawer 6 of Greek/character02 has 0"),
        (
            change("x", 44, 0),
            r"ink in every image; drawer 5 of Latin/character01 .*images: 1",
        ),
        ({"x": tiny()["x"]}, "must be a sound npz file with the arrays x, y, drawer, name"),
        ({**tiny(), "name": np.array(NAMES, object)}, "must be a sound npz file"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, arrays)
    with pytest.raises(ArgumentError, match=message) as caught:
        load_omniglot(data_dir=tmp_path)
    assert str(path) in str(caught.value)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, tiny())
    content = path.read_bytes()
    for damaged in (
        b"",
        b"no file",
        content[: len(content) // 2],
        content[:60] + bytes(40) + content[100:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(ArgumentError, match="must be a sound npz file"):
            load_omniglot(data_dir=tmp_path)


def test_a_missing_file_says_where_it_may_lie(
    tmp_path: Path, shuffled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataNotFoundError, match="download_omniglot makes it"):
        load_omniglot(data_dir=tmp_path)
    monkeypatch.delenv("LABELMAPPING_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="LABELMAPPING_DATA"):
        load_omniglot()
    monkeypatch.setenv("LABELMAPPING_DATA", str(shuffled))
    assert load_omniglot().labels == NAMES


def archive(labels: list[str], folder: str, *, skip: int = -1) -> bytes:
    """Drawings of 105x105 in black on white.

    A bar from row 30 on, as long as the drawer's number says, and a thin line in row 70.
    """
    image_module = pytest.importorskip("PIL.Image", reason="Pillow draws the images")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as members:
        members.writestr(f"{folder}/", "")
        members.writestr(f"{folder}/.DS_Store", "no image")
        members.writestr(f"__MACOSX/{folder}/Greek/character01/._0001_01.png", "no image")
        for number, label in enumerate(labels):
            for drawer in range(1, 21):
                if drawer == skip:
                    continue
                pixels = np.full((105, 105), 255, np.uint8)
                pixels[30:45, 15 : 15 + 3 * drawer] = 0
                pixels[70, 15:75] = 0
                png = io.BytesIO()
                image_module.fromarray(pixels).convert("1").save(png, "PNG")
                members.writestr(
                    f"{folder}/{label}/{number + 1:04d}_{drawer:02d}.png", png.getvalue()
                )
    return content.getvalue()


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two archives, served from a folder instead of the net."""
    folder = tmp_path / "source"
    folder.mkdir()
    put(folder, monkeypatch, "images_background.zip", archive(NAMES[::2], "images_background"))
    put(folder, monkeypatch, "images_evaluation.zip", archive(NAMES[1:2], "images_evaluation"))
    monkeypatch.setattr(omniglot, "SOURCE", folder.resolve().as_uri())
    return folder


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    monkeypatch.setitem(omniglot.ARCHIVES, name, hashlib.md5(content).hexdigest())


@pytest.mark.usefixtures("archives")
def test_the_archives_are_drawn_small(tmp_path: Path) -> None:
    assert download_omniglot(tmp_path / "new") == tmp_path / "new" / "omniglot28.npz"
    data = load_omniglot(data_dir=tmp_path / "new")
    assert data.labels == NAMES  # of both archives, sorted
    bars = data.held_out_images[data.held_out_ids == 1]
    for drawer, image in zip((17, 18, 19, 20), bars.astype(int), strict=True):
        # Rows 30..44 and columns 15.. of 105 are rows 8..11 and columns 4.. of 28.
        bar, line = image[8:12], image[18:19]
        assert bar.sum() + line.sum() == image.sum()
        assert bar[:, 4:10].min() == 255
        assert bar.sum() / 255 == pytest.approx(15 * 3 * drawer / 3.75**2, rel=0.05)
        # A line thinner than a pixel is grey, and unbroken.
        assert 0.2 < line[0, 4:20].min() / 255 <= line.max() / 255 < 0.4


def test_an_archive_with_another_sum_is_refused(archives: Path, tmp_path: Path) -> None:
    path = archives / "images_evaluation.zip"
    right = omniglot.ARCHIVES[path.name]
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ArgumentError, match=rf"evaluation.zip must have the MD5 sum {right}; foun"):
        download_omniglot(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_archives_that_lack_a_drawing_are_refused(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = archive(NAMES[1:2], "images_evaluation", skip=8)
    put(archives, monkeypatch, "images_evaluation.zip", lacking)
    with pytest.raises(ArgumentError, match=r"x of file:.* must be uint8 of shape .* \(59, 28, 28"):
        download_omniglot(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_pillow_is_asked_for_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setattr(omniglot, "SOURCE", "file:///no/such/folder")
    with pytest.raises(MissingExtraError, match=r"pip install labelmapping\[experiments\]"):
        download_omniglot(tmp_path)


def test_the_real_file(data_dir: Path) -> None:
    if not (data_dir / "omniglot28.npz").is_file():
        pytest.skip(f"no omniglot28.npz in {data_dir}")
    data = load_omniglot(data_dir=data_dir)
    assert len(data.labels) == 1_623
    assert len({label.partition("/")[0] for label in data.labels}) == 50
    assert data.train_images.shape == (25_968, 28, 28)
    assert data.held_out_images.shape == (6_492, 28, 28)
    # Ink is 255: strokes take less of an image than paper does, and stay off its edge.
    assert 0.02 < (data.train_images == 255).mean() < 0.2
    # Drawings of one class are alike: by its mean image, far more than one in 1,623 is found.
    means = data.train_images.reshape(1_623, 16, -1).mean(axis=1)
    rows = data.held_out_images[::16].reshape(-1, 784).astype(np.float64)
    distances = (means**2).sum(axis=1) - 2 * rows @ means.T
    assert (distances.argmin(axis=1) == data.held_out_ids[::16]).mean() > 0.15
