"""Pictures of results. matplotlib draws them, without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..atomic import replacing
from ..errors import MissingExtraError

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtraError(
        "pictures need matplotlib: pip install 'labelmapping[experiments]'"
    ) from error

__all__ = ["save_curves", "save_figure", "save_glyph_sheet"]


def save_curves(
    path: Path,
    title: str,
    x_label: str,
    curves: Mapping[str, Mapping[int, float]],
    *,
    ranges: Mapping[str, Mapping[int, tuple[float, float]]] | None = None,
    published: Mapping[str, Mapping[int, float]] | None = None,
) -> None:
    """One line a name: accuracy (0 to 1) over epochs or steps, as a PNG or SVG by the path's end.

    `ranges` are shaded about their line (smallest and largest of some seeds); `published`
    points of the same names are dashed, in the line's colour.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        (line,) = axes.plot(
            list(points), list(points.values()), marker="o", markersize=3, label=name
        )
        if band := (ranges or {}).get(name):
            low, high = zip(*band.values(), strict=True)
            axes.fill_between(list(band), low, high, color=line.get_color(), alpha=0.2, lw=0)
        if dashed := (published or {}).get(name):
            axes.plot(
                list(dashed), list(dashed.values()), "x--", color=line.get_color(), lw=0.8, ms=4
            )
    if published and any(published.get(name) for name in curves):
        axes.plot([], [], "x--", color="grey", lw=0.8, ms=4, label="dashed: the paper")
    axes.set(title=title, xlabel=x_label, ylabel="accuracy")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    # Names are text, also with a dollar sign in them.
    for text in (axes.title, *axes.legend().get_texts()):
        text.set_parse_math(False)
    save_figure(figure, path)


def save_glyph_sheet(
    path: Path,
    title: str,
    glyphs: NDArray[np.uint8],
    answers: NDArray[np.int64],
    scores: NDArray[np.float32],
    truth: NDArray[np.int64],
    templates: NDArray[np.uint8],
    names: Sequence[str],
) -> None:
    """Held-out glyphs, each with its best answers and their scores, as a PNG.

    Parameters
    ----------
    glyphs : uint8 array (rows, side, side)
        What the network saw.
    answers : int64 array (rows, k); scores : float32 array, the same shape
        Class ids, best first, and their sums of log-probs.
    truth : int64 array (rows,)
    templates : uint8 array (N, side, side)
        How to draw each class: glyphs of a training face, so that no font is needed.
    names : sequence of str
        A short text for each class id, beside its picture (the code point).
    """
    n_rows, k = answers.shape
    figure = Figure(figsize=(1.3 * (k + 1), 1.25 * n_rows + 0.6), layout="constrained")
    figure.suptitle(title, fontsize=9)
    axes = figure.subplots(n_rows, k + 1, squeeze=False)
    for row in range(n_rows):
        _glyph(axes[row, 0], glyphs[row], f"seen: {names[truth[row]]}", "black")
        for column in range(k):
            answer = answers[row, column]
            color = "tab:green" if answer == truth[row] else "tab:red"
            text = f"{names[answer]}  {scores[row, column]:.2f}"
            _glyph(axes[row, column + 1], templates[answer], text, color)
    save_figure(figure, path)


def _glyph(axes: Axes, image: NDArray[np.uint8], text: str, color: str) -> None:
    axes.imshow(255 - image, cmap="gray", vmin=0, vmax=255)
    axes.set_title(text, fontsize=6, color=color, pad=2)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(color)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG or SVG by the path's end, whole or not at all."""
    FigureCanvasAgg(figure)
    # Without a date and with names of its own, equal pictures are equal bytes.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with (
        replacing(path) as temporary,
        rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}),
    ):
        figure.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=metadata)
