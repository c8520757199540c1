"""How far a learner is, as a file in its folder, for whoever shares it. Knows no terminal."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import pytorch_lightning as pl
import torch
from torch import Tensor

from ..atomic import is_remote, write_json

__all__ = ["PROGRESS", "ProgressFile", "SiteState", "finished_state", "read_progress"]

logger = logging.getLogger(__name__)
PROGRESS = "progress.json"
# Between two writes inside an epoch: here, and on a store, which takes longer for each.
SECONDS = (2.0, 30.0)
# The loss is the mean of so many last steps.
STEPS_OF_LOSS = 50


@dataclass(frozen=True)
class SiteState:
    """How far a learner of a run is.

    Attributes
    ----------
    name : str
        Its folder: ``site-07`` or ``site-all``.
    state : {"waiting", "running", "finished", "failed"}
        One that failed is "running" once it is tried again.
    epoch, epochs : int
        Whole epochs trained, and how many it takes.
    step : int
        Optimiser steps done.
    steps : int or None
        How many it takes, where that is known.
    loss : float or None
        Mean over the last steps; of a finished learner over its last epoch.
    held_out_accuracy : float or None
        In 0..1, after the last whole epoch; of joint learners the mean over the sites.
    seconds_left : float or None
        At the speed so far; None where nothing is known yet.
    cause : str or None
        What it failed of.
    """

    name: str
    state: Literal["waiting", "running", "finished", "failed"]
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps: int | None = None
    loss: float | None = None
    held_out_accuracy: float | None = None
    seconds_left: float | None = None
    cause: str | None = None


class ProgressFile(pl.Callback):
    """Writes ``progress.json`` into a learner's folder while it trains, and removes it after.

    The file has the fields of `SiteState` but name and cause, and the ``time`` of writing in
    seconds since 1970. It appears when training begins, and then every few seconds and at each
    epoch's end. Losses stay on their device until it is written; no random state is touched. A
    write that fails is told once and does not stop the training.
    """

    def __init__(self, folder: Path, epochs: int) -> None:
        self.folder = folder
        self.epochs = epochs
        self.every = SECONDS[is_remote(folder)]
        self.clock: Callable[[], float] = time.monotonic
        self.losses: deque[Tensor] = deque(maxlen=STEPS_OF_LOSS)
        self.accuracy: float | None = None
        self.epoch = self.first_step = 0
        self.began = self.written = 0.0
        self.complained = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say that training has begun, or goes on."""
        self.began, self.first_step = self.clock(), trainer.global_step
        self.epoch = trainer.current_epoch
        self._write(trainer)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Keep the loss, and write where some seconds have gone."""
        self.losses.append(outputs["loss"].detach())
        if self.clock() - self.written >= self.every:
            self._write(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write with the epoch's accuracy."""
        self.epoch = trainer.current_epoch + 1
        self.accuracy = _accuracy(trainer.callback_metrics)
        self._write(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remove the file."""
        self._remove(trainer)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Remove the file: what ended the training is told elsewhere."""
        self._remove(trainer)

    def _write(self, trainer: pl.Trainer) -> None:
        if not trainer.is_global_zero:
            return
        now, step = self.clock(), trainer.global_step
        self.written = now
        whole = trainer.num_training_batches * self.epochs
        steps = int(whole) if math.isfinite(whole) else None
        loss = float(torch.stack(list(self.losses)).float().mean()) if self.losses else None
        left = None
        if steps is not None and step > self.first_step:
            left = (now - self.began) / (step - self.first_step) * max(0, steps - step)
        content = {
            "state": "running",
            "epoch": self.epoch,
            "epochs": self.epochs,
            "step": step,
            "steps": steps,
            "loss": _rounded(loss),
            "held_out_accuracy": _rounded(self.accuracy),
            "seconds_left": None if left is None else round(left, 1),
            "time": round(time.time(), 3),
        }
        try:
            write_json(self.folder / PROGRESS, content)
        except Exception as error:  # stores raise what they like; nobody's weights depend on this
            if not self.complained:
                logger.warning("%s is not written: %s", self.folder / PROGRESS, error)
            self.complained = True

    def _remove(self, trainer: pl.Trainer) -> None:
        if not trainer.is_global_zero:
            return
        try:
            (self.folder / PROGRESS).unlink(missing_ok=True)
        except Exception as error:
            logger.warning("%s is not removed: %s", self.folder / PROGRESS, error)


def read_progress(folder: Path) -> dict[str, Any] | None:
    """What a learner's ``progress.json`` says; None where there is none that can be read."""
    try:
        if is_remote(folder):  # whose listings are kept, and others write there
            cast(Any, folder).fs.invalidate_cache()
        found = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
    except Exception:  # stores raise what they like
        return None
    return found if isinstance(found, dict) else None


def finished_state(folder: Path) -> SiteState:
    """The state of a finished learner, by the last row of its ``metrics.csv`` where it has one."""
    try:
        names, *rows = (folder / "metrics.csv").read_text(encoding="utf-8").splitlines()
        last = dict(zip(names.split(","), map(float, rows[-1].split(",")), strict=True))
        epoch, step = int(last["epoch"]), int(last["step"])
    except Exception:  # stores raise what they like
        return SiteState(folder.name, "finished")
    return SiteState(
        folder.name,
        "finished",
        epoch,
        epoch,
        step,
        step,
        last.get("train_loss"),
        _accuracy(last),
        seconds_left=0.0,
    )


def _accuracy(metrics: Mapping[str, Any]) -> float | None:
    """The mean over the sites."""
    found = [float(v) for name, v in metrics.items() if name.startswith("held_out_accuracy_")]
    return sum(found) / len(found) if found else None


def _rounded(value: float | None) -> float | None:
    return round(value, 6) if value is not None and math.isfinite(value) else None
