"""Where learners run: here one after the other, in processes of this machine, or on Ray.

An executor only maps `perform` over tasks. It knows no recipe and no run folder, and it
never stops at a failure: what a learner ended with is handed on.
"""

from __future__ import annotations

import logging
import multiprocessing.connection
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
import torch.multiprocessing
from torch import Tensor

from ..arguments import as_integer
from ..errors import LearnerLostError
from .data import LearningSource
from .recipe import LearnerRecipe, Site
from .site import LearnerReport, learner_name, train_learner

__all__ = ["Executor", "LearnerTask", "ProcessExecutor", "SerialExecutor", "perform"]


@dataclass(frozen=True)
class LearnerTask:
    """One learner to train: all that its function needs but the data.

    Attributes
    ----------
    recipe, learner, seed, run_folder, accelerator, trainer_options, trunk
        As `train_learner` takes them.
    threads : int
        Of torch, wherever it runs: sums on another number of them differ in their last bits.
    callbacks : sequence of Lightning callbacks
        Of the caller, in this process alone.
    """

    recipe: LearnerRecipe
    learner: Site
    seed: int
    run_folder: Path
    accelerator: str = "auto"
    trunk: Mapping[str, Tensor] | None = None
    threads: int = field(default_factory=torch.get_num_threads)
    callbacks: Sequence[pl.Callback] = ()
    trainer_options: Mapping[str, Any] = field(default_factory=dict)


# A learner and how its training ended.
Outcome = tuple[LearnerTask, LearnerReport | Exception]


class Executor(Protocol):
    """Runs tasks, and hands out how each ended as soon as it is known, in any order."""

    def run(self, tasks: Sequence[LearnerTask], data: LearningSource) -> Iterator[Outcome]:
        """Each task once; a failure is an outcome, and the others go on."""
        ...


def perform(task: LearnerTask, data: LearningSource) -> LearnerReport:
    """Train one learner with the task's number of threads."""
    before = torch.get_num_threads()
    if before != task.threads:
        torch.set_num_threads(task.threads)
    try:
        return train_learner(
            task.recipe,
            task.learner,
            task.seed,
            data,
            task.run_folder,
            accelerator=task.accelerator,
            trainer_options=task.trainer_options,
            callbacks=task.callbacks,
            trunk=task.trunk,
        )
    finally:
        if before != task.threads:
            torch.set_num_threads(before)


class SerialExecutor:
    """One learner after the other, in this process."""

    def run(self, tasks: Sequence[LearnerTask], data: LearningSource) -> Iterator[Outcome]:
        """Each task once, in order."""
        for task in tasks:
            try:
                yield task, perform(task, data)
            except Exception as error:
                yield task, error


class ProcessExecutor:
    """Each learner in a process of its own, some at a time; the rows lie in shared memory.

    Scripts need the usual ``if __name__ == "__main__":``, since processes are spawned. They
    end when this one does, however it does.

    Parameters
    ----------
    max_workers : int, optional
        Processes at a time. Default: the machine's CPUs over torch's threads.
    """

    def __init__(self, max_workers: int | None = None) -> None:
        if max_workers is None:
            max_workers = max(1, (os.cpu_count() or 1) // torch.get_num_threads())
        self.max_workers = as_integer("max_workers", max_workers, 1)

    def run(self, tasks: Sequence[LearnerTask], data: LearningSource) -> Iterator[Outcome]:
        """Each task once; a process that is killed is a `LearnerLostError`."""
        spawn = torch.multiprocessing.get_context("spawn")
        started = multiprocessing.get_start_method(allow_none=True)
        waiting = deque(tasks)
        running: dict[Any, tuple[Any, Any, LearnerTask]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.max_workers:
                    task = waiting.popleft()
                    receiver, sender = spawn.Pipe(duplex=False)
                    process = spawn.Process(
                        target=_work, args=(sender, task, data, started), daemon=True
                    )
                    process.start()
                    sender.close()
                    running[process.sentinel] = process, receiver, task
                # Either end: a long answer blocks its process until it is read.
                ends = {end: s for s, (_, r, _) in running.items() for end in (s, r)}
                for sentinel in {ends[e] for e in multiprocessing.connection.wait(list(ends))}:
                    process, receiver, task = running.pop(sentinel)
                    yield task, _outcome(process, receiver, task)
        finally:
            for process, _, _ in running.values():
                process.terminate()
                process.join()


def _work(sender: Any, task: LearnerTask, data: LearningSource, started: str | None) -> None:
    """In the other process: train, and send how it ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # It may have processes of its own, a loader's and a strategy's, started as in the parent.
    multiprocessing.current_process().daemon = False
    multiprocessing.set_start_method(started, force=True)
    # Ctrl-C is for the parent, which ends this. Not SIG_IGN: processes of a strategy would
    # inherit that, and Ctrl-C is how they learn that this one has ended.
    signal.signal(signal.SIGINT, lambda *_: None)
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # its notes, many times over
    try:
        sender.send(perform(task, data))
    except Exception as error:
        sender.send(_sendable(error))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _sendable(error: Exception) -> Exception:
    """The error, or where it cannot be pickled one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _outcome(process: Any, receiver: Any, task: LearnerTask) -> LearnerReport | Exception:
    try:
        if receiver.poll():
            found: LearnerReport | Exception = receiver.recv()
            return found
    except (EOFError, OSError):  # killed before it answered, or while it did
        pass
    finally:
        receiver.close()
        process.join()
    code = process.exitcode
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return LearnerLostError(f"learner {learner_name(task.learner)}: its process ended {how}")
