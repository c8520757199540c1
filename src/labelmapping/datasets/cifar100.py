"""CIFAR-100: 60,000 colour images of 32x32 pixels in 100 classes. Knows no learner.

Krizhevsky, "Learning multiple layers of features from tiny images" (2009). Read from the
author's archive, or from sheets, a lossless WebP file a class. The sheets' split into training
and test rows is not the author's, so accuracies on it are not those of other papers: a result
says which split it has, and so must every table.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
import tarfile
import urllib.request
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import check_range
from ..atomic import replacing
from ..errors import ArgumentError, DataNotFoundError, MissingExtraError

__all__ = ["Cifar100", "download_cifar100", "load_cifar100"]

SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
FOLDER, ARCHIVE, SHEETS = "cifar-100-python", "cifar-100-python.tar.gz", "cifar100"
# MD5 sums as the author's page (the archive) and torchvision (the files in it) have them.
ARCHIVE_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
FILES_MD5 = {
    "meta": "7973b15100ade9c7d40fb424638fde48",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "train": "16019d7e3df5f24257cddd939b257f8d",
}
N_CLASSES, SIDE = 100, 32
# Of a class: training rows, then test rows.
TRAIN_ROWS, TEST_ROWS = 500, 100
SHEET_COLUMNS = 20
OFFICIAL_SPLIT = "the official split"
SHEETS_SPLIT = "a stratified split with seed 0, not the official one"
# All that the author's pickles call: what numpy rebuilds an array with, under its names of
# versions 1 and 2.
ARRAY_PARTS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


@dataclass(frozen=True, eq=False)
class Cifar100:
    """The images; see :func:`load_cifar100`.

    Attributes
    ----------
    labels : list of str
        The names of the 100 classes, in the alphabet's order.
    train_images, test_images : uint8 array (50000, 3, 32, 32), (10000, 3, 32, 32)
        Red, green, blue.
    train_ids, test_ids : int64 array (50000,), (10000,)
        Class ids: places in `labels`.
    split : str
        In words, which split it is.
    """

    labels: list[str] = field(repr=False)
    train_images: NDArray[np.uint8] = field(repr=False)
    train_ids: NDArray[np.int64] = field(repr=False)
    test_images: NDArray[np.uint8] = field(repr=False)
    test_ids: NDArray[np.int64] = field(repr=False)
    split: str


def load_cifar100(data_dir: str | Path | None = None) -> Cifar100:
    """Read the images from a folder.

    Parameters
    ----------
    data_dir : path, optional
        Has the author's ``cifar-100-python.tar.gz``, or what it unpacks to,
        ``cifar-100-python``; or else sheets ``cifar100/NN-name.webp``, NN being the class id,
        each of 30 rows of 20 images, the first 500 of them for training. Default: the
        environment variable ``LABELMAPPING_DATA``.

    Raises
    ------
    DataNotFoundError
        No folder is named, or it has none of the three.
    ArgumentError
        A file is not the one it should be: what is wrong with it.
    MissingExtraError
        There are only sheets, and Pillow is not installed.
    """
    folder = data_dir if data_dir is not None else os.environ.get("LABELMAPPING_DATA")
    if folder is None:
        raise DataNotFoundError(
            "CIFAR-100 is needed: pass data_dir (--data-dir), or set LABELMAPPING_DATA, to a "
            f"folder with {ARCHIVE}, {FOLDER} or {SHEETS}"
        )
    folder = Path(folder)
    if (folder / ARCHIVE).is_file():
        return _read_files(_unpack(folder / ARCHIVE), str(folder / ARCHIVE))
    if (folder / FOLDER).is_dir():
        return _read_files(_read_folder(folder / FOLDER), str(folder / FOLDER))
    if (folder / SHEETS).is_dir():
        return _read_sheets(folder / SHEETS)
    raise DataNotFoundError(
        f"data_dir must hold {ARCHIVE}, {FOLDER} or {SHEETS}, {folder} holds none; "
        "labelmapping.datasets.cifar100.download_cifar100 fetches the first"
    )


def download_cifar100(data_dir: str | Path) -> Path:
    """Fetch the author's archive (161 MB) into a folder; one with another MD5 sum is not kept."""
    with urllib.request.urlopen(SOURCE, timeout=60) as answer:
        archive = answer.read()
    _check_md5(archive, ARCHIVE_MD5, SOURCE)
    path = Path(data_dir) / ARCHIVE
    with replacing(path) as temporary:
        temporary.write_bytes(archive)
    return path


def _check_md5(content: bytes, wanted: str, source: str) -> None:
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != wanted:
        raise ArgumentError(f"{source} must have the MD5 sum {wanted}; found {found}")


def _unpack(path: Path) -> dict[str, bytes]:
    """The archive's files, in memory."""
    files = {}
    try:
        with tarfile.open(path) as archive:
            for name in FILES_MD5:
                member = archive.extractfile(f"{FOLDER}/{name}")
                if member is None:
                    raise KeyError(f"{name} is no file there")
                files[name] = member.read()
    except (tarfile.TarError, zlib.error, KeyError, EOFError, OSError) as error:
        raise ArgumentError(f"{path} must be the archive at {SOURCE}: {error}") from error
    return files


def _read_folder(folder: Path) -> dict[str, bytes]:
    missing = [name for name in FILES_MD5 if not (folder / name).is_file()]
    if missing:
        raise DataNotFoundError(f"{folder} must hold {', '.join(FILES_MD5)}; {missing} not there")
    return {name: (folder / name).read_bytes() for name in FILES_MD5}


def _read_files(files: dict[str, bytes], source: str) -> Cifar100:
    """The author's three pickles as arrays."""
    for name, md5 in FILES_MD5.items():
        _check_md5(files[name], md5, f"{source}: {name}")
    meta, test, train = (_unpickle(files[name], f"{source}: {name}") for name in FILES_MD5)
    arrays: list[NDArray[Any]] = []
    for name, content, n_rows in (
        ("train", train, N_CLASSES * TRAIN_ROWS),
        ("test", test, N_CLASSES * TEST_ROWS),
    ):
        try:
            images = np.asarray(content["data"])
            ids = np.array(content["fine_labels"], np.int64)
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"{source}: {name} is no file of CIFAR-100: {error!r}") from error
        if images.dtype != np.uint8 or images.shape != (n_rows, 3 * SIDE * SIDE):
            raise ArgumentError(
                f"{source}: {name} must have data uint8 ({n_rows}, {3 * SIDE * SIDE}); found "
                f"{images.dtype} {images.shape}"
            )
        if ids.shape != (n_rows,):
            raise ArgumentError(f"{source}: {name} must have {n_rows} labels; found {ids.shape}")
        check_range(f"fine_labels of {source}: {name}", ids, N_CLASSES)
        arrays += [images.reshape(n_rows, 3, SIDE, SIDE), ids]
    labels = meta.get("fine_label_names")
    if not isinstance(labels, list) or [type(label) for label in labels] != [str] * N_CLASSES:
        raise ArgumentError(f"{source}: meta must have fine_label_names, {N_CLASSES} strings")
    train_images, train_ids, test_images, test_ids = arrays
    return Cifar100(labels, train_images, train_ids, test_images, test_ids, OFFICIAL_SPLIT)


class _ArraysOnly(pickle.Unpickler):
    """Unpickles arrays, and what needs no import: dicts, lists, strings, numbers."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ARRAY_PARTS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only arrays may be")
        return super().find_class(module, name)


def _unpickle(content: bytes, source: str) -> dict[str, Any]:
    try:
        # Python 2 wrote them: its strings are bytes, and an array's bytes are such a string.
        found = _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
    # A damaged pickle raises almost anything.
    except Exception as error:
        raise ArgumentError(f"{source} must be a pickle of arrays: {error}") from error
    if not isinstance(found, dict):
        raise ArgumentError(f"{source} must hold a dict; found {type(found).__name__}")
    return found


def _read_sheets(folder: Path) -> Cifar100:
    """The sheets, class by class."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(
            "Reading sheets of CIFAR-100 needs Pillow: pip install labelmapping[experiments]."
        ) from error
    paths = sorted(folder.glob("*.webp"))
    names = [re.fullmatch(r"([0-9]{2})-(.+)", path.stem) for path in paths]
    numbers = [int(name[1]) if name else -1 for name in names]
    if numbers != list(range(N_CLASSES)):
        raise ArgumentError(
            f"{folder} must have a sheet NN-name.webp for each of the classes 00 to "
            f"{N_CLASSES - 1:02d}; "
            f"found {len(paths)} files, {sum(n >= 0 for n in numbers)} of them so named"
        )
    rows = TRAIN_ROWS + TEST_ROWS
    width, height = SHEET_COLUMNS * SIDE, rows // SHEET_COLUMNS * SIDE
    images = np.empty((N_CLASSES, rows, 3, SIDE, SIDE), np.uint8)
    for number, path in enumerate(paths):
        try:
            with Image.open(path) as sheet:
                pixels = np.asarray(sheet.convert("RGB"))
        except OSError as error:
            raise ArgumentError(f"{path} must be an image: {error}") from error
        if pixels.shape != (height, width, 3):
            raise ArgumentError(
                f"{path} must be {width} pixels wide and {height} high; found "
                f"{pixels.shape[1]} and {pixels.shape[0]}"
            )
        tiles = pixels.reshape(height // SIDE, SIDE, SHEET_COLUMNS, SIDE, 3)
        images[number] = tiles.transpose(0, 2, 4, 1, 3).reshape(rows, 3, SIDE, SIDE)
    ids = np.arange(N_CLASSES, dtype=np.int64)
    return Cifar100(
        [name[2] for name in names if name],
        images[:, :TRAIN_ROWS].reshape(-1, 3, SIDE, SIDE),
        np.repeat(ids, TRAIN_ROWS),
        images[:, TRAIN_ROWS:].reshape(-1, 3, SIDE, SIDE),
        np.repeat(ids, TEST_ROWS),
        SHEETS_SPLIT,
    )
