"""The benchmark of fitting runs, at sizes that say nothing about speed."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from benchmarks import scale


def test_each_size_is_fitted_in_a_process_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scale.csv"
    scale.run(
        sizes=[60, 90], width=5, n_sites=3, alphabet_size=13, data="clusters", seed=1,
        csv_path=path,
    )  # fmt: skip
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = list(csv.reader(file))
    assert header == scale.HEADER
    assert [line[:5] for line in lines] == [
        ["clusters", "60", "5", "3", "13"],
        ["clusters", "90", "5", "3", "13"],
    ]
    for line in lines:
        seconds, cpu, before, peak, together = map(float, line[5:10])
        assert seconds > 0
        assert cpu >= 0
        assert 10 < before <= peak < 600  # without torch
        shares = [float(share) / 100 for share in line[10].split()]
        assert len(shares) == 3
        assert sum(shares) == pytest.approx(together, abs=1e-3)
        assert 0.3 < min(shares) < max(shares) < 1
    assert "| data | classes | width |" in capsys.readouterr().out


def test_data_are_unit_vectors_or_clusters() -> None:
    rows = scale.draw("random", 400, 16, 0)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    clusters = scale.draw("clusters", 400, 16, 0)
    assert np.array_equal(clusters, scale.draw("clusters", 400, 16, 0))
    neighbours = []
    for drawn in (rows, clusters):
        far = ((drawn[:, None] - drawn[None]) ** 2).sum(axis=2)
        neighbours.append(np.median((far < 0.35 * np.median(far)).sum(axis=1)))
    assert neighbours[0] <= 2  # itself
    assert 40 <= neighbours[1] <= 70
