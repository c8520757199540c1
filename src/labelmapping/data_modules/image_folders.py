"""Images in a folder a class, decoded as they are asked for. Knows Pillow, and no network."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..arguments import as_integer, as_integers, check_choice
from ..atomic import file_sha256
from ..errors import ArgumentError, DataNotFoundError, MissingExtraError
from ..labels import LabelSet
from .rows import SHOWN, UNSEEN, LearningRows, Rows, RowsModule, warn_of_unseen

__all__ = ["ImageFolders"]

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MODES = {"rgb": "RGB", "grey": "L"}


class ImageFolders(RowsModule):
    """Images in a folder a class: ``root/LABEL/anything.png``, in folders below that too.

    A class's label is its folder's name, kept as it is; ids follow the names in ascending
    order. Files are decoded a batch at a time, so only their names are in memory. What starts
    with a dot, and what ends otherwise than as .bmp .gif .jpeg .jpg .pgm .png .ppm .tif .tiff
    .webp, is passed over. Links are followed. Batches are uint8: (B, 3, height, width) for
    "rgb", (B, height, width) for "grey".

    Parameters
    ----------
    root
        Folder of the class folders.
    side
        Height and width, in pixels, that images are scaled to, whatever their own; or the two,
        height first.
    channels
        "rgb", or "grey" as `SmallCnn` takes it. Transparency is dropped.
    held_out
        Share of the images, in [0, 1), that are watched and not trained on, drawn from the
        seed in every class as evenly as its number allows. A class keeps one image at least, so
        one of a single image stays in training.
    test_root
        Class folders to evaluate on. The id of a folder that `root` lacks is -1: such images
        count as errors.
    predict_root
        Folder, of any form, of images to predict. Batches are (images, names), names
        relative to it, each folder's in ascending order.
    batch_size
        Images a batch.
    seed
        Decides what is held out, and the order of training.
    num_workers
        Processes that decode ahead; 0: none.
    check_contents
        The fingerprint covers what is in the files, which reads them all once. Else it covers
        their names and sizes, and a file that was changed to one as long is not noticed.

    Raises
    ------
    MissingExtraError
        In setup, where Pillow is absent.
    DataNotFoundError
        In setup: a folder is missing.
    ArgumentError
        In setup: no class folders, some without an image, a name that is no Unicode, a link
        to a folder that it lies in. Later, when its batch is read: a file that cannot be
        decoded, or has more than 8 bits a channel; each is named.
    """

    def __init__(
        self,
        root: str,
        *,
        side: int | tuple[int, int] = 64,
        channels: Literal["rgb", "grey"] = "rgb",
        held_out: float = 0.1,
        test_root: str | None = None,
        predict_root: str | None = None,
        batch_size: int = 128,
        seed: int = 0,
        num_workers: int = 0,
        check_contents: bool = False,
    ) -> None:
        super().__init__(held_out, batch_size, seed, num_workers)
        self.roots = {"root": root, "test_root": test_root, "predict_root": predict_root}
        if isinstance(side, (tuple, list)):
            size = as_integers("side", side, 1)
            if len(size) != 2:
                raise ArgumentError(f"side must be one number or (height, width), got {side}")
            self.height, self.width = size
        else:
            self.height = self.width = as_integer("side", side, 1)
        self.mode = MODES[check_choice("channels", channels, MODES)]
        self.check_contents = check_contents

    def _read_learning(self) -> LearningRows:
        root, names = self._class_folders("root")
        LabelSet.of(names)[0].warn_of_lookalikes()
        images, ids = self._labelled("root", root, names, range(len(names)))
        train, held_out = self._stratified(ids, len(names))
        return LearningRows(names, images, ids, train, held_out)

    def _read_test(self) -> tuple[list[str], Rows]:
        _, names = self._class_folders("root")
        root, found = self._class_folders("test_root")
        ids = {name: number for number, name in enumerate(names)}
        rows, of_row = self._labelled("test_root", root, found, [ids.get(n, UNSEEN) for n in found])
        warn_of_unseen([n for n in found if n not in ids], int((of_row == UNSEEN).sum()))
        return names, rows

    def _read_predict(self) -> tuple[None, Rows]:
        root = self._folder("predict_root")
        with _file_errors("predict_root"):
            found = list(_images_below(root, root))
        if not found:
            raise ArgumentError(f"predict_root must have images below it, {root} has none")
        return None, self._images(root, found, None)

    def _settings(self) -> dict[str, Any]:
        return {"height": self.height, "width": self.width, "mode": self.mode}

    def _folder(self, name: str) -> Path:
        """A folder that an argument names; refused where it is not there, or Pillow is not."""
        try:
            import PIL.Image as _  # noqa: F401 - before a training starts
        except ImportError as error:
            raise MissingExtraError(
                "ImageFolders needs Pillow: pip install 'labelmapping[fit]'"
            ) from error
        root = self.roots[name]
        if root is None:
            raise ArgumentError(f"{name} must be given, ImageFolders got none")
        if not Path(root).is_dir():
            raise DataNotFoundError(f"{name} must be a folder, {root} is none")
        return Path(root)

    def _class_folders(self, name: str) -> tuple[Path, list[str]]:
        root = self._folder(name)
        with _file_errors(name), os.scandir(root) as entries:
            names = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
        if not names:
            raise ArgumentError(f"{name} must have a folder for each class, {root} has none")
        for label in names:
            try:
                label.encode()
            except UnicodeEncodeError as error:
                raise ArgumentError(
                    f"{name} must have folders whose names are Unicode, got {label!r}"
                ) from error
        return root, names

    def _labelled(
        self, name: str, root: Path, names: Sequence[str], of_folder: Sequence[int]
    ) -> tuple[_Images, NDArray[np.int64]]:
        """The images of class folders, and the id of each."""
        found: list[tuple[str, int]] = []
        counts = []
        with _file_errors(name):
            for label in names:
                before = len(found)
                found += _images_below(root / label, root)
                counts.append(len(found) - before)
        empty = [label for label, count in zip(names, counts, strict=True) if not count]
        if empty and (name == "root" or not found):
            more = f" and {len(empty) - SHOWN} more" if len(empty) > SHOWN else ""
            raise ArgumentError(
                f"{name} must have an image ({' '.join(ENDINGS)}) in every class folder; "
                f"none is in {', '.join(map(repr, empty[:SHOWN]))}{more}"
            )
        ids = np.repeat(np.array(of_folder, np.int64), counts)
        return self._images(root, found, ids), ids

    def _images(
        self, root: Path, found: list[tuple[str, int]], ids: NDArray[np.int64] | None
    ) -> _Images:
        names, sizes = [name for name, _ in found], [size for _, size in found]
        return _Images(
            root, names, sizes, ids, self.mode, (self.width, self.height), self.check_contents
        )


@dataclass(frozen=True, eq=False)
class _Images:
    """Rows that are image files: batches (images, ids), or (images, names) without ids."""

    root: Path
    names: list[str]
    sizes: list[int]
    ids: NDArray[np.int64] | None
    mode: str
    size: tuple[int, int]
    check_contents: bool

    def contents(self) -> Iterator[bytes]:
        for name, size in zip(self.names, self.sizes, strict=True):
            known = file_sha256(self.root / name) if self.check_contents else str(size)
            yield os.fsencode(name) + b"\0" + known.encode() + b"\0"

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, numbers: Tensor) -> tuple[Tensor, Tensor | list[str]]:
        names = [self.names[number] for number in numbers.tolist()]
        images = torch.from_numpy(np.stack([self._pixels(self.root / name) for name in names]))
        if self.mode == "RGB":
            images = images.permute(0, 3, 1, 2).contiguous()
        return images, names if self.ids is None else torch.from_numpy(self.ids[numbers.numpy()])

    def _pixels(self, path: Path) -> NDArray[np.uint8]:
        from PIL import Image

        try:
            with Image.open(path) as image:
                deep = image.mode.startswith(("I", "F"))
                if not deep:
                    # Pillow warns of a palette's transparency unless it is asked for.
                    clear = "transparency" in image.info
                    drawn = (image.convert("RGBA") if clear else image).convert(self.mode)
                    pixels = np.array(drawn.resize(self.size, Image.Resampling.BILINEAR))
        # A damaged file raises almost anything (OSError, SyntaxError, ValueError, struct.error...).
        except Exception as error:
            raise ArgumentError(f"{path} must be an image that can be decoded: {error}") from error
        if deep:
            # Pillow would cut all brighter pixels to white.
            raise ArgumentError(f"{path} must have 8 bits a channel, it has Pillow's {image.mode}")
        return pixels


@contextmanager
def _file_errors(name: str) -> Iterator[None]:
    """What the file system says while folders are walked, as an error that names the argument."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(f"{name} must have files that can be read: {error}") from error


def _images_below(
    folder: Path, root: Path, above: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[tuple[str, int]]:
    """Names relative to `root`, and sizes in bytes, of images in a folder and those below it."""
    status = folder.stat()
    itself = (status.st_dev, status.st_ino)
    if itself in above:
        raise ArgumentError(f"{folder} must be no link to a folder that it lies in")
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    for entry in inside:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _images_below(folder / entry.name, root, above | {itself})
        elif entry.name.lower().endswith(ENDINGS):
            yield (folder / entry.name).relative_to(root).as_posix(), entry.stat().st_size
