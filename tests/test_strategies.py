"""Several processes inside a site, by Lightning's strategies: the steps are those of one."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, TensorDataset

from labelmapping.errors import ArgumentError, ArgumentTypeError, DivergedError
from labelmapping.learners import LearnerRecipe, LearningData, ModuleData, RunFolder, train
from labelmapping.learners.loaders import TrainingBatches

from .conftest import make_task
from .test_learners import recipe

HERE = __name__
TWO = {"strategy": "ddp_spawn", "devices": 2}
two_processes = pytest.mark.skipif(not dist.is_available(), reason="no torch.distributed")


class Plain(nn.Module):
    """A trunk without batch norm and dropout."""

    out_features = 16

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 16)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.linear(images.flatten(1) / 255.0))


class Shuffled(pl.LightningDataModule):
    """The small task by a plain loader that shuffles; its last batch has one row."""

    n_classes = 30

    def setup(self, stage: str) -> None:
        self.task = make_task()

    def train_dataloader(self) -> Any:
        rows = TensorDataset(self.task.train_inputs[:101], self.task.train_ids[:101])
        return DataLoader(rows, batch_size=20, shuffle=True)


class Ignored(Shuffled):
    """Batches of two rows: one that stands for no class, both, or neither."""

    def train_dataloader(self) -> Any:
        ids = torch.tensor([3, -100, -100, -100, 5, 7, -100, 9])
        return DataLoader(TensorDataset(self.task.train_inputs[:8], ids), batch_size=2)


class EveryGradient(pl.Callback):
    """In the processes: every parameter has a gradient after every batch."""

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for name, parameter in pl_module.named_parameters():
            if parameter.grad is None or not bool(torch.isfinite(parameter.grad).all()):
                raise ValueError(f"{name} has no gradient in step {trainer.global_step}")


class StopLater(pl.Callback):
    """Raises in the second process, in the middle of the last epoch."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_rank == 1 and trainer.global_step == 30:
            raise DivergedError("site-all: stopped by the test")


def settings(**changes: Any) -> LearnerRecipe:
    plain = {"trunk": f"{HERE}:Plain", "trunk_options": {}, "joint": True, "epochs": 3}
    return recipe(**{**plain, "keep_epochs": (2,), **changes})


def tensors(folder: Path, name: str = "weights.safetensors") -> dict[str, Tensor]:
    return dict(safetensors.torch.load_file(folder / "site-all" / name))


def metrics(folder: Path) -> list[dict[str, float]]:
    with (folder / "site-all" / "metrics.csv").open(encoding="utf-8") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


@pytest.mark.slow
@two_processes
def test_two_processes_take_the_steps_of_one_and_go_on_after_a_stop(
    task: LearningData, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"seed": 1, "accelerator": "cpu"}
    train(settings(), task, tmp_path / "one", **options)
    options["trainer_options"] = TWO
    # An error of one of the processes is raised here, and as what it is.
    with pytest.raises(DivergedError, match=r"^site-all: stopped by the test$"):
        train(settings(), task, tmp_path / "two", **options, callbacks=lambda _: [StopLater()])
    assert (tmp_path / "two" / "site-all" / "checkpoint.ckpt").exists()
    run = train(settings(), task, tmp_path / "two", **options)
    for name in ("weights.safetensors", "weights-0002.safetensors"):
        ours = tensors(tmp_path / "two", name)
        for key, expected in tensors(tmp_path / "one", name).items():
            torch.testing.assert_close(ours[key], expected, rtol=0, atol=1e-5)
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert two[-1]["train_loss"] < two[0]["train_loss"]
    for before, after in zip(one, two, strict=True):
        assert set(after) == set(before)
        for key in set(before) - {"seconds"}:
            assert after[key] == pytest.approx(before[key], abs=1e-4)
    # The record of the run does not say how it was spread, and another spread may go on.
    report, alone = run.report("all"), RunFolder.load(tmp_path / "one").report("all")
    assert (report.steps, report.epochs) == (alone.steps, alone.epochs) == (36, 3)
    contents = [json.loads((tmp_path / f / "run.json").read_text()) for f in ("one", "two")]
    for content in contents:
        del content["sites"]
    assert contents[0] == contents[1]
    assert not list((tmp_path / "two").rglob("*.ckpt"))
    train(settings(), task, tmp_path / "two", seed=1)


@pytest.mark.parametrize("n_processes", [2, 4])
@pytest.mark.parametrize("source", ["rows", "module"])
def test_processes_divide_the_rows_of_each_batch(source: str, n_processes: int) -> None:
    data = make_task() if source == "rows" else ModuleData(Shuffled)
    small = settings(batch_size=20)

    def epoch(rank: int, n_processes: int) -> list[list[float]]:
        batches = TrainingBatches(data, small, 5, -100)
        batches.share(rank, n_processes)
        batches.epoch = 2
        return [[float(x.float().mean()) for x in inputs] for inputs, _ in batches]

    whole = epoch(0, 1)
    parts = [epoch(rank, n_processes) for rank in range(n_processes)]
    for step, rows in enumerate(whole):
        shares = [part[step] for part in parts]
        # The last batch of one row is filled up, so that all have as many.
        wanted = rows if len(rows) > 1 else rows * n_processes
        assert shares == [wanted[rank::n_processes] for rank in range(n_processes)]
    assert all(len(part) == len(whole) for part in parts)


class Told(Sampler[int]):
    """Another order in each epoch that it is told of."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[int]:
        yield from ((row + 7 * self.epoch) % 40 for row in range(40))


class InnerSampler(Shuffled):
    def train_dataloader(self) -> Any:
        rows = TensorDataset(torch.arange(40), torch.arange(40) % 30)
        return DataLoader(rows, batch_sampler=BatchSampler(Told(), 4, drop_last=False))


def test_a_sampler_below_the_batches_is_told_the_epoch_in_every_process() -> None:
    def epoch(number: int, share: tuple[int, int]) -> list[list[int]]:
        batches = TrainingBatches(ModuleData(InnerSampler), settings(), 5, -100)
        batches.share(*share)
        batches.epoch = number
        return [inputs.tolist() for inputs, _ in batches]

    for number in (0, 1):
        whole = epoch(number, (0, 1))
        assert whole[0][0] == 7 * number
        assert epoch(number, (1, 2)) == [rows[1::2] for rows in whole]


class Undivided(Shuffled):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def train_dataloader(self) -> Any:
        rows = TensorDataset(self.task.train_inputs, self.task.train_ids)
        return {
            "list": [(self.task.train_inputs, self.task.train_ids)],
            "no batches": DataLoader(rows, batch_size=None),
            "sampler of batches": DataLoader(
                rows, batch_sampler=BatchSampler(RandomSampler(rows), 33, drop_last=True)
            ),
        }[self.kind]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (make_task(), "batch_size must be divisible by the number of processes, 2; got 33"),
        (ModuleData(Undivided, {"kind": "list"}), "devices must be 1 unless .*got a list"),
        (ModuleData(Undivided, {"kind": "no batches"}), "batches of rows itself.*DataLoader"),
        (ModuleData(Undivided, {"kind": "sampler of batches"}), "divisible .*, 2; got 33"),
    ],
)
def test_batches_that_cannot_be_divided_are_refused(data: Any, message: str) -> None:
    batches = TrainingBatches(data, settings(batch_size=33), 5, -100)
    batches.share(1, 2)
    with pytest.raises(ArgumentError, match=message):
        len(batches)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_epochs": 3}, ArgumentError, "one of strategy, devices, .*; got 'max_epochs'"),
        ({"precision": "bf16-mixed"}, ArgumentError, "one of strategy.*; got 'precision'"),
        ({"strategy": object()}, ArgumentTypeError, "strategy must be the name"),
        ({"strategy": "fsdp", "devices": 2}, ArgumentError, "the whole network.*got 'fsdp'"),
        ({"devices": 2}, ArgumentError, "starts its processes itself, such as ddp_spawn"),
        (
            {"strategy": "ddp", "devices": -1},
            ArgumentError,
            "RunFolder.create, and then train_learner",
        ),
        ({"strategy": "ddp_spawn", "devices": 2, "num_nodes": 2}, ArgumentError, "num_nodes 1"),
    ],
)
def test_other_options_are_refused(
    options: Any, error: type[Exception], message: str, task: LearningData, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        train(settings(), task, tmp_path / "run", trainer_options=options)
    assert not (tmp_path / "run").exists()


ONE_OF_TWO = """
import sys
from pathlib import Path
from tests.conftest import make_task
from tests.test_strategies import IGNORING, EveryGradient, Ignored, settings
from labelmapping.learners import ModuleData, train_learner

folder = Path(sys.argv[1])
options = {"accelerator": "cpu", "trainer_options": {"strategy": "ddp", "devices": 2}}
report = train_learner(settings(), "all", 1, make_task(), folder / "whole", **options)
assert report.steps == 36
assert (folder / "whole" / "site-all" / "weights.safetensors").exists()
report = train_learner(
    settings(**IGNORING), "all", 1, ModuleData(Ignored), folder / "ignored",
    callbacks=[EveryGradient()], **options,
)
assert report.steps == 8
"""
IGNORING: dict[str, Any] = {"epochs": 2, "keep_epochs": (), "head_options": {"hidden": 8}}


@pytest.fixture(scope="module")
def by_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a script has trained that Lightning starts again in a second process."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "script.py").write_text(ONE_OF_TWO)
    RunFolder.create(folder / "whole", settings(), 1, make_task())
    subprocess.run(
        [sys.executable, str(folder / "script.py"), str(folder)],
        check=True,
        timeout=300,
        env={"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1", "PATH": ""},
    )
    return folder


@pytest.mark.slow
@two_processes
def test_N18_two_processes_and_batches_without_a_target(by_script: Path) -> None:
    found = tensors(by_script / "ignored")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in found.values())


@pytest.mark.slow
@two_processes
def test_a_learner_of_such_a_script_is_recorded_by_train(
    by_script: Path, task: LearningData
) -> None:
    weights = by_script / "whole" / "site-all" / "weights.safetensors"
    before = weights.stat().st_mtime_ns
    assert train(settings(), task, by_script / "whole", seed=1).is_recorded("all")
    assert weights.stat().st_mtime_ns == before
