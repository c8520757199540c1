"""Results as files: JSON for programs, CSV for spreadsheets, Markdown for people."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..atomic import write_json, write_text

__all__ = ["machine", "markdown_table", "write_results"]

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def machine(device: str = "cuda") -> str:
    """The machine in words: processor, its GPU unless `device` is "cpu", cores, software."""
    parts = [
        _processor(),
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads",
        platform.system(),
        f"Python {platform.python_version()}",
        f"torch {torch.__version__}",
    ]
    if device != "cpu" and torch.cuda.is_available():
        parts.insert(1, torch.cuda.get_device_name())
    return "; ".join(parts)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def markdown_table(table: Table) -> str:
    """A table in Markdown: the first column to the left, the others to the right."""
    header, lines = table
    rows = [header, ["---", *["---:"] * (len(header) - 1)], *lines]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def write_results(
    folder: Path,
    results: dict[str, Any],
    table: Table,
    more: Mapping[str, Table] | None = None,
    *,
    numbers: Table | None = None,
) -> None:
    """Write ``results.json``, ``results.csv`` and ``results.md``, each whole or not at all.

    The Markdown has every entry of `results` that is no list as a line, then the table. Those
    in `more` follow under their names, and each is a ``results-NAME.csv``. The CSV has `numbers`
    in the place of the table where they are given.
    """
    further = more or {}
    write_json(folder / "results.json", results)
    for name, lines in {
        "results": table if numbers is None else numbers,
        **{f"results-{n}": t for n, t in further.items()},
    }.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([lines[0], *lines[1]])
        write_text(folder / f"{name}.csv", text.getvalue())
    facts = [f"- {name}: {value}" for name, value in results.items() if not isinstance(value, list)]
    parts = ["\n".join(facts) + "\n", markdown_table(table)]
    parts += [f"## {name}\n\n{markdown_table(lines)}" for name, lines in further.items()]
    write_text(folder / "results.md", "\n".join(parts))
