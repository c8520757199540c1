"""Results of several run folders as one HTML page that needs nothing beside it.

Runs of one experiment with the same settings and other seeds become one section: each figure
is the mean over seeds, with the smallest and the largest.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..atomic import write_text
from ..errors import ArgumentError, DataNotFoundError, RunMismatchError
from .convex import convex_tables
from .demo import demo_table
from .results import SPREAD, results_table, save_results_figure
from .tables import Table

__all__ = ["Spread", "report_page", "write_report"]

Results = dict[str, Any]

# Facts that may differ between the runs of a section.
OF_A_RUN = ("seed", "seeds", "machine")
PICTURES = {".svg": "image/svg+xml", ".png": "image/png"}
DAMAGE = (AttributeError, IndexError, KeyError, TypeError, ValueError)

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #111; max-width: 75em;
  margin: 2em auto; padding: 0 1em; }
h1, h2, h3, figcaption { line-height: 1.2; }
h2 { margin-top: 2em; border-bottom: 1px solid #999; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2em 1em; }
dt { color: #555; }
dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85em; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2em 0.6em; text-align: right; border-bottom: 1px solid #ddd;
  vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 1px solid #111; }
figure { margin: 1.5em 0; }
img { max-width: 100%; height: auto; }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  body { margin: 0; max-width: none; font-size: 9pt; }
  a { color: inherit; text-decoration: none; }
  section { break-before: page; }
  h2, h3 { break-after: avoid; }
  table, figure { break-inside: avoid; }
  thead { display: table-header-group; }
  tr { break-inside: avoid; }
  .wide { overflow: visible; }
  table { font-size: 7.5pt; }
  img { max-height: 165mm; }
}
"""


@dataclass(frozen=True)
class Spread:
    """A figure over seeds. Formatted, it is the mean, and the smallest and the largest.

    Examples
    --------
    >>> f"{100 * Spread((0.25, 0.5)):.1f}"
    '37.5 (25.0 - 50.0)'
    """

    values: tuple[float, ...]

    def __rmul__(self, factor: float) -> Spread:
        return Spread(tuple(factor * value for value in self.values))

    def __format__(self, spec: str) -> str:
        return "{} ({} - {})".format(*(format(value, spec) for value in self.summary().values()))

    def summary(self) -> dict[str, float]:
        """Mean, smallest and largest, as `results_table` reads them."""
        mean = sum(self.values) / len(self.values)
        return {"mean": mean, "min": min(self.values), "max": max(self.values)}


def write_report(runs: Sequence[str | Path], output: str | Path) -> None:
    """Write `report_page` of some run folders, whole or not at all.

    Raises
    ------
    ArgumentError
        No run, or one row with one seed is in two of them.
    DataNotFoundError
        A folder has no ``results.json``.
    RunMismatchError
        A ``results.json`` is damaged, or not of an experiment; the message names it.
    """
    write_text(Path(output), report_page(runs))


def report_page(runs: Sequence[str | Path]) -> str:
    """The page: contents, then a section for each experiment. Raises as `write_report` does."""
    if not runs:
        raise ArgumentError("runs must name at least one folder")
    groups: dict[str, list[_Run]] = {}
    for place in runs:
        run = _Run.read(Path(place))
        groups.setdefault(run.settings(), []).append(run)
    sections = [_Section(f"experiment-{n}", group) for n, group in enumerate(groups.values(), 1)]
    contents = "".join(
        f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>\n'
        for section in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>Experiments</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Experiments</h1>\n<nav><ol>\n{contents}</ol></nav>\n"
        + "".join(section.html() for section in sections)
        + "</body>\n</html>\n"
    )


@dataclass(frozen=True, eq=False)
class _Kind:
    """How the results of a kind of experiment are told, merged and shown."""

    is_one: Callable[[Results], bool]
    tables: Callable[[Results], dict[str, Table]]
    merge: Callable[[Sequence[_Run]], Results]


@dataclass(frozen=True, eq=False)
class _Run:
    """A run folder and what its ``results.json`` holds."""

    path: Path
    results: Results
    kind: _Kind

    @classmethod
    def read(cls, folder: Path) -> _Run:
        path = folder / "results.json"
        if not path.is_file():
            raise DataNotFoundError(
                f"{folder} has no results.json; run must be a folder that a finished row of "
                "labelmapping demo or labelmapping reproduce has left"
            )
        try:
            results = json.loads(path.read_text(encoding="utf-8"))
            kind = next((kind for kind in KINDS if kind.is_one(results)), None)
            if kind is not None:
                run = cls(folder, results, kind)
                kind.tables(kind.merge([run]))
                return run
        except (*DAMAGE, RecursionError) as error:
            raise RunMismatchError(f"{path} is damaged: {error!r}") from error
        raise RunMismatchError(
            f"{path} is not of labelmapping demo or labelmapping reproduce, or of an older "
            "version; start the command again, which trains nothing that is there"
        )

    def facts(self) -> dict[str, str]:
        return {
            name: str(value)
            for name, value in self.results.items()
            if not isinstance(value, (list, dict))
        }

    def settings(self) -> str:
        """Equal for runs whose rows may be merged."""
        same = {name: value for name, value in self.facts().items() if name not in OF_A_RUN}
        return json.dumps(same, sort_keys=True)


class _Section:
    """Runs of one experiment with the same settings."""

    def __init__(self, anchor: str, runs: Sequence[_Run]) -> None:
        self.anchor = anchor
        self.runs = runs
        self.kind = runs[0].kind
        try:
            self.results = self.kind.merge(runs)
        except ArgumentError:
            raise
        except DAMAGE as error:
            names = ", ".join(str(run.path) for run in runs)
            raise RunMismatchError(
                f"{names} have the same settings and not the same figures: {error!r}; start their "
                "commands again, which trains nothing that is there"
            ) from error
        first = runs[0].results
        name, profile = str(first["experiment"]), first.get("profile")
        title = str(first.get("title", name))
        if profile is not None:
            title = f"{name}, profile {profile}: {title}"
        self.title = title

    def html(self) -> str:
        parts = [f'<section id="{self.anchor}">\n<h2>{escape(self.title)}</h2>\n', self._facts()]
        for title, table in self.kind.tables(self.results).items():
            parts.append(f"<h3>{escape(title)}</h3>\n{_table(table)}")
        parts += list(self._pictures())
        return "".join(parts) + "</section>\n"

    def _facts(self) -> str:
        """Each fact once; those that differ between runs one after the other."""
        found: dict[str, dict[str, None]] = {"runs": dict.fromkeys(r.path.name for r in self.runs)}
        for run in self.runs:
            for name, value in run.facts().items():
                found.setdefault(name, {})[value] = None
        if len(self.runs) > 1:
            found.setdefault("spread", {SPREAD: None})
        lines = "".join(
            f"<dt>{escape(name)}</dt><dd>{escape('; '.join(values))}</dd>\n"
            for name, values in found.items()
            if name not in ("experiment", "title")
        )
        return f"<dl>\n{lines}</dl>\n"

    def _pictures(self) -> Iterable[str]:
        if "figures" not in self.results:
            for run in self.runs:
                yield from _figures(run.path, f"{run.path.name}: " if len(self.runs) > 1 else "")
            return
        # Of all seeds, so drawn anew; under a name of ours, whatever the file has.
        with TemporaryDirectory() as folder:
            picture = Path(folder) / "picture.svg"
            try:
                for figure in self.results["figures"]:
                    if save_results_figure(picture, figure, self.results):
                        yield _figure(picture, str(figure["title"]))
            except DAMAGE as error:
                names = ", ".join(str(run.path / "results.json") for run in self.runs)
                raise RunMismatchError(f"{names}: damaged: {error!r}") from error


def _table(table: Table) -> str:
    header, lines = table
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>\n" for line in lines
    )
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>\n"
    )


def _figures(folder: Path, prefix: str) -> Iterable[str]:
    """Each picture of a folder inside the page; the SVG where there is a PNG too."""
    stems = dict.fromkeys(p.stem for p in sorted(folder.iterdir()) if p.suffix in PICTURES)
    for stem in stems:
        ending = next(ending for ending in PICTURES if (folder / (stem + ending)).is_file())
        yield _figure(folder / (stem + ending), prefix + stem)


def _figure(path: Path, caption: str) -> str:
    content = b64encode(path.read_bytes()).decode("ascii")
    caption = escape(caption)
    # As an image nothing in an SVG can run, and its names do not meet those of another.
    return (
        f'<figure><img src="data:{PICTURES[path.suffix]};base64,{content}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>\n"
    )


def _merge_rows(runs: Sequence[_Run]) -> Results:
    """Rows with the same names, a figure's spread over the runs' seeds in its place."""
    merged = dict(runs[0].results)
    for key, value in merged.items():
        if not isinstance(value, list):
            continue
        found: dict[str, dict[Any, tuple[_Run, Any]]] = {}
        for run in runs:
            seed = run.results.get("seed")
            for row in run.results[key]:
                _put(found.setdefault(row["name"], {}), row["name"], seed, run, row)
        merged[key] = [_over_seeds([row for _, row in of.values()]) for of in found.values()]
    return merged


def _merge_epochs(runs: Sequence[_Run]) -> Results:
    """The same for rows that list their seeds themselves."""
    found: dict[str, dict[Any, tuple[_Run, Any]]] = {}
    rows: dict[str, Results] = {}
    for run in runs:
        for row in run.results["rows"]:
            rows.setdefault(row["name"], row)
            for entry in row["seeds"]:
                _put(found.setdefault(row["name"], {}), row["name"], entry["seed"], run, entry)
    merged = []
    table = runs[0].results.get("table", [])
    for name in sorted(rows, key=lambda name: table.index(name) if name in table else len(table)):
        row = rows[name]
        entries = [entry for _, (_, entry) in sorted(found[name].items())]
        seconds = [entry["seconds"] for entry in entries]
        by_epoch = [entry["by_epoch"] for entry in entries]
        merged.append(
            {
                **row,
                "seconds": sum(seconds) / len(seconds),
                "seeds": entries,
                "by_epoch": {
                    epoch: {
                        figure: Spread(tuple(of[epoch][figure] for of in by_epoch)).summary()
                        for figure, value in figures.items()
                        if not isinstance(value, list)
                    }
                    for epoch, figures in by_epoch[0].items()
                },
            }
        )
    return {**runs[0].results, "rows": merged}


def _put(of_seed: dict[Any, tuple[_Run, Any]], name: str, seed: Any, run: _Run, value: Any) -> None:
    if seed in of_seed:
        raise ArgumentError(
            f"runs must not hold a row with one seed twice; {name}, seed {seed}, is in "
            f"{of_seed[seed][0].path} and {run.path}"
        )
    of_seed[seed] = run, value


def _over_seeds(values: Sequence[Any]) -> Any:
    """What is equal in all as it is, numbers as their spread, objects by their entries."""
    there = [value for value in values if value is not None]
    if not there or all(value == there[0] for value in there):
        return there[0] if there else None
    if isinstance(there[0], Mapping):
        return {key: _over_seeds([value.get(key) for value in there]) for key in there[0]}
    if isinstance(there[0], list):
        return [_over_seeds(column) for column in zip(*there, strict=True)]
    if isinstance(there[0], (int, float)):
        return Spread(tuple(there))
    return "; ".join(dict.fromkeys(map(str, there)))


# `results_table` and its companions, by what tells them in a results.json.
KINDS = (
    _Kind(lambda r: r["experiment"] == "convex", convex_tables, _merge_rows),
    _Kind(
        lambda r: {"report", "held_out", "figures"} <= r.keys(),
        lambda r: {"Results": results_table(r)},
        _merge_epochs,
    ),
    _Kind(
        lambda r: "top1_by_sites_left" in r["rows"][0],
        lambda r: {"Accuracies in percent": demo_table(r)},
        _merge_rows,
    ),
)
