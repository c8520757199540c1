"""Learners in other processes and on Ray: the same bits, and what happens to lost ones."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from labelmapping import SimplexMapping
from labelmapping.atomic import file_sha256
from labelmapping.errors import ArgumentError, LearnerLostError, LearnersFailedError
from labelmapping.learners import (
    LearnerRecipe,
    LearningData,
    ProcessExecutor,
    RunFolder,
    train,
)
from labelmapping.learners.data import LearningSource
from labelmapping.learners.executors import LearnerTask, Outcome, perform
from labelmapping.nn import SmallCnn

RECIPE = LearnerRecipe(
    mapping=SimplexMapping(30, 3, field_order=7),
    trunk="labelmapping.nn:SmallCnn",
    trunk_options={"side": 8, "widths": [8], "out_features": 16},
    epochs=3,
    batch_size=32,
    schedule="one-cycle",
)


def weights(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): file_sha256(p) for p in folder.rglob("*.safetensors")}


@pytest.fixture(scope="module")
def serial(task: LearningData, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The weights of an undisturbed serial run."""
    folder = tmp_path_factory.mktemp("runs") / "serial"
    train(RECIPE, task, folder, seed=3)
    found = weights(folder)
    assert len(found) == 3
    return found


class Faulty:
    """The serial executor, but some attempts end otherwise; counts them."""

    def __init__(self, faults: dict[Any, list[Exception]]) -> None:
        self.faults = faults
        self.attempts: list[Any] = []

    def run(self, tasks: Sequence[LearnerTask], data: LearningSource) -> Iterator[Outcome]:
        for task in tasks:
            self.attempts.append(task.learner)
            waiting = self.faults.get(task.learner, [])
            yield task, waiting.pop(0) if waiting else perform(task, data)


def test_what_failed_is_tried_again_and_the_others_go_on(
    task: LearningData, tmp_path: Path, serial: dict[str, str]
) -> None:
    executor = Faulty({1: [OSError("no space left on device"), LearnerLostError("killed")]})
    run = train(RECIPE, task, tmp_path, seed=3, executor=executor, retries=2)
    assert executor.attempts == [0, 1, 2, 1, 1]
    assert weights(tmp_path) == serial
    sites = json.loads((run.path / "run.json").read_text())["sites"]
    assert {name: site["state"] for name, site in sites.items()} == dict.fromkeys(
        ["site-00", "site-01", "site-02"], "finished"
    )


def test_learners_that_fail_for_good_are_named_with_their_causes(
    task: LearningData, tmp_path: Path, serial: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    faults: dict[Any, list[Exception]] = {
        0: [OSError("no space left on device")] * 2,
        2: [RuntimeError("first"), ValueError("second")],
    }
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(
            LearnersFailedError,
            match=r"2 learners failed, and all others are finished: site-00: OSError: no space "
            r"left on device; site-02: ValueError: second$",
        ) as failed,
    ):
        train(RECIPE, task, tmp_path, seed=3, executor=Faulty(faults), retries=1)
    assert sorted(failed.value.failures) == [0, 2]
    assert "site-02 failed at attempt 1 of 2: first" in caplog.text
    run = RunFolder.load(tmp_path)
    assert run.finished() == [1]
    sites = json.loads((tmp_path / "run.json").read_text())["sites"]
    assert sites["site-02"] == {"state": "failed", "cause": "ValueError: second"}
    before = (tmp_path / "site-01" / "weights.safetensors").stat().st_mtime_ns
    again = Faulty({})
    train(RECIPE, task, tmp_path, seed=3, executor=again)
    assert again.attempts == [0, 2]
    assert weights(tmp_path) == serial
    assert (tmp_path / "site-01" / "weights.safetensors").stat().st_mtime_ns == before


def test_no_retries_and_bad_arguments(task: LearningData, tmp_path: Path) -> None:
    executor = Faulty({0: [OSError("full")]})
    with pytest.raises(LearnersFailedError):
        train(RECIPE, task, tmp_path / "run", executor=executor, retries=0)
    assert executor.attempts == [0, 1, 2]
    with pytest.raises(ArgumentError, match="retries must be at least 0"):
        train(RECIPE, task, tmp_path / "other", retries=-1)
    with pytest.raises(ArgumentError, match="callbacks must be None"):
        train(RECIPE, task, tmp_path / "other", executor=executor, callbacks=lambda _: [])
    assert not (tmp_path / "other").exists()
    with pytest.raises(ArgumentError, match="max_workers must be at least 1"):
        ProcessExecutor(0)


@pytest.mark.slow
def test_one_process_after_the_other_gives_the_bits_of_a_serial_run(
    task: LearningData, tmp_path: Path, serial: dict[str, str]
) -> None:
    """Several at a time: test_needs_training, N62."""
    train(RECIPE, task, tmp_path, seed=3, learners=[0, 2], executor=ProcessExecutor(1))
    found = weights(tmp_path)
    assert len(found) == 2
    assert found.items() <= serial.items()


class Killing(ProcessExecutor):
    """Kills the first process of a site once it has saved an epoch."""

    def __init__(self, site: int) -> None:
        super().__init__(2)
        self.site = site
        self.killed: list[str] = []

    def run(self, tasks: Sequence[LearnerTask], data: LearningSource) -> Iterator[Outcome]:
        if not self.killed:
            checkpoint = tasks[0].run_folder / f"site-{self.site:02d}" / "checkpoint.ckpt"
            script = (
                "import os, pathlib, signal, sys, time\n"
                "path, parent = pathlib.Path(sys.argv[1]), int(sys.argv[2])\n"
                "while not path.exists(): time.sleep(0.002)\n"
                "children = pathlib.Path(f'/proc/{parent}/task/{parent}/children').read_text()\n"
                "for child in map(int, children.split()):\n"
                "    line = pathlib.Path(f'/proc/{child}/cmdline').read_text()\n"
                "    if child != os.getpid() and 'spawn_main' in line:\n"
                "        os.kill(child, signal.SIGKILL)\n"
            )
            command = [sys.executable, "-c", script, str(checkpoint), str(os.getpid())]
            with subprocess.Popen(command) as killer:
                for task, outcome in super().run(tasks, data):
                    if isinstance(outcome, Exception):
                        self.killed.append(str(outcome))
                    yield task, outcome
                killer.wait()
        else:
            yield from super().run(tasks, data)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_killed_workers_are_tried_again_from_their_last_epoch(
    task: LearningData, tmp_path: Path
) -> None:
    longer = LearnerRecipe(**{**vars(RECIPE), "epochs": 12})
    train(longer, task, tmp_path / "serial", seed=3)
    executor = Killing(site=0)
    train(longer, task, tmp_path / "killed", seed=3, executor=executor, retries=3)
    assert executor.killed
    assert all("ended by signal 9" in text for text in executor.killed)
    assert weights(tmp_path / "killed") == weights(tmp_path / "serial")


DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
sys.path.insert(0, sys.argv[2])
from tests.conftest import make_task
from tests.test_executors import RECIPE
from labelmapping.learners import LearnerRecipe, ProcessExecutor, train

if __name__ == "__main__":
    recipe = LearnerRecipe(**{**vars(RECIPE), "epochs": 400})
    executor, options = ProcessExecutor(2), {}
    if sys.argv[3] == "spread":
        executor, options = ProcessExecutor(1), {"strategy": "ddp_spawn", "devices": 2}
    train(recipe, make_task(), sys.argv[1], seed=3, executor=executor, trainer_options=options)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
@pytest.mark.parametrize(
    ("sent", "kind"),
    [(signal.SIGINT, "alone"), (signal.SIGKILL, "spread")],  # the latter have workers as well
)
def test_workers_end_with_a_driver_that_is_killed(
    tmp_path: Path, sent: signal.Signals, kind: str
) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    root = str(Path(__file__).parents[1])
    command = [sys.executable, str(script), str(tmp_path / "run"), root, kind]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as driver:
        first = tmp_path / "run" / "site-00" / "checkpoint.ckpt"
        while not first.exists():
            assert driver.poll() is None
            time.sleep(0.05)
        workers = _descendants(driver.pid)
        assert len(workers) >= (2 if kind == "alone" else 3)
        driver.send_signal(sent)
        try:
            assert driver.wait(60) != 0
        finally:
            driver.kill()
    until = time.monotonic() + 60
    while any(_alive(worker) for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.1)


def _descendants(process: int | str) -> list[Path]:
    """A process's children, and theirs."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [found for c in children for found in (Path(f"/proc/{c}"), *_descendants(c))]


def _alive(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class LongError(SmallCnn):
    """Fails in its first batch with more text than a pipe holds."""

    def forward(self, images: Tensor) -> Tensor:
        raise RuntimeError("x" * 300_000)


@pytest.mark.slow
def test_a_long_error_does_not_hold_the_others_up(task: LearningData, tmp_path: Path) -> None:
    recipe = replace(RECIPE, trunk="tests.test_executors:LongError")
    with pytest.raises(LearnersFailedError, match=r"2 learners failed.*x{1000}"):
        train(recipe, task, tmp_path, learners=[0, 1], executor=ProcessExecutor(2), retries=0)


def test_a_learner_named_twice_is_trained_once(task: LearningData, tmp_path: Path) -> None:
    executor = Faulty({})
    train(RECIPE, task, tmp_path, learners=[1, 1, 1], executor=executor)
    assert executor.attempts == [1]
    with pytest.raises(ArgumentError, match=r"learners must be among .*, got \[True\]"):
        train(RECIPE, task, tmp_path, learners=[True])


def test_tasks_can_be_sent_and_are_small(tmp_path: Path) -> None:
    task = LearnerTask(RECIPE, 1, 3, tmp_path)
    assert len(pickle.dumps(task)) < 10_000
