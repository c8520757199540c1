"""Codewords of class ids on the ids' own device, and whether two codes agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from ..mappings import LabelMapping

__all__ = ["CodewordEncoder", "check_extends", "codeword_encoder", "grown_mapping"]

# Ids compared, or counted, at a time.
BLOCK = 1 << 18


class CodewordEncoder(nn.Module):
    """``mapping.encode`` as a module: what it looks symbols up in moves with it between devices.

    Modular codes compute symbols from the ids and hold nothing; linear ones hold small
    tables of digits, table codes N symbols a site in the smallest dtype. The tables are
    non-persistent buffers: a saved model has its mapping's recipe instead.

    Parameters
    ----------
    mapping : LabelMapping
    sites : sequence of int, optional
        Default all.
    device : torch.device, optional
        Where the tables lie.

    Attributes
    ----------
    sizes : list of int
        The sites' alphabets.
    abstains : bool
        Whether some symbols are -1.
    offsets : int64 Tensor (n_sites,)
        Where each site begins when the sites' symbols are numbered on from each other.
    """

    offsets: Tensor

    def __init__(
        self,
        mapping: LabelMapping,
        sites: Sequence[int] | None = None,
        *,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.mapping = mapping
        self.sites = tuple(range(mapping.n_sites)) if sites is None else mapping.check_sites(sites)
        self.sizes = [mapping.alphabet_sizes[site] for site in self.sites]
        self.abstains = mapping.has_abstentions
        self._counts: Tensor | None = None
        self._fill(device)

    def _fill(self, device: torch.device | str | None) -> None:
        ends = torch.tensor(self.sizes, device=device).cumsum(0)
        self._on_meta = ends.is_meta
        self.register_buffer("offsets", ends - ends.new_tensor(self.sizes), persistent=False)
        self._names: list[list[str]] = []
        for place, site in enumerate(self.sites):
            tables = self.mapping.site_tables(site)
            self._names.append([f"table_{place}_{i}" for i in range(len(tables))])
            for name, table in zip(self._names[-1], tables, strict=True):
                self.register_buffer(name, as_tensor(table, device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # untyped in torch
        self._on_meta = self._on_meta or self.offsets.is_meta
        self._fill_late()
        return self

    def _fill_late(self) -> None:
        """After `to_empty`, or a loader that sets buffers, tables from "meta" hold anything."""
        if self._on_meta and not self.offsets.is_meta:
            self._fill(self.offsets.device)

    def forward(self, ids: Tensor) -> Tensor:
        """Class ids, int64 (...), not checked, to int64 symbols (..., n_sites); -1: abstains."""
        self._fill_late()
        columns = []
        for site, names in zip(self.sites, self._names, strict=True):
            tables = tuple(cast(Tensor, getattr(self, name)) for name in names)
            columns.append(self.mapping.symbols_at(ids, site, tables))
        return torch.stack(columns, dim=-1)

    def symbol_counts(self) -> Tensor:
        """How many classes have each symbol: float64 (sum of the alphabets,), on the CPU.

        Counted at the first call: a few seconds for 10^8 classes.
        """
        if self._counts is None:
            self._counts = self._counted()
        return self._counts

    def _counted(self) -> Tensor:
        counts = [np.zeros(size) for size in self.sizes]
        for start in range(0, self.mapping.n_classes, BLOCK):
            ids = np.arange(start, min(start + BLOCK, self.mapping.n_classes))
            for i, (site, size) in enumerate(zip(self.sites, self.sizes, strict=True)):
                symbols = self.mapping.symbols_at(ids, site)
                counts[i] += np.bincount(symbols[symbols >= 0], minlength=size)
        return torch.from_numpy(np.concatenate(counts))


def as_tensor(table: np.ndarray, device: torch.device | str | None) -> Tensor:
    """A copy of integers as the narrowest tensor that torch can look them up from."""
    low, high = (int(table.min()), int(table.max())) if table.size else (0, 0)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        limits = torch.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            break
    else:
        dtype = torch.int64
    return torch.from_numpy(table.astype(np.int64)).to(device=device, dtype=dtype)


def codeword_encoder(
    mapping: LabelMapping | CodewordEncoder, sites: Sequence[int] | None, device: torch.device
) -> CodewordEncoder:
    """The encoder itself where it fits, else a new one for these sites.

    Raises
    ------
    ArgumentError
        `sites` differ from those of the encoder.
    """
    if isinstance(mapping, LabelMapping):
        return CodewordEncoder(mapping, sites, device=device)
    if sites is not None and mapping.mapping.check_sites(sites) != mapping.sites:
        raise ArgumentError(
            f"sites must be those of the encoder, {list(mapping.sites)}, got {list(sites)}"
        )
    return mapping


def grown_mapping(mapping: LabelMapping, n_classes: int | LabelMapping) -> LabelMapping:
    """The code with more classes: grown here, or checked where it is given as a mapping.

    Raises
    ------
    ArgumentError
        Above the capacity, with how far it can go; or the mapping given is not this one
        with more classes.
    """
    if not isinstance(n_classes, LabelMapping):
        return mapping.grow(n_classes)
    check_extends("n_classes", n_classes, mapping)
    if n_classes.n_classes < mapping.n_classes:
        raise ArgumentError(
            f"n_classes must be at least the present {mapping.n_classes}, got {n_classes.n_classes}"
        )
    return n_classes


def check_extends(name: str, other: LabelMapping, mapping: LabelMapping) -> None:
    """Refuse a code that gives the classes of both other symbols, or has other alphabets.

    Recipes are compared first; where they differ in more than a number of classes to which
    one could grow, so are the codewords.

    Raises
    ------
    ArgumentError
        Says how the recipes differ, or which class has which codewords.
    """
    if other == mapping:
        return
    if other.alphabet_sizes == mapping.alphabet_sizes:
        shared = min(other.n_classes, mapping.n_classes)
        small, large = sorted((other, mapping), key=lambda m: m.n_classes)
        a, b = (dict(m.to_config(), n_classes=None) for m in (small, large))
        if a == b and large.n_classes <= small.capacity:  # what `grow` gives
            return
        for start in range(0, shared, BLOCK):
            ids = np.arange(start, min(start + BLOCK, shared))
            theirs, ours = other.encode(ids), mapping.encode(ids)
            rows = np.flatnonzero((theirs != ours).any(axis=1))
            if rows.size:
                row = int(rows[0])
                raise ArgumentError(
                    f"{name} must give every class the codeword it has: class {start + row} has "
                    f"{ours[row].tolist()} here and {theirs[row].tolist()} there; "
                    f"{_differ(other, mapping)}"
                )
        return
    raise ArgumentError(f"{name} must be for the same code: {_differ(other, mapping)}")


def _differ(other: LabelMapping, mapping: LabelMapping) -> str:
    """The fields in which two recipes differ, with their values where those are short."""
    theirs, ours = other.to_config(), mapping.to_config()
    names = [n for n in {**ours, **theirs} if ours.get(n) != theirs.get(n)]
    parts = [f"{n} is {_short(ours.get(n))} here and {_short(theirs.get(n))} there" for n in names]
    return "the recipes differ: " + ", ".join(parts)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:56] + " ..."
