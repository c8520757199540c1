"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people. Knows no learner.

Lake, Salakhutdinov and Tenenbaum, "Human-level concept learning through probabilistic
program induction" (Science, 2015). Read from one file of 28x28 images; `download_omniglot`
makes such a file from the authors' archives.
"""

from __future__ import annotations

import hashlib
import io
import os
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import as_integers, check_range
from ..atomic import replacing
from ..errors import ArgumentError, DataNotFoundError, MissingExtraError

__all__ = ["Omniglot", "download_omniglot", "load_omniglot"]

SOURCE = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
# MD5 sums as torchvision checks them: the authors give none.
ARCHIVES = {
    "images_background.zip": "68d2efa1b9178cc56df9314c21c6e718",
    "images_evaluation.zip": "6b91aef0f799c5bb55b94e3f2daec811",
}
FILE = "omniglot28.npz"
ARRAYS = ("x", "y", "drawer", "name")
N_CLASSES, DRAWERS, SIDE = 1623, 20, 28


@dataclass(frozen=True, eq=False)
class Omniglot:
    """Images by T training and H held-out drawers; see :func:`load_omniglot`.

    Rows come class by class, those of a class in the order of the drawers.

    Attributes
    ----------
    labels : list of str
        The N classes, "Alphabet/character01", sorted.
    train_images, held_out_images : uint8 array (N*T, 28, 28), (N*H, 28, 28)
        Ink is 255, paper 0.
    train_ids, held_out_ids : int64 array (N*T,), (N*H,)
        Class ids: places in `labels`.
    train_drawers, held_out_drawers : int64 array (N*T,), (N*H,)
        Who drew each row, 0..19: the number in the archives' file names less one.
    """

    labels: list[str] = field(repr=False)
    train_images: NDArray[np.uint8] = field(repr=False)
    train_ids: NDArray[np.int64] = field(repr=False)
    train_drawers: NDArray[np.int64] = field(repr=False)
    held_out_images: NDArray[np.uint8] = field(repr=False)
    held_out_ids: NDArray[np.int64] = field(repr=False)
    held_out_drawers: NDArray[np.int64] = field(repr=False)


def load_omniglot(
    *,
    data_dir: str | Path | None = None,
    held_out_drawers: Sequence[int] = (16, 17, 18, 19),
) -> Omniglot:
    """Read the images from a folder, with some drawers of every character held out.

    Parameters
    ----------
    data_dir : path, optional
        Has ``omniglot28.npz``. Default: the environment variable ``LABELMAPPING_DATA``.
        The file holds ``x``, uint8 (32460, 28, 28) with ink above 0; class ids ``y`` and
        drawers ``drawer`` (1..20), integers (32460,), in any order; and ``name``, strings
        (1623,). Copies that were not made by `download_omniglot` may hold other pixels.
    held_out_drawers : sequence of int, default (16, 17, 18, 19)
        Different ones of 0..19, at most 19 of them. One number in two alphabets need not
        be one person.

    Raises
    ------
    DataNotFoundError
        No folder is named, or it has no such file.
    ArgumentError
        `held_out_drawers` breaks its rule, or the file is damaged: what is wrong with it,
        and where.
    """
    held_out = as_integers("held_out_drawers", held_out_drawers, 0)
    check_range("held_out_drawers", np.array(held_out), DRAWERS)
    if len(set(held_out)) < len(held_out) or len(held_out) == DRAWERS:
        raise ArgumentError(
            f"held_out_drawers must be different from each other and leave one of the {DRAWERS}; "
            f"got {held_out}"
        )
    path = _find_file(data_dir)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as members:
            arrays = {name: members[name] for name in ARRAYS}
    # A damaged file raises almost anything (BadZipFile, KeyError, ValueError, zlib.error...).
    except Exception as error:
        raise ArgumentError(
            f"{path} must be a sound npz file with the arrays {', '.join(ARRAYS)}: {error}"
        ) from error
    images, labels = _arrange(arrays, str(path))
    kept = [drawer for drawer in range(DRAWERS) if drawer not in held_out]
    return Omniglot(labels, *_rows(images, kept), *_rows(images, sorted(held_out)))


def download_omniglot(data_dir: str | Path) -> Path:
    """Fetch the authors' two archives, checked, and draw ``omniglot28.npz`` into a folder.

    The images, 105x105 in black and white, are averaged down, so edges have grey levels.
    Other copies at 28x28 are made otherwise (many are black and white): accuracies
    on them may differ a little.

    Raises
    ------
    ArgumentError
        An archive's MD5 sum is wrong, or what it holds is not Omniglot; nothing is written.
    MissingExtraError
        Pillow is not installed.
    """
    try:
        import PIL.Image as _  # noqa: F401 - before anything is fetched
    except ImportError as error:
        raise MissingExtraError(
            "Reading Omniglot's archives needs Pillow: pip install labelmapping[experiments]."
        ) from error
    drawn: list[tuple[str, int, NDArray[np.uint8]]] = []
    for name, md5 in ARCHIVES.items():
        with urllib.request.urlopen(f"{SOURCE}/{name}", timeout=60) as answer:
            archive = answer.read()
        found = hashlib.md5(archive, usedforsecurity=False).hexdigest()
        if found != md5:
            raise ArgumentError(f"{SOURCE}/{name} must have the MD5 sum {md5}; found {found}")
        drawn += _draw(archive)
    labels = sorted({label for label, _, _ in drawn})
    numbers = {label: number for number, label in enumerate(labels)}
    arrays: dict[str, Any] = {
        "x": np.array([image for _, _, image in drawn], np.uint8),
        "y": np.array([numbers[label] for label, _, _ in drawn], np.int16),
        "drawer": np.array([drawer for _, drawer, _ in drawn], np.int8),
        "name": np.array(labels),
    }
    _arrange(arrays, f"{SOURCE}: {', '.join(ARCHIVES)}")
    path = Path(data_dir) / FILE
    with replacing(path) as temporary:
        np.savez_compressed(temporary, **arrays)
    return path


def _find_file(data_dir: str | Path | None) -> Path:
    folder = data_dir if data_dir is not None else os.environ.get("LABELMAPPING_DATA")
    if folder is None:
        raise DataNotFoundError(
            f"Omniglot is needed: pass data_dir (--data-dir), or set LABELMAPPING_DATA, to a "
            f"folder with {FILE}"
        )
    path = Path(folder) / FILE
    if not path.is_file():
        raise DataNotFoundError(
            f"data_dir must hold {FILE}, {folder} does not; "
            "labelmapping.datasets.omniglot.download_omniglot makes it"
        )
    return path


def _draw(archive: bytes) -> Iterator[tuple[str, int, NDArray[np.uint8]]]:
    """Label, drawer (from 1) and image of every drawing in an archive."""
    from PIL import Image

    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        for member in members.namelist():
            path = PurePosixPath(member)  # images_background/Greek/character01/0394_20.png
            if path.suffix != ".png" or len(path.parts) != 4:
                continue
            with members.open(member) as file, Image.open(file) as image:
                small = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
            label = "/".join(path.parts[1:3])
            yield label, int(path.stem.rpartition("_")[2]), 255 - np.asarray(small, np.uint8)


def _arrange(arrays: Mapping[str, Any], source: str) -> tuple[NDArray[np.uint8], list[str]]:
    """The images by class and drawer (N, 20, 28, 28), and the labels; all is checked."""
    x, y, drawer, name = (arrays[key] for key in ARRAYS)
    n_rows = N_CLASSES * DRAWERS
    for key, kind, shape in (
        ("x", np.uint8, (n_rows, SIDE, SIDE)),
        ("y", np.integer, (n_rows,)),
        ("drawer", np.integer, (n_rows,)),
        ("name", np.str_, (N_CLASSES,)),
    ):
        array = arrays[key]
        if array.shape != shape or not np.issubdtype(array.dtype, kind):
            raise ArgumentError(
                f"{key} of {source} must be {kind.__name__} of shape {shape}; found "
                f"{array.dtype} of shape {array.shape}"
            )
    check_range(f"y of {source}", y, N_CLASSES)
    check_range(f"drawer - 1 of {source}", drawer - 1, DRAWERS)
    labels = [str(label) for label in name]
    if labels != sorted(set(labels)):
        raise ArgumentError(f"name of {source} must be sorted, without repeats")
    places = y.astype(np.int64) * DRAWERS + drawer - 1
    counts = np.bincount(places, minlength=n_rows)
    if (counts != 1).any():
        place = int(np.argmax(counts != 1))
        raise ArgumentError(
            f"{source} must have one image of every class by every drawer; drawer "
            f"{place % DRAWERS + 1} of {labels[place // DRAWERS]} has {counts[place]}"
        )
    images = np.empty_like(x)
    images[places] = x
    blank = np.flatnonzero(~images.any(axis=(1, 2)))
    if blank.size:
        raise ArgumentError(
            f"x of {source} must have ink in every image; drawer {blank[0] % DRAWERS + 1} of "
            f"{labels[blank[0] // DRAWERS]} has none (blank images: {blank.size})"
        )
    return images.reshape(N_CLASSES, DRAWERS, SIDE, SIDE), labels


def _rows(
    images: NDArray[np.uint8], drawers: list[int]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The rows of some drawers: images, class ids, drawers."""
    n_classes = len(images)
    return (
        images[:, drawers].reshape(-1, SIDE, SIDE),
        np.repeat(np.arange(n_classes, dtype=np.int64), len(drawers)),
        np.tile(np.array(drawers, np.int64), n_classes),
    )
