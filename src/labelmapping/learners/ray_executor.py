"""Learners as tasks of a Ray cluster: one task a learner, the rows in the object store once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ArgumentTypeError, LearnerLostError, MissingExtraError
from .data import LearningData
from .executors import LearnerTask, Outcome, perform
from .site import LearnerReport, learner_name

__all__ = ["RayExecutor"]

TENSORS = ("train_inputs", "train_ids", "held_out_inputs", "held_out_ids")


class RayExecutor:
    """Each learner as a Ray task, on the cluster's nodes; the run folder must be shared by them.

    Rows go into the object store once, as arrays that workers map and do not copy.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, or "auto". Default: the one that this process is connected to,
        else a local one is started.
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

    def run(self, tasks: Sequence[LearnerTask], data: LearningData) -> Iterator[Outcome]:
        """Each task once; a worker or a node that is lost is a `LearnerLostError`."""
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError(
                "RayExecutor needs Ray: pip install 'labelmapping[ray]'"
            ) from error
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, include_dashboard=False)
        rows, function = ray.put(_packed(data)), ray.remote(_perform).options(**self.options)
        distinct = {id(task.trunk): task.trunk for task in tasks}  # one, for all of them
        trunks = {key: ray.put(trunk) for key, trunk in distinct.items()}
        running = {
            function.remote(replace(task, trunk=None), rows, trunks[id(task.trunk)]): task
            for task in tasks
        }
        try:
            while running:
                (done,), _ = ray.wait(list(running), num_returns=1)
                task = running.pop(done)
                yield task, _outcome(ray, done, task)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


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
    task: LearnerTask, rows: dict[str, Any], trunk: Mapping[str, Tensor] | None
) -> LearnerReport:
    """On a worker: the rows back as tensors that share the store's memory, and the training."""
    with warnings.catch_warnings():
        # The store's memory is read-only, and no learner writes to its rows.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensors: dict[str, Tensor] = {n: torch.from_numpy(np.asarray(rows[n])) for n in TENSORS}
    data = LearningData(**tensors, labels=rows["labels"])
    return perform(replace(task, trunk=trunk), data)
