"""Error-correcting output codes: every site is a two-class problem.

Dietterich and Bakiri (1995). So far the binary representation of the class
id, the code of the paper's comparison, which corrects no error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import as_integer, check_choice
from ..errors import ArgumentError
from .base import Ids, LabelMapping

__all__ = ["EcocMapping"]


class EcocMapping(LabelMapping):
    """A binary code.

    Parameters
    ----------
    n_classes : int
        N, from 1 to 2**62.
    code : {"binary"}, default "binary"
        "binary": site i is bit i of the class id, the lowest first;
        ceil(log2 N) sites, distance 1.

    Examples
    --------
    >>> EcocMapping(100).n_sites
    7
    >>> EcocMapping(100).encode(6).tolist()
    [0, 1, 1, 0, 0, 0, 0]
    """

    kind = "ecoc"

    def __init__(self, n_classes: int, code: str = "binary") -> None:
        n_classes = as_integer("n_classes", n_classes, 1)
        self._code = check_choice("code", code, ("binary",))
        if n_classes > 2**62:
            raise ArgumentError(f"n_classes must be at most 2^62, got {n_classes}")
        n_sites = max(1, (n_classes - 1).bit_length())
        super().__init__(n_classes, (2,) * n_sites, n_sites, 2**n_sites)

    def symbols_at(self, ids: Ids, site: int) -> Ids:
        """Bit `site` of each id."""
        return ids // 2**site % 2

    def _resolve(self, sites: tuple[int, ...], symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        ids: NDArray[np.int64] = (symbols << np.array(sites)).sum(axis=-1)
        return ids

    def _recipe(self) -> dict[str, Any]:
        return {"n_classes": self._n_classes, "code": self._code}
