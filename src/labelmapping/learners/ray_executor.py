"""Learners as tasks of a Ray cluster: one task a learner, the rows in the object store once."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..atomic import is_remote
from ..errors import ArgumentError, ArgumentTypeError, LearnerLostError, MissingExtraError
from .data import LearningData, LearningSource
from .executors import LearnerTask, Outcome, perform
from .site import LearnerReport, learner_name

__all__ = ["RayExecutor"]

logger = logging.getLogger(__name__)
# For an answer from the address of a cluster; Ray by itself goes on trying for minutes.
REACHING_SECONDS = 10.0
TENSORS = ("train_inputs", "train_ids", "held_out_inputs", "held_out_ids")


class RayExecutor:
    """Each learner as a Ray task, on the cluster's nodes; the run folder must be shared by them.

    Rows go into the object store once an attempt, as arrays that workers map and do not copy.
    Data that workers read themselves (`ModuleData`) must lie on a file system of all nodes. A
    driver that is killed takes its tasks with it: Ray ends their workers. What one of them still
    writes before it ends is what the next start writes too, bit for bit.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, "host:port" or "auto". Default: the one that this process is
        connected to, else a local one is started. In a process that is connected, another
        address is refused.
    num_cpus : float, default: torch's number of threads
    num_gpus : float, default 0
    memory : int, optional
        Bytes that a learner needs.
    resources : mapping of str to float, optional
        Custom resources of a learner.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        num_cpus: float | None = None,
        num_gpus: float = 0,
        memory: int | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        self.address = address
        self.options: dict[str, Any] = {
            "num_cpus": torch.get_num_threads() if num_cpus is None else num_cpus,
            "num_gpus": num_gpus,
            "max_retries": 0,  # `train` tries again, with a limit, what failed
        }
        if memory is not None:
            self.options["memory"] = memory
        if resources is not None:
            self.options["resources"] = dict(resources)

    def run(self, tasks: Sequence[LearnerTask], data: LearningSource) -> Iterator[Outcome]:
        """Each task once; a worker or a node that is lost is a `LearnerLostError`.

        Raises
        ------
        ArgumentError
            No cluster answers at the address.
        """
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError(
                "RayExecutor needs Ray: pip install 'labelmapping[ray]'"
            ) from error
        if not ray.is_initialized():
            _connect(ray, self.address)
        elif self.address not in (None, "auto", ray.get_runtime_context().gcs_address):
            raise ArgumentError(
                f"address must be that of the cluster this process is connected to, "
                f"{ray.get_runtime_context().gcs_address}; got {self.address!r}"
            )
        self._tell_of_scarcity(ray.nodes())
        # Of rows that are not in memory only how to read them.
        rows = ray.put(_packed(data) if isinstance(data, LearningData) else data)
        function = ray.remote(_perform).options(**self.options)
        distinct = {id(task.trunk): task.trunk for task in tasks}  # one, for all of them
        trunks = {key: ray.put(trunk) for key, trunk in distinct.items()}
        running = {}
        for task in tasks:
            place = task.run_folder  # workers are in another folder
            bare = replace(
                task, trunk=None, run_folder=place if is_remote(place) else place.absolute()
            )
            running[function.remote(bare, rows, trunks[id(task.trunk)], os.getcwd())] = task
        try:
            while running:
                (done,), _ = ray.wait(list(running), num_returns=1)
                task = running.pop(done)
                yield task, _outcome(ray, done, task)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _tell_of_scarcity(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Ray waits in silence for a node that can hold a task."""
        names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
        wanted = {n: self.options.get(option, 0) for option, n in names.items()}
        wanted = {n: x for n, x in {**wanted, **self.options.get("resources", {})}.items() if x}
        there = [node["Resources"] for node in nodes if node["Alive"]]
        if not any(all(has.get(n, 0) >= x for n, x in wanted.items()) for has in there):
            logger.warning(
                "no node of the Ray cluster has %s, which a learner needs: they wait for one",
                ", ".join(f"{x:g} {n}" for n, x in wanted.items()),
            )


def _connect(ray: Any, address: str | None) -> None:
    if address is None:
        ray.init(log_to_driver=False, include_dashboard=False)
        return
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdigit() and "/" not in host:
            socket.create_connection((host.strip("[]"), int(port)), REACHING_SECONDS).close()
        ray.init(address=address, log_to_driver=False)
    except (OSError, ValueError, OverflowError, RuntimeError) as error:
        said = str(error).strip().partition("\n")[0]
        raise ArgumentError(
            f"address must be that of a running Ray cluster, and {address!r} is not: {said}"
        ) from error


def _outcome(ray: Any, done: Any, task: LearnerTask) -> LearnerReport | Exception:
    try:
        report: LearnerReport = ray.get(done)
        return report
    except ray.exceptions.RayTaskError as error:  # the learner's own
        cause = error.cause
        return cause if isinstance(cause, Exception) else RuntimeError(str(error))
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()
        said = first[0] if first else "no more is known"
        return LearnerLostError(
            f"learner {learner_name(task.learner)}: {type(error).__name__}: {said}"
        )


def _packed(data: LearningData) -> dict[str, Any]:
    """Rows as numpy arrays, which Ray maps into workers as they lie in the store."""
    arrays: dict[str, NDArray[Any]] = {}
    for name in TENSORS:
        tensor: Tensor = getattr(data, name).detach()
        if tensor.dtype == torch.bfloat16:  # which numpy has not
            raise ArgumentTypeError(f"{name} must not be bfloat16 on Ray, whose arrays are numpy's")
        arrays[name] = tensor.numpy()
    return {**arrays, "labels": list(data.labels)}


def _perform(
    task: LearnerTask, rows: Any, trunk: Mapping[str, Tensor] | None, folder: str
) -> LearnerReport:
    """On a worker: the rows back as tensors that share the store's memory, and the training."""
    if os.path.isdir(folder):  # the driver's, which paths of data may start from
        os.chdir(folder)
    if not isinstance(rows, dict):
        return perform(replace(task, trunk=trunk), rows)
    with warnings.catch_warnings():
        # The store's memory is read-only, and no learner writes to its rows.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensors: dict[str, Tensor] = {n: torch.from_numpy(np.asarray(rows[n])) for n in TENSORS}
    data = LearningData(**tensors, labels=rows["labels"])
    return perform(replace(task, trunk=trunk), data)
