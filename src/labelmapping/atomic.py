"""Files that appear whole or not at all. Knows the standard library only."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["TEMPORARY", "file_sha256", "replacing", "write_json", "write_text"]

# What is left of a write that was killed starts so, and may be removed.
TEMPORARY = ".tmp-"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it when the block ends well.

    Killed or failed in between, the old file is untouched and no other file has
    the name. The temporary name starts with `TEMPORARY` and ends as `path` does.
    """
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
