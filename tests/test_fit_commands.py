"""``labelmapping fit``, ``evaluate`` and ``predict``, through the command."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytorch_lightning as pl
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset, random_split

from labelmapping import scoring
from labelmapping.cli import main
from labelmapping.fit_settings import EPILOG, fit_parser, read_settings
from labelmapping.learners import ModuleData, RunFolder

N, WIDTH = 24, 6
MODULE = '''
import pytorch_lightning as pl, torch
from pathlib import Path
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Vectors(pl.LightningDataModule):
    """Noisy points about a centre a class.

    Args:
        n_classes: how many
        noise: of the rows
    """
    def __init__(self, n_classes: int, noise: float = 0.1, batch_size: int = 7):
        super().__init__()
        self.n_classes, self.noise, self.batch_size = n_classes, noise, batch_size
    def setup(self, stage):
        generator = torch.Generator().manual_seed(0)
        centres = torch.randn(self.n_classes, 6, generator=generator)
        self.labels = [f"class {n}" for n in range(self.n_classes)]
        self.ids = torch.arange(self.n_classes).repeat(8)
        noise = torch.randn(len(self.ids), 6, generator=generator)
        self.rows = centres[self.ids] + self.noise * noise
    def train_dataloader(self):
        return DataLoader(TensorDataset(self.rows, self.ids), self.batch_size, shuffle=True)
    def val_dataloader(self):
        return DataLoader(TensorDataset(self.rows, self.ids), 50)
    test_dataloader = val_dataloader

class Placed(nn.Module):
    def __init__(self, place: Path):
        super().__init__()

class Trunk(nn.Module):
    def __init__(self, in_features: int, width: int = 32):
        super().__init__()
        self.out_features = width
        self.dense = nn.Linear(in_features, width)
    def forward(self, rows):
        return torch.relu(self.dense(rows))
'''


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working folder with the user's module, whose import is forgotten again."""
    (tmp_path / "own_classes.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "broken.py").write_text("1 / 0", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("own_classes", None)


def settings_file(**changes: Any) -> str:
    """A file of settings for `Vectors`, with some of them changed."""
    settings: dict[str, Any] = {
        "data": {"class_path": "own_classes.Vectors", "init_args": {"n_classes": N}},
        "trunk": {"class_path": "own_classes.Trunk"},
        "code": {"family": "simplex", "n_sites": 3},
        "training": {"epochs": 15, "learning_rate": 0.02, "joint": True},
        "run_dir": "run",
        "accelerator": "cpu",
    }
    settings.update(changes)
    Path("settings.yaml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    return "settings.yaml"


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    found = capsys.readouterr()
    return found.out, found.err


def test_own_classes_from_the_working_folder(capsys: pytest.CaptureFixture[str]) -> None:
    config = settings_file()
    assert main(["fit", "--config", config]) == 0
    out, _ = said(capsys)
    assert "simplex" in out.lower()
    run = RunFolder.load("run")
    assert run.recipe.trunk == "own_classes:Trunk"
    assert run.recipe.trunk_options == {"in_features": WIDTH}
    assert run.labels[3] == "class 3"

    assert main(["evaluate", "--config", config, "--k", "1", "3", "--json"]) == 0
    found = json.loads(said(capsys)[0])
    assert found["rows"] == 8 * N
    assert found["top"]["1"] > 0.9
    assert found["top"]["3"] >= found["top"]["1"]
    assert len(found["site_accuracies"]) == 3
    assert main(["evaluate", "--config", config, "--sites", "0", "2", "--json"]) == 0
    assert json.loads(said(capsys)[0])["sites"] == [0, 2]
    assert main(["evaluate", "--config", config]) == 0
    assert "calibration error" in said(capsys)[0]


@pytest.mark.filterwarnings("ignore:the best temperature is 0.02 or less")  # all rows are right
def test_a_temperature_from_validation_rows_for_the_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = parquet_settings()
    assert main(["fit", "--config", config]) == 0
    said(capsys)
    assert main(["calibrate", "--config", config, "--json"]) == 0
    found = json.loads(said(capsys)[0])
    assert set(found) == {"temperature", "rows", "sites", "log_loss", "log_loss_at_1"}
    assert found["sites"] == [0, 1, 2]
    assert found["log_loss"] <= found["log_loss_at_1"]
    assert 0 < found["rows"] <= 8 * N // 10  # a tenth of the rows is held out
    assert main(["calibrate", "--config", config, "--max-rows", "5", "--sites", "0", "1"]) == 0
    out, err = said(capsys)
    assert "temperature" in out
    assert "5 rows" in out + err

    # Another temperature is another probability of the same answer.
    predict = ["predict", "--config", config, "--probabilities"]
    answers = []
    for name, temperature in (("plain.csv", "1"), ("warm.csv", "4")):
        assert main([*predict, "--temperature", temperature, "--output", name]) == 0
        with open(name, encoding="utf-8", newline="") as file:
            answers.append(list(csv.DictReader(file)))
    for plain, warm in zip(*answers, strict=True):
        assert plain["label_1"] == warm["label_1"]
        assert float(warm["probability_1"]) < float(plain["probability_1"])
    losses = []
    for temperature in ("1", "4"):
        said(capsys)
        evaluate = ["evaluate", "--config", config, "--json", "--temperature", temperature]
        with pytest.warns(UserWarning, match="字99"):
            assert main(evaluate) == 0
        losses.append(json.loads(said(capsys)[0])["log_loss"])
    assert losses[0] < losses[1]  # all known rows are right: the surer the better


def test_a_second_start_changes_no_byte(capsys: pytest.CaptureFixture[str]) -> None:
    config = settings_file(training={"epochs": 1}, code={"family": "learned", "n_sites": 3})
    assert main(["fit", "--config", config]) == 0
    weights = sorted(Path("run").rglob("weights.safetensors"))
    before = [path.read_bytes() for path in weights]
    assert len(weights) == 3  # one a site
    assert main(["fit", "--config", config]) == 0
    assert [path.read_bytes() for path in weights] == before
    assert main(["fit", "--config", config, "--training.precision", "bf16-mixed"]) == 2
    assert "precision is '32-true' there, 'bf16-mixed' now" in said(capsys)[1]
    assert main(["fit", "--config", config, "--training.epochs", "2"]) == 2
    assert "epochs is 1 there, 2 now" in said(capsys)[1]


def test_processes_train_the_same_weights() -> None:
    config = settings_file(training={"epochs": 1})
    assert main(["fit", "--config", config]) == 0
    options = ["--executor", "process", "--workers", "2", "--run-dir", "other"]
    assert main(["fit", "--config", config, *options]) == 0
    for site in range(3):
        name = f"site-{site:02d}/weights.safetensors"
        assert Path("run", name).read_bytes() == Path("other", name).read_bytes()


def write_rows(path: str, seed: int, labels: list[str]) -> None:
    """A parquet file: rows about a centre a label, and the label."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(N, WIDTH))
    rows = np.stack([centres[int(label[1:]) % N] for label in labels])
    rows += 0.1 * rng.normal(size=rows.shape)
    columns: dict[str, Any] = {f"x{n}": rows[:, n] for n in range(WIDTH)}
    pq.write_table(pa.table({**columns, "label": labels}), path)


def parquet_settings(**changes: Any) -> str:
    labels = [f"字{n}" for n in range(N)]
    write_rows("train.parquet", 1, labels * 8)
    write_rows("test.parquet", 2, [*labels, "字99"])
    write_rows("new.parquet", 3, labels[:5])
    files = {
        "files": "train.parquet",
        "label": "label",
        "test_files": "test.parquet",
        "predict_files": "new.parquet",
    }
    return settings_file(
        data={"class_path": "ParquetRows", "init_args": files},
        trunk={"class_path": "Mlp", "init_args": {"widths": [32]}},
        code={"family": "auto", "n_sites": 3},
        **changes,
    )


def test_parquet_in_labels_out(capsys: pytest.CaptureFixture[str]) -> None:
    config = parquet_settings()
    assert main(["fit", "--config", config]) == 0
    assert RunFolder.load("run").recipe.mapping.kind == "learned"  # "auto", since rows have means
    said(capsys)
    with pytest.warns(UserWarning, match="字99"):
        assert main(["evaluate", "--config", config, "--json", "--output", "found.json"]) == 0
    found = json.loads(said(capsys)[0])
    assert found == json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert found["unknown_rows"] == 1
    assert 0.8 < found["top"]["1"] <= N / (N + 1)

    predict = ["predict", "--config", config, "--k", "2", "--probabilities"]
    assert main([*predict, "--output", "new.csv"]) == 0
    with open("new.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == list("01234")
    assert sum(row["label_1"] == f"字{n}" for n, row in enumerate(rows)) >= 4
    for row in rows:
        first, second = float(row["probability_1"]), float(row["probability_2"])
        assert 0 <= second <= first <= 1
        assert first + second <= 1.001
    assert main([*predict, "--output", "new.jsonl"]) == 0
    lines = Path("new.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["best"][0]["label"] for line in lines] == [r["label_1"] for r in rows]
    said(capsys)
    assert main(["predict", "--config", config]) == 0
    out, err = said(capsys)
    assert out.splitlines()[0] == "row,label_1,score_1"
    assert "5 rows" in err


def test_a_recipe_and_prototypes_from_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", "--classes", str(N), "--sites", "4", "--json"]) == 0
    recipe = json.loads(said(capsys)[0])["choices"][0]["recipe"]
    Path("code.json").write_text(json.dumps(recipe), encoding="utf-8")
    config = settings_file(code={"recipe": "code.json"}, training={"epochs": 1, "joint": True})
    assert main(["fit", "--config", config]) == 0
    assert RunFolder.load("run").recipe.mapping.to_config() == recipe

    np.save("prototypes.npy", np.random.default_rng(0).normal(size=(N, 5)))
    code = {"family": "learned", "n_sites": 3, "prototypes": "prototypes.npy"}
    config = settings_file(code=code, run_dir="second", training={"epochs": 1, "joint": True})
    assert main(["fit", "--config", config]) == 0
    assert RunFolder.load("second").recipe.mapping.kind == "learned"


@pytest.mark.parametrize("family", ["mixed", "random", "hashed", "one-hot"])
def test_families(family: str) -> None:
    code: dict[str, Any] = {"family": family, "n_sites": 3}
    config = settings_file(code=code, training={"epochs": 1, "joint": True})
    assert main(["fit", "--config", config]) == 0
    mapping = RunFolder.load("run").recipe.mapping
    assert mapping.n_classes == N
    assert mapping.n_sites == (1 if family == "one-hot" else 3)


class Split(pl.LightningDataModule):
    """A fifth of the rows to test, drawn as people do it; a row's first number is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.labels = ["a", "b", "c"]

    def setup(self, stage: str) -> None:
        rows = torch.arange(60.0)[:, None].repeat(1, WIDTH)
        whole = TensorDataset(rows, torch.arange(60) % 3)
        self.train, self.test = random_split(whole, [0.8, 0.2])

    def train_dataloader(self) -> Any:
        return DataLoader(self.train, 60)

    def test_dataloader(self) -> Any:
        return DataLoader(self.test, 60)

    def predict_dataloader(self) -> Any:
        return [self.test_dataloader()]


def test_rows_to_test_are_none_of_those_trained_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[float]] = []
    answer = scoring.answers

    def watched(ensemble: Any, inputs: Any) -> Any:
        asked.append(set(inputs[:, 0].tolist()))
        return answer(ensemble, inputs)

    monkeypatch.setattr(scoring, "answers", watched)
    config = settings_file(
        data={"class_path": f"{__name__}.Split"}, training={"epochs": 1, "joint": True}
    )
    assert main(["fit", "--config", config]) == 0
    for _ in range(2):
        assert main(["evaluate", "--config", config]) == 0
    trained = next(iter(ModuleData(Split).training(60, None, 0)))[0][:, 0].tolist()
    assert len(asked[0]) == 12
    assert asked[0] == asked[1]
    assert asked[0].isdisjoint(trained)
    said(capsys)
    assert main(["predict", "--config", config]) == 2
    assert "predict_dataloader must give one loader, got a list" in said(capsys)[1]


def test_words_of_another_vocabulary_and_other_trunks_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng(0)
    for name in ("log", "other"):
        lines = (" ".join(f"{name}{n}" for n in rng.integers(0, 9, 12)) for _ in range(30))
        Path(f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    data = {"files": "log.txt", "length": 5, "predict_files": "log.txt"}
    config = settings_file(
        data={"class_path": "TokenSequences", "init_args": data},
        trunk={"class_path": "NextItemAttention", "init_args": {"width": 8}},
        code={"n_sites": 3},
        training={"epochs": 1, "joint": True},
    )
    assert main(["fit", "--config", config]) == 0
    run = RunFolder.load("run")
    assert run.recipe.mapping.kind == "simplex"  # "auto", where inputs have no means
    assert run.recipe.trunk_options["length"] == 5
    assert run.recipe.trunk_options["input_mapping"] == run.recipe.mapping.to_config()
    assert main(["predict", "--config", config, "--output", "answers.csv"]) == 0
    with open("answers.csv", encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 30
    said(capsys)
    for options, words in (
        (["--data.init_args.files", "other.txt"], "data's labels are not the run's: class 0 is"),
        (["--trunk.class_path", "NextWordLstm"], "trunk.class_path must be the run's"),
        (["--device", "nowhere"], "device must be one that is here, got 'nowhere'"),
    ):
        assert main(["predict", "--config", config, *options]) == 2
        out, err = said(capsys)
        assert words in err
        assert not out


def test_one_row_a_class_has_a_learnt_code_too() -> None:
    write_rows("train.parquet", 1, [f"x{n}" for n in range(N)])
    config = settings_file(
        data={
            "class_path": "ParquetRows",
            "init_args": {"files": "train.parquet", "label": "label"},
        },
        trunk={"class_path": "Mlp"},
        code={"n_sites": 3},
        training={"epochs": 1, "joint": True},
    )
    with pytest.warns(UserWarning, match="single row"):
        assert main(["fit", "--config", config]) == 0
    assert RunFolder.load("run").recipe.mapping.kind == "learned"


def test_the_example_of_the_help_has_settings_that_exist() -> None:
    text = EPILOG[EPILOG.index("  data:") : EPILOG.index("\n\nThen")]
    Path("photos.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
    commands = re.findall(r"labelmapping (fit|evaluate|predict) (--config .*)", EPILOG)
    assert [name for name, _ in commands] == ["fit", "evaluate", "predict"]
    for name, options in commands:
        parser = fit_parser(name, "")
        parser.add_argument("--k", nargs="+", type=int)
        parser.add_argument("--output")
        settings, _ = read_settings(parser, options.split())
        arguments = settings.data.arguments(pl.LightningDataModule, {})
        assert arguments["test_root"] == "test"
        settings.trunk.arguments(torch.nn.Module, {})


def test_about_a_class_of_the_working_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert str(tmp_path) not in sys.path  # nothing before it has looked there
    assert main(["fit", "--about", "own_classes.Vectors"]) == 0
    assert "of the rows" in said(capsys)[0]
    assert main(["fit", "--about", "Nothing"]) == 2
    assert "or one of ImageFolders, ParquetRows" in said(capsys)[1]


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("fit", "calibrate", "evaluate", "predict"):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        out, _ = said(capsys)
        assert f"labelmapping {command}" in out
        assert "class_path: ImageFolders" in out
        assert "how many sites determine a class" in " ".join(out.split())
    assert main(["fit", "--about", "ParquetRows"]) == 0
    assert "held_out" in said(capsys)[0]


BAD: list[tuple[dict[str, Any], list[str], str]] = [
    ({}, ["--training.epochs", "two"], "training.epochs"),
    ({}, ["--nonsense", "1"], "nonsense"),
    ({"nonsense": 1}, [], "nonsense"),
    ({"code": {"n_site": 3}}, [], "n_site"),
    ({"code": {"family": "simplest"}}, [], "simplest"),
    ({"data": {"class_path": "own_classes.Nothing"}}, [], "data.class_path"),
    ({"data": {"class_path": "own_classes.Trunk"}}, [], "data.class_path"),
    ({"data": {"class_path": "own_classes.Vectors"}}, [], "n_classes"),
    (
        {"data": {"class_path": "own_classes.Vectors", "init_args": {"n_classes": "many"}}},
        [],
        "data.init_args of Vectors",
    ),
    (
        {"trunk": {"class_path": "own_classes.Trunk", "init_args": {"depth": 2}}},
        [],
        "trunk.init_args of Trunk",
    ),
    ({}, ["--workers", "2"], "workers must be left out"),
    ({}, ["--ray-address", "auto"], "ray_address must be left out"),
    ({"training": {"epochs": 0}}, [], "epochs must be at least 1"),
    ({"code": {"family": "mixed", "alphabet_size": 7}}, [], "code.alphabet_size"),
    ({"code": {"recipe": "absent.json"}}, [], "absent.json"),
    ({"code": {"prototypes": "absent.npy"}}, [], "absent.npy"),
    ({"training": {"epochs": 1, "head": "none"}}, [], "head must be one of"),
    ({"trainer": {"logger": True}}, [], "logger"),
    ({}, ["--executor", "proces"], "must be one of 'serial', 'process', 'ray'; got proces"),
    ({"training": {"epochs": 1, "head": "cut-off"}}, [], 'code.family must be "one-hot"'),
    ({"trunk": {"class_path": "torch.nn.Identity"}}, [], "trunk must have out_features"),
    (
        {"trunk": {"class_path": "Mlp", "init_args": {"in_features": 5}}},
        [],
        "trunk must take the data's inputs, torch.float32 of shape (B, 6)",
    ),
    ({"trunk": {"class_path": "Mlp", "init_args": {"dropout": 1.5}}}, [], "dropout must lie in"),
    ({"data": {"class_path": "broken.Rows"}}, [], "ZeroDivisionError"),
    ({"data": {"class_path": ".Rows"}}, [], "data.class_path must be the import path"),
    (
        {"trunk": {"class_path": "own_classes.Placed", "init_args": {"place": "here"}}},
        [],
        "must be JSON values",
    ),
]


@pytest.mark.parametrize(("changes", "options", "words"), BAD)
def test_a_bad_setting_is_one_sentence_and_writes_nothing(
    changes: dict[str, Any], options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--config", settings_file(**changes), *options]) == 2
    _, err = said(capsys)
    message = [line for line in err.splitlines() if line.startswith("labelmapping: error: ")]
    assert len(message) == 1, err
    assert words in message[0]
    assert err.strip().endswith(message[0])
    assert not Path("run").exists()


def test_bad_questions(capsys: pytest.CaptureFixture[str]) -> None:
    config = settings_file(training={"epochs": 1, "joint": True})
    assert main(["evaluate", "--config", config]) == 2
    assert "run.json" in said(capsys)[1]
    assert main(["fit", "--config", config]) == 0
    said(capsys)
    for command, words in (
        (["predict"], "predict_dataloader"),
        (["evaluate", "--data.init_args.n_classes", "25"], "25 labels, the run 24"),
        (["evaluate", "--k", "0"], "ks must be at least 1"),
        (["evaluate", "--sites", "7"], "7"),
        (["evaluate", "--output", "found.txt"], "output must end in .json"),
        (["predict", "--output", "found.txt"], "output must end in .csv or .jsonl"),
        (["evaluate", "--temperature", "0"], "temperature must be positive and finite, got 0"),
        (["calibrate", "--max_rows", "0"], "max_rows must be at least 1"),
    ):
        assert main([command[0], "--config", config, *command[1:]]) == 2
        assert words in said(capsys)[1]
        assert not Path("found.txt").exists()


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## Your own data") :]
    blocks = re.findall(r"```(yaml|bash)\n(.*?)```", section, re.DOTALL)
    Path("photos.yaml").write_text(dict(blocks)["yaml"], encoding="utf-8")
    rng = np.random.default_rng(0)
    for n in range(8):
        folder = Path("photos", f"字{n}")
        folder.mkdir(parents=True)
        for name in "abcd":
            Image.fromarray(rng.integers(0, 256, (24, 24), np.uint8)).save(folder / f"{name}.png")
    shutil.copytree("photos/字3", "new")
    shutil.copytree("photos", "test")
    commands = [line.partition("#")[0].split() for line in dict(blocks)["bash"].splitlines()]
    assert [words[:2] for words in commands] == [
        ["labelmapping", name] for name in ("fit", "evaluate", "predict")
    ]
    few = ["--training.epochs", "2", "--code.n_sites", "2"]  # the example's own take minutes
    for words in commands:
        assert main([*words[1:], *few]) == 0, said(capsys)[1]
    with open("answers.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == ["a.png", "b.png", "c.png", "d.png"]
    assert len(rows[0]) == 1 + 2 * 3


def test_no_number_of_threads_is_changed() -> None:
    before = torch.get_num_threads()
    assert main(["fit", "--config", settings_file(training={"epochs": 1, "joint": True})]) == 0
    assert torch.get_num_threads() == before
