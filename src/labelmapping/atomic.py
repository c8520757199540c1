"""Files that appear whole or not at all, here and on stores. Knows the standard library only.

A path is a ``pathlib.Path``, or the like of a remote store (`storage.as_folder`), whose ``fs``
is an fsspec file system and whose ``path`` is the name there.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = [
    "TEMPORARY",
    "file_sha256",
    "is_remote",
    "remove_leftovers",
    "replacing",
    "write_json",
    "write_text",
]

# What is left of a write that was killed starts so, and may be removed.
TEMPORARY = ".tmp-"
# Stores where an upload shows under its name only once it is whole, and that have no folders.
OBJECT_STORES = {"abfs", "abfss", "az", "gcs", "gs", "oss", "s3", "s3a"}


def is_remote(path: Path) -> bool:
    """Whether a path lies on a remote store: it is no ``pathlib.Path``, and only works as one."""
    return not isinstance(path, Path)


def remove_leftovers(folder: Path) -> None:
    """Remove what writes that were killed have left in a folder."""
    if is_remote(folder) and _is_object_store(folder):
        return
    for leftover in folder.glob(f"{TEMPORARY}*"):
        leftover.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it when the block ends well.

    Killed or failed in between, the old file is untouched and no other file has
    the name. The temporary name starts with `TEMPORARY` and ends as `path` does.
    For a remote `path` it lies on this machine, and is uploaded when the block ends well.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder) / f"{TEMPORARY}{path.name}"
            yield temporary
            _upload(temporary, path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=TEMPORARY, suffix=path.name, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _is_object_store(path: Any) -> bool:
    return path.protocol in OBJECT_STORES


def _upload(file: Path, path: Any) -> None:
    """Put a local file under a remote name, whole or not at all."""
    if _is_object_store(path):
        path.fs.put_file(str(file), path.path)
        return
    path.fs.makedirs(path.parent.path, exist_ok=True)
    beside = (path.parent / f"{TEMPORARY}{uuid.uuid4().hex}{path.name}").path
    try:
        path.fs.put_file(str(file), beside)
        path.fs.mv(beside, path.path)
        if path.fs.exists(beside):  # not every store says so where it does not replace a file
            raise FileExistsError(f"{path} cannot be replaced on this store")
    except BaseException:
        with suppress(Exception):
            path.fs.rm_file(beside)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text under `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON under `path`, whole or not at all; NaN is refused."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def file_sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
