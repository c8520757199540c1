"""The paper's second principle in figures: how little two sites of a code share as N grows.

By the structure of the codes, so exact at any N. Knows the codes; trains nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import sympy

from ..atomic import replacing
from ..errors import MissingExtraError
from ..mappings import LabelMapping, MixedMapping, SimplexMapping
from ..mappings.mixed import smallest_root
from ..mappings.properties import pairwise_mutual_information
from .tables import Table

__all__ = ["IndependenceRow", "independence_rows", "independence_table", "plot_independence"]

N_SITES = 4
CLASSES = tuple(10**exponent for exponent in range(3, 9))
SALT = "labelmapping"  # matplotlib's names of clip paths are random without one


@dataclass(frozen=True)
class IndependenceRow:
    """The two sites of a code that share most.

    Attributes
    ----------
    code : str
        Its family and dimension.
    n_classes : int
    alphabet_sizes : tuple of int
    shared, entropy : float
        Mutual information of the two, and the smaller of their entropies, in bits.
    """

    code: str
    n_classes: int
    alphabet_sizes: tuple[int, ...]
    shared: float
    entropy: float

    @property
    def share(self) -> float:
        """What part of the site's information the other one has already, 0 to 1."""
        return self.shared / self.entropy


def independence_rows() -> list[IndependenceRow]:
    """Five codes of 4 sites for 10^3 to 10^8 classes.

    Mixed and simplex at dimensions 2 and 3 with the smallest alphabets that fit; and a
    mixed code of dimension 2 with primes from N^0.6 on, inside the interval that the
    paper's theorem allows at epsilon = 1/2 but far above the square root of N.

    Examples
    --------
    >>> row = independence_rows()[-1]
    >>> row.code, row.n_classes, row.alphabet_sizes[0]
    ('mixed, k = 2, primes from N^0.6', 100000000, 63097)
    >>> f"{row.shared:.2f} of {row.entropy:.2f} bits"
    '5.32 of 15.95 bits'
    """
    rows = []
    for code in _codes(CLASSES[0]):
        rows += [_row(code, _codes(n_classes)[code]) for n_classes in CLASSES]
    return rows


def independence_table() -> Table:
    """The rows in words, for `markdown_table`."""
    header = ("code", "N", "alphabets", "largest pair, bits", "entropy, bits", "share, %")
    lines = [
        (
            row.code,
            f"10^{len(str(row.n_classes)) - 1}",
            " ".join(map(str, row.alphabet_sizes)),
            f"{row.shared:#.3g}",
            f"{row.entropy:.3f}",
            f"{100 * row.share:.2g}",
        )
        for row in independence_rows()
    ]
    return header, lines


def plot_independence(path: str | Path) -> None:
    """The mutual information of the largest pair over N, a line a code, as an SVG.

    The same bytes every time, given the version of matplotlib.

    Raises
    ------
    MissingExtraError
        matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "pictures need matplotlib: pip install 'labelmapping[experiments]'"
        ) from error
    rows = independence_rows()
    with rc_context({"svg.hashsalt": SALT, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 5), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        for code in dict.fromkeys(row.code for row in rows):
            line = [row for row in rows if row.code == code]
            axes.loglog(
                [row.n_classes for row in line],
                [row.shared for row in line],
                marker="s" if code.startswith("simplex") else "o",
                markersize=4,
                label=code,
            )
        axes.set(
            title="Two sites that share most, of 4",
            xlabel="classes N",
            ylabel="mutual information, bits",
        )
        axes.grid(alpha=0.3)
        axes.legend()
        with replacing(Path(path)) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


def _codes(n_classes: int) -> dict[str, LabelMapping]:
    wide = [int(sympy.nextprime(smallest_root(n_classes**3, 5) - 1))]
    while len(wide) < N_SITES:
        wide.append(int(sympy.nextprime(wide[-1])))
    return {
        "mixed, k = 2": MixedMapping(n_classes, n_sites=N_SITES),
        "simplex, k = 2": SimplexMapping(n_classes, N_SITES),
        "mixed, k = 3": MixedMapping(n_classes, n_sites=N_SITES, dimension=3),
        "simplex, k = 3": SimplexMapping(n_classes, N_SITES, dimension=3),
        "mixed, k = 2, primes from N^0.6": MixedMapping(n_classes, wide, dimension=2),
    }


def _row(code: str, mapping: LabelMapping) -> IndependenceRow:
    pairs = combinations(range(mapping.n_sites), 2)
    shared, i, j = max((pairwise_mutual_information(mapping, *pair), *pair) for pair in pairs)
    entropy = min(pairwise_mutual_information(mapping, site, site) for site in (i, j))
    return IndependenceRow(code, mapping.n_classes, mapping.alphabet_sizes, shared, entropy)
