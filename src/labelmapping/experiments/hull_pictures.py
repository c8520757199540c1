"""Pictures of `convex`: clusters in the plane, shares of draws, and softmax layers by width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .plots import save_figure

# After `plots`, which tells what to install where there is none.
from matplotlib.axes import Axes  # isort: skip
from matplotlib.figure import Figure  # isort: skip

__all__ = ["save_clusters", "save_layers", "save_positions"]

CORNERS = np.array([(-1.0, -0.8), (0.9, -1.0), (1.0, 0.9), (-0.8, 1.0)])
MIDDLE = np.array([(0.05, 0.0)])
SCATTER = 0.13
A_CLUSTER = 25  # points
# Of the pictures of regions, in each direction.
CELLS = 60
EDGE = 1.6

Rows = Sequence[Mapping[str, Any]]


def save_clusters(path: Path) -> None:
    """The paper's figures 1 and 2, and what softmax(Ax + b) does with the second."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes, five = figure.subplots(1, 3), np.concatenate([CORNERS, MIDDLE])
    _clusters(axes[0], CORNERS)
    axes[0].set_title("1. Convex position:\nevery centre is a vertex", fontsize=10)
    _clusters(axes[1], five)
    axes[1].set_title("2. The fifth centre is inside:\nno half-plane has it alone", fontsize=10)
    _regions(axes[2], five)
    _clusters(axes[2], five)
    axes[2].set_title(
        "3. Where each entry of softmax(Ax + b) is\n"
        "largest, for $a_j = c_j$ and $b_j = -|c_j|^2/2$",
        fontsize=10,
    )
    save_figure(figure, path)


def _clusters(axes: Axes, centres: NDArray[np.float64]) -> None:
    rng = np.random.default_rng(0)
    hull = np.concatenate([CORNERS, CORNERS[:1]])
    axes.plot(*hull.T, color="grey", lw=0.8, ls="--")
    for number, centre in enumerate(centres):
        points = centre + SCATTER * rng.standard_normal((A_CLUSTER, 2))
        axes.scatter(points[:, 0], points[:, 1], s=6, color=f"C{number}", alpha=0.7, lw=0)
    axes.scatter(centres[:, 0], centres[:, 1], s=28, color="black", marker="x", lw=1.2)
    axes.set(xlim=(-EDGE, EDGE), ylim=(-EDGE, EDGE), xticks=[], yticks=[], aspect="equal")


def _regions(axes: Axes, centres: NDArray[np.float64]) -> None:
    ticks = np.linspace(-EDGE, EDGE, CELLS)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    entries = grid @ centres.T - (centres**2).sum(axis=1) / 2
    for number in range(len(centres)):
        lead = entries[..., number] - np.delete(entries, number, axis=-1).max(axis=-1)
        axes.contourf(ticks, ticks, lead, [0, np.inf], colors=[f"C{number}"], alpha=0.25)


def save_positions(path: Path, rows: Rows) -> None:
    """Share of draws in convex position over N, a line for each d; then the share of vertices."""
    laws = [law for law in ("gaussian", "ball") if any(row["law"] == law for row in rows)]
    figure = Figure(figsize=(5.5 * len(laws), 7.5), layout="constrained")
    grid = figure.subplots(2, len(laws), squeeze=False, sharex=True, sharey=True)
    dimensions = sorted({row["d"] for row in rows})
    for column, law in enumerate(laws):
        for number, d in enumerate(dimensions):
            line = [row for row in rows if row["law"] == law and row["d"] == d]
            color = _color(number, len(dimensions))
            sizes = [row["n"] for row in line]
            shares = [row["share"] for row in line]
            grid[0, column].plot(sizes, shares, "o-", ms=3, color=color, label=f"d = {d}")
            low, high = [row["low"] for row in line], [row["high"] for row in line]
            grid[0, column].fill_between(sizes, low, high, color=color, alpha=0.15, lw=0)
            vertices = [row["vertices"] for row in line]
            grid[1, column].plot(sizes, vertices, "o-", ms=3, color=color)
        grid[0, column].set(xscale="log", title=f"{_LAW[law]}\nall N in convex position, share")
        sizes = sorted({row["n"] for row in rows})
        grid[0, column].set_xticks(sizes, [f"{n:,}" for n in sizes])
        grid[0, column].set_xticks([], minor=True)
        grid[1, column].set(xlabel="centres N", title="share of centres that are vertices")
    for axes in grid.flat:
        axes.grid(alpha=0.3)
    grid[0, -1].legend(fontsize=7)
    save_figure(figure, path)


_LAW = {"gaussian": "Gaussian centres", "ball": "uniform in the ball"}


def save_layers(path: Path, layers: Rows, networks: Rows) -> None:
    """Accuracy over d at fixed N: computed and trained layers, and CJK networks."""
    sizes = list(dict.fromkeys(row["n"] for row in layers if row["trained"] is not None))
    panels = len(sizes) + bool(networks)
    figure = Figure(figsize=(4.6 * panels, 4.2), layout="constrained")
    grid = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
    for axes, n in zip(grid, sizes, strict=False):
        drawn = [row for row in layers if row["n"] == n and row["centres"] == "drawn"]
        both = [row for row in layers if row["n"] == n and row["centres"] == "trained"]
        _line(axes, drawn, "computed", "right: centres drawn, layer computed", "C0o-")
        _line(axes, drawn, "trained", "right: centres drawn, layer trained", "C1o-")
        _line(axes, drawn, "vertices", "vertices: centres drawn", "C1x--")
        _line(axes, both, "trained", "right: both trained", "C2o-")
        _line(axes, both, "vertices", "vertices: both trained", "C2x--")
        axes.set_title(f"one point a class, N = {n:,}")
    if networks:
        _line(grid[-1], networks, "train_accuracy", "right: training rows", "C0o-")
        _line(grid[-1], networks, "held_out_accuracy", "right: held-out face", "C3o-")
        _line(grid[-1], networks, "vertices", "vertices: class means", "C0x--")
        grid[-1].set_title(f"small CNN, {networks[0]['n']:,} characters")
    widths = sorted({row["d"] for row in (*layers, *networks)})
    for axes in grid:
        axes.set(xscale="log", xlabel="width d", ylim=(-0.03, 1.03))
        axes.set_xticks(widths, list(map(str, widths)))
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    save_figure(figure, path)


def _line(axes: Axes, rows: Rows, key: str, label: str, style: str) -> None:
    axes.plot([row["d"] for row in rows], [row[key] for row in rows], style, ms=4, label=label)


def _color(number: int, count: int) -> tuple[float, float, float, float]:
    from matplotlib import colormaps

    red, green, blue, alpha = colormaps["viridis"](0.92 * number / max(1, count - 1))
    return red, green, blue, alpha
