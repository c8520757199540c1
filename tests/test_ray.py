"""Learners on Ray, on a cluster of several nodes on this machine: the same bits, and faults."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from labelmapping.learners import LearnerRecipe, LearningData, RayExecutor, RunFolder, train
from labelmapping.learners.executors import LearnerTask
from labelmapping.learners.ray_executor import _packed

from .test_executors import RECIPE, weights

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray's own making


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without CPUs and two nodes of one, each a raylet of its own."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        made.add_node(num_cpus=1)
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


@pytest.mark.usefixtures("cluster")
def test_N15_rows_lie_in_the_store_once_and_tasks_are_small(tmp_path: Path) -> None:
    rows = torch.zeros(4000, 1, 50, 50, dtype=torch.uint8)  # 10 MB
    ids = torch.arange(4000) % 30
    data = LearningData(rows, ids, rows[:30], ids[:30], labels=[str(i) for i in range(30)])
    task = LearnerTask(RECIPE, 0, 0, tmp_path)
    assert len(pickle.dumps(task)) < 10**6
    store = ray.put(_packed(data))

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    def look(found: Any) -> tuple[bool, int]:
        array = found["train_inputs"]
        return bool(array.flags.writeable), array.nbytes

    seen = ray.get([look.remote(store), look.remote(store)])
    assert seen == [(False, 10_000_000)] * 2  # mapped, and not copied
    assert len(pickle.dumps(_packed(data))) < 1.2 * 10_100_000


@pytest.mark.usefixtures("cluster")
def test_an_error_of_a_learner_is_its_own(task: LearningData, tmp_path: Path) -> None:
    wild = replace(RECIPE, learning_rate=1e30, schedule="constant")
    with pytest.raises(ArithmeticError, match=r"site-00.*a lower learning_rate.*; .*site-02"):
        train(wild, task, tmp_path, executor=RayExecutor())
    assert RunFolder.load(tmp_path).finished() == []
