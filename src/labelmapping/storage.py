"""Where run folders lie: on this machine, or on a store that fsspec speaks to.

A folder is a ``pathlib.Path``; on a store it is a ``upath.UPath``, which has a Path's methods.
Knows the errors and `atomic` only.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from .atomic import is_remote
from .errors import ArgumentError, ArgumentTypeError, MissingExtraError, RunInUseError

__all__ = ["LOCK", "as_folder", "in_use", "local_copy", "local_folder"]

LOCK = ".lock"
LOCAL = ("file", "local")
# What file systems without locks answer.
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
logger = logging.getLogger(__name__)


def as_folder(place: object, name: str = "run_folder") -> Path:
    """A path of this machine, or of a store where `place` is a URL such as "s3://bucket/run".

    Parameters
    ----------
    place : str, Path or UPath
        A UPath carries options of its store, such as an endpoint; for a URL they are fsspec's,
        from its configuration and the environment.
    name : str
        Of the argument, for errors.

    Returns
    -------
    Path
        On a store a ``upath.UPath``, which is none but works as one. It can be pickled.

    Raises
    ------
    ArgumentError
        No store has such URLs, or its package is absent.
    MissingExtraError
        A URL, and universal-pathlib is absent.
    """
    if isinstance(place, str) and "://" in place:
        protocol, _, rest = place.partition("://")
        return Path(rest) if protocol in LOCAL else _on_store(place, protocol, name)
    if isinstance(place, (str, os.PathLike)):
        return Path(getattr(place, "path", place))  # a UPath of this machine has no plain name
    if hasattr(place, "storage_options"):
        return _on_store(place, getattr(place, "protocol", ""), name)
    raise ArgumentTypeError(f"{name} must be a path or a URL, got {place!r}")


def _on_store(place: object, protocol: str, name: str) -> Path:
    try:
        import fsspec
        from upath import UPath
    except ImportError as error:
        raise MissingExtraError(
            f"{name} on a store, {str(place)!r}, needs universal-pathlib: "
            "pip install 'labelmapping[remote]'"
        ) from error
    try:
        fsspec.get_filesystem_class(protocol)
        folder: Any = UPath(place) if isinstance(place, str) else place
        folder.fs.invalidate_cache()  # others write there too: a listing may be old
        return cast(Path, folder)
    except (ImportError, ValueError) as error:
        raise ArgumentError(
            f"{name} must be a path or a URL of a store that fsspec knows and whose package is "
            f"installed, got {str(place)!r}: {error}"
        ) from error


@contextmanager
def local_copy(path: Path) -> Iterator[Path]:
    """A file of this machine with the bytes of `path`: itself, or a copy for a while."""
    if not is_remote(path):
        yield path
        return
    with TemporaryDirectory() as folder:
        copy, source = Path(folder) / path.name, cast(Any, path)
        source.fs.get_file(source.path, str(copy))
        yield copy


@contextmanager
def local_folder(folder: Path) -> Iterator[Path]:
    """`folder`, or in the place of a remote one an empty folder of this machine for a while."""
    if not is_remote(folder):
        yield folder
        return
    with TemporaryDirectory() as local:
        yield Path(local)


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; it ends with the process, however it ends.

    There is none on stores, nor on file systems without locks, which a warning tells.

    Raises
    ------
    RunInUseError
        Somebody else holds it; nothing was waited for.
    """
    if is_remote(folder):
        yield
        return
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RunInUseError(
            f"{folder} is in use: another process trains there; wait until it ends, or use "
            "another folder"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        logger.warning("%s lies where nothing can be locked: let one process train there", folder)
    try:
        yield
    finally:
        lock.release()
