"""Run folders on stores: the bytes of a local run, whole files, processes, and what is refused.

The object store is moto's S3 server on this machine.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import pytorch_lightning as pl
import s3fs  # type: ignore[import-untyped]
from fsspec.registry import known_implementations
from moto.server import ThreadedMotoServer
from upath import UPath

from labelmapping import SimplexMapping
from labelmapping.atomic import file_sha256, remove_leftovers, replacing, write_text
from labelmapping.errors import (
    ArgumentError,
    ArgumentTypeError,
    DataNotFoundError,
    LearnersFailedError,
    MissingExtraError,
    RunMismatchError,
)
from labelmapping.learners import (
    Ensemble,
    LearnerRecipe,
    LearningData,
    ProcessExecutor,
    RayExecutor,
    RunFolder,
    train,
    train_with_refit,
)
from labelmapping.storage import LOCK, as_folder, local_copy

from .test_learners import StopAfter

# What moto and the clients of the store call is deprecated in places that are not ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning"),
]

RECIPE = LearnerRecipe(
    mapping=SimplexMapping(30, 2, field_order=7),
    trunk="labelmapping.nn:SmallCnn",
    trunk_options={"side": 8, "widths": [8], "out_features": 16},
    epochs=2,
    batch_size=32,
    schedule="one-cycle",
    keep_epochs=(1,),
)
KEY = {"key": "a-key", "secret": "a-secret"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An object store with a bucket "runs", which a client finds by its environment."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        patch.setenv("AWS_ACCESS_KEY_ID", KEY["key"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", KEY["secret"])
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("NO_PROXY", host)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("runs")
        yield url
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def contents(folder: Any) -> dict[str, bytes]:
    """All files below a run folder but for the lock's."""
    if isinstance(folder, Path):
        files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
        return {name: p.read_bytes() for name, p in files.items() if name != LOCK}
    fs, root = folder.fs, folder.path
    fs.invalidate_cache()
    return {name[len(root) + 1 :]: fs.cat_file(name) for name in fs.find(root)}


def weights(folder: Any) -> dict[str, bytes]:
    return {n: b for n, b in contents(folder).items() if n.endswith(".safetensors")}


@pytest.fixture(scope="module")
def local(task: LearningData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that all others here must equal."""
    folder = tmp_path_factory.mktemp("runs") / "local"
    train(RECIPE, task, folder, seed=1)
    assert len(weights(folder)) == 4
    return folder


class Started(pl.Callback):
    """Notes the epoch that each learner's training begins with."""

    def __init__(self) -> None:
        self.epochs: dict[Any, int] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.epochs[pl_module.learner] = trainer.current_epoch


def test_a_run_on_an_object_store_is_stopped_and_goes_on(
    endpoint: str, local: Path, task: LearningData
) -> None:
    url = "s3://runs/deep/inside"
    with pytest.raises(LearnersFailedError, match="stopped by the test"):
        train(RECIPE, task, url, seed=1, retries=0, callbacks=lambda _: [StopAfter(17)])
    assert {"run.json", "labels.json", "site-00/checkpoint.ckpt"} <= set(contents(as_folder(url)))
    started = Started()
    run = train(RECIPE, task, url, seed=1, callbacks=lambda _: [started])
    assert str(run.path) == url
    assert started.epochs == {0: 1, 1: 1}
    assert weights(run.path) == weights(local)
    assert set(contents(run.path)) == set(contents(local))
    before = contents(run.path)
    train(RECIPE, task, url, seed=1)
    assert contents(run.path) == before

    ensemble = Ensemble.load(url)
    same = Ensemble.load(local)
    assert ensemble.labels == same.labels
    for a, b in zip(
        ensemble.site_log_probs(task.held_out_inputs),
        same.site_log_probs(task.held_out_inputs),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert Ensemble.load(url, sites=[1], epoch=1).sites == (1,)

    # Damage is found there too.
    path = run.path / "site-01" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RunMismatchError, match=r"s3://.*site-01.*does not match its checksum"):
        Ensemble.load(url)
    with pytest.raises(RunMismatchError, match="seed is 1 there, 2 now"):
        train(RECIPE, task, url, seed=2)


@pytest.mark.slow
def test_processes_train_on_an_object_store(
    endpoint: str, local: Path, task: LearningData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address is known by the path alone, which goes to the processes."""
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    folder = cast(Path, UPath("s3://runs/processes", endpoint_url=endpoint, **KEY))
    run = train(RECIPE, task, folder, seed=1, executor=ProcessExecutor(2))
    assert weights(run.path) == weights(local)
    assert Ensemble.load(folder).sites == (0, 1)
    assert pickle.loads(pickle.dumps(run.path)) == folder
    assert endpoint.encode() not in b"".join(contents(folder).values())


@pytest.mark.slow
def test_ray_trains_on_an_object_store(endpoint: str, local: Path, task: LearningData) -> None:
    ray = pytest.importorskip("ray")
    folder = cast(Path, UPath("s3://runs/ray", endpoint_url=endpoint, **KEY))
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        train(RECIPE, task, folder, seed=1, executor=RayExecutor())
    finally:
        ray.shutdown()
    assert weights(folder) == weights(local)


def test_foreign_places_on_a_store_are_refused_and_left_alone(
    endpoint: str, task: LearningData
) -> None:
    place = UPath("s3://runs/thesis")
    (place / "thesis.txt").write_text("mine")
    with pytest.raises(RunMismatchError, match=r"thesis is there already and is no run folder"):
        train(RECIPE, task, "s3://runs/thesis")
    assert list(contents(place)) == ["thesis.txt"]
    with pytest.raises(DataNotFoundError, match=r"s3://runs/none is no run folder"):
        RunFolder.load("s3://runs/none")
    with pytest.raises(FileNotFoundError, match="bucket"):  # none is made by the way
        train(RECIPE, task, "s3://no-bucket/run")
    assert not s3fs.S3FileSystem().exists("no-bucket")


def test_an_upload_that_fails_leaves_the_old_object(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = as_folder("s3://runs/uploads/weights")
    write_text(path, "old")
    call = s3fs.S3FileSystem._call_s3

    async def refuse(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        if method == "put_object" or (method == "upload_part" and options["PartNumber"] == 2):
            raise ConnectionResetError("the line is cut")
        return await call(self, method, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "_call_s3", refuse)
        with pytest.raises(ConnectionResetError):
            write_text(path, "new")
        # A large file goes up in parts, of which one fails.
        patch.setattr(s3fs.core, "calculate_chunksize", lambda *_, **__: 5 * 2**20)
        with pytest.raises(ConnectionResetError):
            write_text(path, "x" * 11 * 2**20)
    assert contents(as_folder("s3://runs/uploads")) == {"weights": b"old"}
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(FileNotFoundError), replacing(path) as temporary:
        temporary.unlink()
    assert path.read_text() == "new"


def test_what_others_wrote_meanwhile_is_seen(endpoint: str) -> None:
    url = "s3://runs/listed"
    write_text(as_folder(url) / "a", "mine")
    assert [p.name for p in as_folder(url).iterdir()] == ["a"]  # a listing that is kept
    s3fs.S3FileSystem(skip_instance_cache=True).pipe_file(f"{url}/b", b"theirs")
    assert (as_folder(url) / "b").exists()


def test_stores_without_whole_uploads_get_a_name_of_their_own_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = as_folder("memory://stores/uploads")
    path = folder / "site-00" / "run.json"
    write_text(path, "old")
    fs = type(cast(Any, folder).fs)
    put = fs.put_file

    def half(self: Any, local_name: str, name: str, **options: Any) -> None:
        put(self, local_name, name, **options)
        raise ConnectionResetError("the line is cut")

    def no_move(*_: Any, **__: Any) -> None:
        raise ConnectionResetError("the line is cut")

    for method, failing in (("put_file", half), ("mv", no_move)):
        with monkeypatch.context() as patch:
            patch.setattr(fs, method, failing)
            with pytest.raises(ConnectionResetError):
                write_text(path, "new")
        assert contents(folder) == {"site-00/run.json": b"old"}
    write_text(path, "new")
    assert contents(folder) == {"site-00/run.json": b"new"}
    # What a kill leaves is cleared.
    (folder / "site-00" / ".tmp-1run.json").write_bytes(b"half")
    remove_leftovers(folder / "site-00")
    assert contents(folder) == {"site-00/run.json": b"new"}


def test_both_phases_of_a_refit_on_a_store(task: LearningData, tmp_path: Path) -> None:
    """The second one starts from a trunk that is read there."""
    joint = LearnerRecipe(**{**vars(RECIPE), "joint": True, "keep_epochs": ()})
    here, there = tmp_path / "run", "memory://runs/refit"
    for folder in (here, there):
        train_with_refit(joint, task, folder, first_epochs=1, seed=1)
    assert weights(as_folder(there)) == weights(here)
    assert len(weights(here)) == 2


def test_checksums_and_copies_of_remote_files() -> None:
    path = as_folder("memory://files/a.bin")
    path.write_bytes(bytes(range(256)) * 1000)
    with local_copy(path) as copy:
        assert isinstance(copy, Path)
        assert copy.name == path.name
        assert copy.read_bytes() == path.read_bytes()
        assert file_sha256(copy) == file_sha256(path)
    assert not copy.exists()


def test_places_of_this_machine_are_plain_paths(tmp_path: Path) -> None:
    places = [
        tmp_path,
        str(tmp_path),
        f"file://{tmp_path}",
        UPath(tmp_path),
        UPath(f"file://{tmp_path}"),
    ]
    for place in places:
        folder = as_folder(place)
        assert type(folder) is type(tmp_path)
        assert folder == tmp_path
    assert as_folder("runs/a") == Path("runs/a")
    assert as_folder("C:/runs") == Path("C:/runs")


def test_places_that_cannot_be_used_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: LearningData
) -> None:
    with pytest.raises(ArgumentError, match=r"run_folder must be .*'zz://a/b'.*not known: zz"):
        train(RECIPE, task, "zz://a/b")
    with pytest.raises(ArgumentError, match=r"run_folder must be .*simplecache"):
        Ensemble.load("simplecache::memory://a")
    with pytest.raises(ArgumentError, match=r"trunk_weights must be"):
        as_folder("zz://a/b", "trunk_weights")
    with pytest.raises(ArgumentTypeError, match=r"run_folder must be a path or a URL, got 3"):
        as_folder(3)
    absent = {"class": "no_such_package.ZzFileSystem", "err": "Install zz-store to use zz"}
    monkeypatch.setitem(known_implementations, "zz-cloud", absent)
    with pytest.raises(ArgumentError, match=r"run_folder .*: Install zz-store"):
        as_folder("zz-cloud://a/b")
    monkeypatch.setitem(known_implementations, "gs", absent)
    with pytest.raises(ArgumentError, match=r"run_folder .*'gs://a/b'.*: Install zz-store"):
        as_folder(UPath("gs://a/b"))
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'labelmapping\[remote\]'"):
        as_folder("memory://a/b")
    assert as_folder(f"file://{tmp_path}") == tmp_path
