"""Learners on Ray, on a cluster of several nodes on this machine: the same bits, and faults."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from labelmapping import SimplexMapping
from labelmapping.errors import ArgumentError
from labelmapping.learners import (
    LearnerRecipe,
    LearningData,
    RayExecutor,
    RunFolder,
    train,
    training,
)
from labelmapping.learners.executors import LearnerTask
from labelmapping.learners.ray_executor import _packed
from labelmapping.learners.site_progress import SiteState

from .conftest import make_task as tiny
from .lossy_trunk import LossyCnn
from .test_executors import RECIPE, weights

ray = pytest.importorskip("ray", reason="Ray is not installed")
ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray's own making


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs and two nodes of one, each a raylet of its own."""
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": 600_000_000}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **store})
    for resources in ({"first": 1}, {}):
        made.add_node(num_cpus=1, resources=resources, **store)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def lossy(marker: Path, delay: float = 0.0) -> LearnerRecipe:
    options = {**RECIPE.trunk_options, "marker": str(marker), "delay": delay}
    return replace(RECIPE, trunk="tests.lossy_trunk:LossyCnn", trunk_options=options)


@pytest.fixture(scope="module")
def serial(task: LearningData, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The weights of an undisturbed serial run on one thread."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "marker").touch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(lossy(folder / "marker"), task, folder / "serial", seed=3)
    finally:
        torch.set_num_threads(threads)
    return weights(folder / "serial")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_killed_is_tried_again_and_the_bits_are_those_of_a_serial_run(
    task: LearningData, tmp_path: Path, serial: dict[str, str]
) -> None:
    marker = tmp_path / "marker"
    run = train(lossy(marker), task, tmp_path / "run", seed=3, executor=RayExecutor())
    assert marker.exists()
    assert run.finished() == [0, 1, 2]
    assert weights(tmp_path / "run") == serial


def test_a_lost_node_costs_its_learners_a_retry(
    cluster: Any, task: LearningData, tmp_path: Path, serial: dict[str, str]
) -> None:
    (tmp_path / "marker").touch()
    doomed = cluster.add_node(num_cpus=1, resources={"doomed": 1})
    failed: list[Exception] = []
    recipe = lossy(tmp_path / "marker", delay=0.05)

    class Noting(RayExecutor):
        """Site 0 begins on the node that will be lost."""

        def run(self, tasks: Any, data: Any) -> Any:
            first = [t for t in tasks if t.learner == 0 and not failed]
            if first:
                on_it = RayExecutor(resources={"doomed": 1})
                for outcome in on_it.run(first, data):
                    if isinstance(outcome[1], Exception):
                        failed.append(outcome[1])
                    yield outcome
            yield from super().run([t for t in tasks if t not in first], data)

    def lose() -> None:
        while not (tmp_path / "run" / "site-00" / "checkpoint.ckpt").exists():
            time.sleep(0.01)
        cluster.remove_node(doomed, allow_graceful=False)

    losing = threading.Thread(target=lose)
    losing.start()
    train(recipe, task, tmp_path / "run", seed=3, executor=Noting())
    losing.join()
    assert len(failed) == 1
    assert "learner site-00" in str(failed[0])
    assert weights(tmp_path / "run") == serial


class Telling(LossyCnn):
    """Leaves a file named by its process beside the marker."""

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            (self.marker.parent / f"worker-{os.getpid()}").touch()
        return super().forward(images)


def telling(folder: Path) -> LearnerRecipe:
    return replace(lossy(folder / "marker", delay=0.05), trunk="tests.test_ray:Telling")


DRIVER = """
import sys
import torch
from pathlib import Path
from tests.conftest import make_task
from tests.test_ray import telling
from labelmapping.learners import RayExecutor, train

torch.set_num_threads(1)
folder = Path(sys.argv[1])
train(telling(folder), make_task(), folder / "run", seed=3, executor=RayExecutor(sys.argv[2]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_killed_driver_takes_its_learners_along_and_the_next_one_goes_on(
    cluster: Any, task: LearningData, tmp_path: Path, serial: dict[str, str]
) -> None:
    (tmp_path / "marker").touch()
    command = [sys.executable, "-c", DRIVER, str(tmp_path), cluster.address]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as driver:
        first = tmp_path / "run" / "site-00" / "checkpoint.ckpt"
        while not first.exists():
            assert driver.poll() is None
            time.sleep(0.01)
        driver.send_signal(signal.SIGKILL)
    orphans = [Path("/proc") / p.name.partition("-")[2] for p in tmp_path.glob("worker-*")]
    assert orphans
    assert not (tmp_path / "run" / "site-00" / "weights.safetensors").exists()
    # At once, while the orphans may still write; then they end.
    run = train(telling(tmp_path), task, tmp_path / "run", seed=3, executor=RayExecutor())
    assert run.finished() == [0, 1, 2]
    until = time.monotonic() + 60
    while any(orphan.exists() for orphan in orphans):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert weights(tmp_path / "run") == serial
    assert not list((tmp_path / "run").rglob("*.ckpt"))
    assert not list((tmp_path / "run").rglob("progress.json"))


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "options",
    [{"resources": {"first": 1}}, {}, {"num_cpus": 0.5}],
    ids=["one worker", "two workers", "four workers"],
)
def test_N62_equal_seeds_give_the_weights_of_a_serial_run_on_any_number_of_workers(
    task: LearningData, tmp_path: Path, serial: dict[str, str], options: dict[str, Any]
) -> None:
    (tmp_path / "marker").touch()
    executor = RayExecutor(**options)
    train(lossy(tmp_path / "marker"), task, tmp_path / "run", seed=3, executor=executor)
    assert weights(tmp_path / "run") == serial


@pytest.mark.usefixtures("cluster")
def test_a_relative_run_folder_lies_where_the_driver_is_and_shows_how_far_learners_are(
    task: LearningData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serial: dict[str, str]
) -> None:
    monkeypatch.setattr(training, "LOOKING_SECONDS", (0.01, 0.01))
    monkeypatch.chdir(tmp_path)
    Path("marker").touch()
    seen: list[SiteState] = []
    train(
        lossy(tmp_path / "marker", delay=0.02),
        task,
        "run",
        seed=3,
        executor=RayExecutor(),
        watch=lambda sites: seen.extend(s for s in sites if s.state == "running"),
    )
    assert weights(tmp_path / "run") == serial
    assert {s.name for s in seen} == {"site-00", "site-01", "site-02"}
    assert any(s.epoch and s.loss and s.held_out_accuracy is not None for s in seen)


@pytest.mark.usefixtures("cluster")
def test_N15_rows_lie_in_the_store_once_and_tasks_are_small(tmp_path: Path) -> None:
    """200 MB of rows, a view of more; 20 learners, of one node beside the driver's."""
    rows = torch.zeros(100_000, 1, 50, 50, dtype=torch.uint8)[20_000:]
    ids = torch.arange(80_000) % 30
    data = LearningData(rows, ids, rows[:30], ids[:30], labels=[str(i) for i in range(30)])
    recipe = LearnerRecipe(
        mapping=SimplexMapping(30, 20, field_order=23),
        trunk="labelmapping.nn:SmallCnn",
        trunk_options={"side": 50, "widths": [2], "out_features": 4},
        epochs=1,
        steps_per_epoch=1,
        batch_size=4,
    )
    assert len(pickle.dumps(LearnerTask(recipe, 0, 0, tmp_path))) < 10**6
    used: list[float] = []

    def in_use() -> float:
        there, free = ray.cluster_resources(), ray.available_resources()
        return float(there["object_store_memory"] - free["object_store_memory"])

    class Measured(RayExecutor):
        def run(self, tasks: Any, data: Any) -> Any:
            before = in_use()
            for outcome in super().run(tasks, data):
                used.append(in_use() - before)
                yield outcome

    run = train(recipe, data, tmp_path, executor=Measured(resources={"first": 1}))
    assert len(run.finished()) == 20
    assert len(used) == 20
    assert rows.nbytes < max(used) < 2 * 1.2 * rows.nbytes


@pytest.mark.usefixtures("cluster")
def test_N15_workers_map_rows_and_do_not_copy_them() -> None:
    rows, ids = torch.zeros(1000, 1, 50, 50, dtype=torch.uint8), torch.arange(1000) % 30
    data = LearningData(rows, ids, rows[:30], ids[:30], labels=[str(i) for i in range(30)])

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    def look(found: Any) -> tuple[bool, bool]:
        array = found["train_inputs"]
        return bool(array.flags.writeable), bool(array.flags.owndata)

    assert ray.get(look.remote(ray.put(_packed(data)))) == (False, False)


@pytest.mark.usefixtures("cluster")
def test_a_learner_that_no_node_can_hold_is_told(caplog: pytest.LogCaptureFixture) -> None:
    enough = RayExecutor(num_cpus=1, memory=10**6, resources={"first": 1})
    scarce = RayExecutor(num_cpus=1, num_gpus=2, resources={"first": 0.5})
    for executor in (enough, scarce):
        assert list(executor.run([], tiny())) == []
    told = [r.getMessage() for r in caplog.records if r.name.startswith("labelmapping")]
    assert told == [
        "no node of the Ray cluster has 1 CPU, 2 GPU, 0.5 first, which a learner needs: "
        "they wait for one"
    ]


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "[::1]:{port}", "nonsense", "h:99999"])
def test_an_address_where_no_cluster_is_is_named_at_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = address.format(port=unused.getsockname()[1])
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(
        ArgumentError, match=r"address must be that of a running Ray cluster, and '"
    ):
        list(RayExecutor(address).run([], tiny()))


@pytest.mark.usefixtures("cluster")
def test_an_error_of_a_learner_is_its_own(task: LearningData, tmp_path: Path) -> None:
    wild = replace(RECIPE, learning_rate=1e30, schedule="constant")
    with pytest.raises(ArithmeticError, match=r"site-00.*a lower learning_rate.*; .*site-02"):
        train(wild, task, tmp_path, executor=RayExecutor())
    assert RunFolder.load(tmp_path).finished() == []
