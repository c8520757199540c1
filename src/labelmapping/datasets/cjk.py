"""Images of CJK characters, drawn from installed fonts and cached. Knows no learner.

The classes are characters, the samples of a class are its glyphs in several
faces, and one face is held out for the test. Which face that is moves every
accuracy a lot, so it is a field of the result. Nothing is downloaded.
"""

import hashlib
import logging
import os
import platform
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..atomic import replacing
from ..errors import ArgumentError, MissingExtraError
from .fonts import Face, choose_faces

__all__ = ["CLASS_SETS", "CjkCharacters", "characters", "load_cjk", "render_face"]

logger = logging.getLogger(__name__)

Images = npt.NDArray[np.uint8]
Progress = Callable[[str, int, int], None]

# Part of a cached file's key: raise it when `render_face` draws differently.
RENDERER_VERSION = 1

# A face's median ink extent over the side. The widest glyph of the known faces
# is 1.10 times the median (TW-Kai), so nothing of theirs is cut off.
FILL = 0.9

# Glyphs are drawn this much larger and averaged down: ink is centred to a
# quarter of a pixel, and neither hinting nor the bitmaps that some fonts embed
# for small sizes show.
OVERSAMPLING = 4

# Their median extent sets a face's size, whatever is drawn: a character gets
# the same image in every class set.
REFERENCE = [chr(code_point) for code_point in range(0x4E00, 0x9FA6, 128)]

DEFAULT_TEST_FACE = "wqy-zenhei"

# GB 2312 has its level-1 characters, the common ones, in rows B0..D7 of 94
# cells each; the last row ends five cells early.
_LEVEL_1 = bytes(b for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF) for b in (row, cell))

CLASS_SETS = {
    "gb2312-1": _LEVEL_1[:-10].decode("gb2312"),  # 3,755, in the standard's order
    "uro": "".join(map(chr, range(0x4E00, 0x9FA6))),  # 20,902
    "uro-paper": "".join(map(chr, range(0x4E00, 0x9FA5))),  # 20,901, the paper's count
}


@dataclass(frozen=True, eq=False)
class CjkCharacters:
    """Glyph images of N characters in F faces, one held out; see :func:`load_cjk`.

    Images are uint8, white ink (255) on black (0); ids are int64 in [0, N), the
    places of the characters in ``labels``. The N*(F-1) training images come face
    by face in the order of ``train_faces``, those of a face in that of the labels.
    """

    labels: list[str]
    train_images: Images
    train_ids: npt.NDArray[np.int64]
    train_faces: list[str]
    test_images: Images
    test_ids: npt.NDArray[np.int64]
    test_face: str
    class_set: str


def characters(class_set: str) -> list[str]:
    """The characters of a class set, in its order.

    Raises
    ------
    ArgumentError
        The name is not in ``CLASS_SETS``.

    Examples
    --------
    >>> len(characters("gb2312-1")), characters("gb2312-1")[:3]
    (3755, ['啊', '阿', '埃'])
    """
    if class_set not in CLASS_SETS:
        raise ArgumentError(f"class_set must be one of {list(CLASS_SETS)}; got {class_set!r}")
    return list(CLASS_SETS[class_set])


def render_face(
    face: Face, characters: Sequence[str], side: int, *, progress: Progress | None = None
) -> Images:
    """Images of characters in one face.

    All glyphs of a face are drawn in one size, in which the median extent of its
    ink (the larger of height and width) is 0.9 of the side. Each is centred by
    its ink box, and cut off where it exceeds the square.

    Parameters
    ----------
    face : Face
    characters : sequence of str
        N strings of one character.
    side : int
        Height and width in pixels, 8 to 512.
    progress : callable, optional
        Called with (face name, characters drawn, N) every 100 characters.

    Returns
    -------
    uint8, shape (N, side, side)
        White ink (255) on black (0).

    Raises
    ------
    ArgumentError
        The side is out of range, or the face lacks a character: it is not in the
        character map, or its glyph is blank.
    MissingExtraError
        Pillow or fontTools is not installed.
    """
    side, count = _checked_side(side), len(characters)
    try:
        from fontTools.ttLib import TTFont, TTLibError
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise MissingExtraError(
            "Drawing characters needs Pillow and fontTools: pip install labelmapping[experiments]."
        ) from error

    try:
        with TTFont(face.path, fontNumber=face.index, lazy=True) as tables:
            glyph_names = tables.getBestCmap() or {}
    except (TTLibError, struct.error, KeyError, AssertionError) as error:
        raise ArgumentError(f"face must be a sound font file; {face.path}: {error}") from error
    covered = {chr(c) for c, glyph_name in glyph_names.items() if glyph_name != ".notdef"}
    _refuse_missing(face, [c for c in characters if c not in covered], "has no glyph for")

    def font_of_size(size: float) -> ImageFont.FreeTypeFont:
        # The basic layout needs no libraqm, so it is the same on every machine.
        return ImageFont.truetype(face.path, size, face.index, layout_engine=ImageFont.Layout.BASIC)

    def glyph_ink(font: ImageFont.FreeTypeFont, character: str) -> Image.Image:
        left, top, right, bottom = font.getbbox(character)  # ink and advance
        glyph = Image.new("L", (int(right - left), int(bottom - top)))
        ImageDraw.Draw(glyph).text((-left, -top), character, fill=255, font=font)
        return glyph.crop(glyph.getbbox() or (0, 0, 0, 0))

    # By the ink, not by the em box: how much a face leaves free around its ink
    # and where it puts the baseline mark the face, not the character. Nearest
    # template at 24 px, GB 2312 level 1, mean over the known faces held out in
    # turn: 0.87 by the em box, 0.92 centred, 0.95 centred and scaled by the ink.
    em = font_of_size(256)
    reference = [c for c in REFERENCE if c in covered] or characters
    extent = float(np.median([max(glyph_ink(em, c).size) for c in reference] or [256]))
    large = OVERSAMPLING * side
    font = font_of_size(256 * FILL * large / max(extent, 1.0))
    images = np.empty((count, side, side), np.uint8)
    for n, character in enumerate(characters):
        ink = glyph_ink(font, character)
        square = Image.new("L", (large, large))
        square.paste(ink, ((large - ink.width) // 2, (large - ink.height) // 2))
        images[n] = np.asarray(square.reduce(OVERSAMPLING))
        if progress and (n % 100 == 99 or n == count - 1):
            progress(face.name, n + 1, count)
    blank = [c for c, image in zip(characters, images, strict=True) if not image.any()]
    _refuse_missing(face, blank, "draws nothing for")
    return images


def _checked_side(side: int) -> int:
    if side not in range(8, 513):
        raise ArgumentError(f"side must be an integer from 8 to 512 pixels; got {side!r}")
    return int(side)


def _refuse_missing(face: Face, missing: list[str], what: str) -> None:
    if missing:
        code_point = " ".join(f"U+{ord(c):04X}" for c in missing[0])
        raise ArgumentError(
            f"face must cover every character; {face.name} ({face.path.name}) {what} "
            f"{missing[0]!r} ({code_point}); characters missing: {len(missing)}"
        )


def load_cjk(
    class_set: str = "gb2312-1",
    *,
    side: int = 24,
    faces: Sequence[str] | None = None,
    test_face: str | None = None,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> CjkCharacters:
    """The characters of a class set in every face, one face held out for the test.

    Parameters
    ----------
    class_set : str
        A name in ``CLASS_SETS``.
    side : int
        Height and width of an image in pixels, 8 to 512.
    faces : sequence of str, optional
        Two or more known names or font paths, as in
        :func:`~labelmapping.datasets.fonts.choose_faces`; by default every known
        face that is installed.
    test_face : str, optional
        The name of one of the faces; by default "wqy-zenhei" where it is among
        them, else the last.
    cache_dir : path, optional
        Where drawn faces are kept, a file each; by default the environment variable
        ``LABELMAPPING_CACHE``, else ``labelmapping`` in the user's cache folder.
    progress : callable, optional
        Called with (face name, characters done, N) while a face is drawn, and
        once for a face that is read from the cache.

    Raises
    ------
    ArgumentError
        An argument breaks its rule, two font files are the same, or a face lacks
        a character.
    DataNotFoundError
        A face is absent, or fewer than two known faces are installed.
    MissingExtraError
        Something has to be drawn, and Pillow or fontTools is not installed.
    """
    labels, side = characters(class_set), _checked_side(side)
    chosen = choose_faces(faces)
    names = [face.name for face in chosen]
    if test_face is None:
        test_face = DEFAULT_TEST_FACE if DEFAULT_TEST_FACE in names else names[-1]
    if test_face not in names:
        raise ArgumentError(f"test_face must be one of the faces {names}; got {test_face!r}")
    folder = _cache_folder(cache_dir)
    cached: dict[Path, Face] = {}
    for face in chosen:
        path = folder / _cache_name(face, class_set, side)
        if path in cached:
            raise ArgumentError(f"faces must differ; {cached[path]} and {face} have one content")
        cached[path] = face

    count = len(labels)
    train_images = np.empty((count * (len(chosen) - 1), side, side), np.uint8)
    test_images = np.empty((count, side, side), np.uint8)
    train_faces: list[str] = []
    for path, face in cached.items():
        images = _face_images(face, labels, side, path, progress)
        if face.name == test_face:
            test_images[:] = images
        else:
            train_images[count * len(train_faces) :][:count] = images
            train_faces.append(face.name)
    ids = np.arange(count, dtype=np.int64)
    train_ids = np.tile(ids, len(train_faces))
    return CjkCharacters(
        labels, train_images, train_ids, train_faces, test_images, ids, test_face, class_set
    )


def _cache_folder(cache_dir: str | Path | None) -> Path:
    given = cache_dir or os.environ.get("LABELMAPPING_CACHE")
    if given:
        return Path(given).expanduser() / "cjk"
    usual = {"Darwin": "~/Library/Caches", "Windows": os.environ.get("LOCALAPPDATA")}
    user = os.environ.get("XDG_CACHE_HOME") or usual.get(platform.system()) or "~/.cache"
    return Path(user).expanduser() / "labelmapping" / "cjk"


def _cache_name(face: Face, class_set: str, side: int) -> str:
    # Pillow's version is no part of the key: another FreeType moves a few grey
    # levels, and an upgrade should not change the data between two runs.
    with face.path.open("rb") as file:
        key = hashlib.file_digest(file, "sha256")
    key.update(f"|{face.index}|{class_set}|{side}|{RENDERER_VERSION}".encode())
    return f"{class_set}-{side}px-{key.hexdigest()[:32]}.npy"


def _face_images(
    face: Face, labels: list[str], side: int, path: Path, progress: Progress | None
) -> Images:
    """The images at a cache path; where it has none, they are drawn and put there."""
    if path.exists():
        try:
            images: Images = np.load(path, mmap_mode="r", allow_pickle=False)
            if images.shape != (len(labels), side, side) or images.dtype != np.uint8:
                raise ValueError(f"it holds {images.dtype} of shape {images.shape}")
            if not all(image.any() for image in images):
                raise ValueError("it holds a blank image")
        # A damaged header raises almost anything (ValueError, EOFError, TokenError...).
        except Exception as error:
            logger.warning("cached %s is damaged and drawn again: %s", path, error)
        else:
            if progress:
                progress(face.name, len(labels), len(labels))
            return images
    images = render_face(face, labels, side, progress=progress)
    with replacing(path) as temporary:
        np.save(temporary, images, allow_pickle=False)
    return images
