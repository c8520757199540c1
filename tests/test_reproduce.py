"""The runner on a tiny experiment, the config files, and each experiment at a tiny size."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from labelmapping import HashedMapping, LearnedMapping, MixedMapping, SimplexMapping
from labelmapping.cli import main
from labelmapping.datasets.cifar100 import load_cifar100
from labelmapping.datasets.fonts import installed_faces
from labelmapping.decoding.partition import log_partition
from labelmapping.errors import ArgumentError, RunMismatchError
from labelmapping.experiments import cjk, rows, runner
from labelmapping.experiments.plots import save_curves
from labelmapping.experiments.results import results_table, training_words
from labelmapping.experiments.rows import Experiment, Figure, Profile, Row, Task, load_experiment
from labelmapping.experiments.scores import Scores
from labelmapping.learners import Ensemble, LearnerRecipe, LearningData, RunFolder, refit, train
from labelmapping.mappings import LabelMapping
from labelmapping.nn import InceptionV3

from .conftest import make_task

EXPERIMENTS = ("cifar100", "cjk", "republic")
N = 30


def config(experiment: str, row: str) -> Any:
    name = f"labelmapping.experiments.configs.{experiment}.{row.replace('-', '_')}"
    return importlib.import_module(name)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_config_files_say_what_they_are(name: str) -> None:
    experiment = load_experiment(name)
    folder = Path(str(config(name, experiment.table[0]).__file__)).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == {row.replace("-", "_") for row in experiment.table}
    assert set(experiment.profiles) == {"quick", "cpu", "paper"}
    assert set(experiment.profiles["paper"].rows) == set(experiment.table)
    for figure in experiment.figures:
        assert set(figure.rows) <= set(experiment.table)
    for row_name in experiment.table:
        module, row = config(name, row_name), experiment.row(row_name)
        first, *lines = str(module.__doc__).strip().splitlines()
        assert first.startswith(("Table", "Figure", "Ours: "))
        assert experiment.summary(row_name) == first
        assert row.name == row_name
        command = f"Command: labelmapping reproduce {name} --rows {row_name} --profile cpu"
        assert command + (" --data-dir DIR" if name != "cjk" else "") in lines
        assert any(line.startswith("Time on 2 CPU cores: quick ") for line in lines)
        (value,) = (line for line in lines if line.startswith("The paper's value: "))
        if row.paper:
            numbers = [float(word) for word in value.split(" after ")[0].split(": ")[1].split()]
            assert numbers == list(row.paper.values())
            assert value.endswith(f"after {', '.join(map(str, row.paper))} epochs")
        assert bool(row.paper) == (not first.startswith("Ours") and name != "cifar100")


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("profile_name", ["quick", "cpu", "paper"])
def test_rows_of_a_run_share_its_recipe(name: str, profile_name: str) -> None:
    experiment = load_experiment(name)
    profile = experiment.profiles[profile_name]
    recipes: dict[str, LearnerRecipe] = {}
    for row in map(experiment.row, experiment.table):
        recipe = row.recipe(profile)
        assert recipe == recipes.setdefault(row.run, recipe)
        assert recipe.epochs == profile.epochs
        assert recipe.keep_epochs == profile.measured
        assert len(row.learners(recipe)) == (
            1 if recipe.joint else row.n_sites or len(recipe.learners())
        )


def paper_code(experiment: str, row: str) -> LabelMapping:
    found = load_experiment(experiment)
    return found.row(row).recipe(found.profiles["paper"]).mapping


def test_codes_of_the_paper() -> None:
    """A row's sites are the first of its run: these must be the paper's code of that length."""
    for name, n_classes, p, primes, first in (
        ("cifar100", 100, 11, (11, 13, 17, 19, 23), 3),
        ("cjk", 20901, 181, (149, 151, 157, 163, 167, 173, 179), 2),
    ):
        ids = np.arange(n_classes)
        for n in range(first, 7):
            assert load_experiment(name).row(f"simplex-{n}").n_sites == n
            words = paper_code(name, f"simplex-{n}").encode(ids)
            formula = [(ids % p + ids // p * i) % p for i in range(1, n + 1)]
            assert (words[:, :n] == np.stack(formula, axis=1)).all()
        for n in range(2, len(primes) + 1):
            assert load_experiment(name).row(f"mixed-{n}").n_sites == n
            words = paper_code(name, f"mixed-{n}").encode(ids)
            assert (words[:, :n] == ids[:, None] % np.array(primes[:n])).all()
    for name, row, n_sites in (
        ("cifar100", "one-hot-3", 6),
        ("cifar100", "one-hot-6", 6),
        ("republic", "one-hot-4", 4),
    ):
        code = paper_code(name, row)
        ids = np.arange(code.n_classes)
        assert (code.encode(ids) == np.repeat(ids[:, None], n_sites, axis=1)).all()
        assert code.dimension == 1
    assert paper_code("cifar100", "ecoc-7").n_sites == 7
    bch = paper_code("cifar100", "ecoc-bch-15")
    assert (bch.n_sites, set(bch.alphabet_sizes)) == (15, {2})
    words = bch.encode(np.arange(100))
    distances = (words[:, None] != words).sum(axis=2)
    assert distances[~np.eye(100, dtype=bool)].min() == 5
    ids = np.arange(20901)
    bits = paper_code("cjk", "ecoc-15").encode(ids)
    assert bits.shape == (20901, 15)
    assert sorted(map(tuple, bits.T.tolist())) == sorted(
        map(tuple, ((ids[:, None] >> np.arange(15)) & 1).T.tolist())
    )


@pytest.mark.parametrize(
    ("experiment", "row", "total"),
    [
        ("cifar100", "simplex-3", 480_321),
        ("cifar100", "mixed-3", 481_353),
        ("cifar100", "ecoc-7", 1_112_622),
        ("cifar100", "ecoc-bch-15", 15 * (158_688 + 129 * 2)),
        ("cifar100", "one-hot", 158_688 + 12_900),
        # The paper's counts are 17,216 a network larger: Keras counts moving statistics.
        ("cjk", "one-hot", 21_784_992 + 2049 * 20_901),
        ("cjk", "simplex-2", 2 * (21_784_992 + 2049 * 181)),
        ("cjk", "ecoc-15", 15 * (21_784_992 + 2049 * 2)),
        # Embedding and last layer are one, 100 wide.
        (
            "republic",
            "tied-mixed-6",
            244_024,
        ),
    ],
)
def test_parameters_of_rows(experiment: str, row: str, total: int) -> None:
    pytest.importorskip("torchvision", reason="Inception V3 is torchvision's")
    found = load_experiment(experiment)
    chosen = found.row(row)
    recipe = chosen.recipe(found.profiles["paper"])
    counts = torch.ones(recipe.mapping.n_classes)
    n = 0
    for learner in chosen.learners(recipe):
        with torch.device("meta" if experiment == "cjk" else "cpu"):
            network = recipe.build(learner, counts)
        n += sum(p.numel() for p in network.parameters() if p.requires_grad)
    assert n == total


def test_inception() -> None:
    pytest.importorskip("torchvision", reason="Inception V3 is torchvision's")
    with torch.device("meta"):
        trunk = InceptionV3()
        features = trunk(torch.empty(2, 139, 139, dtype=torch.uint8))
    assert features.shape == (2, trunk.out_features) == (2, 2048)
    norms = [m for m in trunk.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    channels = sum(norm.num_features for norm in norms)
    # No scale, and the moving statistics counted: the paper's number, to the unit.
    assert sum(p.numel() for p in trunk.parameters()) - channels + 2 * channels == 21_802_208
    for shape in ((2, 74, 139), (2, 1, 139, 139)):
        with pytest.raises(ArgumentError, match=r"images must have shape \(B, side, side\)"):
            trunk(torch.empty(shape, dtype=torch.uint8, device="meta"))


@pytest.mark.slow
def test_inception_trains_and_is_read_back(tmp_path: Path) -> None:
    """The paper profile's recipe on four characters; a run folder may name its trunk."""
    pytest.importorskip("torchvision", reason="Inception V3 is torchvision's")
    profile = cjk.EXPERIMENT.profiles["paper"].changed(1, 1)
    recipe = load_experiment("cjk").row("simplex-2").recipe(profile)
    recipe = replace(recipe, mapping=SimplexMapping(4, 2, field_order=2), keep_epochs=())
    images = torch.randint(0, 256, (4, 139, 139), dtype=torch.uint8)
    ids = torch.arange(4)
    data = LearningData(images, ids, images, ids, list("一丁丂七"))
    run = train(recipe, data, tmp_path, learners=[0], accelerator="cpu")
    assert run.report(0).parameters == 21_784_992 + 2049 * 2
    (answers,) = Ensemble.load(tmp_path, learners=[0]).site_log_probs(images)
    assert answers.shape == (4, 2)
    assert np.isfinite(answers).all()


def test_a_tied_layer_is_one_tensor() -> None:
    profile = load_experiment("republic").profiles["cpu"]
    recipe = load_experiment("republic").row("tied-mixed-6").recipe(profile)
    assert LearnerRecipe.from_config(recipe.to_config()) == recipe
    network = recipe.build("all", torch.ones(7409))
    head, trunk = network.head, network.trunk
    assert trunk.embedding.weight is head.output.weight  # type: ignore[union-attr]
    # Recipes of earlier versions have no such field, and are those of runs that are not tied.
    untied = replace(recipe, tied=False)
    assert "tied" not in untied.to_config()
    apart = untied.build("all", torch.ones(7409))
    assert apart.trunk.embedding.weight is not apart.head.output.weight  # type: ignore[union-attr]
    with pytest.raises(ArgumentError, match=r"tied must be False .* got SmallCnn and"):
        replace(recipe, trunk="labelmapping.nn:SmallCnn", trunk_options={}).build(
            "all", torch.ones(7409)
        )
    with pytest.raises(ArgumentError, match="embedding_dim must be the width"):
        replace(
            recipe, trunk_options={"input_mapping": recipe.trunk_options["input_mapping"]}
        ).build("all", torch.ones(7409))


# --- the runner, on a task that trains in seconds

MIXED = MixedMapping(N, (5, 6, 7, 11))


def network(mapping: LabelMapping, **changes: Any) -> Callable[[Profile], LearnerRecipe]:
    def recipe(profile: Profile) -> LearnerRecipe:
        return LearnerRecipe(
            mapping=mapping,
            trunk="labelmapping.nn:SmallCnn",
            trunk_options={"side": 8, "widths": [8], "out_features": 16},
            epochs=profile.epochs,
            steps_per_epoch=profile.steps,
            batch_size=32,
            learning_rate=profile.learning_rate,
            precision=profile.precision,
            keep_epochs=profile.measured,
            **changes,
        )

    return recipe


def fit_code(recipe: LearnerRecipe, task: Task, seed: int) -> LearnerRecipe:
    means = torch.stack(
        [
            task.data.train_inputs[task.data.train_ids == i].float().mean(0).flatten()
            for i in range(N)
        ]
    )
    mapping = LearnedMapping.fit(means.numpy(), 3, alphabet_size=8, seed=seed)
    return replace(recipe, mapping=mapping)


TINY = {
    "one-hot": Row(
        name="one-hot", title="one-hot", run="one-hot", paper={2: 0.5},
        recipe=network(MixedMapping.one_hot(N)),
    ),
    "mixed-2": Row(
        name="mixed-2", title="mixed 2", run="mixed", n_sites=2, paper={1: 0.25, 2: 0.75},
        recipe=network(MIXED),
    ),
    "mixed-4": Row(
        name="mixed-4", title="mixed 4", run="mixed", n_sites=4, recipe=network(MIXED),
    ),
    "learned": Row(
        name="learned", title="learned", run="learned",
        recipe=network(HashedMapping(N, 3, 8), joint=True), fit=fit_code, refit=True,
    ),
    "fitted": Row(
        name="fitted", title="fitted", run="fitted", recipe=network(HashedMapping(N, 3, 8)),
        fit=fit_code,
    ),
}  # fmt: skip


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setattr(
        rows, "_config", lambda _, name: SimpleNamespace(ROW=TINY[name], __doc__=f"{name}.\nMore")
    )
    data = make_task(N)
    profile = Profile(
        epochs=2,
        report=(2,),
        keep=(1,),
        rows=("one-hot", "mixed-2"),
        steps=6,
        learning_rate=1e-2,
    )
    return Experiment(
        name="tiny",
        title="Tiny",
        table=tuple(TINY),
        profiles={"quick": profile},
        load=lambda profile, data_dir, progress=None: Task(data, {"split": "none"}, "test"),
        figures=(Figure("all", "All rows", tuple(TINY)), Figure("few", "Few", ("mixed-4",))),
        paper="of another network",
        perplexity=True,
        train_rows=50,
    )


def without_seconds(results: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(json.dumps(results))
    for row in kept["rows"]:
        for entry in (row, *row["seeds"]):
            del entry["seconds"]
    return kept


def files(folder: Path) -> dict[str, int]:
    """Every file but the tables and pictures, with the time of its last change."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and path.parent != folder and path.name != ".lock"
    }


def test_a_run_its_files_and_what_a_second_start_does(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "run"
    results = runner.reproduce(tiny, place, seeds=(0, 1), accelerator="cpu")
    assert {p.name for p in place.iterdir()} == {
        "results.json", "results.csv", "results.md", "all.png", "all.svg", "measured",
        "one-hot-seed0", "one-hot-seed1", "mixed-seed0", "mixed-seed1",
    }  # fmt: skip
    assert json.loads((place / "results.json").read_text("utf-8")) == results
    one_hot, mixed = results["rows"]
    assert [row["name"] for row in results["rows"]] == ["one-hot", "mixed-2"]
    assert mixed["paper"] == {"1": 0.25, "2": 0.75}
    assert [entry["seed"] for entry in mixed["seeds"]] == [0, 1]
    for row in results["rows"]:
        assert list(row["by_epoch"]) == ["1", "2"]
        values = [entry["by_epoch"]["2"]["held_out_accuracy"] for entry in row["seeds"]]
        assert row["by_epoch"]["2"]["held_out_accuracy"] == {
            "mean": pytest.approx(np.mean(values)), "min": min(values), "max": max(values),
        }  # fmt: skip
        assert "train_accuracy" in row["by_epoch"]["2"]
        assert "train_accuracy" not in row["by_epoch"]["1"]  # on the curve only
    assert one_hot["by_epoch"]["2"]["held_out_accuracy"]["mean"] > 2 / N
    assert one_hot["by_epoch"]["2"]["perplexity"]["mean"] < N
    # Fitted on an eighth of few rows, the temperature may cost the others a little.
    calibrated = one_hot["by_epoch"]["2"]["calibrated_perplexity"]["mean"]
    assert calibrated < 1.1 * one_hot["by_epoch"]["2"]["perplexity"]["mean"]
    assert len(mixed["seeds"][0]["by_epoch"]["2"]["held_out_site_accuracies"]) == 2

    header, lines = results_table(results)
    assert header == [
        "row", "parameters", "seconds", "seeds", "train @2", "test @2", "paper @2",
        "test top-10 @2", "perplexity @2", "calibrated perplexity @2",
    ]  # fmt: skip
    assert [line[6] for line in lines] == ["0.5000", "0.7500"]
    figure = mixed["by_epoch"]["2"]["held_out_accuracy"]
    shown = f"{figure['mean']:.4f}"
    if figure["min"] != figure["max"]:
        shown += f" ({figure['min']:.4f} - {figure['max']:.4f})"
    assert lines[1][5] == shown
    # The CSV is of plain numbers: a line a row, epoch and figure.
    with (place / "results.csv").open(encoding="utf-8") as file:
        numbers = list(csv.DictReader(file))
    for row in results["rows"]:
        for epoch, figures in row["by_epoch"].items():
            of_epoch = [n for n in numbers if (n["name"], n["epoch"]) == (row["name"], epoch)]
            assert {
                n["figure"]: {key: float(n[key]) for key in ("mean", "min", "max")}
                for n in of_epoch
            } == figures
            assert {n["parameters"] for n in of_epoch} == {str(row["parameters"])}
            assert {n["held out"] for n in of_epoch} == {"test"}
            papers = {n["figure"]: n["paper"] for n in of_epoch if n["paper"]}
            known = row["paper"].get(epoch)
            assert papers == ({} if known is None else {"held_out_accuracy": str(known)})
    told = (place / "results.md").read_text("utf-8")
    assert "- split: none" in told
    assert "- the paper's figures: of another network" in told

    # A second start trains and measures nothing.
    before = files(place)
    monkeypatch.setattr(Ensemble, "load", lambda *_, **__: pytest.fail("measured again"))
    assert runner.reproduce(tiny, place, seeds=(0, 1), accelerator="cpu") == results
    assert files(place) == before
    monkeypatch.undo()
    # More sites of a run: what is there stays, and so does every row in the table.
    monkeypatch.setattr(rows, "_config", lambda _, name: SimpleNamespace(ROW=TINY[name]))
    more = runner.reproduce(tiny, place, rows=["mixed-4", "mixed-2"], accelerator="cpu")
    after = files(place)
    ours = {k: v for k, v in before.items() if "run.json" not in k}
    assert {k: after[k] for k in ours} == ours
    assert sum("weights.safetensors" in name for name in set(after) - set(before)) == 2
    assert [row["name"] for row in more["rows"]] == ["one-hot", "mixed-2", "mixed-4"]
    assert more["rows"][:2] == results["rows"]
    assert [len(row["seeds"]) for row in more["rows"]] == [2, 2, 1]
    assert more["seeds"] == "0, 1"
    assert (place / "few.svg").exists()
    # But not what other weights came to.
    (place / "one-hot-seed1" / "run.json").unlink()
    again = runner.reproduce(tiny, place, rows=["mixed-2"], accelerator="cpu")
    assert [len(row["seeds"]) for row in again["rows"]] == [1, 2, 1]
    (place / "measured" / "mixed-4-seed0.json").write_text("{}", encoding="utf-8")
    again = runner.reproduce(tiny, place, rows=["mixed-2"], accelerator="cpu")
    assert [row["name"] for row in again["rows"]] == ["one-hot", "mixed-2"]
    with pytest.raises(RunMismatchError, match=r"mixed-4-seed0.json cannot be read.*remove it"):
        runner.reproduce(tiny, place, rows=["mixed-4"], accelerator="cpu")


def test_every_machine_that_measured_is_named(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, row in (("fast", "one-hot"), ("slow", "mixed-2"), ("other", "mixed-2")):
        monkeypatch.setattr(runner, "machine", lambda _, name=name: name)
        results = runner.reproduce(tiny, tmp_path, rows=[row], accelerator="cpu")
    assert results["machine"] == "fast | slow"


def test_rows_measured_together_are_as_measured_alone(tiny: Experiment, tmp_path: Path) -> None:
    together = runner.reproduce(
        tiny, tmp_path / "a", rows=["mixed-4", "mixed-2"], accelerator="cpu"
    )
    alone = [
        runner.reproduce(tiny, tmp_path / name, rows=[name], accelerator="cpu")
        for name in ("mixed-2", "mixed-4")
    ]
    rows_alone = [without_seconds(results)["rows"][0] for results in alone]
    assert without_seconds(together)["rows"] == rows_alone
    # What rests on other rows is measured anew.
    fewer = replace(tiny, train_rows=3)
    again = runner.reproduce(fewer, tmp_path / "a", rows=["mixed-4"], accelerator="cpu")
    share = again["rows"][0]["by_epoch"]["2"]["train_accuracy"]["mean"]
    assert round(3 * share, 6) in (0, 1, 2, 3)
    assert again["train rows scored"] == 3


def test_an_interrupted_run_ends_in_the_same_table(tiny: Experiment, tmp_path: Path) -> None:
    names = ["one-hot", "mixed-2", "learned"]
    whole = runner.reproduce(tiny, tmp_path / "whole", rows=names, accelerator="cpu")

    def stop(row: str, seed: int, learner: Any) -> Any:
        if (row, learner) in stops:
            raise KeyboardInterrupt
        return []

    stops: set[Any] = {("mixed-2", 0), ("learned", "all")}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            runner.reproduce(
                tiny, tmp_path / "stopped", rows=names, accelerator="cpu", callbacks=stop
            )
        stops.discard(("mixed-2", 0))
    assert [
        row["name"] for row in json.loads((tmp_path / "stopped/results.json").read_text())["rows"]
    ] == ["one-hot", "mixed-2"]
    again = runner.reproduce(tiny, tmp_path / "stopped", rows=names, accelerator="cpu")
    assert without_seconds(again) == without_seconds(whole)


def test_a_fitted_code_is_fitted_once(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn", reason="codes are fitted with scikit-learn")
    names = ["fitted", "learned"]
    results = runner.reproduce(tiny, tmp_path, rows=names, accelerator="cpu")
    assert [row["name"] for row in results["rows"]] == ["learned", "fitted"]
    learned, fitted = results["rows"]
    for run in ("fitted-seed0", "learned-seed0/first", "learned-seed0/second"):
        assert isinstance(RunFolder.load(tmp_path / run).recipe.mapping, LearnedMapping)
    # Epoch 1 is the first phase's, epoch 2 the second's; seconds are both phases'.
    phases = [RunFolder.load(tmp_path / "learned-seed0" / p) for p in ("first", "second")]
    assert [phase.recipe.epochs for phase in phases] == [1, 1]
    assert list(learned["by_epoch"]) == ["1", "2"]
    seconds = sum(phase.report("all").seconds for phase in phases)
    assert learned["seconds"] == pytest.approx(seconds, abs=0.06)
    assert fitted["parameters"] == sum(
        RunFolder.load(tmp_path / "fitted-seed0").report(site).parameters for site in range(3)
    )

    def no_fit(*_: Any) -> Any:
        raise AssertionError("fitted again")

    for name in names:
        monkeypatch.setitem(TINY, name, replace(TINY[name], fit=no_fit))
    monkeypatch.setattr(refit, "feature_statistics", no_fit)
    assert runner.reproduce(tiny, tmp_path, rows=names, accelerator="cpu") == results
    with pytest.raises(RunMismatchError, match="steps_per_epoch is 6 there, 5 now"):
        runner.reproduce(tiny, tmp_path, rows=["learned"], steps=5)
    # A longer second phase is found before anything is trained.
    with pytest.raises(RunMismatchError, match=r"second.*epochs is 1 there, 2 now"):
        runner.reproduce(tiny, tmp_path, rows=["mixed-2", "learned"], epochs=3)
    assert not (tmp_path / "mixed-seed0").exists()
    with pytest.raises(ArgumentError, match="epochs must be at least 2 for learned, got 1"):
        runner.reproduce(tiny, tmp_path, rows=["mixed-2", "learned"], epochs=1)


def test_a_folder_of_other_settings_is_refused_before_training(
    tiny: Experiment, tmp_path: Path
) -> None:
    runner.reproduce(tiny, tmp_path, rows=["mixed-2"], accelerator="cpu")
    before = files(tmp_path)
    with pytest.raises(RunMismatchError, match="steps_per_epoch is 6 there, 7 now"):
        runner.reproduce(tiny, tmp_path, rows=["one-hot", "mixed-2"], steps=7)
    # A folder has one setting, also for rows that are not asked for.
    with pytest.raises(RunMismatchError, match="steps_per_epoch is 6 there, 7 now"):
        runner.reproduce(tiny, tmp_path, rows=["one-hot"], steps=7)
    assert files(tmp_path) == before
    weights = tmp_path / "mixed-seed0" / "site-01" / "weights-0001.safetensors"
    weights.unlink()
    with pytest.raises(RunMismatchError, match=r"epochs kept: \[1, 2\]; put a copy of it back"):
        runner.reproduce(tiny, tmp_path, rows=["mixed-2"])
    # What is measured and damaged is named as well.
    measured = tmp_path / "measured" / "mixed-2-seed0.json"
    content = json.loads(measured.read_text("utf-8"))
    del content["entry"]["by_epoch"]
    measured.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RunMismatchError, match=r"mixed-2-seed0.json cannot be read: its entry"):
        runner._read(measured)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "fast"}, "profile must be one of quick; got 'fast'"),
        ({"rows": ["one-hot", "ecoc"]}, "rows must be one of one-hot, .*got 'ecoc'"),
        ({"rows": []}, "rows must name at least one row"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite in float32, got 0.0"),
        ({"precision": "half"}, "precision must be one of 32-true, .*got 'half'"),
        (
            {"precision": "16-mixed", "accelerator": "cpu"},
            'without a GPU; got "16-mixed" with the accelerator "cpu"',
        ),
        ({"accelerator": "tpux"}, "accelerator must be one of auto, gpu, cpu, .*got 'tpux'"),
        ({"accelerator": "tpu"}, "accelerator must be auto or one that .* has, cpu.*got 'tpu'"),
        ({"seeds": (0, -1)}, r"seeds\[1\] must be at least 0, got -1"),
        ({"seeds": ()}, "seeds must not be empty"),
    ],
)
def test_what_is_refused(
    tiny: Experiment, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        runner.reproduce(tiny, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_changed_profile_reports_what_is_left() -> None:
    profile = Profile(epochs=10, report=(2, 4, 10), keep=(1, 3, 5), rows=())
    shorter = profile.changed(4, None)
    assert (shorter.epochs, shorter.report, shorter.measured) == (4, (2, 4), (1, 2, 3, 4))
    assert profile.changed(3, 7).measured == (1, 2, 3)
    assert profile.changed(3, 7).steps == 7
    assert profile.changed() == profile
    other = profile.changed(learning_rate=0.02, precision="bf16-mixed")
    assert (other.learning_rate, other.precision) == (0.02, "bf16-mixed")
    assert other.report == profile.report


@pytest.mark.parametrize("name", ["cifar100", "cjk", "republic"])
def test_every_row_takes_the_rate_and_the_precision(name: str) -> None:
    experiment = load_experiment(name)
    profile = experiment.profiles["cpu"].changed(learning_rate=0.02, precision="bf16-mixed")
    for row in experiment.table:
        recipe = experiment.row(row).recipe(profile)
        assert (recipe.learning_rate, recipe.precision) == (0.02, "bf16-mixed"), row
    words = training_words(recipe, profile)
    assert "0.02" in words
    assert words.endswith(", bf16-mixed")


def test_scores_are_those_of_the_decoder_and_of_all_classes() -> None:
    random = np.random.default_rng(0)
    mapping = SimplexMapping(N, 4, field_order=7)
    ids = random.integers(0, N, 200)
    log_probs = [np.log(random.dirichlet(np.ones(7), 200)).astype(np.float32) for _ in range(4)]
    scores = Scores(mapping, {"two": 2, "four": 4}, perplexity=True)
    for rows_of in (slice(0, 150), slice(150, 200)):
        scores.add([site[rows_of] for site in log_probs], ids[rows_of])
    words = mapping.encode(np.arange(N))
    for name, n in (("two", 2), ("four", 4)):
        every = np.sum([log_probs[i].astype(np.float64)[:, words[:, i]] for i in range(n)], 0)
        rank = (every > every[np.arange(200), ids][:, None]).sum(axis=1)
        assert scores.accuracy(name, 1) == pytest.approx((rank < 1).mean())
        assert scores.accuracy(name, 10) == pytest.approx((rank < 10).mean())
        normal = every - np.logaddexp.reduce(every, axis=1)[:, None]
        expected = np.exp(-normal[np.arange(200), ids].mean())
        assert scores.perplexity(name) == pytest.approx(expected)
        # These answers say nothing, so the best temperature is a high one.
        temperature, calibrated = scores.calibrated(name)
        assert temperature > 5
        warm = every / temperature
        warm -= np.logaddexp.reduce(warm, axis=1)[:, None]
        others = np.arange(200) % 8 > 0
        expected = np.exp(-warm[np.arange(200), ids][others].mean())
        assert calibrated == pytest.approx(expected, rel=1e-5)
        assert (log_partition(mapping, log_probs[:n], sites=range(n)).upper < 0).any()
        hits = [(log_probs[i].argmax(1) == words[ids, i]).mean() for i in range(n)]
        assert scores.site_accuracies(name) == pytest.approx(hits)


def test_curves_with_ranges_and_the_papers_points(tmp_path: Path) -> None:
    def drawn(name: str) -> bytes:
        save_curves(
            tmp_path / name,
            "t",
            "epoch",
            {"a": {1: 0.1, 2: 0.4}, "b": {1: 0.2}},
            ranges={"a": {1: (0.05, 0.2), 2: (0.3, 0.5)}},
            published={"a": {2: 0.45}},
        )
        return (tmp_path / name).read_bytes()

    picture = drawn("c.svg")
    assert picture.startswith(b"<?xml")
    assert picture == drawn("c.svg")
    assert b"dashed: the paper" in picture
    assert drawn("c.png").startswith(b"\x89PNG")


# --- the command


def test_list_names_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert last.startswith("convex: section 3")
    expected = [
        f"{name} {row}: {load_experiment(name).summary(row)}"
        for name in EXPERIMENTS
        for row in load_experiment(name).table
    ]
    assert lines == expected
    assert main(["reproduce", "cjk", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [e for e in expected if e.startswith("cjk ")]
    assert main(["reproduce", "convex", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [last]


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first images of CIFAR-100's classes alone: most of the time goes into measuring."""

    def loaded(data_dir: Path | None) -> Any:
        whole = load_cifar100(data_dir)
        return replace(
            whole,
            train_images=whole.train_images[::100],
            train_ids=whole.train_ids[::100],
            test_images=whole.test_images[::50],
            test_ids=whole.test_ids[::50],
        )

    monkeypatch.setattr("labelmapping.experiments.cifar100.load_cifar100", loaded)


@pytest.mark.slow
@pytest.mark.usefixtures("few_images")
def test_cifar100_quick(data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (data_dir / "cifar100").is_dir():
        pytest.skip("the data folder has no sheets of CIFAR-100")
    words = ["reproduce", "cifar100", "--data-dir", str(data_dir), "--run-dir", str(tmp_path)]
    assert main([*words, "--steps", "3", "--epochs", "1", "--accelerator", "cpu"]) == 0
    said = capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [row["name"] for row in results["rows"]] == ["one-hot", "simplex-3"]
    assert [row["parameters"] for row in results["rows"]] == [171_588, 480_321]
    # Every table says whose split it is.
    for text in (said, *((tmp_path / f"results.{e}").read_text("utf-8") for e in ("csv", "md"))):
        assert "not the official" in " ".join(text.split())
    assert (tmp_path / "figure-5.svg").exists()
    assert (tmp_path / "figure-7.png").exists()


@pytest.mark.slow
def test_cjk_quick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if len(installed_faces()) < 2:
        pytest.skip("fewer than two known CJK faces are installed (scripts/install_fonts.sh)")
    words = ["reproduce", "cjk", "--run-dir", str(tmp_path), "--accelerator", "cpu"]
    short = ["--steps", "5", "--epochs", "2"]
    names = ["--rows", "one-hot", "simplex-2", "learned-4", "two-level-softmax"]
    pytest.importorskip("sklearn", reason="codes are fitted with scikit-learn")
    assert main([*words, *short, *names]) == 0
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [row["name"] for row in results["rows"]] == [
        "simplex-2", "one-hot", "learned-4", "two-level-softmax",
    ]  # fmt: skip
    assert results["held-out face"] in results["held_out"]
    assert "held-out face: " + results["held-out face"] in capsys.readouterr().err
    assert results["report"] == [2]


@pytest.mark.slow
@pytest.mark.profiles
@pytest.mark.parametrize("name", ["cifar100", "cjk", "republic"])
def test_the_quick_profile_learns(name: str, tmp_path: Path, data_dir: Path) -> None:
    """Whole, as a person starts it: every row of it has learnt something that others see too."""
    data = [] if name == "cjk" else ["--data-dir", str(data_dir)]
    words = ["reproduce", name, *data, "--run-dir", str(tmp_path), "--accelerator", "cpu"]
    assert main(words) == 0
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    profile = load_experiment(name).profiles["quick"]
    assert {row["name"] for row in results["rows"]} == set(profile.rows)
    # Republic's most frequent word is 5.9 % of the training and 6.6 % of the held-out ones.
    chance = {"cifar100": 0.01, "cjk": 1 / 3755, "republic": 0.059}[name]
    for row in results["rows"]:
        last = row["by_epoch"][str(profile.epochs)]
        for part in ("train_accuracy", "held_out_accuracy"):
            assert last[part]["mean"] > 1.3 * chance, (row["name"], part)


def test_profiles_of_cjk() -> None:
    """The CPU's network on all classes, and the paper's."""
    cpu, paper = cjk.EXPERIMENT.profiles["cpu"], cjk.EXPERIMENT.profiles["paper"]
    one_hot = load_experiment("cjk").row("one-hot")
    for profile in (cpu, paper):
        recipe = one_hot.recipe(profile)
        assert recipe.mapping.n_classes == 20_901
        assert (recipe.batch_size, recipe.steps_per_epoch, recipe.epochs) == (128, 100, 80)
        assert recipe.keep_epochs == (20, 40, 60, 80)
    assert one_hot.recipe(paper).trunk == "labelmapping.nn:InceptionV3"
    assert paper.options["side"] == 139
    simplex = load_experiment("cjk").row("simplex-3")
    assert simplex.recipe(cpu).head_options == {"hidden": 1024}
    assert simplex.recipe(paper).head_options == {}
