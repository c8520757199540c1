"""One learner, trained: a function of (recipe, site, seed, data, folder)."""

from __future__ import annotations

import json
import logging
import pickle
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import safetensors.torch
import torch
from pytorch_lightning.accelerators import AcceleratorRegistry
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor
from torch.multiprocessing.spawn import ProcessRaisedException

from ..arguments import check_choice
from ..atomic import (
    file_sha256,
    is_remote,
    remove_leftovers,
    replacing,
    write_json,
    write_text,
)
from ..errors import ArgumentError, ArgumentTypeError, DivergedError, RunMismatchError
from ..storage import as_folder, local_copy, local_folder
from .data import LearningSource
from .loaders import TrainingBatches, WatchedBatches, drawing_from
from .recipe import LearnerNetwork, LearnerRecipe, Site, count_parameters, derive_seed
from .site_progress import PROGRESS, ProgressFile

__all__ = [
    "LearnerReport",
    "answering_device",
    "check_accelerator",
    "check_precision",
    "check_trainer_options",
    "learner_name",
    "read_trunk",
    "read_weights",
    "start_from",
    "train_learner",
    "weights_file",
]

logger = logging.getLogger(__name__)
# Of Lightning's trainer, that a caller may choose.
TRAINER_OPTIONS = ("strategy", "devices", "num_nodes")
# How torch's batch norm begins to refuse what has no variance.
ONE_ROW = "Expected more than 1 value per channel"
# Errors of a message alone, which comes as text from the processes of a strategy.
SENT_AS_TEXT = (ArgumentError, ArgumentTypeError, DivergedError, RunMismatchError)
# Strategies that leave no process the whole network, in parts of their names.
SHARDING = ("fsdp", "deepspeed", "model_parallel")
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
    data: LearningSource,
    run_folder: str | Path,
    *,
    accelerator: str = "auto",
    trainer_options: Mapping[str, Any] | None = None,
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
    run_folder : str, Path or UPath
        As of `train`. Gets ``site-07/metrics.csv`` (a row an epoch), ``report.json``, at last
        ``weights.safetensors`` and, until then, ``checkpoint.ckpt`` and ``progress.json``.
    accelerator : str
        Lightning's: "auto", "cpu", "gpu", ... Decides where, not what.
    trainer_options : mapping, optional
        As of `train`.
    callbacks : sequence of Lightning callbacks
        Of the caller: progress bars.
    trunk : state dict, optional
        What the trunk starts from.

    Raises
    ------
    ArgumentError
        The precision needs a GPU, and none is there or it is not to be used.
    DivergedError
        The loss is no longer finite: names the learner and the step; no weights appear.
    """
    check_precision(recipe, accelerator)
    folder = as_folder(run_folder) / learner_name(learner)
    options = check_trainer_options(trainer_options)
    first = not getattr(rank_zero_only, "rank", 0)  # known where torchrun and the like start us
    if first:
        remove_leftovers(folder)
        (folder / PROGRESS).unlink(missing_ok=True)
    if weights_file(folder).exists():
        if first:
            (folder / CHECKPOINT).unlink(missing_ok=True)
        return read_report(folder)
    seed = derive_seed(seed, learner)
    devices = range(torch.cuda.device_count()) if accelerator != "cpu" else []
    with drawing_from(seed, devices):
        network = recipe.build(learner, data.class_counts)
        if trunk is not None:
            start_from(network, trunk)
        ignored = network.head.ignore_index
        batches = TrainingBatches(data, recipe, seed, ignored)
        files = _EpochFiles(folder, recipe, network)
        with (
            warnings.catch_warnings(),
            local_folder(folder) as root,
            _whole_checkpoint(files.checkpoint) as checkpoint,
        ):
            # Lightning 2.6 asks torch's tree code something that torch 2.14 deprecates.
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            trainer = pl.Trainer(
                accelerator=accelerator,
                **{"devices": 1, "precision": recipe.precision, **options},
                max_epochs=recipe.epochs,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                use_distributed_sampler=False,
                default_root_dir=root,
                callbacks=[
                    _TellBatches(batches),
                    *callbacks,
                    ProgressFile(folder, recipe.epochs),
                    files,
                ],
            )
            try:
                trainer.fit(
                    _LearnerModule(network, recipe, learner, batches),
                    batches,
                    WatchedBatches(data, ignored),
                    ckpt_path=checkpoint,
                    weights_only=True,
                )
            except SystemExit as stop:  # Lightning's answer to Ctrl-C
                if isinstance(stop.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from None
                raise
            except pickle.UnpicklingError as error:
                raise _damaged(files.checkpoint) from error
            except ProcessRaisedException as error:
                raise _own_error(error) from None
    files.take_over()
    if len(files.rows) != recipe.epochs:
        raise InterruptedError(
            f"learner {learner_name(learner)} stopped after {len(files.rows)} of "
            f"{recipe.epochs} epochs; start again to go on"
        )
    report = files.report()
    if trainer.is_global_zero:
        write_json(folder / "report.json", asdict(report))
        save_weights(weights_file(folder), network)
        files.checkpoint.unlink(missing_ok=True)
    trainer.strategy.barrier("the weights are there")
    return report


def check_accelerator(accelerator: str, *, here: bool) -> None:
    """Refuse a name that Lightning does not know, and, if training is `here`, what is not there.

    Raises
    ------
    ArgumentError
        As above; the message has the names that would do.
    """
    known = ("auto", "gpu", *sorted(AcceleratorRegistry.available_accelerators()))
    check_choice("accelerator", accelerator, known)
    if not here or accelerator == "auto":
        return
    there = [name for name in known[2:] if _has(name)]
    if not set(("cuda", "mps") if accelerator == "gpu" else (accelerator,)) & set(there):
        raise ArgumentError(
            f"accelerator must be auto or one that this machine has, {', '.join(there)}; "
            f"got {accelerator!r}"
        )


def _has(accelerator: str) -> bool:
    try:
        return bool(AcceleratorRegistry.get(accelerator).is_available())
    except ImportError:  # of a package that speaks to it
        return False


def check_precision(recipe: LearnerRecipe, accelerator: str) -> None:
    """Refuse float16 without a GPU: Lightning would take bfloat16, and the run would not know."""
    if recipe.precision == "16-mixed" and (
        accelerator == "cpu" or not torch.accelerator.is_available()
    ):
        raise ArgumentError(
            'precision must be "32-true" or "bf16-mixed" without a GPU; got "16-mixed" with the '
            f'accelerator "{accelerator}"'
        )


def answering_device(accelerator: str) -> str:
    """Where networks answer that were trained with this accelerator: "cuda" or "cpu"."""
    return "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"


def check_trainer_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options, each one that a caller may choose.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        Another one is given; or a strategy that is no name, or that spreads the network's tensors.
    """
    found = dict(options or {})
    for name in found:
        check_choice("trainer_options", name, TRAINER_OPTIONS)
    strategy = found.get("strategy", "auto")
    if not isinstance(strategy, str):
        raise ArgumentTypeError(
            f"strategy must be the name of one of Lightning's, got {strategy!r}"
        )
    if any(part in strategy for part in SHARDING):
        raise ArgumentError(
            "strategy must leave each process the whole network, as ddp and its kin do; "
            f"got {strategy!r}"
        )
    return found


def _own_error(error: ProcessRaisedException) -> Exception:
    """What a process that Lightning started raised, where it is an error of this package."""
    lines = str(error).strip().splitlines()
    for number in range(len(lines) - 1, -1, -1):  # notes and further lines come after it
        name, _, message = lines[number].partition(": ")
        module, _, kind = name.rpartition(".")
        for own in SENT_AS_TEXT:
            if (module, kind) == (own.__module__, own.__name__):
                return own("\n".join([message, *lines[number + 1 :]]))
    return error


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
    state = read_weights(path)
    return {k.removeprefix("trunk."): t for k, t in state.items() if k.startswith("trunk.")}


def start_from(network: LearnerNetwork, trunk: Mapping[str, Tensor]) -> None:
    """Put a trunk's tensors into a network; refused where they are not its own."""
    try:
        network.trunk.load_state_dict(trunk)
    except RuntimeError as error:
        raise RunMismatchError(f"trunk_weights do not fit the trunk: {error}") from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a weights file; no pickle is loaded."""
    if is_remote(path):
        return dict(safetensors.torch.load(path.read_bytes()))
    return dict(safetensors.torch.load_file(path))


@contextmanager
def _whole_checkpoint(path: Path) -> Iterator[Path | None]:
    """The checkpoint, on this machine, to go on from; None where there is none.

    It is a zip file with a checksum for each of its parts, which torch writes but does not check.
    """
    if not path.exists():
        yield None
        return
    with local_copy(path) as copy:
        try:
            with zipfile.ZipFile(copy) as parts:
                damaged = parts.testzip()
            torch.load(copy, weights_only=True, map_location="cpu")
        except Exception as error:  # a damaged header raises almost anything
            raise _damaged(path) from error
        if damaged is not None:
            raise _damaged(path)
        yield copy


def _damaged(checkpoint: Path) -> RunMismatchError:
    return RunMismatchError(
        f"{checkpoint} cannot be read: remove it, and this learner starts again"
    )


def save_weights(path: Path, network: LearnerNetwork) -> None:
    """All tensors, on the CPU, and nothing else: equal weights are equal bytes."""
    state: dict[str, Tensor] = {}
    for name, tensor in network.state_dict().items():
        saved = tensor.detach().cpu().contiguous()
        # A tied tensor has two names, and the format has no shared ones: it is there twice.
        shared = any(saved.data_ptr() == other.data_ptr() for other in state.values())
        state[name] = saved.clone() if shared else saved
    with replacing(path) as temporary:
        safetensors.torch.save_file(state, temporary)


def read_report(folder: Path) -> LearnerReport:
    """The report in a finished learner's folder."""
    path = folder / "report.json"
    try:
        return LearnerReport(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RunMismatchError(
            f"{path} cannot be read: {error}; remove {folder} to train this learner again"
        ) from error


class _LearnerModule(pl.LightningModule):
    """The loss, the optimiser and what is watched, in Lightning's terms."""

    def __init__(
        self,
        network: LearnerNetwork,
        recipe: LearnerRecipe,
        learner: Site,
        batches: TrainingBatches,
    ) -> None:
        super().__init__()
        self.network = network
        self.recipe = recipe
        self.learner = learner
        self.batches = batches

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        try:
            loss: Tensor = self.network(*batch).loss
        except ValueError as error:
            if ONE_ROW not in str(error):
                raise
            raise ArgumentError(
                f"a batch must have more rows for the network's batch norm, got {len(batch[1])}: "
                "give the training loader drop_last=True or another batch size"
            ) from error
        if not torch.isfinite(loss):
            raise DivergedError(
                f"learner {learner_name(self.learner)}: the loss is {loss.item()} at step "
                f"{self.global_step + 1}; a lower learning_rate than "
                f"{self.recipe.learning_rate} may help"
            )
        rows = len(batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=rows, sync_dist=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        inputs, ids = batch
        known = ids != self.network.head.ignore_index
        ids = ids.masked_fill(~known, 0)
        sites = self.recipe.sites_of(self.learner)
        for site, answers in zip(sites, self.network.site_log_probs(inputs), strict=True):
            symbols = self.recipe.mapping.symbols_at(ids, site)
            voted = known & (symbols >= 0)  # ternary codes abstain on some classes
            if not bool(voted.any()):
                continue
            log_probs, symbols = answers[voted], symbols[voted]
            loss = torch.nn.functional.nll_loss(log_probs, symbols)
            hits = (log_probs.argmax(dim=-1) == symbols).float().mean()
            self.log_dict(
                {f"held_out_loss_{site}": loss, f"held_out_accuracy_{site}": hits},
                batch_size=len(symbols),
                sync_dist=True,
            )

    def configure_optimizers(self) -> Any:
        trained = [p for p in self.network.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=self.recipe.learning_rate)
        if self.recipe.schedule == "constant":
            return optimizer
        total_steps = len(self.batches) * self.recipe.epochs
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.recipe.learning_rate, total_steps=max(total_steps, 2)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


class _TellBatches(pl.Callback):
    """Tells the batches which process reads them, on which device, and which epoch begins."""

    def __init__(self, batches: TrainingBatches) -> None:
        self.batches = batches

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        device = trainer.strategy.root_device
        self.batches.share(trainer.global_rank, trainer.world_size, device)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.batches.epoch = trainer.current_epoch


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
        metrics = dict(trainer.callback_metrics)
        if self.recipe.precision == "16-mixed":  # overflows in held-out rows
            metrics = {"train_loss": metrics["train_loss"]}
        values = {**self.network.state_dict(), **metrics}
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
        if not trainer.is_global_zero:
            trainer.save_checkpoint(self.checkpoint)  # the first process writes, with all there
            return
        lines = [",".join(self.rows[0])]
        lines += [",".join(str(value) for value in row.values()) for row in self.rows]
        write_text(self.folder / "metrics.csv", "\n".join(lines) + "\n")
        logger.info("%s: %s", self.folder.name, row)
        if epoch in self.recipe.keep_epochs:
            save_weights(weights_file(self.folder, epoch), self.network)
        with replacing(self.checkpoint) as temporary:
            trainer.save_checkpoint(temporary)

    def take_over(self) -> None:
        """The rows of a training that ran in other processes, as its last checkpoint has them."""
        if self.rows or not self.checkpoint.exists():
            return
        with local_copy(self.checkpoint) as file:
            callbacks = torch.load(file, weights_only=True)["callbacks"]
        self.rows = callbacks[self.state_key]["rows"]

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = state_dict["rows"]
