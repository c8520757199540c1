"""How far learners are: the file that each writes, what the driver makes of it, and the table."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from rich.console import Console

from labelmapping.atomic import file_sha256, write_json
from labelmapping.errors import LearnersFailedError
from labelmapping.learners import LearningData, RunFolder, site, site_progress, train, training
from labelmapping.learners.data import LearningSource
from labelmapping.learners.executors import LearnerTask, Outcome, perform
from labelmapping.learners.progress import LearnerProgress, LiveSites
from labelmapping.learners.site import train_learner
from labelmapping.learners.site_progress import (
    PROGRESS,
    ProgressFile,
    SiteState,
    finished_state,
    read_progress,
)

from .test_executors import RECIPE

DRAWING = replace(RECIPE, head_options={"hidden": 8, "dropout": 0.3})
STEPS = 12  # an epoch of the small task


class Reading(pl.Callback):
    """Reads the file after each batch, before that batch is in it, and keeps the losses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[dict[str, Any]] = []
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, *_: Any) -> None:
        found = read_progress(self.folder)
        assert found is not None
        self.found.append(found)
        self.losses.append(float(outputs["loss"]))


def test_a_learner_tells_how_far_it_is(
    task: LearningData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_progress, "SECONDS", (0.0, 0.0))
    reading = Reading(tmp_path / "site-01")
    train_learner(DRAWING, 1, 3, task, tmp_path, callbacks=[reading])
    found = reading.found
    assert (
        found[0].items()
        >= {
            "state": "running",
            "epoch": 0,
            "epochs": 3,
            "step": 0,
            "steps": 3 * STEPS,
            "loss": None,
            "held_out_accuracy": None,
            "seconds_left": None,
        }.items()
    )
    assert [f["step"] for f in found] == list(range(3 * STEPS))
    assert [f["epoch"] for f in found] == [n // STEPS for n in range(3 * STEPS)]
    assert found[1]["loss"] == pytest.approx(reading.losses[0], abs=1e-5)
    assert found[20]["loss"] == pytest.approx(sum(reading.losses[:20]) / 20, abs=1e-5)
    rows = (tmp_path / "site-01" / "metrics.csv").read_text().splitlines()
    accuracy = float(rows[1].split(",")[rows[0].split(",").index("held_out_accuracy_1")])
    assert (
        found[STEPS]["held_out_accuracy"] == accuracy == found[2 * STEPS - 1]["held_out_accuracy"]
    )
    assert all(f["seconds_left"] >= 0 for f in found[1:])
    times = [f["time"] for f in found]
    assert times == sorted(times)
    assert not (tmp_path / "site-01" / PROGRESS).exists()
    assert finished_state(tmp_path / "site-01").step == 3 * STEPS


def test_it_writes_at_the_start_and_at_the_end_of_epochs_and_seldom_between(
    task: LearningData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_progress, "SECONDS", (1e9, 1e9))
    reading = Reading(tmp_path / "site-01")
    train_learner(DRAWING, 1, 3, task, tmp_path, callbacks=[reading])
    assert [f["step"] for f in reading.found] == [n // STEPS * STEPS for n in range(3 * STEPS)]


def test_no_weight_and_no_draw_depends_on_it(
    task: LearningData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_progress, "SECONDS", (0.0, 0.0))
    train_learner(DRAWING, 1, 3, task, tmp_path / "with")
    monkeypatch.setattr(site, "ProgressFile", lambda *_: pl.Callback())
    train_learner(DRAWING, 1, 3, task, tmp_path / "without")
    one, other = (
        file_sha256(tmp_path / name / "site-01" / "weights.safetensors")
        for name in ("with", "without")
    )
    assert one == other


def test_a_loss_is_read_only_when_it_writes(tmp_path: Path) -> None:
    progress = ProgressFile(tmp_path, 3)
    progress.clock = lambda: 1.0
    unreadable = {"loss": torch.zeros((), device="meta")}
    for _ in range(100):
        progress.on_train_batch_end(None, None, unreadable, None, 0)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_is_told_once_and_stops_nothing(
    task: LearningData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(site_progress, "write_json", full)
    train_learner(RECIPE, 1, 3, task, tmp_path)
    assert (tmp_path / "site-01" / "weights.safetensors").exists()
    assert caplog.text.count("progress.json is not written: no space left") == 1


def test_a_learner_that_raises_leaves_no_file_behind(task: LearningData, tmp_path: Path) -> None:
    class Stop(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            assert read_progress(tmp_path / "site-01") is not None
            raise RuntimeError("stopped by the test")

    with pytest.raises(RuntimeError, match="stopped by the test"):
        train_learner(RECIPE, 1, 3, task, tmp_path, callbacks=[Stop()])
    assert not (tmp_path / "site-01" / PROGRESS).exists()


def test_what_cannot_be_read_is_no_progress(tmp_path: Path) -> None:
    for text in ("", "{", "[]", "\0"):
        (tmp_path / PROGRESS).write_text(text)
        assert read_progress(tmp_path) is None
        (tmp_path / "metrics.csv").write_text(text)
        assert finished_state(tmp_path) == SiteState(tmp_path.name, "finished")


def test_on_a_store_it_writes_more_seldom_and_reads_anew() -> None:
    upath = pytest.importorskip("upath", reason="universal-pathlib is not installed")
    folder = upath.UPath("memory://progress/site-01")
    trainer = SimpleNamespace(is_global_zero=True, global_step=6, num_training_batches=12)
    trainer.current_epoch = 0
    far: Any = ProgressFile(folder, 3)
    assert ProgressFile(Path("site-01"), 3).every < far.every
    for step in (6, 10_000):
        trainer.global_step = step
        far.on_train_start(trainer, None)
        found = read_progress(folder)
        assert found is not None
        assert (found["step"], found["steps"]) == (step, 36)
    far.on_train_end(trainer, None)
    assert read_progress(folder) is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver looks and notes at once."""
    monkeypatch.setattr(training, "LOOKING_SECONDS", (0.005, 0.005))
    monkeypatch.setattr(training, "NOTING_SECONDS", (0.0, 0.0))


class Watching:
    """Keeps the last states, and waits for some that are as wanted."""

    def __init__(self) -> None:
        self.came = threading.Condition()
        self.last: dict[str, SiteState] = {}

    def __call__(self, sites: Sequence[SiteState]) -> None:
        with self.came:
            self.last = {s.name: s for s in sites}
            self.came.notify_all()

    def until(self, name: str, *states: str) -> None:
        with self.came:
            there = self.came.wait_for(lambda: self.last and self.last[name].state in states, 30)
            assert there, (states, self.last)


class Staged:
    """An executor whose learners write progress, and go on once it was seen; then they end."""

    clock = count(1000.0)

    def __init__(self, watching: Watching, ends: dict[Any, BaseException]) -> None:
        self.watching, self.ends = watching, ends
        self.noted: list[dict[str, Any]] = []

    def run(self, tasks: Sequence[LearnerTask], data: LearningSource) -> Iterator[Outcome]:
        for number, task in enumerate(tasks):
            name, loss = f"site-{task.learner:02d}", number + 0.5
            folder = task.run_folder / name
            self.watching.until(name, "waiting", "failed")
            content = {"state": "running", "epoch": 1, "epochs": 3, "step": 7, "steps": 36}
            write_json(folder / PROGRESS, {**content, "loss": loss, "time": next(self.clock)})
            self.watching.until(name, "running")
            assert self.watching.last[name].loss == loss
            self.noted.append(json.loads((task.run_folder / "run.json").read_text())["sites"])
            if task.learner in self.ends:
                error = self.ends.pop(task.learner)
                if not isinstance(error, Exception):
                    raise error
                yield task, error
            else:
                yield task, perform(task, data)


@pytest.mark.usefixtures("quick")
def test_the_driver_notes_how_far_learners_are_and_hands_it_on(
    task: LearningData, tmp_path: Path
) -> None:
    train(RECIPE, task, tmp_path / "run", seed=3, learners=[2])
    stale = {"state": "running", "epoch": 2, "loss": 0.25, "time": 1.0}
    write_json(tmp_path / "run" / "site-01" / PROGRESS, stale)  # of a driver that was killed
    watching = Watching()
    executor = Staged(watching, {})
    train(RECIPE, task, tmp_path / "run", seed=3, executor=executor, watch=watching)
    first, second = executor.noted
    assert first["site-00"] == {
        "state": "running",
        "epoch": 1,
        "epochs": 3,
        "step": 7,
        "steps": 36,
        "loss": 0.5,
        "held_out_accuracy": None,
        "seconds_left": None,
    }
    assert first["site-01"] == {"state": "waiting"}
    assert second["site-00"]["state"] == "finished" == first["site-02"]["state"]
    assert second["site-01"]["loss"] == 1.5
    assert {s.state for s in watching.last.values()} == {"finished"}
    assert watching.last["site-02"].held_out_accuracy is not None
    assert watching.last["site-00"].epoch == 3

    # Nothing of it is left: the record is what it is where nobody looks.
    train(RECIPE, task, tmp_path / "other", seed=3)
    records = []
    for name in ("run", "other"):
        content = json.loads((tmp_path / name / "run.json").read_text())
        for noted in content["sites"].values():
            del noted["seconds"]
        records.append(content)
    assert records[0] == records[1]


@pytest.mark.usefixtures("quick")
def test_failed_and_interrupted_learners(task: LearningData, tmp_path: Path) -> None:
    watching = Watching()
    executor = Staged(watching, {0: OSError("full"), 1: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        train(RECIPE, task, tmp_path, executor=executor, watch=watching)
    assert executor.noted[1]["site-00"] == {"state": "failed", "cause": "OSError: full"}
    assert watching.last["site-00"].cause == "OSError: full"
    # Who was not recorded is not shown any more.
    content = json.loads((tmp_path / "run.json").read_text())
    assert content["sites"] == {"site-00": {"state": "failed", "cause": "OSError: full"}}

    executor = Staged(watching, {0: OSError("full again"), 2: OSError("full too")})
    with pytest.raises(LearnersFailedError):
        train(RECIPE, task, tmp_path, executor=executor, retries=0, watch=watching)
    assert [s.state for s in watching.last.values()] == ["failed", "finished", "failed"]


def test_a_killed_driver_leaves_running_learners_that_are_not_finished(
    task: LearningData, tmp_path: Path
) -> None:
    train(RECIPE, task, tmp_path, seed=3)
    content = json.loads((tmp_path / "run.json").read_text())
    wanted = json.loads((tmp_path / "run.json").read_text())
    for name, state in (("site-00", "running"), ("site-01", "waiting")):
        content["sites"][name] = {"state": state}
        (tmp_path / name / "weights.safetensors").unlink()
    write_json(tmp_path / "run.json", content)
    assert RunFolder.load(tmp_path).finished() == [2]
    train(RECIPE, task, tmp_path, seed=3, learners=[0])
    found = json.loads((tmp_path / "run.json").read_text())
    assert set(found["sites"]) == {"site-00", "site-02"}
    assert found["sites"]["site-00"]["sha256"] == wanted["sites"]["site-00"]["sha256"]


@pytest.mark.usefixtures("quick")
def test_a_watch_that_raises_is_told_once_and_stops_nothing(
    task: LearningData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def watch(sites: Sequence[SiteState]) -> None:
        calls.append(sites)
        raise ZeroDivisionError("by the test")

    run = train(RECIPE, task, tmp_path, watch=watch)
    assert run.finished() == [0, 1, 2]
    assert len(calls) > 3
    told = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [r.getMessage() for r in told] == [
        f"{tmp_path}: watch does not show how far learners are: ZeroDivisionError('by the test')"
    ]


@pytest.mark.usefixtures("quick")
def test_a_run_that_is_finished_is_shown_and_not_written_to(
    task: LearningData, tmp_path: Path
) -> None:
    train(RECIPE, task, tmp_path, seed=3)
    before = (tmp_path / "run.json").stat().st_mtime_ns
    watching = Watching()
    train(RECIPE, task, tmp_path, seed=3, watch=watching)
    assert [s.state for s in watching.last.values()] == ["finished"] * 3
    assert (tmp_path / "run.json").stat().st_mtime_ns == before


def running(number: int, **changes: Any) -> SiteState:
    values = {"epoch": 1, "epochs": 3, "step": 10, "steps": 30, "loss": 2.5}
    values |= {"held_out_accuracy": 0.125, "seconds_left": 65.0}
    return SiteState(f"site-{number:02d}", "running", **(values | changes))


def finished(number: int) -> SiteState:
    return replace(running(number), state="finished")


def test_a_terminal_has_a_table_of_the_sites() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)
    sites = [
        finished(0),
        running(1),
        SiteState("site-02", "waiting", epochs=3),
        SiteState("site-03", "failed", epochs=3, cause="OSError: full"),
    ]
    with LiveSites(console) as live:
        live(sites)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for line in (
        r"site-01.*running.*1/3.*2\.500.*12\.5 %.*0:01:05",
        r"site-02.*waiting.*0/3",
        "site-03.*failed",
        # Site 2 takes 97.5 s as site 1 does, after the 65 that are left to that one.
        "1 of 4 finished, 1 running, 1 waiting, 1 failed, about 0:02:42 left",
    ):
        assert re.search(line, text)


def test_a_table_of_many_sites_has_those_that_run_or_failed() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=20)
    sites = [finished(n) for n in range(30)] + [running(n) for n in range(30, 36)]
    sites += [SiteState(f"site-{n}", "failed") for n in range(36, 38)]
    sites += [SiteState(f"site-{n}", "waiting") for n in range(38, 60)]
    with LiveSites(console) as live:
        live(sites)
        live([*sites, *(running(n) for n in range(60, 80))])
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "and 30 finished, 22 waiting" in text
    assert "site-37" in text
    assert "site-38" not in text
    assert "and 30 finished, 22 waiting, 14 running" in text


def test_without_a_terminal_there_is_a_line_for_each_end_and_each_minute() -> None:
    console = Console(file=io.StringIO(), width=60)
    live = LiveSites(console)
    now = 0.0
    live.clock = lambda: now
    failed = SiteState("site-02", "failed", cause="OSError: " + "no space left " * 10)
    with live:
        live([finished(0), running(1), running(2)])
        now = 10.0
        live([finished(0), running(1, loss=2.0), failed])
        now = 59.0
        live([finished(0), finished(1), failed])
        now = 60.0
        live([finished(0), finished(1), failed])
        live([finished(0), finished(1), failed])
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "1 of 3 finished, 2 running, about 0:01:05 left",
        f"site-02 failed: {failed.cause}",
        "site-01 finished loss 2.500, held-out accuracy 12.5 %",
        "2 of 3 finished, 1 failed",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_single_learner_has_a_bar_or_a_line_an_epoch(
    task: LearningData, tmp_path: Path, terminal: bool
) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    train_learner(RECIPE, 1, 3, task, tmp_path, callbacks=[LearnerProgress("site 1", console)])
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    if terminal:
        assert "36/36" in text
    else:
        assert text.count("site 1:") == 3
        assert "site 1: 36/36 steps, loss" in text
