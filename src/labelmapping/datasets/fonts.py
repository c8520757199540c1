"""Finds the faces that CJK characters are drawn with. Knows files, not glyphs.

A face is a font file and an index within it. Eight known faces cover all of
U+4E00..U+9FA5; each comes in a Debian package and is found by its file name.
Any other font file is a face by its path. Whether a face has a character is
found out by whoever draws it (:mod:`labelmapping.datasets.cjk`).
"""

import logging
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArgumentError, DataNotFoundError

__all__ = [
    "KNOWN_FACES",
    "Face",
    "KnownFace",
    "choose_faces",
    "font_folders",
    "installed_faces",
    "missing_packages",
    "resolve_face",
]

logger = logging.getLogger(__name__)

# The four tags with which an OpenType or TrueType file, or a collection, begins.
_FONT_TAGS = (b"\x00\x01\x00\x00", b"OTTO", b"true", b"ttcf")


@dataclass(frozen=True)
class Face:
    """A font file, the index of one face in it (0 but for collections), and its name."""

    name: str
    path: Path
    index: int


@dataclass(frozen=True)
class KnownFace:
    """A face known to cover U+4E00..U+9FA5, and the Debian package that brings it."""

    name: str
    package: str
    file_name: str
    index: int


# Index 2 of the Noto collections is Simplified Chinese.
KNOWN_FACES = (
    KnownFace("noto-sans-cjk", "fonts-noto-cjk", "NotoSansCJK-Regular.ttc", 2),
    KnownFace("noto-serif-cjk-bold", "fonts-noto-cjk", "NotoSerifCJK-Bold.ttc", 2),
    KnownFace("tw-kai", "fonts-cns11643-kai", "TW-Kai-98_1.ttf", 0),
    KnownFace("tw-sung", "fonts-cns11643-sung", "TW-Sung-98_1.ttf", 0),
    KnownFace("lxgw-wenkai", "fonts-lxgw-wenkai", "LXGWWenKai-Regular.ttf", 0),
    KnownFace("hanazono", "fonts-hanazono", "HanaMinA.ttf", 0),
    KnownFace("wqy-zenhei", "fonts-wqy-zenhei", "wqy-zenhei.ttc", 0),
    KnownFace("babelstone-han", "fonts-babelstone-han", "BabelStoneHan.ttf", 0),
)


def font_folders() -> list[Path]:
    """The folders that hold fonts on Linux, macOS and Windows, the user's own first."""
    home = Path.home()
    folders = [
        Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share") / "fonts",
        home / ".local/share/fonts",
        home / ".fonts",
        home / "Library/Fonts",
        Path("/usr/local/share/fonts"),
        Path("/usr/share/fonts"),
        Path("/Library/Fonts"),
        Path("/System/Library/Fonts"),
    ]
    for variable, below in (("LOCALAPPDATA", "Microsoft/Windows/Fonts"), ("WINDIR", "Fonts")):
        if variable in os.environ:
            folders.append(Path(os.environ[variable]) / below)
    return list(dict.fromkeys(folders))


def installed_faces(folders: Sequence[str | Path] | None = None) -> list[Face]:
    """The known faces that are present, in the order of ``KNOWN_FACES``.

    Parameters
    ----------
    folders : sequence of paths, optional
        Searched with all that is below them, the first find of a file name
        counts; by default :func:`font_folders`. Absent folders are skipped.
    """
    wanted = {known.file_name for known in KNOWN_FACES}
    found: dict[str, Path] = {}
    for folder in font_folders() if folders is None else folders:
        for where, below, file_names in os.walk(folder):
            below.sort()  # the same face is found whatever order the disk lists
            for file_name in wanted.intersection(file_names):
                found.setdefault(file_name, Path(where) / file_name)
    return [
        Face(known.name, found[known.file_name], known.index)
        for known in KNOWN_FACES
        if known.file_name in found
    ]


def missing_packages(folders: Sequence[str | Path] | None = None) -> list[str]:
    """The Debian packages of the known faces that are absent, each once."""
    present = {face.name for face in installed_faces(folders)}
    absent = [known.package for known in KNOWN_FACES if known.name not in present]
    return list(dict.fromkeys(absent))


def resolve_face(text: str, folders: Sequence[str | Path] | None = None) -> Face:
    """The face that a text names.

    Parameters
    ----------
    text : str
        A name in ``KNOWN_FACES``, or a path to a .ttf, .otf or .ttc file, with
        ``:INDEX`` behind it for a face of a collection other than the first.
        A face given by path is named after its file: ``stem`` or ``stem:INDEX``.
    folders : sequence of paths, optional
        Where known faces are looked for, as in :func:`installed_faces`.

    Raises
    ------
    ArgumentError
        The text is no known name and no such path, the file is no font, or it
        has no face of that index.
    DataNotFoundError
        The known face is not installed, or no file is at the path.
    """
    present = {face.name: face for face in installed_faces(folders)}
    if text in present:
        return present[text]
    packages = {known.name: known.package for known in KNOWN_FACES}
    if text in packages:
        raise DataNotFoundError(
            f"face {text!r} is not installed: its Debian package is {packages[text]}"
        )
    match = re.fullmatch(r"(.+\.(?:ttf|otf|ttc))(?::(\d+))?", text, re.IGNORECASE)
    if match is None:
        raise ArgumentError(
            "face must be a known name or a path to a .ttf, .otf or .ttc file, with :INDEX "
            f"for a collection; got {text!r}; known: {', '.join(packages)}; "
            f"installed: {', '.join(present) or 'none'}"
        )
    path, index = Path(match[1]).expanduser(), int(match[2] or 0)
    if not path.is_file():
        raise DataNotFoundError(f"face {text!r}: there is no file {path}")
    if index >= (count := _face_count(path)):
        raise ArgumentError(f"face {text!r}: the file has {count} faces, so no index {index}")
    return Face(f"{path.stem}:{index}" if index else path.stem, path, index)


def _face_count(path: Path) -> int:
    with path.open("rb") as file:
        head = file.read(12)
    if len(head) < 12 or head[:4] not in _FONT_TAGS:
        raise ArgumentError(f"face must be a font file; {path} begins with {head[:4]!r}")
    # A collection begins with its tag, a version, and the number of its fonts.
    return int(struct.unpack(">I", head[8:])[0]) if head[:4] == b"ttcf" else 1


def choose_faces(
    names: Sequence[str] | None = None, folders: Sequence[str | Path] | None = None
) -> list[Face]:
    """The faces to draw with: those named, else every known face that is installed.

    Parameters
    ----------
    names : sequence of str, optional
        Two or more, each as in :func:`resolve_face`.
    folders : sequence of paths, optional
        Where known faces are looked for, as in :func:`installed_faces`.

    Raises
    ------
    ArgumentError
        A name is bad, fewer than two are given, or two are the same face or
        would bear the same name.
    DataNotFoundError
        A face is absent, or fewer than two known faces are installed.
    """
    if names is not None:
        return _distinct_faces([resolve_face(name, folders) for name in names])
    chosen = installed_faces(folders)
    used = ", ".join(face.name for face in chosen)
    missing = " ".join(missing_packages(folders))
    if len(chosen) < 2:
        raise DataNotFoundError(
            f"Two or more CJK faces are needed and {used or 'none'} is installed: "
            f"install some of the packages {missing} (scripts/install_fonts.sh installs all)."
        )
    if missing:
        logger.warning("some known CJK faces are absent (%s); using %s", missing, used)
    else:
        logger.info("using all known CJK faces: %s", used)
    return chosen


def _distinct_faces(faces: list[Face]) -> list[Face]:
    if len(faces) < 2:
        raise ArgumentError(
            f"faces must be two or more, some to train and one to test; got {faces}"
        )
    for n, face in enumerate(faces):
        for other in faces[:n]:
            same_file = face.path.resolve() == other.path.resolve()
            if face.name == other.name or (same_file and face.index == other.index):
                raise ArgumentError(f"faces must be distinct; got {other} and {face}")
    return faces
