"""How far learners are, for people: a bar or a table in a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import pytorch_lightning as pl
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from .site_progress import SiteState

__all__ = ["LearnerProgress", "LiveSites"]

# Lines of a terminal that are left free beside the rows of a table.
AROUND = 6
# Between two lines where there is no terminal.
LINE_SECONDS = 60.0


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


class LiveSites:
    """Shows how far all learners of a run are: ``with LiveSites(console) as w: train(watch=w)``.

    In a terminal a table with a row a learner; of more learners than it has lines for, those that
    run or have failed, and how many others there are. Elsewhere a line for each learner that ends,
    and a line a minute.

    Parameters
    ----------
    console : rich.console.Console
        Where.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.clock: Callable[[], float] = time.monotonic
        self.live = Live(console=console, auto_refresh=False)
        self.before: dict[str, SiteState] | None = None
        self.said = 0.0

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last table on the screen."""
        self.live.stop()

    def __call__(self, sites: Sequence[SiteState]) -> None:
        """Show these states; `train` calls it."""
        if self.console.is_terminal:
            rows = max(1, self.console.size.height - AROUND)
            self.live.update(_table(sites, rows), refresh=True)
        else:
            self._say(sites)

    def _say(self, sites: Sequence[SiteState]) -> None:
        now, lines = self.clock(), []
        if self.before is not None:
            ended = [site for site in sites if site.state in ("finished", "failed")]
            new = [site for site in ended if site != self.before.get(site.name)]
            lines = [" ".join([site.name, *_details(site)]) for site in new]
        if self.before is None or now - self.said >= LINE_SECONDS:
            self.said = now
            lines.append(_total(sites))
        self.before = {site.name: site for site in sites}
        for line in lines:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(sites: Sequence[SiteState], rows: int) -> Table:
    shown = list(sites)
    if len(sites) > rows:
        shown = [s for s in sites if s.state in ("running", "failed")][:rows]
    table = Table(caption=_total(sites), caption_justify="left")
    for name in ("site", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("epoch", "loss", "held-out accuracy", "time left"):
        table.add_column(name, justify="right")
    for site in shown:
        table.add_row(
            site.name,
            site.state,
            f"{site.epoch}/{site.epochs}",
            "" if site.loss is None else f"{site.loss:.3f}",
            "" if site.held_out_accuracy is None else f"{100 * site.held_out_accuracy:.1f} %",
            "" if site.seconds_left is None else _duration(site.seconds_left),
        )
    if len(shown) < len(sites):
        left = Counter(s.state for s in sites if s not in shown)
        table.add_row(f"and {', '.join(f'{n} {state}' for state, n in left.items())}")
    return table


def _details(site: SiteState) -> list[str]:
    if site.state == "failed":
        return ["failed:", str(site.cause)]
    known = [] if site.loss is None else [f"loss {site.loss:.3f}"]
    if site.held_out_accuracy is not None:
        known.append(f"held-out accuracy {100 * site.held_out_accuracy:.1f} %")
    return [site.state, ", ".join(known)]


def _total(sites: Sequence[SiteState]) -> str:
    """How many are in which state, and about how long it takes with as many at a time as now."""
    count = Counter(site.state for site in sites)
    said = [f"{count['finished']} of {len(sites)} finished"]
    said += [
        f"{count[state]} {state}" for state in ("running", "waiting", "failed") if count[state]
    ]
    timed = [s for s in sites if s.state == "running" and s.seconds_left is not None and s.steps]
    if timed:
        left = sum(s.seconds_left or 0.0 for s in timed)
        left_of_steps = sum(1 - s.step / (s.steps or 1) for s in timed)
        whole = left / left_of_steps if left_of_steps else 0.0
        said.append(f"about {_duration((left + count['waiting'] * whole) / len(timed))} left")
    return ", ".join(said)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
