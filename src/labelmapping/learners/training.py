"""Trains what is missing in a run folder, on an executor, and tries again what failed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytorch_lightning as pl
import torch

from ..arguments import as_integer
from ..atomic import is_remote
from ..errors import ArgumentError, DivergedError, LearnersFailedError, RunMismatchError
from ..storage import as_folder
from .data import LearningSource
from .executors import Executor, LearnerTask, SerialExecutor
from .recipe import LearnerRecipe, Site
from .run import UNDER_WAY, RunFolder
from .site import (
    LearnerReport,
    check_accelerator,
    check_precision,
    check_trainer_options,
    learner_name,
    read_trunk,
    start_from,
)
from .site_progress import SiteState, finished_state, read_progress

__all__ = ["train"]

logger = logging.getLogger(__name__)
# What would end the same way when tried again; these name their learner.
CERTAIN = (DivergedError, ArgumentError, RunMismatchError)
# Between two looks at the learners' files, and between two notes of them in run.json: here,
# and where every look is a request to a store far away.
LOOKING_SECONDS = (1.0, 10.0)
NOTING_SECONDS = (3.0, 30.0)
# Strategies whose processes begin in the middle of this one's work, in parts of their names.
STARTING = ("spawn", "fork", "notebook")
Watch = Callable[[Sequence[SiteState]], None]


def train(
    recipe: LearnerRecipe,
    data: LearningSource,
    run_folder: str | Path,
    *,
    seed: int = 0,
    learners: Sequence[Site] | None = None,
    executor: Executor | None = None,
    retries: int = 2,
    accelerator: str = "auto",
    trainer_options: Mapping[str, Any] | None = None,
    callbacks: Callable[[Site], Sequence[pl.Callback]] | None = None,
    trunk_weights: str | Path | None = None,
    watch: Watch | None = None,
) -> RunFolder:
    """Train what is missing in a run folder; finished learners keep their bytes.

    While it lasts, ``run.json`` says every few seconds how far each learner is.

    Parameters
    ----------
    run_folder : str, Path or UPath
        A URL such as "s3://bucket/run", or a UPath, is on a store that fsspec speaks to: extra
        `remote`, and the store's own package. Files appear whole there too. On this machine the
        folder is locked: one training at a time. Stores have no locks, so let one do. Tried were
        S3 and fsspec's own "memory", which other processes do not share.
    learners : sequence of int or "all", optional
        Which of ``recipe.learners()``. Default all of them.
    executor : Executor, optional
        `SerialExecutor` (the default), `ProcessExecutor` or `RayExecutor`. The weights are the
        same bits on all of them, and on any number of workers.
    retries : int, default 2
        How often a learner that failed is tried again, from its last whole epoch. One that
        diverged, or whose checkpoint is damaged, is not: it would end the same way.
    accelerator : str
        Lightning's: "auto", "cpu", "gpu", ...
    trainer_options : mapping, optional
        Of Lightning's trainer inside a site: strategy (by name), devices (1 by default),
        num_nodes; handed on unchanged, and not part of the run. They say where, not what: with
        several processes each takes its share of the rows of every batch, whose size they must
        divide, so that the steps are those of one process. The weights are the same bits only
        where all three are the same, and what a process draws (dropout) or averages (batch norm)
        by itself differs; so does a last batch that they cannot divide, which is filled up. The
        strategies here are those that start processes of their own, such as "ddp_spawn"; "ddp"
        runs a script anew, and several nodes are started from outside: call
        `RunFolder.create` once, `train_learner` in each, and then `train`, which records it.
    callbacks : function of a learner, optional
        Lightning callbacks for its training, with the `SerialExecutor` only.
    trunk_weights : path, optional
        The weights file whose trunk the learners start from; needed where the recipe has a
        `trunk_sha256`, and not otherwise.
    watch : function of a sequence of SiteState, optional
        Gets the state of all `learners` about every second (of a run on a store every 10), and
        whenever one has ended, in a thread of its own;
        `labelmapping.learners.progress.LiveSites` is one. What it raises is told once, and stops
        nothing.

    Raises
    ------
    ArgumentError
        The recipe does not fit the data or cannot be built, or there is no such accelerator;
        nothing is written.
    RunInUseError
        Another process trains in the folder.
    RunMismatchError
        The folder was made with other settings or data, or finished weights are altered.
    DivergedError
        All that failed diverged. As with any failure the other learners are finished and stay,
        and the next start trains exactly what is missing.
    LearnersFailedError
        Some learners failed for good; names each and its cause.
    """
    wanted = recipe.learners() if learners is None else tuple(dict.fromkeys(learners))
    unknown = [s for s in wanted if s not in recipe.learners() or isinstance(s, bool)]
    if unknown:
        raise ArgumentError(f"learners must be among {recipe.learners()}, got {unknown}")
    if recipe.mapping.n_classes != data.n_classes:
        raise ArgumentError(
            f"mapping must have as many classes as the data have labels, {data.n_classes}; "
            f"got {recipe.mapping.n_classes}"
        )
    if (trunk_weights is None) != (recipe.trunk_sha256 is None):
        raise ArgumentError(
            "trunk_weights must be given where the recipe has a trunk_sha256, and only there; got "
            f"{trunk_weights} and {recipe.trunk_sha256}"
        )
    trunk = None
    if trunk_weights is not None and recipe.trunk_sha256 is not None:
        trunk = read_trunk(as_folder(trunk_weights, "trunk_weights"), recipe.trunk_sha256)
    with torch.random.fork_rng(devices=[]):
        network = recipe.build(recipe.learners()[0], data.class_counts)
        if trunk is not None:
            start_from(network, trunk)
    # What cannot be built was refused before any file.
    if callbacks is not None and not isinstance(executor, SerialExecutor | None):
        raise ArgumentError("callbacks must be None with an executor of other processes")
    as_integer("retries", retries, 0)
    check_accelerator(accelerator, here=isinstance(executor, SerialExecutor | None))
    if isinstance(executor, SerialExecutor | None):
        check_precision(recipe, accelerator)  # else the workers' machines decide
    options = _options_of_one_start(trainer_options)
    with RunFolder.training(run_folder, recipe, seed, data) as run:
        missing = []
        for learner in wanted:
            if run.is_recorded(learner):
                logger.info("%s: %s is finished", run.path, learner)
                run.check_weights(learner)
            else:
                missing.append(learner)
        tasks = [
            LearnerTask(
                recipe,
                learner,
                seed,
                run.path,
                accelerator,
                trunk,
                callbacks=() if callbacks is None else callbacks(learner),
                trainer_options=options,
            )
            for learner in missing
        ]
        with _Watched(run, wanted, watch) as watched:
            _run_all(watched, tasks, data, executor or SerialExecutor(), retries)
    return run


def _options_of_one_start(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a trainer that nothing but this process starts."""
    found = check_trainer_options(options)
    devices = found.get("devices", 1)
    one = devices in (1, "1") or (isinstance(devices, list) and len(devices) == 1)
    single = one and found.get("num_nodes", 1) == 1
    strategy = found.get("strategy", "auto")
    if single or (found.get("num_nodes", 1) == 1 and any(s in strategy for s in STARTING)):
        return found
    raise ArgumentError(
        "strategy must be one that starts its processes itself, such as ddp_spawn, and num_nodes "
        f"1, where devices is not 1; got {found}; for others call RunFolder.create, and then "
        "train_learner in each process"
    )


class _Watched:
    """Records how learners end; meanwhile a thread looks how far they are, and passes it on."""

    def __init__(self, run: RunFolder, learners: Sequence[Site], watch: Watch | None) -> None:
        self.run = run
        self.watch = watch
        self.looking = LOOKING_SECONDS[is_remote(run.path)]
        self.noting = NOTING_SECONDS[is_remote(run.path)]
        self.lock = threading.Lock()  # of the run folder's record and of the states
        self.states = {s: self._at_first(s) for s in learners}
        self.seen = {s: read_progress(run.learner_folder(s)) for s in self._unfinished()}
        self.noted: dict[Site, dict[str, Any]] = {}
        self.noted_at = -self.noting
        self.complained: set[str] = set()
        self.look_now, self.ending = threading.Event(), False
        self.thread = threading.Thread(target=self._go_on_looking, daemon=True)

    def _at_first(self, learner: Site) -> SiteState:
        if self.run.is_recorded(learner):
            return finished_state(self.run.learner_folder(learner))
        epochs = self.run.recipe.epochs
        return SiteState(learner_name(learner), "waiting", epochs=epochs)

    def _unfinished(self) -> list[Site]:
        return [s for s, state in self.states.items() if state.state != "finished"]

    def __enter__(self) -> Self:
        if self._unfinished() or self.watch is not None:
            self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """A last look, and nothing in run.json but what is recorded."""
        self.ending = True
        self.look_now.set()
        if self.thread.ident is not None:
            self.thread.join()
        if self.noted:
            self._safely("run.json", self.run.record_progress, {})

    def ended(self, learner: Site, outcome: LearnerReport | Exception) -> LearnerReport | Exception:
        """Record how a learner ended, and hand it on; one that cannot be recorded has failed."""
        with self.lock:
            if not isinstance(outcome, Exception):
                try:
                    self.run.record(learner, outcome)
                except Exception as error:  # a full disk; and stores raise what they like
                    outcome = error
            if isinstance(outcome, Exception):
                self.run.record_failure(learner, outcome)
                cause = f"{type(outcome).__name__}: {outcome}"
                self.states[learner] = replace(self.states[learner], state="failed", cause=cause)
                self.seen[learner] = read_progress(self.run.learner_folder(learner))
            else:
                self.states[learner] = finished_state(self.run.learner_folder(learner))
        self.look_now.set()
        return outcome

    def _go_on_looking(self) -> None:
        while True:
            ending = self.ending
            with self.lock:
                self._safely("progress.json", self._look)
                states = list(self.states.values())
            self._safely("watch", self.watch, states)
            if ending:
                return
            self.look_now.wait(self.looking)
            self.look_now.clear()

    def _look(self) -> None:
        """Read how far the learners are, and note it in run.json from time to time."""
        for learner in self._unfinished():
            found = read_progress(self.run.learner_folder(learner))
            # What lies there from an attempt that has ended says nothing.
            if found is not None and found != self.seen[learner]:
                known = {f.name: found[f.name] for f in fields(SiteState) if f.name in found}
                self.states[learner] = SiteState(**known, name=learner_name(learner))
        now = time.monotonic()
        under_way = {
            s: _shown(self.states[s])
            for s in self._unfinished()
            if self.states[s].state in UNDER_WAY
        }
        if now - self.noted_at >= self.noting and under_way != self.noted:
            self.noted, self.noted_at = under_way, now
            self._safely("run.json", self.run.record_progress, under_way)

    def _safely(self, what: str, act: Callable[..., None] | None, *arguments: Any) -> None:
        """Nothing that only shows how far learners are may stop them; told once."""
        try:
            if act is not None:
                act(*arguments)
        except Exception as error:
            if what not in self.complained:
                logger.warning(
                    "%s: %s does not show how far learners are: %r", self.run.path, what, error
                )
            self.complained.add(what)


def _shown(state: SiteState) -> dict[str, Any]:
    """What run.json says of a learner under way."""
    named = {k: v for k, v in asdict(state).items() if k not in ("name", "cause")}
    return named if state.state == "running" else {"state": state.state}


def _run_all(
    watched: _Watched,
    tasks: Sequence[LearnerTask],
    data: LearningSource,
    executor: Executor,
    retries: int,
) -> None:
    """Run all tasks, and again those that failed; a learner's end is recorded as it comes."""
    failures: dict[Site, Exception] = {}
    order = [task.learner for task in tasks]
    for attempt in range(retries + 1):
        again = []
        for task, ended in executor.run(tasks, data) if tasks else ():
            outcome = watched.ended(task.learner, ended)
            if not isinstance(outcome, Exception):
                failures.pop(task.learner, None)
                continue
            failures[task.learner] = outcome
            logger.warning(
                "%s: %s failed at attempt %d of %d: %s",
                watched.run.path,
                learner_name(task.learner),
                attempt + 1,
                retries + 1,
                outcome,
            )
            if not isinstance(outcome, CERTAIN):
                again.append(task)
        tasks = again
    if not failures:
        return
    failures = {s: failures[s] for s in order if s in failures}  # not as they happened to end
    causes = [f"{learner_name(s)}: {type(e).__name__}: {e}" for s, e in failures.items()]
    first = next(iter(failures.values()))
    if len(failures) == 1 and isinstance(first, CERTAIN):
        raise first
    if all(isinstance(error, DivergedError) for error in failures.values()):
        raise DivergedError("; ".join(str(error) for error in failures.values())) from first
    raise LearnersFailedError(
        f"{len(failures)} {'learner' if len(failures) == 1 else 'learners'} failed, and all others "
        f"are finished: {'; '.join(causes)}",
        failures,
    ) from first
