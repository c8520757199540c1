"""How loops are compiled: without the GIL, cached on disk where that can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["compiled"]


def compiled(function: Callable[..., Any] | None = None, *, inline: str = "never") -> Any:
    """Numba's ``njit``, released from the GIL; division by zero gives inf or nan, as in numpy.

    The machine code is kept beside the source or in the user's cache folder. Where
    neither can be written, it is compiled anew in each process instead of failing.
    """
    if function is None:
        return lambda function: compiled(function, inline=inline)
    options = {"nogil": True, "error_model": "numpy", "inline": inline}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to keep it in
        return njit(**options)(function)
