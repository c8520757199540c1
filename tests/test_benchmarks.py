"""The benchmarks run, at a size that says nothing about speed or accuracy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import assignment

from labelmapping.datasets.fonts import installed_faces


@pytest.mark.slow
@pytest.mark.skipif(len(installed_faces()) < 2, reason="fewer than two known faces are installed")
def test_codes_are_compared_on_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["simplex q=181", "learned q=181, refit"]
    assignment.run(class_set="gb2312-1", steps=4, seeds=[0], rows=names, folder=tmp_path)
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row["code"] for row in results["rows"]] == names
    assert results["rows"][0]["parameters"] == results["rows"][1]["parameters"] == 1_038_588
    assert list(results["rows"][1]["curve"])[-1] == "4"
    assert (tmp_path / "curves.png").stat().st_size > 0
    assert capsys.readouterr().out.count("learned q=181, refit") == 1
    # Started again, it trains and measures nothing.
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assignment.run(class_set="gb2312-1", steps=4, seeds=[0], rows=names, folder=tmp_path)
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == results
    assert weights == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
