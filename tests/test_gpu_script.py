"""``benchmarks/gpu.sh``, rehearsed on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks.inception_epochs import epochs_within, step_seconds

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_script_runs_its_rows_and_writes_one_json(tmp_path: Path) -> None:
    environment = {**os.environ, "TINY": "1", "PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "gpu.sh"), str(tmp_path / "gpu")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads((tmp_path / "gpu" / "results.json").read_text(encoding="utf-8"))
    rows = {row["name"] for row in found["cjk"]["rows"]}
    assert rows == {"one-hot", "simplex-3", "joint-simplex-4", "learned-4"}
    assert {line["head"] for line in found["head"]} >= {"linear + cross-entropy", "mixed n=3 k=2"}


def test_what_is_missing_is_said_first(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    place = tmp_path / "gpu"
    done = subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "gpu.sh"), str(place)],
        env={**os.environ, "PYTHON": sys.executable, "TINY": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "there is no GPU" in done.stderr
    assert list(place.iterdir()) == []


def test_epochs_fit_the_time() -> None:
    assert epochs_within(18, 0.05) == 24
    assert epochs_within(18, 0.001) == 80
    assert epochs_within(1, 1.0) == 4
    assert epochs_within(0, 1.0) == 4


@pytest.mark.slow
def test_a_step_is_timed() -> None:
    pytest.importorskip("torchvision", reason="Inception V3 is torchvision's")
    assert 0 < step_seconds("cpu", batch=2, steps=1) < 600
