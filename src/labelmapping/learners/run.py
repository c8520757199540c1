"""The run folder: what was trained, with what, and which learners are finished.

``run.json`` holds the recipe, the seed, checksums of data and labels, package
versions and a record a learner; ``labels.json`` the labels; ``site-07/`` a
learner's files. A run made with other settings or other data is refused.
"""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ..arguments import as_integer
from ..atomic import TEMPORARY, file_sha256, is_remote, remove_leftovers, write_json
from ..errors import DataNotFoundError, RunMismatchError
from ..storage import LOCK, as_folder, in_use
from .data import LearningSource
from .recipe import LearnerRecipe, Site
from .site import LearnerReport, learner_name, read_report, weights_file

__all__ = ["RunFolder"]

logger = logging.getLogger(__name__)
FORMAT = 1
WHAT_DIFFERS = {
    "data_sha256": "a training or held-out row, or their order",
    "labels_sha256": "a label, or their order",
}
DEFAULTS = {f.name: f.default for f in fields(LearnerRecipe) if f.default is not MISSING}
REQUIRED = {"format", "recipe", "seed", "data_sha256", "labels_sha256", "sites"}
# What run.json says of a learner only while its training lasts.
UNDER_WAY = ("waiting", "running")
RESTORE = "put a copy of it back, or train in another folder: it says what the other files are"
PACKAGES = ("labelmapping", "numpy", "torch", "pytorch-lightning")


class RunFolder:
    """A run folder, on this machine or on a store that fsspec speaks to.

    Attributes
    ----------
    path : Path
        On a store a ``upath.UPath``, which works as one.
    recipe : LearnerRecipe
    seed : int
    labels : list of str
        The label of each class id.
    """

    def __init__(self, path: Path, content: dict[str, Any], labels: Sequence[str]) -> None:
        self.path = path
        self._content = content
        self.recipe = LearnerRecipe.from_config(content["recipe"])
        self.seed = int(content["seed"])
        self.labels = list(labels)
        self._progress: dict[str, Mapping[str, Any]] = {}  # shown in run.json, beside records

    @classmethod
    def create(
        cls, path: str | Path, recipe: LearnerRecipe, seed: int, data: LearningSource
    ) -> RunFolder:
        """The folder of this recipe, seed and data: a new one, or the one there, checked.

        Raises
        ------
        RunMismatchError
            The folder was made with something else; names what differs, changes nothing.
        """
        path = as_folder(path)
        return cls._create(path, recipe, _wanted(recipe, seed, data), data.labels)

    @classmethod
    @contextmanager
    def training(
        cls, path: str | Path, recipe: LearnerRecipe, seed: int, data: LearningSource
    ) -> Iterator[RunFolder]:
        """As `create`, with the folder's lock held, for a block that trains what is missing.

        Nothing is written where all is finished, and no lock is needed. Stores have none.

        Raises
        ------
        RunInUseError
            Another process trains there.
        RunMismatchError
            The folder was made with something else.
        """
        path = as_folder(path)
        wanted = _wanted(recipe, seed, data)
        if _is_run_of(path, wanted, data.labels) and _is_complete(path, recipe):
            yield cls.load(path)
            return
        with in_use(path):
            yield cls._create(path, recipe, wanted, data.labels)

    @classmethod
    def _create(
        cls, path: Path, recipe: LearnerRecipe, wanted: dict[str, Any], labels: Sequence[str]
    ) -> RunFolder:
        if _is_run_of(path, wanted, labels):
            remove_leftovers(path)
            if not (path / "labels.json").exists():
                write_json(path / "labels.json", list(labels))
            run = cls.load(path)
            finished = [learner_name(s) for s in run.finished()]
            sites = run._content["sites"]
            for name, noted in list(sites.items()):
                lost = noted.get("state") == "finished" and name not in finished
                if lost or noted.get("state") in UNDER_WAY:
                    del sites[name]  # it trains anew; or of a training that was killed
            before, now = run._content.get("threads"), torch.get_num_threads()
            if before != now and not all(run.is_recorded(s) for s in recipe.learners()):
                logger.warning(
                    "%s was begun on %s threads, this process has %d: the last bits of new "
                    "weights may differ from those of an unbroken run",
                    path,
                    before,
                    now,
                )
            return run
        if not is_remote(path):
            path.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        write_json(path / "labels.json", list(labels))
        versions = {name: version(name) for name in PACKAGES}
        versions["python"] = platform.python_version()
        # Sums on another number of threads differ in their last bits.
        content = {
            **wanted,
            "versions": versions,
            "threads": torch.get_num_threads(),
            "sites": {},
        }
        write_json(path / "run.json", content)
        return cls(path, content, labels)

    @classmethod
    def check(
        cls, path: str | Path, recipe: LearnerRecipe, seed: int, data: LearningSource
    ) -> bool:
        """Whether the folder holds a run of this recipe, seed and data; writes nothing.

        False where there is nothing yet, or only what a killed `create` leaves.

        Raises
        ------
        RunMismatchError
            The folder was made with something else, or is no run folder.
        """
        return _is_run_of(as_folder(path), _wanted(recipe, seed, data), data.labels)

    @classmethod
    def load(cls, path: str | Path) -> RunFolder:
        """Read a run folder; labels are checked against their checksum."""
        path = as_folder(path)
        if not (path / "run.json").is_file():
            raise DataNotFoundError(f"{path} is no run folder: it has no run.json")
        content = _read_record(path)
        labels = _read_labels(path, content)
        try:
            return cls(path, content, labels)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunMismatchError(
                f"{path / 'run.json'} is no record of a run: {error!r}; {RESTORE}"
            ) from error

    def finished(self) -> list[Site]:
        """The learners whose weights are there."""
        return [s for s in self.recipe.learners() if weights_file(self.learner_folder(s)).exists()]

    def is_recorded(self, learner: Site) -> bool:
        """Whether the learner is finished and noted as such in run.json."""
        noted = self._content["sites"].get(learner_name(learner), {})
        there = weights_file(self.learner_folder(learner))
        return noted.get("state") == "finished" and there.exists()

    def learner_folder(self, learner: Site) -> Path:
        """Where a learner's files lie."""
        return self.path / learner_name(learner)

    def report(self, learner: Site) -> LearnerReport:
        """Size and cost of a finished learner."""
        return read_report(self.learner_folder(learner))

    def metrics(self, learner: Site) -> list[dict[str, float]]:
        """What a learner's metrics.csv says of each epoch; empty before the first."""
        path = self.learner_folder(learner) / "metrics.csv"
        if not path.exists():
            return []
        try:
            rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
            return [{name: float(value) for name, value in row.items()} for row in rows]
        except (TypeError, ValueError) as error:
            raise RunMismatchError(f"{path} cannot be read: {error}") from error

    def record(self, learner: Site, report: LearnerReport) -> None:
        """Note a finished learner with its weights' checksum; one noted already is checked.

        Raises
        ------
        RunMismatchError
            The weights are not the ones that were noted.
        """
        checksums = {
            weights_file(Path(), epoch).name: self.check_weights(learner, epoch)
            for epoch in (None, *self.recipe.keep_epochs)
        }
        self._content["sites"][learner_name(learner)] = {
            "state": "finished",
            **asdict(report),
            "sha256": checksums,
        }
        self._progress.pop(learner_name(learner), None)
        self._write()

    def record_failure(self, learner: Site, error: Exception) -> None:
        """Note that a learner failed, and of what; gone once it is finished."""
        cause = f"{type(error).__name__}: {error}"
        self._content["sites"][learner_name(learner)] = {"state": "failed", "cause": cause}
        self._progress.pop(learner_name(learner), None)
        try:
            self._write()
        except Exception as full:  # a full disk; and stores raise what they like
            name = learner_name(learner)
            logger.warning("%s does not say that %s failed: %s", self.path, name, full)

    def record_progress(self, progress: Mapping[Site, Mapping[str, Any]]) -> None:
        """Show how far learners are in ``run.json``; those left out are shown as before training.

        That lasts until the next call. What is recorded of a finished learner always stays.
        """
        self._progress = {learner_name(s): shown for s, shown in progress.items()}
        self._write()

    def _write(self) -> None:
        sites = dict(self._content["sites"])
        for name, shown in self._progress.items():
            if sites.get(name, {}).get("state") != "finished":
                sites[name] = shown
        write_json(self.path / "run.json", {**self._content, "sites": sites})

    def check_weights(self, learner: Site, epoch: int | None = None) -> str:
        """The checksum of a learner's weights, equal to the one noted where there is one.

        Raises
        ------
        RunMismatchError
            The file is missing, or its bytes are not the ones that were noted.
        """
        path = weights_file(self.learner_folder(learner), epoch)
        if not path.exists():
            kept = list(self.recipe.keep_epochs)
            reason = "the learner is not finished"
            if epoch is not None:
                reason = f"epochs kept: {kept}; put a copy of it back, or train in another folder"
            raise RunMismatchError(f"{path} is missing: {reason}")
        checksum = file_sha256(path)
        noted = self._content["sites"].get(learner_name(learner), {}).get("sha256", {})
        if noted.get(path.name, checksum) != checksum:
            raise RunMismatchError(
                f"{path} does not match its checksum in run.json: damaged or altered; "
                f"remove {path.parent} to train it again"
            )
        return checksum


def _wanted(recipe: LearnerRecipe, seed: int, data: LearningSource) -> dict[str, Any]:
    """What run.json must say for a run of this recipe, seed and data."""
    return {
        "format": FORMAT,
        "recipe": json.loads(json.dumps(recipe.to_config())),
        "seed": as_integer("seed", seed, 0),
        "data_sha256": data.fingerprint(),
        "labels_sha256": _labels_sha256(data.labels),
    }


def _is_run_of(path: Path, wanted: dict[str, Any], labels: Sequence[str]) -> bool:
    """Whether the folder holds the run that is wanted; refused where it holds anything else."""
    if (path / "run.json").exists():
        content = _read_record(path)
        _refuse_difference(path, content, wanted)
        if (path / "labels.json").exists():
            _read_labels(path, content)
        return True
    if path.exists():
        _refuse_foreign(path, labels)
    return False


def _is_complete(path: Path, recipe: LearnerRecipe) -> bool:
    """Whether every learner is finished and recorded, and the labels are there."""
    sites, names = _read_record(path)["sites"], [learner_name(s) for s in recipe.learners()]
    return (path / "labels.json").exists() and all(
        sites.get(name, {}).get("state") == "finished" and weights_file(path / name).exists()
        for name in names
    )


def _refuse_foreign(path: Path, labels: Sequence[str]) -> None:
    """Refuse a folder without run.json that holds more than a killed `create` leaves."""
    if path.is_dir():
        names = {p.name for p in path.iterdir() if not p.name.startswith(TEMPORARY)} - {LOCK}
        ours = names == {"labels.json"} and _read_json(path / "labels.json") == list(labels)
        if ours or not names:
            return
    raise RunMismatchError(f"{path} is there already and is no run folder: it has no run.json")


def _labels_sha256(labels: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(labels)).encode()).hexdigest()


def _read_json(path: Path, remedy: str = "") -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RunMismatchError(f"{path} cannot be read: {error}{remedy}") from error


def _read_record(path: Path) -> dict[str, Any]:
    """What run.json says; refused where it is damaged or newer than this package."""
    file = path / "run.json"
    content = _read_json(file, f"; {RESTORE}")
    whole = (
        isinstance(content, dict)
        and set(content) >= REQUIRED
        and type(content["format"]) is int
        and content["format"] >= 1
        and isinstance(content["recipe"], dict)
        and isinstance(content["sites"], dict)
        and all(
            isinstance(noted, dict) and isinstance(noted.get("sha256", {}), dict)
            for noted in content["sites"].values()
        )
    )
    if not whole:
        raise RunMismatchError(f"{file} is no record of a run; {RESTORE}")
    if content["format"] > FORMAT:
        raise RunMismatchError(
            f"{path} has format {content['format']}, this labelmapping reads up to {FORMAT}: "
            "it was written by a newer one"
        )
    return dict(content)


def _read_labels(path: Path, content: dict[str, Any]) -> list[str]:
    """The labels, as they were when the run was made."""
    file = path / "labels.json"
    remedy = "; remove it, and the next training on the same data writes it again"
    labels = _read_json(file, remedy)
    if not isinstance(labels, list) or _labels_sha256(labels) != content["labels_sha256"]:
        raise RunMismatchError(f"{file} does not match its checksum: altered{remedy}")
    return labels


def _refuse_difference(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in ("recipe", "seed", "data_sha256", "labels_sha256"):
        if name == "recipe":
            for key in sorted({*found[name], *wanted[name]}):
                # Fields that came later are left out where they have their default.
                old, new = (it[name].get(key, DEFAULTS.get(key)) for it in (found, wanted))
                if old != new:
                    raise RunMismatchError(
                        f"{path} was made with other settings: {key} is {old!r} there, "
                        f"{new!r} now; use another folder or the same settings"
                    )
        elif found.get(name) != wanted[name]:
            old, new = str(found.get(name))[:12], str(wanted[name])[:12]
            what = WHAT_DIFFERS.get(name, "the seed")
            raise RunMismatchError(
                f"{path} was made with other settings: {name} is {old} there, {new} now "
                f"({what} differs); use another folder or the same settings"
            )
