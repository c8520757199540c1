"""The benchmark of lost learners: its table is of all choices of sites, and it runs."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks import erasures

from labelmapping import HashedMapping, SimplexMapping
from labelmapping.experiments.evaluation import SiteAnswers
from labelmapping.learners import LearningData


@pytest.fixture(autouse=True)
def few_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasures, "SITES", 4)
    monkeypatch.setattr(erasures, "FIELD", 7)


def test_the_table_has_the_mean_and_the_worst_of_all_choices() -> None:
    mapping = HashedMapping(30, 4, 7, seed=0)
    rng = np.random.default_rng(0)
    ids = np.arange(30)
    codewords = mapping.encode(ids)
    logs = []
    for site in range(4):
        scores = rng.normal(size=(30, 7)).astype(np.float32)
        scores[ids, codewords[:, site]] += 2
        logs.append(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
    lines = erasures.table("hashed", SiteAnswers(mapping, (0, 1, 2, 3), logs, ids))

    def top1(sites: tuple[int, ...], averages: bool) -> float:
        parts = [np.exp(logs[s]) if averages else logs[s] for s in sites]
        totals = sum(
            part[:, codewords[:, s]].astype(np.float64)
            for part, s in zip(parts, sites, strict=True)
        )
        return float(100 * (np.argmax(totals, axis=1) == ids).mean())

    assert [line[1:5] for line in lines] == [
        [how, n, left, choices]
        for how in ("log-probs", "averages")
        for n, left, choices in [
            ("4", "4", "1"), ("4", "3", "4"), ("4", "2", "6"), ("2", "2", "1"),
        ]
    ]  # fmt: skip
    for line in lines:
        n, left = int(line[2]), int(line[3])
        found = [top1(sites, line[1] == "averages") for sites in combinations(range(n), left)]
        assert float(line[5]) == pytest.approx(np.mean(found), abs=0.06)
        assert float(line[6]) == pytest.approx(min(found), abs=0.06)
        whole = top1(tuple(range(n)), line[1] == "averages")
        assert float(line[7]) == pytest.approx(whole - np.mean(found), abs=0.06)
    assert len({line[5] for line in lines}) > 3


def test_it_runs_and_goes_on(
    task: LearningData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(erasures, "load_cjk", lambda _: SimpleNamespace(test_face="a face"))
    monkeypatch.setattr(erasures, "learning_data", lambda _: task)
    plain = erasures.recipe(SimplexMapping(30, 4, field_order=7), 3)
    assert (plain.joint, plain.steps_per_epoch) == (False, 3)
    options = {"side": 8, "widths": [8], "out_features": 16}
    monkeypatch.setattr(
        erasures,
        "recipe",
        lambda mapping, _: replace(plain, mapping=mapping, trunk_options=options),
    )
    for _ in range(2):
        erasures.run(class_set="any", steps=3, seed=0, rows=["simplex", "learned"], folder=tmp_path)
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row[0] for row in rows] == ["simplex"] * 4 + ["learned"] * 4
    assert "simplex | log-probs | 4 | 3 | 4 | " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="--rows must be among simplex, learned, hashed"):
        erasures.run(class_set="any", steps=3, seed=0, rows=["no"], folder=tmp_path)
