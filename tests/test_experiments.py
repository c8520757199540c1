"""The demo and the reproduction on small settings: tables, files, and going on after a kill."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelmapping import HashedMapping, LearnedMapping, MixedMapping, SimplexMapping
from labelmapping.cli import main
from labelmapping.datasets.cjk import CLASS_SETS, load_cjk
from labelmapping.datasets.fonts import installed_faces
from labelmapping.errors import ArgumentError, RunMismatchError
from labelmapping.experiments import demo, republic
from labelmapping.experiments.demo import DemoSettings, demo_table, run_demo
from labelmapping.experiments.evaluation import SiteAnswers, sample_rows
from labelmapping.experiments.plots import save_curves
from labelmapping.experiments.results import results_table
from labelmapping.experiments.rows import Task
from labelmapping.experiments.tables import markdown_table
from labelmapping.learners import Ensemble, LearningData, RunFolder

SMALL = "".join(CLASS_SETS["gb2312-1"][:200:2])
FILES = {"results.json", "results.csv", "results.md", "curves.png"}


@pytest.fixture
def small_class_set(monkeypatch: pytest.MonkeyPatch) -> str:
    """A hundred characters in real faces."""
    if len(installed_faces()) < 2:
        pytest.skip("fewer than two known CJK faces are installed (scripts/install_fonts.sh)")
    monkeypatch.setitem(CLASS_SETS, "small", SMALL)
    return "small"


def settings(class_set: str, **changes: Any) -> DemoSettings:
    fields: dict[str, Any] = {"steps": 40, "hidden": 64, "batch_size": 64, "learning_rate": 1e-2}
    return DemoSettings(class_set=class_set, **(fields | changes))


def without_seconds(results: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(json.dumps(results))
    for row in kept["rows"]:
        for entry in (row, *row.get("seeds", ())):
            del entry["seconds"]
    return kept


@pytest.mark.slow
def test_the_demo_learns_decodes_and_writes(small_class_set: str, tmp_path: Path) -> None:
    chosen = settings(small_class_set, steps=40)
    results = run_demo(chosen, tmp_path / "run")
    simplex = results["rows"][1]
    assert [row["name"] for row in results["rows"]] == ["one-hot", "simplex", "mixed"]
    by_sites = simplex["top1_by_sites_left"]
    assert set(by_sites) == {"4", "3", "2"}
    means = [by_sites[n]["mean"] for n in ("4", "3", "2")]
    assert means[0] > means[1] > means[2] > results["chance"]
    assert all(v["min"] <= v["mean"] <= v["max"] for v in by_sites.values())
    assert simplex["top10"] >= means[0] > max(simplex["site_accuracies"]) > 0.3
    assert results["held-out face"] not in results["training faces"]

    folder = tmp_path / "run"
    assert FILES | {"sheet.png", "one-hot", "simplex", "mixed"} == {
        p.name for p in folder.iterdir()
    }
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == results
    with (folder / "results.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [row["mapping"] for row in table] == ["one-hot", "simplex", "mixed"]
    assert table[1]["top-1"] == f"{100 * means[0]:.1f}"
    assert (folder / "results.md").read_text(encoding="utf-8").count("\n| ") == 5
    for name in ("curves.png", "sheet.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")

    again = run_demo(chosen, folder)
    assert again == results
    with pytest.raises(RunMismatchError, match="was made with other settings"):
        run_demo(settings(small_class_set, steps=41), folder)
    assert json.loads((folder / "results.json").read_text(encoding="utf-8")) == results


KILLED = """
import sys
import torch
from labelmapping.cli import main
from labelmapping.datasets.cjk import CLASS_SETS, load_cjk
torch.set_num_threads(1)  # as the tests
CLASS_SETS["small"] = sys.argv.pop(1)
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_killed_demo_ends_in_the_same_table(small_class_set: str, tmp_path: Path) -> None:
    def words(folder: str) -> list[str]:
        options = "demo --class-set small --steps 40 --hidden 64 --batch-size 64 --run-dir"
        return [*options.split(), str(tmp_path / folder)]

    def results(folder: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / folder / "results.json").read_text("utf-8"))
        return without_seconds(found)

    assert main(words("whole")) == 0
    command = [sys.executable, "-c", KILLED, SMALL, *words("killed")]
    for line in ("one-hot: 6/40 steps", "simplex: 22/40 steps"):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert any(said.startswith(line) for said in process.stderr)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "results.json").exists()
    finished = tmp_path / "killed" / "one-hot" / "site-all" / "weights.safetensors"
    before = finished.stat().st_mtime_ns
    assert main(words("killed")) == 0
    assert finished.stat().st_mtime_ns == before
    assert results("killed") == results("whole")


def test_what_demo_settings_refuse() -> None:
    for changes, message in (
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"n_sites": 1}, "n_sites must be at least 2, got 1"),
        ({"n_sites": 9}, "n_sites must be at most 8, got 9"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            settings("gb2312-1", **changes)
    with pytest.raises(ArgumentError, match=r"at most 1155 \(3 x 5 x 7 x 11\)"):
        settings("gb2312-1", alphabet_sizes=(3, 5, 7, 11)).mappings()
    with pytest.raises(ArgumentError, match=r"at most 3721 \(61\^2\), got 3755"):
        settings("gb2312-1", field_order=61).mappings()


@pytest.mark.parametrize(("steps", "epochs"), [(2000, 20), (40, 20), (45, 15), (7, 7), (1, 1)])
def test_steps_are_trained_exactly(steps: int, epochs: int) -> None:
    recipe = settings("gb2312-1", steps=steps).recipe(MixedMapping(100, n_sites=3))
    assert recipe.epochs == epochs
    assert recipe.steps_per_epoch is not None
    assert recipe.epochs * recipe.steps_per_epoch == steps


def tiny_text(n_classes: int) -> LearningData:
    """A text in which every word follows from the one before it."""
    generator = torch.Generator().manual_seed(0)
    contexts = torch.randint(0, n_classes, (600, 50), generator=generator)
    targets = (contexts[:, -1] * 5 + 1) % n_classes
    words = [f"w{i}" for i in range(n_classes)]
    return LearningData(contexts[:500], targets[:500], contexts[500:], targets[500:], words)


@pytest.mark.slow
def test_rows_of_table_4_from_a_tiny_text(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole path of the command, with the text's windows replaced by a few."""
    monkeypatch.setattr(republic, "learning_data", lambda text: tiny_text(republic.N_WORDS))
    names = ["one-hot", "mixed-6-2", "mixed-6-4", "cut-off", "joint-learned-6", "tied-one-hot"]
    words = ["--rows", *names, "--data-dir", str(data_dir), "--run-dir", str(tmp_path)]
    assert main(["reproduce", "republic", *words, "--steps", "3", "--accelerator", "cpu"]) == 0
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    in_table = [name for name in republic.EXPERIMENT.table if name in names]
    assert [row["name"] for row in results["rows"]] == in_table
    for row in results["rows"]:
        assert list(row["by_epoch"]) == ["1", "2"]
        for figures in row["by_epoch"].values():
            assert 0 <= figures["held_out_accuracy"]["mean"] <= 1
            # Hardly trained, all words are about equally likely; cut-off gives the rest one symbol.
            if row["name"] != "cut-off":
                assert 6500 < figures["perplexity"]["mean"] < 8500
    # Seed 0 has no number, as runs of earlier versions had it.
    runs = {"one-hot", "mixed", "cut-off", "joint-learned-6", "tied-one-hot"}
    files = FILES | {"curves.svg", "ours.png", "ours.svg", "measured"}
    assert {p.name for p in tmp_path.iterdir()} == files | runs
    assert {p.name for p in (tmp_path / "mixed").iterdir() if p.is_dir()} == {
        f"site-0{site}" for site in range(4)
    }
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        numbers = [line for line in csv.DictReader(file) if line["figure"] == "held_out_accuracy"]
    assert [line["title"] for line in numbers[::2]][:3] == [
        "one-hot softmax", "724 cut-off", "mixed 6→2",
    ]  # fmt: skip
    assert {line["epoch"]: line["paper"] for line in numbers[:2]} == {"1": "", "2": "0.0946"}
    header, lines = results_table(results)
    assert header[4:7] == ["train @2", "held out @2", "paper @2"]
    assert [line[0] for line in lines][:3] == ["one-hot softmax", "724 cut-off", "mixed 6→2"]
    assert lines[2][1] == "620,816"
    assert [line[6] for line in lines] == ["0.0946", "0.0589", "0.1331", "0.1609", "", ""]
    # What a learnt code puts in the recipe is one code for input and output.
    learned = RunFolder.load(tmp_path / "joint-learned-6").recipe
    assert learned.trunk_options["input_mapping"] == learned.mapping.to_config()
    # A tied layer is one tensor, and both of its names are saved and read.
    tied = Ensemble.load(tmp_path / "tied-one-hot", epoch=1)
    assert tied.parameters == 100 * 7409 + 7409 + 2 * 80_400 + 10_100


KILLED_REPRODUCTION = """
import sys
import torch
from labelmapping.cli import main
from labelmapping.experiments import republic
from tests.test_experiments import tiny_text
torch.set_num_threads(1)  # as the tests: with more, sums may differ in their last bits
republic.learning_data = lambda text: tiny_text(republic.N_WORDS)
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_killed_reproduction_ends_in_the_same_table(
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The learners that draw at each step (negative sampling) are among the killed ones."""
    rows = ["mixed-6-2", "negative-sampling"]
    monkeypatch.setattr(republic, "learning_data", lambda text: tiny_text(republic.N_WORDS))

    def words(folder: str) -> list[str]:
        arguments = ["--rows", *rows, "--epochs", "3", "--steps", "4"]
        arguments += ["--run-dir", str(tmp_path / folder)]
        return ["reproduce", "republic", "--data-dir", str(data_dir.resolve()), *arguments]

    def results(folder: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / folder / "results.json").read_text("utf-8"))
        return without_seconds(found)

    root = Path(__file__).parents[1]
    assert main(words("whole")) == 0
    command = [sys.executable, "-c", KILLED_REPRODUCTION, *words("killed")]
    for line in ("mixed-6-2, site 1: 4/12 steps", "negative-sampling, site 0: 8/12 steps"):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root) as process:
            assert process.stderr is not None
            assert any(said.startswith(line) for said in process.stderr)
            process.send_signal(signal.SIGKILL)
    assert main(words("killed")) == 0
    assert results("killed") == results("whole")

    before = (tmp_path / "whole" / "results.json").read_bytes()
    again = [*words("whole"), "--profile", "paper"]
    again[again.index("3")] = "4"
    again[again.index("--rows") + 1] = "cut-off"  # not trained yet: must not be, now
    capsys.readouterr()
    assert main(again) == 2
    assert "was made with other settings" in capsys.readouterr().err
    assert (tmp_path / "whole" / "results.json").read_bytes() == before
    assert not (tmp_path / "whole" / "cut-off").exists()


def test_rows_of_table_4() -> None:
    profiles = republic.EXPERIMENT.profiles
    assert profiles["paper"].report == republic.PAPER_EPOCHS
    # The paper's setting is one for CPUs: either profile goes on with the other's runs.
    assert profiles["cpu"] == profiles["paper"]
    assert profiles["quick"].rows == ("one-hot", "mixed-6-2", "mixed-6-4")
    rows = [republic.EXPERIMENT.row(name) for name in republic.EXPERIMENT.table]
    of_the_paper = [row for row in rows if row.paper]
    assert len(of_the_paper) == 9
    assert all(tuple(row.paper) == republic.PAPER_EPOCHS for row in of_the_paper)
    # Rows of a run share learners, so a run's first sites must be a row's code.
    assert republic.MIXED.alphabet_sizes == republic.PRIMES
    ids = np.arange(republic.N_WORDS)
    for n_sites in (2, 4):
        alone = MixedMapping(republic.N_WORDS, republic.PRIMES[:n_sites])
        assert (alone.encode(ids) == republic.MIXED.encode(ids)[:, :n_sites]).all()
        simplex = SimplexMapping(republic.N_WORDS, n_sites, field_order=127)
        assert (simplex.encode(ids) == republic.SIMPLEX.encode(ids)[:, :n_sites]).all()


def test_a_code_is_learnt_from_the_training_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = torch.arange(120) % 12
    windows = text.unfold(0, 51, 1)
    data = LearningData(
        windows[:50, :-1],
        windows[:50, -1],
        windows[50:, :-1],
        windows[50:, -1],
        list("abcdefghijkl"),
    )
    seen: list[Any] = []

    def factors(sequences: Any, n_classes: int) -> Any:
        seen.extend(sequences)
        return np.eye(n_classes, dtype=np.float32)

    monkeypatch.setattr(republic, "cooccurrence_factors", factors)
    recipe = republic.lstm(HashedMapping(12, 3, 5), HashedMapping(12, 3, 5))(
        republic.EXPERIMENT.profiles["quick"]
    )
    pytest.importorskip("sklearn", reason="codes are fitted with scikit-learn")
    learned = republic.learn_codes(recipe, Task(data), 0)
    assert seen[0].tolist() == text[:100].tolist()
    assert isinstance(learned.mapping, LearnedMapping)
    assert learned.mapping.alphabet_sizes == (5, 5, 5)


def test_site_answers_count_hits() -> None:
    mapping = MixedMapping(6, [2, 3, 5])
    truth = np.array([0, 3, 5])
    codewords = mapping.encode(truth)
    log_probs = []
    for site, size in enumerate(mapping.alphabet_sizes):
        probs = np.full((3, size), 0.1 / (size - 1), np.float32)
        probs[np.arange(3), codewords[:, site]] = 0.9
        log_probs.append(np.log(probs))
    wrong = log_probs[2].copy()
    wrong[1] = np.log(np.full(5, 0.2))
    answers = SiteAnswers(mapping, (0, 1, 2), [log_probs[0], log_probs[1], wrong], truth)
    assert answers.accuracy() == 1.0
    assert answers.site_accuracies() == [1.0, 1.0, pytest.approx(2 / 3)]
    assert answers.accuracy(1, [0, 1]) == 1.0
    assert answers.accuracy(6) == 1.0
    ids, scores = answers.topk(2)
    assert ids.shape == scores.shape == (3, 2)
    assert (scores[:, 0] >= scores[:, 1]).all()
    false = SiteAnswers(mapping, (0, 1, 2), log_probs, np.array([1, 3, 5]))
    assert false.accuracy() == pytest.approx(2 / 3)


def test_sampled_rows_are_seeded_and_distinct() -> None:
    rows = sample_rows(1000, 100, 3)
    assert len(set(rows.tolist())) == 100
    assert torch.equal(rows, rows.sort().values)
    assert torch.equal(rows, sample_rows(1000, 100, 3))
    assert not torch.equal(rows, sample_rows(1000, 100, 4))
    assert sample_rows(5, 100, 0).tolist() == [0, 1, 2, 3, 4]


def test_tables_and_curves(tmp_path: Path) -> None:
    assert markdown_table((["a", "b"], [["x", "1"]])) == "| a | b |\n| --- | ---: |\n| x | 1 |\n"
    save_curves(tmp_path / "new" / "c.png", "t", "epoch", {"a": {1: 0.1, 2: 0.4}, "b": {1: 0.2}})
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["c.png"]
    results = {
        "rows": [
            {
                "name": "simplex",
                "parameters": 1234,
                "site_accuracies": [0.5, 0.25],
                "train_top1": 1.0,
                "top1_by_sites_left": {
                    "4": {"mean": 0.9, "min": 0.9, "max": 0.9},
                    "3": {"mean": 0.8, "min": 0.7, "max": 0.85},
                    "2": {"mean": 0.5, "min": 0.4, "max": 0.6},
                },
                "top10": 0.99,
                "seconds": 12.4,
            },
            {
                "name": "one-hot",
                "parameters": 9,
                "site_accuracies": [0.5],
                "train_top1": 1.0,
                "top1_by_sites_left": {"1": {"mean": 0.5, "min": 0.5, "max": 0.5}},
                "top10": 0.6,
                "seconds": 1.0,
            },
        ]
    }
    header, lines = demo_table(results)
    assert header[-3:] == ["top-1, 3 sites (worst)", "top-1, 2 sites (worst)", "seconds"]
    assert lines[0] == [
        "simplex",
        "1,234",
        "50 25",
        "100.0",
        "90.0",
        "99.0",
        "80.0 (70.0)",
        "50.0 (40.0)",
        "12",
    ]
    assert lines[1][-3:] == ["-", "-", "1"]


def test_the_demo_s_data_have_one_face_held_out(small_class_set: str, tmp_path: Path) -> None:
    characters = load_cjk(small_class_set, cache_dir=tmp_path)
    data = demo.learning_data(characters)
    assert data.n_classes == 100
    assert len(data.train_ids) == 100 * len(characters.train_faces)
    assert data.labels[0] == "啊"
