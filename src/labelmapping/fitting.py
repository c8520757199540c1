"""``labelmapping fit`` and what follows it, as functions: train, evaluate and predict by settings.

The settings are `labelmapping.fit_settings`'s, read from a file and the command line.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from .arguments import as_integer, check_choice
from .atomic import replacing
from .calibration import FittedTemperature, fit_temperature
from .class_paths import ClassChoice
from .decoding import decode_topk
from .errors import ArgumentError, ArgumentTypeError, RunMismatchError
from .input_files import read_array, read_recipe
from .learners import (
    Ensemble,
    LearnerRecipe,
    ModuleData,
    ProcessExecutor,
    RayExecutor,
    RunFolder,
    SerialExecutor,
    train,
)
from .learners.executors import Executor
from .learners.recipe import HEADS
from .mappings import (
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
)
from .mappings.prototypes import WIDEST, class_statistics
from .scoring import Evaluation, answers, evaluate, log_probabilities
from .storage import as_folder

__all__ = [
    "CodeSettings",
    "FitSettings",
    "RaySettings",
    "TrainingSettings",
    "calibrate_run",
    "evaluate_run",
    "fit",
    "predict_run",
]

FAMILIES = ("auto", "learned", "simplex", "mixed", "random", "hashed", "one-hot")
# Dimensions that wider inputs are projected to before a code is learnt from their means.
PROJECTED = 256
Family = Literal["auto", "learned", "simplex", "mixed", "random", "hashed", "one-hot"]


@dataclass(frozen=True, kw_only=True)
class CodeSettings:
    """Which code the classes get.

    Attributes
    ----------
    family : str
        "learned" follows the means of the classes' training inputs, which must be numbers (images,
        vectors); "auto" is that where it can be had, else "simplex". "one-hot" is no code, to
        compare with.
    n_sites : int
        n, the length of the code. One-hot has one site, whatever is said here.
    alphabet_size : int, optional
        q, the symbols of a site (mixed codes and one-hot choose their own). Default: about the
        root of the number of classes.
    dimension : int
        k, how many sites determine a class (learned, simplex, mixed).
    prototypes : str, optional
        An .npy file of floats (N, d), a row a class in the order of the labels: what a learned
        code follows instead of the training inputs. A run that was begun with it keeps its code.
    recipe : str, optional
        A JSON file of a code's recipe, as `labelmapping design --json` and a run.json have it,
        instead of all the above.
    """

    family: Family = "auto"
    n_sites: int = 6
    alphabet_size: int | None = None
    dimension: int = 2
    prototypes: str | None = None
    recipe: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How the learners are trained.

    Attributes
    ----------
    epochs : int
        Passes over the training rows, or times `steps_per_epoch` batches.
    joint : bool
        One network for all sites; else one a site, each trained alone.
    head : str
        "label-mapping", or a rival over one-hot classes: "one-hot", "negative-sampling",
        "hierarchical-huffman", "hierarchical-two-level", "adaptive-softmax", "cut-off".
    head_options : dict
        Of the head: hidden, dropout, normalization, ...
    batch_size : int
        Given to a data module that has an argument of this name and no value for it.
    steps_per_epoch : int, optional
        Default: every training row once.
    learning_rate : float
        Of Adam; the peak, with one-cycle.
    schedule : str
        Of the learning rate: "constant", or up and down again once ("one-cycle").
    precision : str
        "32-true"; "bf16-mixed" multiplies in bfloat16, "16-mixed" in float16 (CUDA only).
    """

    epochs: int = 10
    joint: bool = False
    head: str = "label-mapping"
    head_options: dict[str, Any] = field(default_factory=dict)
    batch_size: int = 128
    steps_per_epoch: int | None = None
    learning_rate: float = 1e-3
    schedule: Literal["constant", "one-cycle"] = "constant"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """What a learner asks of a Ray cluster.

    Attributes
    ----------
    num_cpus : float, optional
        Default: torch's number of threads.
    num_gpus : float
        A part of one is shared with others.
    memory : int, optional
        Bytes.
    resources : dict
        Custom resources by name.
    """

    num_cpus: float | None = None
    num_gpus: float = 0
    memory: int | None = None
    resources: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """All that `fit` is told.

    Attributes
    ----------
    data : ClassChoice
        A LightningDataModule; see `labelmapping.learners.ModuleData` for what it must have. Inputs
        of a batch are one tensor here.
    trunk : ClassChoice
        A module with `out_features`. Arguments are filled in where it has them and they are not
        given: ``n_classes``; ``input_mapping``, the classes' own code; ``in_features``, the
        columns of rows of numbers; ``length``, the tokens of a row; ``side`` and ``in_channels``
        of images.
    run_dir : str
        The run folder: a path, or a URL that fsspec speaks.
    seed : int
    executor : {"serial", "process", "ray"}
    workers : int, optional
        Processes at a time.
    ray_address : str, optional
        Of a running cluster, or "auto". Default: a local one is started.
    retries : int
        How often a learner that failed is tried again.
    accelerator : str
        Lightning's: "auto", "cpu", "gpu", ...
    trainer : dict
        Further options of Lightning's trainer inside a site: strategy, devices, num_nodes.
    """

    data: ClassChoice
    trunk: ClassChoice
    code: CodeSettings = field(default_factory=CodeSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    ray: RaySettings = field(default_factory=RaySettings)
    run_dir: str
    seed: int = 0
    executor: Literal["serial", "process", "ray"] = "serial"
    workers: int | None = None
    ray_address: str | None = None
    retries: int = 2
    accelerator: str = "auto"
    trainer: dict[str, Any] = field(default_factory=dict)


def fit(settings: FitSettings, watch: Callable[[Any], None] | None = None) -> RunFolder:
    """Train what is missing in the run folder.

    A learnt code is fitted once and then read from the run.

    Parameters
    ----------
    watch : function of the sites' states, optional
        As `labelmapping.learners.train` takes it.

    Raises
    ------
    ArgumentError
        A setting breaks a rule, or the data or the trunk are not what they must be; before any
        file is written.
    RunMismatchError
        The folder was made with other settings or data.
    """
    executor = _executor(settings)
    training = settings.training
    data = ModuleData(settings.data.load(pl.LightningDataModule), _data_options(settings))
    folder = as_folder(settings.run_dir, "run_dir")
    check_choice("training.head", training.head, HEADS)
    if training.head != "label-mapping" and settings.code.family != "one-hot":
        raise ArgumentError(
            f'code.family must be "one-hot" with the head "{training.head}", which has no code; '
            f'got "{settings.code.family}"'
        )
    inputs = _first_inputs(data, training.batch_size)
    mapping = _mapping_of_run(folder, settings.code, data) or _mapping(settings, data, inputs)
    recipe = LearnerRecipe(
        mapping=mapping,
        trunk=settings.trunk.path,
        trunk_options=settings.trunk.arguments(
            nn.Module,
            {
                "n_classes": lambda: data.n_classes,
                "input_mapping": mapping.to_config,
                **_shape_arguments(inputs),
            },
        ),
        head=training.head,
        head_options=training.head_options,
        joint=training.joint or mapping.n_sites == 1,
        epochs=training.epochs,
        batch_size=training.batch_size,
        steps_per_epoch=training.steps_per_epoch,
        learning_rate=training.learning_rate,
        schedule=training.schedule,
        precision=training.precision,
    )
    _try(recipe, data, inputs)
    return train(
        recipe,
        data,
        folder,
        seed=settings.seed,
        executor=executor,
        retries=settings.retries,
        accelerator=settings.accelerator,
        trainer_options=settings.trainer,
        watch=watch,
    )


def evaluate_run(
    settings: FitSettings,
    ks: Sequence[int] = (1, 5),
    *,
    sites: Sequence[int] | None = None,
    device: str = "cpu",
    calibration: bool = True,
    temperature: float = 1.0,
) -> Evaluation:
    """How good the learners of a run are on the data module's test rows.

    Parameters
    ----------
    ks, calibration
        As in `scoring.evaluate`.
    sites, device
        As in `Ensemble.load`.
    temperature : float, default 1.0
        As in `Ensemble.with_temperature`; `calibrate_run` finds one.

    Raises
    ------
    RunMismatchError
        The data module's labels are not the run's.
    """
    ensemble, batches = _asked(settings, "test", sites, device)
    ensemble = ensemble.with_temperature(temperature)
    return evaluate(ensemble, batches, ks, calibration=calibration)


def calibrate_run(
    settings: FitSettings,
    max_rows: int | None = 2000,
    *,
    sites: Sequence[int] | None = None,
    device: str = "cpu",
) -> FittedTemperature:
    """The temperature for the learners of a run, by the data module's validation rows.

    Parameters
    ----------
    max_rows
        As in `calibration.fit_temperature`.
    sites, device
        As in `Ensemble.load`.

    Raises
    ------
    ArgumentError
        The data module has no validation rows.
    RunMismatchError
        The data module's labels are not the run's.
    """
    ensemble, batches = _asked(settings, "val", sites, device)
    return fit_temperature(ensemble, batches, max_rows)


def predict_run(
    settings: FitSettings,
    output: Path | None,
    k: int = 1,
    *,
    sites: Sequence[int] | None = None,
    device: str = "cpu",
    probabilities: bool = False,
    temperature: float = 1.0,
) -> int:
    """Write the k best labels of the data module's rows to predict, and return how many rows.

    Parameters
    ----------
    output : path, optional
        ``.csv``: a line a row, with columns row, label_1, score_1, ...; ``.jsonl``: an object a
        row. The file appears whole at the end. Default: CSV to standard output.
    k : int, default 1
        At least 1; above N, all N labels are written.
    probabilities : bool
        Instead of scores (sums of log-probs): over the N classes, good to 1e-4.
    temperature : float, default 1.0
        As in `Ensemble.with_temperature`.
    """
    if output is not None and output.suffix not in {".csv", ".jsonl"}:
        raise ArgumentError(f"output must end in .csv or .jsonl, got {output}")
    as_integer("k", k, 1)
    ensemble, batches = _asked(settings, "predict", sites, device)
    ensemble = ensemble.with_temperature(temperature)
    rows = 0
    with _opened(output) as file:
        write = _writer(file, output, min(k, ensemble.mapping.n_classes), probabilities)
        for batch in batches:
            inputs, names = _inputs_and_names(batch, rows)
            log_probs = answers(ensemble, inputs)
            best = decode_topk(
                ensemble.mapping,
                log_probs,
                min(k, ensemble.mapping.n_classes),
                sites=ensemble.sites,
            )
            scores = best.scores
            if probabilities:
                scores = np.exp(log_probabilities(ensemble, log_probs, scores))
            for name, ids, values in zip(names, best.ids, scores, strict=True):
                write(name, [ensemble.labels[i] for i in ids], values.tolist())
            rows += len(inputs)
    return rows


def _data_options(settings: FitSettings) -> dict[str, Any]:
    return settings.data.arguments(
        pl.LightningDataModule,
        {"batch_size": lambda: settings.training.batch_size, "seed": lambda: settings.seed},
    )


def _executor(settings: FitSettings) -> Executor:
    if settings.workers is not None and settings.executor != "process":
        raise ArgumentError(
            f'workers must be left out unless executor is "process", got {settings.workers}'
        )
    if settings.ray_address is not None and settings.executor != "ray":
        raise ArgumentError(
            f'ray_address must be left out unless executor is "ray", got {settings.ray_address}'
        )
    if settings.workers is not None:
        as_integer("workers", settings.workers, 1)
    check_choice("executor", settings.executor, ("serial", "process", "ray"))
    if settings.executor == "process":
        return ProcessExecutor(settings.workers)
    if settings.executor == "ray":
        return RayExecutor(settings.ray_address, **asdict(settings.ray))
    return SerialExecutor()


def _mapping_of_run(folder: Path, code: CodeSettings, data: ModuleData) -> LabelMapping | None:
    """The learnt code of a run that was begun with such settings.

    Data and seed decide it, and both are checked when training goes on: no need to fit it again.
    """
    learnt = code.family in {"auto", "learned"} and code.prototypes is None is code.recipe
    if not learnt or not (folder / "run.json").exists():
        return None
    found = RunFolder.load(folder).recipe.mapping
    same = (
        isinstance(found, LearnedMapping)
        and found.n_classes == data.n_classes
        and (found.n_sites, found.dimension) == (code.n_sites, code.dimension)
        and code.alphabet_size in {None, *found.alphabet_sizes}
    )
    return found if same else None


def _mapping(settings: FitSettings, data: ModuleData, inputs: Tensor) -> LabelMapping:
    code, n_classes = settings.code, data.n_classes
    if code.recipe is not None:
        mapping = read_recipe(Path(code.recipe))
        if mapping.n_classes != n_classes:
            raise ArgumentError(
                f"code.recipe must be a code of as many classes as the data have, {n_classes}; "
                f"{code.recipe} has {mapping.n_classes}"
            )
        return mapping
    family = check_choice("code.family", code.family, FAMILIES)
    if n_classes < 2:
        raise ArgumentError(f"data must have at least 2 classes, got {n_classes}")
    if family in {"auto", "learned"}:
        learnt = _learnt_mapping(settings, data, inputs)
        if learnt is not None:
            return learnt
    if code.prototypes is not None:
        raise ArgumentError(f'code.prototypes must be left out with the family "{family}"')
    if family == "one-hot":
        return MixedMapping.one_hot(n_classes)
    if family == "mixed":
        if code.alphabet_size is not None:
            raise ArgumentError(
                "code.alphabet_size must be left out with mixed codes, whose alphabets differ; "
                f"got {code.alphabet_size}"
            )
        return MixedMapping(n_classes, n_sites=code.n_sites, dimension=code.dimension)
    if family in {"random", "hashed"}:
        size = code.alphabet_size
        if size is None:
            size = SimplexMapping(n_classes, code.n_sites, dimension=code.dimension).field_order
            if family == "hashed":  # so many that two classes seldom have one codeword
                size = max(size, math.ceil((4 * n_classes**2) ** (1 / code.n_sites)))
        kind = RandomMapping if family == "random" else HashedMapping
        return kind(n_classes, code.n_sites, size, seed=settings.seed)
    return SimplexMapping(
        n_classes, code.n_sites, field_order=code.alphabet_size, dimension=code.dimension
    )


def _learnt_mapping(settings: FitSettings, data: ModuleData, first: Tensor) -> LabelMapping | None:
    """A code that follows the classes' means; None where "auto" finds some without."""
    code, covariance = settings.code, None
    if code.prototypes is not None:
        means = read_array(Path(code.prototypes))
        if means.ndim != 2 or len(means) != data.n_classes:
            raise ArgumentError(
                f"code.prototypes must have shape ({data.n_classes}, d), a row a class; "
                f"{code.prototypes} has {means.shape}"
            )
    else:
        if not (first.dtype.is_floating_point or first.dtype in {torch.uint8, torch.bool}):
            if code.family == "auto":
                return None
            raise ArgumentTypeError(
                'code.family must be another than "learned", or code.prototypes be given, where '
                f"inputs have no mean: they are {first.dtype}"
            )
        if code.family == "auto" and not bool(data.class_counts().all()):
            return None
        wide = first[0].numel() > WIDEST
        means, covariance = class_statistics(
            (
                (inputs[ids >= 0], ids[ids >= 0])
                for inputs, ids in data.rows(settings.training.batch_size)
            ),
            data.n_classes,
            n_components=PROJECTED if wide else None,
            seed=settings.seed,
        )
        if int(data.class_counts().max()) < 2:
            covariance = None
    return LearnedMapping.fit(
        means,
        code.n_sites,
        alphabet_size=code.alphabet_size,
        dimension=code.dimension,
        covariance=covariance,
        seed=settings.seed,
    )


def _first_inputs(data: ModuleData, batch_size: int) -> Tensor:
    rows: Any = data.rows(batch_size)  # a generator
    try:
        inputs = next(rows)[0]
    finally:
        rows.close()
    if not isinstance(inputs, Tensor):
        raise ArgumentTypeError(
            f"data must give one tensor of inputs a batch, got a {type(inputs).__name__}; "
            "labelmapping.learners.train takes others"
        )
    return inputs


def _shape_arguments(inputs: Tensor) -> dict[str, Callable[[], Any]]:
    """What the shape of inputs (B, ...) says of a trunk's arguments."""
    shape = tuple(inputs.shape[1:])
    if inputs.dtype.is_floating_point and len(shape) == 1:
        return {"in_features": lambda: shape[0]}
    if len(shape) == 1:
        return {"length": lambda: shape[0]}
    if len(shape) in {2, 3} and shape[-1] == shape[-2]:
        channels = shape[0] if len(shape) == 3 else 1
        return {"side": lambda: shape[-1], "in_channels": lambda: channels}
    return {}


def _try(recipe: LearnerRecipe, data: ModuleData, inputs: Tensor) -> None:
    """Let a new network answer some rows: what does not fit is told before a run is begun."""
    with torch.random.fork_rng(devices=[]):
        network = recipe.build(recipe.learners()[0], data.class_counts).eval()
    try:
        with torch.no_grad():
            network.site_log_probs(inputs[:2])
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ArgumentError(
            f"trunk must take the data's inputs, {inputs.dtype} of shape "
            f"(B, {', '.join(map(str, inputs.shape[1:]))}), and {recipe.trunk} does not: {lines[0]}"
        ) from error


def _asked(
    settings: FitSettings, stage: str, sites: Sequence[int] | None, device: str
) -> tuple[Ensemble, Iterable[Any]]:
    """The learners of the run, and the batches of a stage whose labels, if any, are theirs."""
    data = ModuleData(settings.data.load(pl.LightningDataModule), _data_options(settings))
    module = data.module_for("fit" if stage == "val" else stage)
    name = f"{stage}_dataloader"
    if getattr(type(module), name) is getattr(pl.LightningDataModule, name):
        raise ArgumentError(
            f"data must have a {name} for this command, and {type(module).__name__} has none"
        )
    batches = getattr(module, name)()
    if stage == "val" and (batches is None or batches == []):
        raise ArgumentError(
            f"data must hold out rows for this command, and {type(module).__name__} has none"
        )
    if isinstance(batches, list | tuple | dict) or not isinstance(batches, Iterable):
        raise ArgumentTypeError(f"{name} must give one loader, got a {type(batches).__name__}")
    run = RunFolder.load(as_folder(settings.run_dir, "run_dir"))
    if settings.trunk.path != run.recipe.trunk:
        raise RunMismatchError(
            f"trunk.class_path must be the run's, {run.recipe.trunk}; got {settings.trunk.path}"
        )
    labels = data.labels_of(module)
    if labels is not None and labels != run.labels:
        raise RunMismatchError(_labels_differ(labels, run.labels))
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ArgumentError(
            f"device must be one that is here, got {device!r}: {str(error).splitlines()[0]}"
        ) from error
    trunk_class = settings.trunk.load(nn.Module)
    ensemble = Ensemble.load(run.path, sites=sites, trunk_class=trunk_class, device=device)
    return ensemble, batches


def _labels_differ(found: Sequence[str], expected: Sequence[str]) -> str:
    if len(found) != len(expected):
        return f"data has {len(found)} labels, the run {len(expected)}: it was trained on others"
    where = next(
        i for i, pair in enumerate(zip(found, expected, strict=True)) if len(set(pair)) > 1
    )
    return (
        f"data's labels are not the run's: class {where} is {found[where]!r} there, "
        f"{expected[where]!r} in the run"
    )


def _inputs_and_names(batch: Any, first: int) -> tuple[Tensor, Sequence[Any]]:
    """A batch's inputs, and what to call its rows: strings beside them, else their numbers."""
    inputs, beside = batch, None
    if isinstance(batch, tuple | list) and batch:
        inputs, beside = batch[0], batch[1] if len(batch) > 1 else None
    if not isinstance(inputs, Tensor):
        raise ArgumentTypeError(
            f"predict_dataloader must give tensors of inputs, got {type(inputs).__name__}"
        )
    if (
        isinstance(beside, tuple | list)
        and len(beside) == len(inputs)
        and all(isinstance(name, str) for name in beside)
    ):
        return inputs, beside
    return inputs, range(first, first + len(inputs))


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    if output is None:
        yield sys.stdout
        return
    with replacing(output) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file


def _writer(
    file: IO[str], output: Path | None, k: int, probabilities: bool
) -> Callable[[Any, list[str], list[float]], None]:
    value = "probability" if probabilities else "score"
    if output is not None and output.suffix == ".jsonl":

        def line(name: Any, labels: list[str], values: list[float]) -> None:
            answers = [
                {"label": label, value: v if math.isfinite(v) else None}
                for label, v in zip(labels, values, strict=True)
            ]
            file.write(json.dumps({"row": name, "best": answers}, ensure_ascii=False) + "\n")

        return line
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["row", *(f"{w}_{n}" for n in range(1, k + 1) for w in ("label", value))])

    def row(name: Any, labels: list[str], values: list[float]) -> None:
        pairs = zip(labels, (f"{v:.6g}" for v in values), strict=True)
        table.writerow([name, *(cell for pair in pairs for cell in pair)])

    return row
