"""The benchmark on next items runs, at a size that says nothing about codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import items
from benchmarks.__main__ import main

from labelmapping.datasets.sequences import read_sequences

N_ITEMS = 40


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users who walk round a circle of 40 items, so that the next one can be known."""
    path = tmp_path_factory.mktemp("log") / "circle.txt"
    starts = np.random.default_rng(0).integers(0, N_ITEMS, 60)
    lines = [
        " ".join(str(i) for i in [user, *(1 + (start + np.arange(8)) % N_ITEMS)])
        for user, start in enumerate(starts)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_codes_are_compared_on_next_items(
    log_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["one-hot", "simplex", "learned, refit", "linear one-hot", "linear learned"]
    command = ["benchmarks", "items", "--data-set", str(log_file), "--epochs", "3", "--rows"]
    monkeypatch.setattr("sys.argv", [*command, *names, "--run-dir", str(tmp_path)])
    main()
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    rows = {row["code"]: row for row in results["rows"]}
    assert list(rows) == ["most popular", *names]
    assert "circle: 40 items, 60 users" in results["experiment"]
    # Heads of one size where only the code differs: 4 alphabets of 11.
    head = 64 * 1024 + 2 * 1024 + 1025 * 44
    assert rows["simplex"]["head_parameters"] == rows["learned, refit"]["head_parameters"] == head
    assert rows["one-hot"]["head_parameters"] == 65 * N_ITEMS
    assert rows["linear one-hot"]["parameters"] == 41 * N_ITEMS
    assert 1 < rows["learned, refit"]["epoch"] <= 3  # counted from the first phase's start
    for row in rows.values():
        assert 0 <= row["test_ndcg"] <= row["test_hit_rate"] <= 1
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        header, *lines = list(csv.reader(file))
    assert header == items.HEADER
    assert {len(line) for line in lines} == {len(header)}
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert capsys.readouterr().out.count("linear learned") == 1
    main()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == weights
    again = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    for row in (*results["rows"], *again["rows"]):
        row.pop("fit_seconds", None)
    assert again == results


def test_a_linear_learner_sees_the_circle(log_file: Path, tmp_path: Path) -> None:
    names = ["linear learned, 8 sites"]
    items.run(data_set=str(log_file), epochs=40, seeds=[0], rows=names, folder=tmp_path)
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    popular, learned = [row["test_hit_rate"] for row in results["rows"]]
    assert popular < 0.6
    assert learned > 0.9


def test_unknown_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--rows must be among 'one-hot', .*; got 'two-hot'"):
        items.run(data_set="Beauty", epochs=1, seeds=[0], rows=["two-hot"], folder=tmp_path)


def test_figures_by_hand() -> None:
    answers = np.array([[4, 5, 6], [4, 5, 6], [4, 5, 6], [4, 5, 6]])
    found = items.figures("test", answers, np.array([4, 6, 9, 5]))
    assert found["test_hit_rate"] == 0.75
    assert found["test_ndcg"] == pytest.approx((1 + 1 / 2 + 0 + 1 / np.log2(3)) / 4)


def test_the_most_popular_are_counted_in_the_training_part(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("1 3 2 3 7 5\n2 3 4 3 2 2\n3 4 1 7 7 7\n", encoding="utf-8")
    entry = items.popularity(read_sequences(path))
    # 3 comes four times, 4 twice, then 1, 2, 7 once each, and 5, 6: equal ones by number.
    gain = {item: 1 / np.log2(2 + place) for place, item in enumerate([3, 4, 1, 2, 7, 5, 6])}
    assert entry["validation_hit_rate"] == entry["test_hit_rate"] == 1
    assert entry["validation_ndcg"] == pytest.approx((gain[7] + gain[2] + gain[7]) / 3)
    assert entry["test_ndcg"] == pytest.approx((gain[5] + gain[2] + gain[7]) / 3)


def test_features_of_a_history_by_hand() -> None:
    prototypes = np.array([[1, 0], [0, 2], [4, 4]], np.float32)
    histories = np.array([[-1, 0, 1], [2, 2, 2], [-1, -1, -1]])
    features = items.history_features(histories, prototypes)
    decay = items.DECAY
    mean = (decay * prototypes[0] + prototypes[1]) / (1 + decay)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features[0], [*mean, 0, 2], rtol=1e-6)
    np.testing.assert_allclose(features[1], [4, 4, 4, 4], rtol=1e-6)
    assert not features[2].any()


def test_every_item_has_a_row_and_no_row_is_a_later_part_s(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("1 1 2 3 4 5\n2 6 2 3 7 8\n", encoding="utf-8")
    data, test = items.learning_data(read_sequences(path), None)
    rows = [
        ([i for i in history if i >= 0], item)
        for history, item in zip(data.train_inputs.tolist(), data.train_ids.tolist(), strict=True)
    ]
    # Items that follow none in the training part have a row without a history.
    alone: list[tuple[list[int], int]] = [([], item) for item in (0, 3, 4, 5, 6, 7)]
    assert rows == [([0], 1), ([0, 1], 2), ([5], 1), ([5, 1], 2), *alone]
    assert data.held_out_ids.tolist() == [3, 6]
    assert test[:, -4:].tolist() == [[0, 1, 2, 3], [5, 1, 2, 6]]
