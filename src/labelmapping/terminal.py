"""What the command prints: tables, lines and JSON on standard output, progress beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import MissingExtraError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["open_console", "say", "show", "write_json"]

EXPERIMENTS_NEED = (
    "the command needs the experiments' packages: pip install 'labelmapping[experiments]'"
)
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def open_console(needs: str = EXPERIMENTS_NEED) -> Console:
    """Standard error, where progress goes."""
    try:
        from rich.console import Console
    except ImportError as error:
        raise MissingExtraError(needs) from error
    return Console(stderr=True)


def say(text: str) -> None:
    """A line on standard output, never broken, so that it can be copied."""
    from rich.console import Console

    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def write_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def show(console: Console, title: str, table: Table) -> None:
    """The table on standard output, where a pipe can take it."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as Grid

    header, lines = table
    grid = Grid(
        title=escape(title) or None,
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    for n, name in enumerate(header):
        # Where a terminal is too narrow, figures go on below and lose no digit.
        grid.add_column(name, justify="left" if n == 0 else "right", overflow="fold")
    for line in lines:
        grid.add_row(*line)
    out = Console()
    # A pipe has no width of its own: give the table all it needs.
    (out if out.is_terminal else Console(width=200)).print(grid)
    console.print()
