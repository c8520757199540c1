"""What the commands read from files that a user names; each refusal names the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError, DataNotFoundError
from .mappings import LabelMapping

__all__ = ["read_array", "read_recipe"]


def read_recipe(path: Path) -> LabelMapping:
    """The mapping of a recipe, which may lie in a learner's recipe or in a run.json."""
    if not path.is_file():
        raise DataNotFoundError(
            f"{path} is no file; it must be the JSON of mapping.to_config(), or a run.json"
        )
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} must be JSON: {error}") from error
    for name in ("recipe", "mapping"):
        if isinstance(value, Mapping) and "kind" not in value:
            value = value.get(name, value)
    if not isinstance(value, Mapping) or "kind" not in value:
        raise ArgumentError(
            f"{path} must hold the recipe of a mapping, as mapping.to_config() gives it, alone "
            "or in a run.json"
        )
    try:
        return LabelMapping.from_config(value)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from error


def read_array(path: Path) -> NDArray[Any]:
    """The array of an .npy file; one that would have to be unpickled is refused."""
    if not path.is_file():
        raise DataNotFoundError(f"{path} is no file; it must be an array as numpy.save writes it")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ArgumentError(f"{path} must be an array of numbers (.npy): {error}") from error
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{path} must hold one array (.npy), got {', '.join(array.files)}")
    return array
