"""The page of several runs: parsed, it needs nothing, links to itself, and has merged right."""

from __future__ import annotations

import json
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from labelmapping.cli import main
from labelmapping.errors import ArgumentError, DataNotFoundError, RunMismatchError
from labelmapping.experiments.convex import ConvexProfile, reproduce_convex
from labelmapping.experiments.report import report_page, write_report

PNG = b"\x89PNG of nothing"
Rows = list[list[str]]


class Page(HTMLParser):
    """What a page has: ids, links, what it fetches, tables, texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.tables: list[Rows] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            {"id": self.ids, "href": self.links}.get(name, []).append(str(value))
            if name in ("src", "srcset", "data", "action", "poster"):
                self.sources.append(str(value))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            assert "url(" not in data
            assert "@import" not in data
            return
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


def page_of(*runs: Path) -> Page:
    page = Page(report_page(runs))
    assert len(set(page.ids)) == len(page.ids)
    assert page.links
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert all(source.startswith("data:image/") for source in page.sources)
    assert not page.tags & {"script", "link", "iframe", "object", "embed", "base"}
    return page


def put(folder: Path, results: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


def republic(**accuracies: dict[int, float]) -> dict[str, Any]:
    """A results.json of the runner: held-out accuracy by row and seed, at one epoch."""
    rows = []
    for name, of_seed in accuracies.items():
        seeds = [
            {
                "seed": seed,
                "parameters": 1234,
                "seconds": 10.0 + seed,
                "by_epoch": {
                    "2": {
                        "train_accuracy": accuracy / 2,
                        "held_out_accuracy": accuracy,
                        "held_out_top10": 0.75,
                        "held_out_site_accuracies": [accuracy],
                    }
                },
            }
            for seed, accuracy in of_seed.items()
        ]
        mean = sum(of_seed.values()) / len(of_seed)
        spread = {"mean": mean, "min": min(of_seed.values()), "max": max(of_seed.values())}
        flat = {"mean": 0.75, "min": 0.75, "max": 0.75}
        rows.append(
            {
                "name": name,
                "title": f"the {name} row",
                "run": name,
                "parameters": 1234,
                "seconds": 10.0,
                "paper": {"2": 0.1331},
                "by_epoch": {
                    "2": {
                        "train_accuracy": flat,
                        "held_out_accuracy": spread,
                        "held_out_top10": flat,
                    }
                },
                "seeds": seeds,
            }
        )
    return {
        "experiment": "republic",
        "title": "next word",
        "profile": "quick",
        "training": "2 epochs",
        "seeds": ", ".join(str(s) for s in next(iter(accuracies.values()))),
        "split": "the tail is held out",
        "machine": "a machine",
        "held_out": "held out",
        "facts": ["split"],
        "report": [2],
        "figures": [{"name": "table-4", "title": "Table 4", "rows": list(accuracies)}],
        "rows": rows,
    }


def demo(seed: int, top1: float) -> dict[str, Any]:
    return {
        "experiment": "CJK characters, small: 5 classes, 24 pixels",
        "training": "10 steps",
        "seed": seed,
        "held-out face": "one & <script>alert(1)</script>",
        "chance": 0.2,
        "machine": "a machine",
        "rows": [
            {
                "name": "simplex",
                "mapping": {"kind": "simplex"},
                "parameters": 4321,
                "site_accuracies": [0.5, 0.25],
                "train_top1": 1.0,
                "top1_by_sites_left": {"2": {"mean": top1, "min": top1, "max": top1}},
                "top10": 0.99,
                "seconds": 12.0,
            }
        ],
    }


def test_seeds_are_merged_into_mean_smallest_and_largest(tmp_path: Path) -> None:
    first = put(tmp_path / "a", republic(mixed={0: 0.25}, simplex={0: 0.5}))
    second = put(tmp_path / "b", republic(mixed={2: 0.75, 1: 0.3125}))
    page = page_of(first, second)
    assert len(page.tables) == 1
    header, mixed, simplex = page.tables[0]
    line = dict(zip(header, mixed, strict=True))
    assert line["row"] == "the mixed row"
    assert line["seeds"] == "3"
    assert line["seconds"] == "11"
    assert line["held out @2"] == "0.4375 (0.2500 - 0.7500)"
    assert line["train @2"] == "0.2188 (0.1250 - 0.3750)"
    assert line["paper @2"] == "0.1331"
    assert line["held out top-10 @2"] == "0.7500"
    assert dict(zip(header, simplex, strict=True))["held out @2"] == "0.5000"
    assert "0; 2, 1" in page.text
    # One picture of all seeds, drawn anew; the runs' own are not needed.
    (source,) = page.sources
    kind, _, content = source.partition(";base64,")
    assert kind == "data:image/svg+xml"
    assert b"the mixed row" in b64decode(content)


def test_sections_pictures_and_escapes(tmp_path: Path) -> None:
    runs = [put(tmp_path / "demo-0", demo(0, 0.5)), put(tmp_path / "demo-1", demo(1, 0.25))]
    for run in runs:
        (run / "curves.png").write_bytes(PNG)
        (run / "sheet.png").write_bytes(PNG)
        (run / "sheet.svg").write_text("<svg/>", encoding="utf-8")
    other = put(tmp_path / "republic", republic(mixed={0: 0.25}))
    page = page_of(runs[0], other, runs[1])
    assert page.ids == ["experiment-1", "experiment-2"]
    assert page.links == ["#experiment-1", "#experiment-2"]
    header, line = page.tables[0]
    found = dict(zip(header, line, strict=True))
    assert found["top-1"] == "37.5 (25.0 - 50.0)"
    assert found["parameters"] == "4,321"
    assert found["top-10"] == "99.0"
    assert "one & <script>alert(1)</script>" in page.text
    assert "mean (smallest - largest)" in page.text
    assert [source.partition(";")[0] for source in page.sources] == [
        *["data:image/png", "data:image/svg+xml"] * 2,
        "data:image/svg+xml",
    ]
    assert "demo-1: sheet" in page.text
    assert b64decode(page.sources[0].partition(",")[2]) == PNG


def test_rows_stand_in_the_tables_order(tmp_path: Path) -> None:
    table = {"table": ["one-hot", "simplex", "mixed", "ecoc"]}
    first = put(tmp_path / "a", republic(mixed={0: 0.25}, **{"one-hot": {0: 0.5}}) | table)
    second = put(tmp_path / "b", republic(simplex={0: 0.75}) | table)
    page = page_of(first, second)
    names = [line[0] for line in page.tables[0][1:]]
    assert names == ["the one-hot row", "the simplex row", "the mixed row"]
    assert "Table 4" in page.text


def test_pictures_are_written_nowhere_else(tmp_path: Path) -> None:
    run = put(tmp_path / "run", republic(mixed={0: 0.25}))
    results = json.loads((run / "results.json").read_text("utf-8"))
    results["figures"] = [
        {"name": f"{place}/escaped", "title": r"50 $ or $\frac$", "rows": ["mixed"]}
        for place in ("../../..", str(tmp_path))
    ]
    results["rows"][0]["title"] = "$\\frac$"
    (run / "results.json").write_text(json.dumps(results), encoding="utf-8")
    page = page_of(run)
    assert len(page.sources) == 2
    assert r"50 $ or $\frac$" in page.text
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    "change",
    [
        {"figures": [{"name": "a", "title": "A"}]},
        {"figures": 5},
        {"rows": [republic(mixed={0: 0.25})["rows"][0] | {"paper": {"two": 0.5}}]},
    ],
)
def test_figures_that_cannot_be_drawn_are_named(tmp_path: Path, change: dict[str, Any]) -> None:
    run = put(tmp_path / "run", republic(mixed={0: 0.25}) | change)
    with pytest.raises(RunMismatchError, match=r"run/results\.json.* damaged"):
        report_page([run])


def test_other_settings_are_other_sections(tmp_path: Path) -> None:
    longer = republic(mixed={1: 0.5}) | {"training": "4 epochs"}
    runs = [put(tmp_path / "a", republic(mixed={0: 0.25})), put(tmp_path / "b", longer)]
    page = page_of(*runs)
    assert len(page.tables) == 2
    assert "0.2500" in page.tables[0][1]
    assert "0.5000" in page.tables[1][1]


def test_one_seed_twice_is_refused_with_both_folders(tmp_path: Path) -> None:
    runs = [put(tmp_path / name, republic(mixed={0: 0.25})) for name in ("a", "b")]
    with pytest.raises(ArgumentError, match=r"mixed, seed 0, is in .*a and .*b"):
        report_page(runs)
    run = put(tmp_path / "demo", demo(0, 0.5))
    with pytest.raises(ArgumentError, match="simplex, seed 0, is in"):
        report_page([run, run])
    more = republic(mixed={0: 0.25})
    more["rows"][0]["seeds"][0]["by_epoch"]["2"]["perplexity"] = 5.0
    runs = [put(tmp_path / "c", more), put(tmp_path / "d", republic(mixed={1: 0.5}))]
    with pytest.raises(RunMismatchError, match=r"c, .*d have the same settings and not the same"):
        report_page(runs)
    with pytest.raises(ArgumentError, match="runs must name at least one folder"):
        report_page([])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"experiment": "republic"',
        '{"experiment": "convex"}',
        '{"experiment": "x", "rows": []}',
        '{"experiment": "republic", "report": [2], "held_out": "h", "figures": [], "rows": [{}]}',
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_written(tmp_path: Path, content: str) -> None:
    sound, output = put(tmp_path / "sound", republic(mixed={0: 0.25})), tmp_path / "report.html"
    damaged = put(tmp_path / "damaged", {})
    (damaged / "results.json").write_text(content, encoding="utf-8")
    with pytest.raises(RunMismatchError, match=r"damaged/results\.json is damaged"):
        write_report([sound, damaged], output)
    with pytest.raises(DataNotFoundError, match=r"nowhere has no results\.json"):
        write_report([sound, tmp_path / "nowhere"], output)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["damaged", "sound"]


def test_other_results_are_refused(tmp_path: Path) -> None:
    run = put(tmp_path / "run", {"experiment": "republic", "rows": [{"name": "one-hot"}]})
    with pytest.raises(RunMismatchError, match="or of an older version; start the command again"):
        report_page([run])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, output = put(tmp_path / "run", demo(0, 0.5)), tmp_path / "new" / "page.html"
    output.parent.mkdir()
    output.write_text("old", encoding="utf-8")
    assert main(["report", str(run), str(tmp_path / "none"), "--output", str(output)]) == 2
    assert "none has no results.json" in capsys.readouterr().err
    assert output.read_text(encoding="utf-8") == "old"
    assert main(["report", str(run), "--output", str(output)]) == 0
    assert "page.html" in capsys.readouterr().err
    assert "50.0" in Page(output.read_text(encoding="utf-8")).text
    assert [p.name for p in output.parent.iterdir()] == ["page.html"]


def test_convex_seeds_are_merged(tmp_path: Path) -> None:
    profile = ConvexProfile(
        sizes=(6,),
        dimensions=(3,),
        draws=8,
        checked=6,
        layers={},
        computed={50: (2,)},
        widths=(),
    )
    results = [reproduce_convex(tmp_path / f"s{s}", profile=profile, seed=s) for s in (0, 1)]
    shares = [100 * result["rows"][0]["share"] for result in results]
    assert shares[0] != shares[1]
    page = page_of(tmp_path / "s0", tmp_path / "s1")
    positions, bounds, softmax = page.tables
    mean = f"{sum(shares) / 2:.1f} ({min(shares):.1f} - {max(shares):.1f})"
    assert positions[1][:4] == ["gaussian", "3", "6", mean]
    assert bounds[2][:3] == ["CJK, Inception V3", "2048", "20,901"]
    assert softmax[1][4] == "100.00"
    assert len(page.sources) == 4
