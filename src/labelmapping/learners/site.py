"""One learner, trained: a function of (recipe, site, seed, data, folder)."""

from __future__ import annotations

import json
import logging
import pickle
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import safetensors.torch
import torch
from torch import Tensor

from ..atomic import TEMPORARY, file_sha256, replacing, write_json, write_text
from ..errors import DivergedError, RunMismatchError
from .data import EpochBatches, LearningData, batches
from .recipe import LearnerNetwork, LearnerRecipe, Site, count_parameters, derive_seed

__all__ = [
    "LearnerReport",
    "learner_name",
    "read_trunk",
    "start_from",
    "train_learner",
    "weights_file",
]

logger = logging.getLogger(__name__)
# Held-out rows looked at after each epoch, to see a learner that does not learn.
WATCHED_ROWS = 2048
CHECKPOINT = "checkpoint.ckpt"


@dataclass(frozen=True)
class LearnerReport:
    """What ``report.json`` in a finished learner's folder says: size and cost of its training."""

    parameters: int
    epochs: int
    steps: int
    seconds: float


def learner_name(learner: Site) -> str:
    """The learner's folder: named by site, never by worker."""
    return "site-all" if learner == "all" else f"site-{learner:02d}"


def weights_file(folder: Path, epoch: int | None = None) -> Path:
    """Where a learner's weights lie: the last, or those after `epoch`."""
    return folder / ("weights.safetensors" if epoch is None else f"weights-{epoch:04d}.safetensors")


def train_learner(
    recipe: LearnerRecipe,
    learner: Site,
    seed: int,
    data: LearningData,
    run_folder: Path,
    *,
    accelerator: str = "auto",
    callbacks: Sequence[pl.Callback] = (),
    trunk: Mapping[str, Tensor] | None = None,
) -> LearnerReport:
    """Train one learner to the end, or read what a finished one says of itself.

    Every draw comes from `seed` and the learner's name; a training that was
    stopped goes on from its last whole epoch and ends in the same weights, bit for
    bit on a CPU with as many threads. The global random state is left as it was.

    Parameters
    ----------
    learner : int or "all"
        The site, or all of them (joint).
    run_folder : Path
        Gets ``site-07/metrics.csv`` (a row an epoch), ``report.json``, at last
        ``weights.safetensors`` and, until then, ``checkpoint.ckpt``.
    accelerator : str
        Lightning's: "auto", "cpu", "gpu", ... Decides where, not what.
    callbacks : sequence of Lightning callbacks
        Of the caller: progress bars.
    trunk : state dict, optional
        What the trunk starts from.

    Raises
    ------
    DivergedError
        The loss is no longer finite: names the learner and the step; no weights appear.
    """
    folder = run_folder / learner_name(learner)
    for leftover in folder.glob(f"{TEMPORARY}*"):
        leftover.unlink()
    if weights_file(folder).exists():
        (folder / CHECKPOINT).unlink(missing_ok=True)
        return read_report(folder)
    seed = derive_seed(seed, learner)
    devices = range(torch.cuda.device_count()) if accelerator != "cpu" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        network = recipe.build(learner, data.class_counts())
        if trunk is not None:
            start_from(network, trunk)
        sampler = EpochBatches(len(data.train_ids), recipe.batch_size, recipe.steps_per_epoch, seed)
        files = _EpochFiles(folder, recipe, network)
        watched = torch.arange(min(WATCHED_ROWS, len(data.held_out_ids)))
        with warnings.catch_warnings():
            # The rows are in memory: a worker process would only copy them.
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            # Lightning 2.6 asks torch's tree code something that torch 2.14 deprecates.
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            trainer = pl.Trainer(
                accelerator=accelerator,
                devices=1,
                max_epochs=recipe.epochs,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                use_distributed_sampler=False,
                default_root_dir=folder,
                callbacks=[_SeededEpochs(seed), *callbacks, files],
            )
            try:
                trainer.fit(
                    _LearnerModule(network, recipe, learner, len(sampler)),
                    batches(data.train_inputs, data.train_ids, sampler),
                    batches(data.held_out_inputs, data.held_out_ids, _InOrder(watched)),
                    ckpt_path=files.checkpoint if files.checkpoint.exists() else None,
                    weights_only=True,
                )
            except SystemExit as stop:  # Lightning's answer to Ctrl-C
                if isinstance(stop.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from None
                raise
            except pickle.UnpicklingError as error:
                raise RunMismatchError(
                    f"{files.checkpoint} cannot be read: remove it, and this learner starts again"
                ) from error
    if len(files.rows) != recipe.epochs:
        raise InterruptedError(
            f"learner {learner_name(learner)} stopped after {len(files.rows)} of "
            f"{recipe.epochs} epochs; start again to go on"
        )
    report = files.report()
    write_json(folder / "report.json", asdict(report))
    save_weights(weights_file(folder), network)
    files.checkpoint.unlink(missing_ok=True)
    return report


def read_trunk(path: Path, sha256: str) -> dict[str, Tensor]:
    """The trunk's tensors in a learner's weights file.

    Raises
    ------
    RunMismatchError
        The file is missing, or it is not the one with this checksum.
    """
    if not path.is_file() or file_sha256(path) != sha256:
        raise RunMismatchError(
            f"{path} must be the weights with SHA-256 {sha256}, and it is "
            f"{'another file' if path.is_file() else 'missing'}"
        )
    state = safetensors.torch.load_file(path)
    return {k.removeprefix("trunk."): t for k, t in state.items() if k.startswith("trunk.")}


def start_from(network: LearnerNetwork, trunk: Mapping[str, Tensor]) -> None:
    """Put a trunk's tensors into a network; refused where they are not its own."""
    try:
        network.trunk.load_state_dict(trunk)
    except RuntimeError as error:
        raise RunMismatchError(f"trunk_weights do not fit the trunk: {error}") from error


def save_weights(path: Path, network: LearnerNetwork) -> None:
    """All tensors, on the CPU, and nothing else: equal weights are equal bytes."""
    state = {name: t.detach().cpu().contiguous() for name, t in network.state_dict().items()}
    with replacing(path) as temporary:
        safetensors.torch.save_file(state, temporary)


def read_report(folder: Path) -> LearnerReport:
    """The report in a finished learner's folder."""
    path = folder / "report.json"
    try:
        return LearnerReport(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RunMismatchError(f"{path} cannot be read: {error}") from error


class _InOrder(torch.utils.data.Sampler[Tensor]):
    """The rows in order, in even batches."""

    def __init__(self, rows: Tensor, batch_size: int = 512) -> None:
        self.parts = torch.split(rows, batch_size) if len(rows) else ()

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Any:
        return iter(self.parts)


class _LearnerModule(pl.LightningModule):
    """The loss, the optimiser and what is watched, in Lightning's terms."""

    def __init__(
        self, network: LearnerNetwork, recipe: LearnerRecipe, learner: Site, steps: int
    ) -> None:
        super().__init__()
        self.network = network
        self.recipe = recipe
        self.learner = learner
        self.total_steps = steps * recipe.epochs

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        loss: Tensor = self.network(*batch).loss
        if not torch.isfinite(loss):
            raise DivergedError(
                f"learner {learner_name(self.learner)}: the loss is {loss.item()} at step "
                f"{self.global_step + 1}; a lower learning_rate than "
                f"{self.recipe.learning_rate} may help"
            )
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(batch[1]))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        inputs, ids = batch
        sites = self.recipe.sites_of(self.learner)
        for site, answers in zip(sites, self.network.site_log_probs(inputs), strict=True):
            symbols = self.recipe.mapping.symbols_at(ids, site)
            voted = symbols >= 0  # ternary codes abstain on some classes
            if not bool(voted.any()):
                continue
            log_probs, symbols = answers[voted], symbols[voted]
            loss = torch.nn.functional.nll_loss(log_probs, symbols)
            hits = (log_probs.argmax(dim=-1) == symbols).float().mean()
            self.log_dict(
                {f"held_out_loss_{site}": loss, f"held_out_accuracy_{site}": hits},
                batch_size=len(symbols),
            )

    def configure_optimizers(self) -> Any:
        trained = [p for p in self.network.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=self.recipe.learning_rate)
        if self.recipe.schedule == "constant":
            return optimizer
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.recipe.learning_rate, total_steps=max(self.total_steps, 2)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


class _SeededEpochs(pl.Callback):
    """Each epoch draws from its own seed, so that going on from its start changes nothing."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        torch.manual_seed(derive_seed(self.seed, "epoch", trainer.current_epoch))


class _EpochFiles(pl.Callback):
    """After each epoch: metrics, the weights to keep, and the checkpoint, in this order."""

    def __init__(self, folder: Path, recipe: LearnerRecipe, network: LearnerNetwork) -> None:
        self.folder = folder
        self.recipe = recipe
        self.network = network
        self.checkpoint = folder / CHECKPOINT
        self.rows: list[dict[str, float]] = []
        self.clock: Callable[[], float] = time.perf_counter
        self.started = 0.0

    def report(self) -> LearnerReport:
        last = self.rows[-1]
        seconds = sum(row["seconds"] for row in self.rows)
        return LearnerReport(
            count_parameters(self.network), int(last["epoch"]), int(last["step"]), seconds
        )

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.started = self.clock()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        # After the last step no training loss follows that would tell.
        values = {**self.network.state_dict(), **trainer.callback_metrics}
        for name, tensor in values.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise DivergedError(
                    f"learner {self.folder.name}: {name} is not finite after step "
                    f"{trainer.global_step}; a lower learning_rate than "
                    f"{self.recipe.learning_rate} may help"
                )
        row = {
            "epoch": epoch,
            "step": trainer.global_step,
            "seconds": round(self.clock() - self.started, 3),
        }
        row |= {name: round(float(v), 6) for name, v in sorted(trainer.callback_metrics.items())}
        self.rows.append(row)
        lines = [",".join(self.rows[0])]
        lines += [",".join(str(value) for value in row.values()) for row in self.rows]
        write_text(self.folder / "metrics.csv", "\n".join(lines) + "\n")
        logger.info("%s: %s", self.folder.name, row)
        if epoch in self.recipe.keep_epochs:
            save_weights(weights_file(self.folder, epoch), self.network)
        with replacing(self.checkpoint) as temporary:
            trainer.save_checkpoint(temporary)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = state_dict["rows"]
