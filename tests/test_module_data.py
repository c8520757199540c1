"""Learners on rows that a LightningDataModule reads: the same after a stop, and what is refused."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, random_split

from labelmapping import MixedMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.learners import (
    Ensemble,
    LearnerRecipe,
    LearningData,
    ModuleData,
    ProcessExecutor,
    RunFolder,
    feature_statistics,
    train,
)
from labelmapping.learners.data import EpochBatches
from labelmapping.learners.executors import LearnerTask
from labelmapping.learners.loaders import TrainingBatches, WatchedBatches, checked
from labelmapping.learners.ray_executor import _perform

from .conftest import make_task
from .test_learners import StopAfter, recipe, weights

HERE = __name__
# Loaders start their workers as they always do, by forking where that is the default.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


class Pictures(pl.LightningDataModule):
    """The small task as a user would write it; counts how often it is set up."""

    setups = 0

    def __init__(self, batch_size: int = 32, num_workers: int = 0, noisy: bool = False) -> None:
        super().__init__()
        self.batch_size, self.num_workers, self.noisy = batch_size, num_workers, noisy

    def setup(self, stage: str) -> None:
        assert stage == "fit"
        type(self).setups += 1
        self.task = make_task()
        self.labels = self.task.labels

    def loader(self, inputs: Tensor, ids: Tensor, **options: Any) -> DataLoader[Any]:
        rows: Dataset[Any] = TensorDataset(inputs, ids)
        if self.noisy:
            rows = Noisy(rows)
        options = {"batch_size": self.batch_size, "num_workers": self.num_workers} | options
        return DataLoader(rows, **options)

    def train_dataloader(self) -> Any:
        return self.loader(self.task.train_inputs, self.task.train_ids, shuffle=True)

    def val_dataloader(self) -> Any:
        return self.loader(self.task.held_out_inputs, self.task.held_out_ids, num_workers=0)


class Noisy(Dataset[Any]):
    """Rows with noise from all three global generators, as augmentations draw it."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Any:
        picture, label = self.rows[row]
        drawn = [int(torch.randint(9, ())), random.randrange(9), int(np.random.randint(9))]  # noqa: NPY002
        return picture // 2 + sum(drawn), label


class Numbered(Pictures):
    """Batches by `EpochBatches`, with worker processes that go on from epoch to epoch."""

    def train_dataloader(self) -> Any:
        sampler = EpochBatches(len(self.task.train_ids), self.batch_size, None, 7)
        return DataLoader(
            self.task_rows(),
            sampler=sampler,
            batch_size=None,
            num_workers=2,
            persistent_workers=True,
            generator=torch.Generator(),
        )

    def task_rows(self) -> Any:
        return WholeBatches(self.task)


class WholeBatches(Dataset[Any]):
    def __init__(self, task: LearningData) -> None:
        self.task = task

    def __getitem__(self, rows: Tensor) -> Any:
        return self.task.train_inputs[rows], self.task.train_ids[rows]


def test_a_module_trains_by_class_or_path_and_its_labels_come_back(tmp_path: Path) -> None:
    data = ModuleData(Pictures)
    train(recipe(), data, tmp_path / "class", seed=1)
    ensemble = Ensemble.load(tmp_path / "class")
    task = make_task()
    assert ensemble.labels == list(task.labels) == list(data.labels)
    found = ensemble.topk(task.held_out_inputs, 1).ids[:, 0]
    assert (found == task.held_out_ids.numpy()).mean() > 0.9
    assert RunFolder.load(tmp_path / "class").report(0).steps == 6 * 12
    by_path = ModuleData(f"{HERE}:Pictures", {})
    assert by_path.fingerprint() == data.fingerprint()
    train(recipe(), by_path, tmp_path / "class", seed=1)  # the same run
    other = ModuleData(Pictures, {"batch_size": 8})
    assert other.fingerprint() != data.fingerprint()
    assert ModuleData(Pictures, fingerprint="of rows").fingerprint() == "of rows"
    assert repr(other) == f"ModuleData({Pictures!r}, {{'batch_size': 8}})"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "options", "step"),
    [
        (Pictures, {}, 24),
        (Pictures, {"noisy": True}, 30),
        (Pictures, {"num_workers": 2, "noisy": True}, 30),
        (Numbered, {}, 30),
    ],
    ids=["whole epoch", "in the process", "by workers", "numbered batches"],
)
def test_a_stopped_training_sees_the_rows_of_an_unbroken_one(
    module: type, options: dict[str, Any], step: int, tmp_path: Path
) -> None:
    settings = recipe(epochs=4, keep_epochs=(), head_options={"hidden": 16, "dropout": 0.3})

    def trained(folder: str, **changes: Any) -> dict[str, str]:
        data = ModuleData(module, options)
        train(settings, data, tmp_path / folder, learners=[0], **changes)
        return weights(tmp_path / folder)

    whole = trained("whole")
    with pytest.raises(RuntimeError, match="stopped by the test"):
        trained("stopped", callbacks=lambda _: [StopAfter(step)])
    torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002 - another process has another state
    assert trained("stopped") == whole


def test_training_leaves_all_global_random_states_alone(tmp_path: Path) -> None:
    def draws() -> tuple[float, float, float]:
        return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002

    def seeded() -> None:
        torch.manual_seed(5), random.seed(5), np.random.seed(5)  # noqa: NPY002

    seeded()
    expected = draws()
    seeded()
    settings = recipe(epochs=1, keep_epochs=())
    train(settings, ModuleData(Pictures, {"noisy": True}), tmp_path / "run", learners=[0])
    with pytest.raises(ArgumentError):
        train(settings, ModuleData(f"{HERE}:BadId", {"bad": -1}), tmp_path / "bad", learners=[0])
    assert draws() == expected


class Drawing(Pictures):
    """Draws its split, and the order of an oversampled epoch, from the global generator."""

    def setup(self, stage: str) -> None:
        super().setup(stage)
        rows = TensorDataset(self.task.train_inputs, self.task.train_ids)
        self.part, _ = random_split(rows, [0.8, 0.2])

    def train_dataloader(self) -> Any:
        return DataLoader(self.part, batch_size=32, shuffle=True)


def test_splits_and_counts_are_the_same_in_every_process() -> None:
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        data = ModuleData(Drawing)
        found.append(data.class_counts())
        following = torch.rand(())
        torch.manual_seed(seed)
        assert torch.equal(following, torch.rand(()))
    assert torch.equal(found[0], found[1])
    assert found[0].sum() == 288


def passes(data: ModuleData, settings: LearnerRecipe, epochs: int) -> list[list[int]]:
    batches = TrainingBatches(data, settings, 3, -100)
    found = []
    for epoch in range(epochs):
        batches.epoch = epoch
        found.append([int(i) for _, ids in batches for i in ids])
    return found


class Endless(IterableDataset[Any]):
    def __init__(self, length: int | None) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        row = 0
        while row != self.length:
            yield torch.zeros(8, 8, dtype=torch.uint8), row % 30
            row += 1


class Stream(Pictures):
    def __init__(self, length: int | None = None) -> None:
        super().__init__()
        self.length = length

    def train_dataloader(self) -> Any:
        return DataLoader(Endless(self.length), batch_size=4)


def test_steps_bound_an_epoch_and_are_needed_where_a_loader_has_no_length(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="steps_per_epoch must be given"):
        train(recipe(), ModuleData(Stream), tmp_path / "run", learners=[0])
    few = recipe(steps_per_epoch=3, keep_epochs=())
    assert [len(ids) for ids in passes(ModuleData(Stream), few, 2)] == [12, 12]
    run = train(few, ModuleData(Stream), tmp_path / "few", learners=[0])
    assert run.report(0).steps == 18
    with pytest.raises(ArgumentError, match=r"must have 3 batches, .* ended after 2"):
        train(few, ModuleData(Stream, {"length": 8}), tmp_path / "short", learners=[0])
    assert RunFolder.load(tmp_path / "short").finished() == []
    # Of a loader with a length they are the first ones of its order; more than it has is all.
    three, all_ = passes(ModuleData(Pictures), few, 2), passes(ModuleData(Pictures), recipe(), 2)
    assert three == [ids[: 3 * 32] for ids in all_]
    assert sorted(all_[0]) == sorted(all_[1]) == sorted(make_task().train_ids.tolist())
    assert all_[0] != all_[1]
    assert passes(ModuleData(Pictures), recipe(steps_per_epoch=99), 1) == all_[:1]
    # Samplers are told the epoch.
    sampler = EpochBatches(360, 32, None, 7)
    for epoch, ids in enumerate(passes(ModuleData(Numbered), recipe(), 2)):
        sampler.set_epoch(epoch)
        assert ids == make_task().train_ids[torch.cat(list(sampler))].tolist()


class BadId(Pictures):
    """Its ninth batch has a bad id."""

    def __init__(self, bad: int, where: str = "train") -> None:
        super().__init__()
        self.bad, self.where = bad, where

    def train_dataloader(self) -> Any:
        if self.where == "train":
            self.task.train_ids[8 * 32 + 5] = self.bad
        return self.loader(self.task.train_inputs, self.task.train_ids)

    def val_dataloader(self) -> Any:
        if self.where == "val":
            self.task.held_out_ids[2] = self.bad
        return super().val_dataloader()


class BadBatch(Pictures):
    """Gives any batch."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def train_dataloader(self) -> Any:
        inputs, ids = self.task.train_inputs[:4], self.task.train_ids[:4]
        return {
            "float ids": [(inputs, ids.float())],
            "int32 ids": [(inputs, ids.int())],
            "list ids": [(inputs, ids.tolist())],
            "dict": [{"inputs": inputs, "ids": ids}],
            "triple": [(inputs, ids, ids)],
            "inputs": [inputs],
            "none": [],
            "iterator": iter([(inputs, ids)]),
            "one row": [(inputs[:1], ids[:1])],
        }[self.kind]


class BadLabels(Pictures):
    def __init__(self, labels: Any = None, n_classes: Any = None) -> None:
        super().__init__()
        self.given = labels, n_classes

    def setup(self, stage: str) -> None:
        self.labels, self.n_classes = self.given


class Failing(Pictures):
    def train_dataloader(self) -> Any:
        raise KeyError("column")


class Moving(Pictures):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


class Counting(Pictures):
    def class_counts(self) -> Tensor:
        return torch.ones(31, dtype=torch.int64)


@pytest.mark.parametrize(
    ("module", "options", "error", "message"),
    [
        ("BadId", {"bad": -1}, ArgumentError, r"must lie in 0..29 .*; ids of a batch\[5\] is -1"),
        ("BadId", {"bad": 30}, ArgumentError, r"must lie in 0..29 .*; ids of a batch\[5\] is 30"),
        ("BadId", {"bad": 30, "where": "val"}, ArgumentError, r"ids of a batch\[2\] is 30"),
        ("BadBatch", {"kind": "float ids"}, ArgumentTypeError, r"int64.*got torch.float32 \(4,\)"),
        ("BadBatch", {"kind": "int32 ids"}, ArgumentTypeError, r"int64.*got torch.int32 \(4,\)"),
        ("BadBatch", {"kind": "list ids"}, ArgumentTypeError, r"int64 tensor \(B,\), got list"),
        ("BadBatch", {"kind": "dict"}, ArgumentTypeError, r"pair \(inputs, ids\), got a dict"),
        ("BadBatch", {"kind": "triple"}, ArgumentTypeError, r"pair.*got a tuple of 3"),
        ("BadBatch", {"kind": "inputs"}, ArgumentTypeError, r"pair.*got a Tensor"),
        ("BadBatch", {"kind": "none"}, ArgumentError, "at least one batch, got none"),
        ("BadBatch", {"kind": "iterator"}, ArgumentTypeError, "passed over again.*list_iterator"),
        ("BadBatch", {"kind": "one row"}, ArgumentError, "more rows for .*batch norm, got 1"),
        ("BadLabels", {}, ArgumentError, "must have labels or n_classes .*got neither"),
        ("BadLabels", {"labels": [1, 2]}, ArgumentTypeError, "strings, got 1 of type int"),
        ("BadLabels", {"labels": "abc"}, ArgumentTypeError, "many strings, got one: 'abc'"),
        ("BadLabels", {"n_classes": 2.5}, ArgumentTypeError, "n_classes must be an integer"),
        ("BadLabels", {"n_classes": 29}, ArgumentError, "as many classes as the data.* 29; got 30"),
        ("Failing", {}, KeyError, "column"),
        ("Moving", {}, ArgumentError, r"must not have its own on_after_batch_transfer\(\)"),
        ("Pictures", {"size": 3}, ArgumentError, "options of .*Pictures: .*'size'"),
        ("Halves", {}, ArgumentTypeError, r"LightningDataModule.*has no prepare_data"),
        ("Missing", {}, ArgumentError, "module must be module:Class that can be imported"),
    ],
)
def test_a_bad_module_is_refused_before_any_weight(
    module: str, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    data = ModuleData(f"{HERE}:{module}", options)
    settings = recipe(keep_epochs=(1,))
    with pytest.raises(Exception, match=message) as raised:
        train(settings, data, tmp_path / "run", learners=[0], retries=0)
    causes = getattr(raised.value, "failures", {0: raised.value})
    assert type(causes[0]) is error
    assert not list(tmp_path.rglob("*.safetensors"))
    if module == "Failing":
        assert causes[0].__notes__ == [f"in {HERE}:Failing.train_dataloader()"]


def test_options_and_fingerprints_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="options must be JSON values"):
        ModuleData(Pictures, {"folder": Path("x")})
    with pytest.raises(ArgumentTypeError, match="fingerprint must be a str, got 3"):
        ModuleData(Pictures, fingerprint=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"class_counts\(\) must be int64 of shape \(30,\)"):
        ModuleData(Counting).class_counts()
    assert list(ModuleData(BadLabels, {"n_classes": 3}).labels) == ["0", "1", "2"]


def test_ids_that_stand_for_no_class_are_left_out(tmp_path: Path) -> None:
    inputs, ids = make_task().train_inputs[:3], torch.tensor([4, -100, 29])
    assert checked((inputs, ids), 30, -100)[1] is ids
    with pytest.raises(ArgumentError, match=r"\[1\] is -100"):
        checked((inputs, ids), 30)
    data = ModuleData(BadId, {"bad": -100})
    assert data.class_counts().sum() == 359
    run = train(recipe(epochs=1, keep_epochs=()), data, tmp_path / "train", learners=[0])
    assert run.finished() == [0]
    watched = ModuleData(BadId, {"bad": -100, "where": "val"})
    train(recipe(epochs=1, keep_epochs=()), watched, tmp_path / "val", learners=[0])


class Held(Pictures):
    """2,100 held-out rows in batches of 500, also without a length; or none, said in two ways."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said

    def val_dataloader(self) -> Any:
        rows = torch.zeros(2100, 8, 8, dtype=torch.uint8), torch.zeros(2100, dtype=torch.int64)
        loader = self.loader(*rows, batch_size=3000 if self.said == "one batch" else 500)
        endless = DataLoader(Endless(None), batch_size=2)
        others: dict[str, Any] = {"empty": [], "none": None, "without a length": endless}
        return others.get(self.said, loader)


@pytest.mark.parametrize(
    ("said", "sizes"),
    [
        ("many", [500] * 4),
        ("one batch", [2100]),
        ("without a length", [2] * 1024),
        ("empty", []),
        ("none", []),
    ],
)
def test_held_out_rows_are_watched_up_to_a_limit(
    said: str, sizes: list[int], tmp_path: Path
) -> None:
    data = ModuleData(Held, {"said": said})
    assert [len(ids) for _, ids in WatchedBatches(data, -100)] == sizes
    run = train(recipe(epochs=1, keep_epochs=()), data, tmp_path, learners=[0])
    header = (run.path / "site-00" / "metrics.csv").read_text().splitlines()[0]
    assert ("held_out_loss_0" in header) == bool(sizes)


def test_a_pass_counts_classes_only_where_a_head_asks(tmp_path: Path) -> None:
    Pictures.setups = 0
    data = ModuleData(Pictures)
    assert Pictures.setups == 0
    assert torch.equal(data.class_counts(), make_task().class_counts())
    assert Pictures.setups == 1
    # Counting(): 31 counts for 30 classes, which nobody asks for here.
    train(recipe(epochs=1, keep_epochs=()), ModuleData(Counting), tmp_path / "code", learners=[0])
    rival = recipe(
        epochs=1, keep_epochs=(), mapping=MixedMapping.one_hot(30), head="adaptive-softmax"
    )
    with pytest.raises(ArgumentError, match=r"class_counts\(\) must be int64"):
        train(rival, ModuleData(Counting), tmp_path / "rival")
    train(rival, data, tmp_path / "counted")
    with pytest.raises(
        ArgumentError, match=r"a training loader with a length, or class_counts\(\)"
    ):
        train(replace(rival, steps_per_epoch=2), ModuleData(Stream), tmp_path / "stream")
    assert not (tmp_path / "stream").exists()


def test_N15_only_the_class_and_its_options_travel(tmp_path: Path) -> None:
    data = ModuleData(Pictures, {"batch_size": 16})
    data.class_counts()  # the rows are there now
    sent = pickle.dumps(data)
    assert len(sent) < 500
    Pictures.setups = 0
    settings = recipe(epochs=1, keep_epochs=())
    task = LearnerTask(settings, 0, 1, tmp_path / "ray")
    assert len(pickle.dumps(task)) < 10_000
    _perform(task, pickle.loads(sent), None, str(tmp_path))
    assert Pictures.setups == 1
    train(settings, data, tmp_path / "here", seed=1, learners=[0])
    assert weights(tmp_path / "ray") == weights(tmp_path / "here")


@pytest.mark.slow
def test_processes_that_have_workers_of_their_own_give_the_same_bits(tmp_path: Path) -> None:
    data = ModuleData(Pictures, {"num_workers": 2, "noisy": True})
    settings = recipe(epochs=2, keep_epochs=())
    train(settings, data, tmp_path / "serial", learners=[0, 1])
    train(settings, data, tmp_path / "spread", learners=[0, 1], executor=ProcessExecutor(2))
    assert weights(tmp_path / "spread") == weights(tmp_path / "serial")


class Halves(nn.Module):
    """A trunk that takes its pictures as a pair, or as a dict, of halves."""

    out_features = 16

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 16)

    def forward(self, halves: Any) -> Tensor:
        parts = halves.values() if isinstance(halves, dict) else halves
        return torch.relu(self.linear(torch.cat(list(parts), dim=1).flatten(1) / 255.0))


class HalvesOf(Pictures):
    def __init__(self, as_dict: bool) -> None:
        super().__init__()
        self.as_dict = as_dict

    def train_dataloader(self) -> Any:
        upper, lower = self.task.train_inputs.float().chunk(2, dim=1)
        rows = [
            ({"upper": u, "lower": w} if self.as_dict else (u, w), int(i))
            for u, w, i in zip(upper, lower, self.task.train_ids, strict=True)
        ]
        return DataLoader(rows, batch_size=32, shuffle=True)  # type: ignore[arg-type]

    def val_dataloader(self) -> Any:
        return self.train_dataloader()


def test_inputs_may_be_what_the_trunk_takes(tmp_path: Path) -> None:
    settings = recipe(trunk=f"{HERE}:Halves", trunk_options={}, epochs=2, keep_epochs=())
    for as_dict in (False, True):
        data = ModuleData(HalvesOf, {"as_dict": as_dict})
        train(settings, data, tmp_path / str(as_dict), learners=[0])
    assert weights(tmp_path / "True") == weights(tmp_path / "False")


def test_features_are_read_from_either_kind_of_data(tmp_path: Path) -> None:
    data, task = ModuleData(Pictures), make_task()
    run = train(recipe(joint=True, epochs=2, keep_epochs=()), data, tmp_path)
    ours, theirs = feature_statistics(run, data), feature_statistics(run, task)
    np.testing.assert_allclose(ours.means, theirs.means, rtol=1e-4, atol=1e-5)
