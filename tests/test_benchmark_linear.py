from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import linear, linear_row
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from labelmapping import LearnedMapping, MixedMapping

FAKE = """
import json, sys
print("progress")
print(json.dumps({"version": "1.2", "held_out": 0.5, "train": 2.0, "predict": 0.5,
                  "start_mib": 7, "peak_mib": int(sys.argv[2].split(":")[1].strip(" }"))}))
"""


def rival(
    monkeypatch: pytest.MonkeyPatch, folder: Path, text: str, n_rows: int = 1
) -> dict[str, str]:
    script = folder / "fake_row.py"
    script.write_text(text, encoding="utf-8")
    settings = {f"fake {i}": {"peak": 40 + i} for i in range(n_rows)}
    monkeypatch.setattr(linear, "RIVALS", {"fake": linear.Rival(script, settings)})
    return {"fake": sys.executable}


@pytest.mark.slow  # a process a row
def test_codes_and_rivals_are_compared_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals = rival(monkeypatch, tmp_path, FAKE, n_rows=2)
    path = tmp_path / "linear.csv"
    linear.run(sizes=[120], sites=[3], seeds=[0], rivals=rivals, csv_path=path)
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = list(csv.reader(file))
    assert header == linear.HEADER
    found = {line[2]: dict(zip(header, line, strict=True)) for line in lines}
    assert list(found) == ["one-hot", "simplex", "learned", "fake 0", "fake 1"]
    assert float(found["one-hot"]["held out"]) > 90  # as easy as it is meant to be
    assert found["learned"]["weights"] == f"{65 * 3 * 27:,}"
    # torch alone, which this process has, takes more.
    assert 20 < float(found["one-hot"]["start MiB"]) <= float(found["one-hot"]["peak MiB"]) < 400
    assert found["fake 1"] | {"row": ""} == {
        "classes": "120", "seed": "0", "row": "", "sites": "-", "q": "-", "weights": "-",
        "held out": "50.0", "fit s": "0.0", "train s": "2.0", "predict s": "0.5", "all s": "2.5",
        "start MiB": "7", "peak MiB": "41",
    }  # fmt: skip
    out = capsys.readouterr().out
    assert "| classes | seed | row |" in out
    assert "fake 0: version 1.2" in out


def test_rivals_without_an_interpreter_are_left_out_and_said_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    linear.run(sizes=[], sites=[3], seeds=[0], rivals={}, csv_path=None)
    out = capsys.readouterr().out
    for name in ("omikuji", "napkinxc", "pecos"):
        assert f"{name} is left out: no --rival {name}=PYTHON" in out
    rows = [row.name for row in linear.planned(2000, 0, [4], {"pecos": "python"})]
    assert rows[:3] == ["one-hot", "simplex", "learned"]
    assert all(name.startswith("PECOS") for name in rows[3:])
    assert len(rows) > 3


@pytest.mark.parametrize("rivals", [{"omikuji": ""}, {"parabel": "python"}])
def test_rivals_that_cannot_run_are_refused(rivals: dict[str, str]) -> None:
    with pytest.raises(SystemExit, match="NAME=PYTHON, NAME of omikuji, napkinxc, pecos; got"):
        linear.run(sizes=[120], sites=[3], seeds=[0], rivals=rivals, csv_path=None)


def test_a_row_that_takes_too_long_did_not_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "LIMIT", 1)
    rivals = rival(monkeypatch, tmp_path, "while True: pass")
    row = list(linear.planned(120, 0, [], rivals))[-1]
    assert linear.measured(row, tmp_path) is None
    line = linear.line(row, 120, 0, None)
    assert len(line) == len(linear.HEADER)
    assert "did not finish" in line


def test_a_row_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rivals = rival(monkeypatch, tmp_path, "raise ValueError('no such setting')")
    row = list(linear.planned(120, 0, [], rivals))[-1]
    with pytest.raises(RuntimeError, match=r"fake 0 failed:[\s\S]*no such setting"):
        linear.measured(row, tmp_path)


def test_rows_are_written_as_drawn(tmp_path: Path) -> None:
    linear.write(tmp_path, 30, 1, text=True)
    rows, ids, held_out = linear.draw(30, 1)
    with np.load(tmp_path / "data.npz", allow_pickle=False) as data:
        np.testing.assert_array_equal(data["rows"], rows)
        np.testing.assert_array_equal(data["ids"], ids)
        np.testing.assert_array_equal(data["held_out"], held_out)
    for name, some, labels in (("train", rows, ids), ("held_out", held_out, range(30))):
        head, *lines = (tmp_path / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert head == f"{len(some)} 64 30"
        pairs = [[pair.split(":") for pair in line.split()[1:]] for line in lines]
        assert [[int(i) for i, _ in row] for row in pairs] == [list(range(64))] * len(some)
        values = [[float(x) for _, x in row] for row in pairs]
        np.testing.assert_allclose(values, some, rtol=1e-6)
        assert [int(line.split()[0]) for line in lines] == list(labels)


def test_learners_are_linear_discriminants() -> None:
    """scikit-learn's, a site at a time."""
    rows, ids, held_out = linear.draw(60, 3)
    counts, means = linear_row.class_means(rows, ids, 60)
    mapping = LearnedMapping.fit(means, 3, alphabet_size=10, seed=3)
    weights = linear_row.discriminants(mapping, counts, means, rows)
    codewords = mapping.encode(ids)
    log_probs = []
    for site in range(3):
        model = LinearDiscriminantAnalysis(solver="lsqr").fit(
            rows.astype(np.float64), codewords[:, site]
        )
        ours = weights[:, 10 * site : 10 * site + 10][:, model.classes_]
        np.testing.assert_allclose(ours[:-1], model.coef_.T, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(ours[-1], model.intercept_, rtol=1e-3, atol=1e-3)
        log_probs.append(
            model.predict_log_proba(held_out)[:, mapping.encode(np.arange(60))[:, site]]
        )
    best = np.sum(log_probs, axis=0).argmax(axis=1)
    assert (linear_row.predict(mapping, weights, held_out) == best).mean() > 0.95


def test_class_means_count_rows_wherever_they_are() -> None:
    rows = np.array([[1.0, 0.0], [4.0, 4.0], [3.0, 2.0]], np.float32)
    counts, means = linear_row.class_means(rows, np.array([1, 0, 1]), 2)
    assert counts.tolist() == [1, 2]
    assert means.tolist() == [[4.0, 4.0], [2.0, 1.0]]


def test_symbols_that_no_class_has_have_no_probability() -> None:
    rows, ids, held_out = linear.draw(100, 0)
    counts, means = linear_row.class_means(rows, ids, 100)
    mapping = MixedMapping(100, [103, 107])  # the last symbols of a site go to no class
    weights = linear_row.discriminants(mapping, counts, means, rows)
    without = np.r_[100:103, 203:210]
    assert np.flatnonzero(np.isneginf(weights[-1])).tolist() == without.tolist()
    assert (linear_row.predict(mapping, weights, held_out) == np.arange(100)).mean() > 0.9
