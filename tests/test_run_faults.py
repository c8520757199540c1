"""Damaged files and full disks: what is wrong is named, the rest stays, and the remedy works."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from labelmapping import SimplexMapping
from labelmapping.atomic import file_sha256
from labelmapping.errors import LearnersFailedError, RunInUseError, RunMismatchError
from labelmapping.learners import Ensemble, LearnerRecipe, LearningData, RunFolder, train
from labelmapping.storage import LOCK, in_use

from .test_learners import StopAfter, copy_of

RECIPE = LearnerRecipe(
    mapping=SimplexMapping(30, 2, field_order=7),
    trunk="labelmapping.nn:SmallCnn",
    trunk_options={"side": 8, "widths": [8], "out_features": 16},
    epochs=3,
    batch_size=32,
    schedule="one-cycle",
    keep_epochs=(1,),
)
STEPS = 12  # an epoch's


def hashes(folder: Path, *but: str) -> dict[str, str]:
    """Checksums of all files below a run folder, but for the lock's and those named."""
    files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {n: file_sha256(p) for n, p in files.items() if n != LOCK and n not in but}


def weights(folder: Path) -> dict[str, str]:
    return {n: c for n, c in hashes(folder).items() if n.endswith(".safetensors")}


@pytest.fixture(scope="module")
def whole(task: LearningData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both learners finished, undisturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(RECIPE, task, folder, seed=1)
    return folder


@pytest.fixture(scope="module")
def stopped(task: LearningData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first learner finished, the second one stopped in its second epoch."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    train(RECIPE, task, folder, seed=1, learners=[0])
    with pytest.raises(LearnersFailedError, match="stopped by the test"):
        train(RECIPE, task, folder, seed=1, retries=0, callbacks=lambda _: [StopAfter(STEPS + 5)])
    return folder


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(place: float) -> Callable[[Path], None]:
    """Changes one bit, at a share of the file's length."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 1
        path.write_bytes(content)

    return damage


DAMAGES = [
    pytest.param(truncate, id="truncated"),
    pytest.param(flip(0.5), id="altered"),
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("epoch", [None, 1])
def test_damaged_weights(
    whole: Path,
    task: LearningData,
    tmp_path: Path,
    damage: Callable[[Path], None],
    epoch: int | None,
) -> None:
    folder = copy_of(whole, tmp_path / "run")
    name = "weights.safetensors" if epoch is None else "weights-0001.safetensors"
    damage(folder / "site-01" / name)
    before = hashes(folder)
    with pytest.raises(RunMismatchError, match=rf"site-01/{name} does not match its checksum"):
        Ensemble.load(folder, epoch=epoch)
    if epoch is None:
        with pytest.raises(RunMismatchError, match=r"remove .*site-01 to train it again"):
            train(RECIPE, task, folder, seed=1)
    assert hashes(folder) == before
    shutil.rmtree(folder / "site-01")
    train(RECIPE, task, folder, seed=1)
    assert weights(folder) == weights(whole)


def test_weights_trained_again_get_a_record_of_their_own(
    whole: Path, task: LearningData, tmp_path: Path
) -> None:
    """On another machine their last bits may differ from those that were noted."""
    folder = copy_of(whole, tmp_path / "run")
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    record["sites"]["site-01"]["sha256"]["weights.safetensors"] = "0" * 64
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(RunMismatchError, match=r"does not match its checksum in run.json"):
        train(RECIPE, task, folder, seed=1)
    shutil.rmtree(folder / "site-01")
    train(RECIPE, task, folder, seed=1)
    Ensemble.load(folder)


def name_that_is_no_text(path: Path) -> None:
    """A bit of the first name in a zip file that marks what follows as something else."""
    content = bytearray(path.read_bytes())
    content[26] ^= 1 << 5  # the length of its name
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        *DAMAGES,
        pytest.param(flip(0.2), id="tensors"),
        pytest.param(name_that_is_no_text, id="name"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
    ],
)
def test_a_damaged_checkpoint(
    stopped: Path,
    whole: Path,
    task: LearningData,
    tmp_path: Path,
    damage: Callable[[Path], None],
) -> None:
    folder = copy_of(stopped, tmp_path / "run")
    checkpoint = folder / "site-01" / "checkpoint.ckpt"
    damage(checkpoint)
    before = hashes(folder, "run.json")
    with pytest.raises(RunMismatchError, match=r"site-01/checkpoint.ckpt cannot be read: remove"):
        train(RECIPE, task, folder, seed=1)
    assert hashes(folder, "run.json") == before
    checkpoint.unlink()
    train(RECIPE, task, folder, seed=1)
    assert weights(folder) == weights(whole)


def without(*keys: str) -> Callable[[Path], None]:
    """Takes a value out of a JSON file."""

    def damage(path: Path) -> None:
        content = json.loads(path.read_text(encoding="utf-8"))
        place = content
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]
        path.write_text(json.dumps(content), encoding="utf-8")

    return damage


def with_value(value: Any, *keys: str) -> Callable[[Path], None]:
    """Puts a value into a JSON file."""

    def damage(path: Path) -> None:
        content = json.loads(path.read_text(encoding="utf-8"))
        place = content
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        path.write_text(json.dumps(content), encoding="utf-8")

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(truncate, id="truncated"),
        pytest.param(flip(0.0), id="first byte"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe"), id="no text"),
        pytest.param(lambda path: path.write_text("[]"), id="a list"),
        pytest.param(without("seed"), id="no seed"),
        pytest.param(with_value("one", "format"), id="format"),
        pytest.param(with_value([], "recipe"), id="recipe"),
        pytest.param(with_value([], "sites"), id="sites"),
        pytest.param(with_value("finished", "sites", "site-00"), id="a site"),
        pytest.param(with_value([], "sites", "site-00", "sha256"), id="checksums"),
    ],
)
def test_a_damaged_record(
    whole: Path, task: LearningData, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = copy_of(whole, tmp_path / "run")
    damage(folder / "run.json")
    before = hashes(folder)
    for use in (lambda: Ensemble.load(folder), lambda: train(RECIPE, task, folder, seed=1)):
        with pytest.raises(RunMismatchError, match=r"run.json (cannot be read|is no record)"):
            use()
    assert hashes(folder) == before
    shutil.copy(whole / "run.json", folder)  # "put a copy of it back"
    train(RECIPE, task, folder, seed=1)
    assert hashes(folder) == hashes(whole)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_value(2, "seed"), "seed is 2 there, 1 now"),
        (with_value(4, "recipe", "epochs"), "epochs is 4 there, 3 now"),
        (with_value("0" * 64, "data_sha256"), "data_sha256 is 0000"),
        (without("recipe", "epochs"), "epochs is None there, 3 now"),
    ],
)
def test_an_altered_record(
    whole: Path,
    task: LearningData,
    tmp_path: Path,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    folder = copy_of(whole, tmp_path / "run")
    damage(folder / "run.json")
    before = hashes(folder)
    with pytest.raises(RunMismatchError, match=message):
        train(RECIPE, task, folder, seed=1)
    assert hashes(folder) == before


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(truncate, id="truncated"),
        pytest.param(flip(0.5), id="altered"),
        pytest.param(lambda path: path.write_text("5"), id="a number"),
        pytest.param(lambda path: path.write_text('{"a": 1}'), id="an object"),
    ],
)
def test_damaged_labels(
    whole: Path, task: LearningData, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = copy_of(whole, tmp_path / "run")
    damage(folder / "labels.json")
    before = hashes(folder)
    for use in (lambda: Ensemble.load(folder), lambda: train(RECIPE, task, folder, seed=1)):
        with pytest.raises(RunMismatchError, match=r"labels.json .*; remove it"):
            use()
    assert hashes(folder) == before
    (folder / "labels.json").unlink()
    train(RECIPE, task, folder, seed=1)
    assert hashes(folder) == hashes(whole)


def test_a_damaged_report(whole: Path, task: LearningData, tmp_path: Path) -> None:
    folder = copy_of(whole, tmp_path / "run")
    truncate(folder / "site-01" / "report.json")
    before = hashes(folder)
    train(RECIPE, task, folder, seed=1)  # run.json has the same figures
    with pytest.raises(RunMismatchError, match=r"site-01/report.json cannot be read"):
        RunFolder.load(folder).report(1)
    assert hashes(folder) == before
    without("sites", "site-01")(folder / "run.json")
    before = hashes(folder, "run.json")
    with pytest.raises(RunMismatchError, match=r"report.json cannot.*remove .*site-01 to train"):
        train(RECIPE, task, folder, seed=1)
    assert hashes(folder, "run.json") == before
    shutil.rmtree(folder / "site-01")
    train(RECIPE, task, folder, seed=1)
    assert weights(folder) == weights(whole)


def test_damaged_metrics_hold_nothing_up(
    stopped: Path, whole: Path, task: LearningData, tmp_path: Path
) -> None:
    folder = copy_of(stopped, tmp_path / "run")
    for name in ("site-00", "site-01"):
        truncate(folder / name / "metrics.csv")
    train(RECIPE, task, folder, seed=1)
    assert weights(folder) == weights(whole)
    lines = (folder / "site-01" / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ["epoch", "1", "2", "3"]


class Full:
    """A disk that is full for some files: their last write fails, as a real one's may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str, after: int = 0) -> None:
        self.refused: list[str] = []
        fsync, written = os.fsync, iter(range(1_000_000))

        def check(handle: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            if any(path.match(f"{n.replace('/', '/.tmp-*')}") for n in names) and (
                next(written) >= after
            ):
                self.refused.append(path.name)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            fsync(handle)

        monkeypatch.setattr(os, "fsync", check)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for a file's name")


@on_linux
@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("weights.safetensors", 0),
        ("weights-0001.safetensors", 0),
        ("checkpoint.ckpt", 1),
        ("report.json", 0),
    ],
)
def test_a_full_disk_while_a_learner_writes(
    whole: Path,
    task: LearningData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    after: int,
) -> None:
    with monkeypatch.context() as patch:
        full = Full(patch, f"site-00/{name}", after=after)
        with pytest.raises(
            LearnersFailedError, match=r"site-00: OSError: .*No space left"
        ) as failed:
            train(RECIPE, task, tmp_path, seed=1, retries=1)
    assert len(full.refused) == 2  # tried again, once
    assert list(failed.value.failures) == [0]
    run = RunFolder.load(tmp_path)
    assert run.finished() == [1]
    assert run.is_recorded(1)
    assert not list(tmp_path.rglob(".tmp-*"))
    before = hashes(tmp_path / "site-01")
    mtime = (tmp_path / "site-01" / "weights.safetensors").stat().st_mtime_ns
    trained: list[Any] = []

    class Trained(pl.Callback):
        def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
            trained.append(pl_module.learner)

    train(RECIPE, task, tmp_path, seed=1, callbacks=lambda _: [Trained()])
    assert trained == [0]
    assert weights(tmp_path) == weights(whole)
    assert hashes(tmp_path / "site-01") == before
    assert (tmp_path / "site-01" / "weights.safetensors").stat().st_mtime_ns == mtime


@on_linux
def test_a_disk_too_full_to_note_what_is_finished(
    whole: Path, task: LearningData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        Full(patch, "run/run.json", after=1)
        with pytest.raises(LearnersFailedError, match=r"site-00: .*No space.*site-01: .*No space"):
            train(RECIPE, task, folder, seed=1, retries=0)
    assert weights(folder) == weights(whole)
    times = {p: p.stat().st_mtime_ns for p in folder.rglob("*.safetensors")}
    run = train(RECIPE, task, folder, seed=1)
    assert run.is_recorded(0)
    assert run.is_recorded(1)
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*.safetensors")} == times


@pytest.fixture
def short_files() -> Iterator[Callable[[int], None]]:
    """Sets the size that the operating system allows a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("file", ["weights-0001.safetensors", "checkpoint.ckpt"])
def test_files_that_the_operating_system_refuses(
    stopped: Path,
    whole: Path,
    task: LearningData,
    tmp_path: Path,
    short_files: Callable[[int], None],
    file: str,
) -> None:
    """Not a simulation: writes fail where weights are, and checkpoints, which are larger."""
    short_files((stopped / "site-01" / file).stat().st_size - 1000)
    with pytest.raises(LearnersFailedError, match=r"site-00: .*File too large.*; site-01: "):
        train(RECIPE, task, tmp_path, seed=1, retries=0)
    short_files(resource.RLIM_INFINITY)
    assert not list(tmp_path.rglob(".tmp-*"))
    assert not list(tmp_path.rglob(file))
    train(RECIPE, task, tmp_path, seed=1)
    assert weights(tmp_path) == weights(whole)


def test_one_training_a_folder_at_a_time(task: LearningData, tmp_path: Path, whole: Path) -> None:
    refused: list[str] = []
    folder = tmp_path / "run"

    class Second(pl.Callback):
        """Another training of the same folder, begun while the first one lasts."""

        def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
            if trainer.current_epoch == 1:
                with pytest.raises(RunInUseError) as error:
                    train(RECIPE, task, folder, seed=1)
                refused.append(str(error.value))
                if module.learner == 1:
                    assert Ensemble.load(folder).sites == (0,)  # reading needs no lock

    train(RECIPE, task, folder, seed=1, callbacks=lambda _: [Second()])
    assert len(refused) == 2
    assert refused[0].startswith(f"{folder} is in use: another process trains there")
    assert weights(folder) == weights(whole)
    # What is finished can be asked for again, also while somebody holds the folder.
    with in_use(folder):
        train(RECIPE, task, folder, seed=1)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_nothing_can_be_locked_a_warning_says_so(
    tmp_path: Path,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with in_use(tmp_path):
        assert "nothing can be locked" in caplog.text


HOLDER = """
import sys
from pathlib import Path
from labelmapping.storage import in_use

with in_use(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()  # for ever: the parent writes nothing
"""


def test_the_lock_of_a_killed_process_is_free(task: LearningData, tmp_path: Path) -> None:
    short = LearnerRecipe(**{**vars(RECIPE), "epochs": 1, "keep_epochs": ()})
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunInUseError, match="another process trains there"):
            train(short, task, tmp_path, learners=[0])
        assert [p.name for p in tmp_path.iterdir()] == [LOCK]
        holder.send_signal(signal.SIGKILL)
    train(short, task, tmp_path, learners=[0])  # a lock alone does not make a folder foreign
