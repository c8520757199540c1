"""How far a learner is, for people: a bar in a terminal, a line an epoch elsewhere."""

from __future__ import annotations

import time
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["LearnerProgress"]


class LearnerProgress(pl.Callback):
    """A Lightning callback that shows steps done, loss, time gone and time left.

    Parameters
    ----------
    name : str
        What is being trained.
    console : rich.console.Console
        Where; a bar where it is a terminal, else a line each epoch.
    """

    def __init__(self, name: str, console: Console) -> None:
        self.name = name
        self.console = console
        self.loss = 0.0
        self.done_before = 0
        self.started = 0.0
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps · loss {task.fields[loss]:.3f} ·"),
            TimeElapsedColumn(),
            TextColumn("gone ·"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
        )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Show the bar, at the step that a resumed training begins with."""
        self.total = int(trainer.estimated_stepping_batches)
        self.done_before = trainer.global_step
        self.started = time.monotonic()
        self.task = self.bar.add_task(
            self.name, total=self.total, completed=self.done_before, loss=0.0
        )
        self.bar.start()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Move the bar; the loss shown is a running mean over about 50 steps."""
        loss = float(outputs["loss"])
        self.loss = loss if not self.loss else 0.98 * self.loss + 0.02 * loss
        self.bar.update(self.task, completed=trainer.global_step, loss=self.loss)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Where there is no terminal, a line."""
        if self.console.is_terminal:
            return
        gone = time.monotonic() - self.started
        done = trainer.global_step - self.done_before
        left = gone / max(done, 1) * (self.total - trainer.global_step)
        self.console.print(
            f"{self.name}: {trainer.global_step}/{self.total} steps, loss {self.loss:.3f}, "
            f"{gone:.0f} s gone, {left:.0f} s left"
        )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the finished bar on the screen."""
        self.bar.stop()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Give the terminal back."""
        self.bar.stop()
