from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import estimator, estimator_row, linear
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

FAKE = """
import json
print(json.dumps({"version": "1.2", "held_out": 0.5, "top_k": 0.75, "train": 2.0,
                  "predict": 0.5, "start_mib": 7, "peak_mib": 47}))
"""
# What the estimator's own process needs a while for is left to one test.
SMALL = estimator.DataSet(
    estimator.synthetic(150), {"LDA": {}}, ({"mapping": "learned"},), (", output code",)
)


def small_data(*, sparse: bool = False) -> estimator.Data:
    data = estimator.synthetic(60)(None, 0)
    if sparse:
        data = data._replace(rows=csr_matrix(data.rows), held_out=csr_matrix(data.held_out))
    return data


def tiny(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> dict[str, str]:
    script = folder / "fake_row.py"
    script.write_text(text, encoding="utf-8")
    monkeypatch.setattr(estimator, "RIVALS", {"fake": linear.Rival(script, {"fake": {}})})
    monkeypatch.setattr(estimator, "SETS", {"tiny": SMALL})
    return {"fake": sys.executable}


def run(**options: Any) -> None:
    options = {"sets": ["tiny"], "seeds": [0], "rows": None, "rivals": {}, **options}
    estimator.run(**{"limit": 60, "data_dir": None, "csv_path": None, **options})


@pytest.mark.slow  # a process a row
def test_the_estimator_and_its_peers_are_compared_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals = tiny(monkeypatch, tmp_path, FAKE)
    path = tmp_path / "estimator.csv"
    run(rivals=rivals, csv_path=path)
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = list(csv.reader(file))
    assert header == estimator.HEADER
    found = {line[3]: dict(zip(header, line, strict=True)) for line in lines}
    assert list(found) == ["LDA, learned", "LDA, output code", "fake"]
    ours = found["LDA, learned"]
    assert ours["code"] == "learned, 8 of 31"
    assert float(ours["top-1"]) > 80
    assert 50 < float(ours["start MiB"]) <= float(ours["fit MiB"]) <= float(ours["peak MiB"]) < 600
    assert found["LDA, output code"]["top-10"] == "-"  # it ranks nothing
    assert found["fake"] | {"limit s": ""} == {
        "data": "tiny", "classes": "150", "seed": "0", "row": "fake", "code": "-", "top-1": "50.0",
        "top-10": "75.0", "fit s": "2.0", "predict s": "0.50", "top-10 s": "-", "start MiB": "7",
        "fit MiB": "-", "peak MiB": "47", "limit s": "",
    }  # fmt: skip
    ratios = capsys.readouterr().out.partition("over those of the first")[2]
    assert "| tiny | 0 | LDA, learned | 1.00 | 1.00 |" in ratios


def test_rows_that_take_too_long_did_not_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals = tiny(monkeypatch, tmp_path, "while True: pass")
    run(rivals=rivals, rows=["fake"], limit=1)
    out = capsys.readouterr().out
    assert "did not finish" in out
    assert "omikuji is left out" not in out  # only what is known is named


def test_lines_have_every_column_and_say_what_a_row_lacked() -> None:
    row = linear.Row("r", "python", Path(), {})
    for result in (None, {"failed": "memory"}):
        line = estimator.line("tiny", 150, 0, row, result, 60)
        assert len(line) == len(estimator.HEADER)
        assert "did not finish: memory" in line[5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": ["mnist"]}, "--data must be among omniglot, beauty"),
        ({"rivals": {"pecos": "python"}}, "NAME=PYTHON, NAME of omikuji, napkinxc; got 'pecos'"),
        ({"rivals": {"omikuji": ""}}, "NAME=PYTHON"),
    ],
)
def test_what_cannot_run_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        run(**{"sets": [], **options})


def test_every_data_set_plans_rows_with_different_names() -> None:
    rivals = dict.fromkeys(estimator.RIVALS, "python")
    for name in estimator.SETS:
        rows = [row.name for row in estimator.planned(name, 0, rivals)]
        assert len(rows) == len(set(rows))
        assert {"omikuji", "omikuji, tuned", "napkinXC PLT", "napkinXC, tuned"} < set(rows)
        assert any(row.endswith("alone") for row in rows)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_are_read_as_they_were_written(tmp_path: Path, sparse: bool) -> None:
    data = small_data(sparse=sparse)
    estimator.write(tmp_path, data, text=True)
    rows, labels, held_out, truth = estimator_row.read(tmp_path)
    if sparse:
        rows, held_out = rows.toarray(), held_out.toarray()
    dense = small_data()
    np.testing.assert_array_equal(rows, dense.rows)
    np.testing.assert_array_equal(held_out, dense.held_out)
    assert labels.tolist() == [f"class {i:08d}" for i in dense.ids]
    assert truth.tolist() == [f"class {i:08d}" for i in dense.held_out_ids]
    head, *lines = (tmp_path / "held_out.txt").read_text(encoding="utf-8").splitlines()
    assert head == "60 64 60"
    assert [int(line.split()[0]) for line in lines] == dense.held_out_ids.tolist()
    pairs = [pair.split(":") for pair in lines[3].split()[1:]]
    assert [int(i) for i, _ in pairs] == list(range(64))
    np.testing.assert_allclose([float(x) for _, x in pairs], dense.held_out[3], rtol=1e-6)


def test_held_out_rows_are_drawn_with_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = small_data()
    monkeypatch.setattr(estimator, "ANSWERED", 20)
    some = estimator.drawn(everything, 0)
    assert len(set(some.held_out_ids.tolist())) == 20
    np.testing.assert_array_equal(some.held_out, everything.held_out[some.held_out_ids])


def test_a_row_measures_what_the_classifier_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estimator.write(tmp_path, small_data(), text=False)
    found = {}
    asked: dict[str, dict[str, Any]] = {
        "estimator": {"mapping": "simplex", "n_sites": 3},
        "own": {},
        "one vs rest": {},
        "output code": {"bits": 30},
    }
    for how, options in asked.items():
        estimator_row.main(tmp_path, {"learner": "LDA", "how": how, "seed": 0, **options})
        found[how] = json.loads(capsys.readouterr().out)
    ours = found["estimator"]
    assert (ours["code"], ours["sites"]) == ("simplex", 3)
    assert 0.8 < ours["held_out"] < ours["top_10"]
    assert found["own"]["held_out"] > 0.9
    assert found["one vs rest"]["top_10"] >= found["one vs rest"]["held_out"] > 0.8
    assert "top_10" not in found["output code"]


def test_ten_best_labels_are_those_of_the_largest_scores() -> None:
    class Scorer:
        classes_ = np.array(list("abcdefghijklmnop"))

        def predict_proba(self, rows: NDArray[Any]) -> NDArray[Any]:
            return rows

    shares = np.random.default_rng(0).random((5, 16))
    best = estimator_row.best_of(Scorer())
    assert best is not None
    expected = [set(Scorer.classes_[row]) for row in np.argsort(-shares)[:, :10]]
    assert [set(row) for row in best(shares)] == expected
    few = Scorer()
    few.classes_ = Scorer.classes_[:4]
    best = estimator_row.best_of(few)
    assert best is not None
    assert set(best(shares[:1, :4])[0]) == set("abcd")
