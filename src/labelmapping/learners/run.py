"""The run folder: what was trained, with what, and which learners are finished.

``run.json`` holds the recipe, the seed, checksums of data and labels, package
versions and a record a learner; ``labels.json`` the labels; ``site-07/`` a
learner's files. A run made with other settings or other data is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ..arguments import as_integer
from ..atomic import TEMPORARY, file_sha256, write_json
from ..errors import DataNotFoundError, RunMismatchError
from .data import LearningData
from .recipe import LearnerRecipe, Site
from .site import LearnerReport, learner_name, read_report, weights_file

__all__ = ["RunFolder"]

logger = logging.getLogger(__name__)
FORMAT = 1
WHAT_DIFFERS = {
    "data_sha256": "a training or held-out row, or their order",
    "labels_sha256": "a label, or their order",
}
REQUIRED = {"format", "recipe", "seed", "data_sha256", "labels_sha256", "sites"}
PACKAGES = ("labelmapping", "numpy", "torch", "pytorch-lightning")


class RunFolder:
    """A run folder on disk.

    Attributes
    ----------
    path : Path
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

    @classmethod
    def create(
        cls, path: str | Path, recipe: LearnerRecipe, seed: int, data: LearningData
    ) -> RunFolder:
        """The folder of this recipe, seed and data: a new one, or the one there, checked.

        Raises
        ------
        RunMismatchError
            The folder was made with something else; names what differs, changes nothing.
        """
        path = Path(path)
        wanted = _wanted(recipe, seed, data)
        if cls.check(path, recipe, seed, data):
            run = cls.load(path)
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
        path.mkdir(parents=True, exist_ok=True)
        for leftover in path.glob(f"{TEMPORARY}*"):
            leftover.unlink()
        write_json(path / "labels.json", list(data.labels))
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
        return cls(path, content, data.labels)

    @classmethod
    def check(cls, path: str | Path, recipe: LearnerRecipe, seed: int, data: LearningData) -> bool:
        """Whether the folder holds a run of this recipe, seed and data; writes nothing.

        False where there is nothing yet, or only what a killed `create` leaves.

        Raises
        ------
        RunMismatchError
            The folder was made with something else, or is no run folder.
        """
        path = Path(path)
        if (path / "run.json").exists():
            run = cls.load(path)
            _refuse_difference(path, run._content, _wanted(recipe, seed, data))
            return True
        if path.exists():
            _refuse_foreign(path, data.labels)
        return False

    @classmethod
    def load(cls, path: str | Path) -> RunFolder:
        """Read a run folder; labels are checked against their checksum."""
        path = Path(path)
        if not (path / "run.json").is_file():
            raise DataNotFoundError(f"{path} is no run folder: it has no run.json")
        content = _read_json(path / "run.json")
        if not isinstance(content, dict) or not set(content) >= REQUIRED:
            raise RunMismatchError(f"{path / 'run.json'} is no record of a run")
        if content["format"] > FORMAT:
            raise RunMismatchError(
                f"{path} has format {content['format']}, this labelmapping reads up to {FORMAT}: "
                "it was written by a newer one"
            )
        labels = _read_json(path / "labels.json")
        if _labels_sha256(labels) != content["labels_sha256"]:
            raise RunMismatchError(f"{path / 'labels.json'} does not match its checksum: altered")
        try:
            return cls(path, content, labels)
        except (KeyError, TypeError, ValueError) as error:
            raise RunMismatchError(
                f"{path / 'run.json'} is no record of a run: {error!r}"
            ) from error

    def finished(self) -> list[Site]:
        """The learners whose weights are there."""
        return [s for s in self.recipe.learners() if weights_file(self.learner_folder(s)).exists()]

    def is_recorded(self, learner: Site) -> bool:
        """Whether the learner is finished and noted as such in run.json."""
        noted = self._content["sites"].get(learner_name(learner), {})
        return learner in self.finished() and noted.get("state") == "finished"

    def learner_folder(self, learner: Site) -> Path:
        """Where a learner's files lie."""
        return self.path / learner_name(learner)

    def report(self, learner: Site) -> LearnerReport:
        """Size and cost of a finished learner."""
        return read_report(self.learner_folder(learner))

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
        write_json(self.path / "run.json", self._content)

    def record_failure(self, learner: Site, error: Exception) -> None:
        """Note that a learner failed, and of what; gone once it is finished."""
        cause = f"{type(error).__name__}: {error}"
        self._content["sites"][learner_name(learner)] = {"state": "failed", "cause": cause}
        write_json(self.path / "run.json", self._content)

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
            reason = "the learner is not finished" if epoch is None else f"epochs kept: {kept}"
            raise RunMismatchError(f"{path} is missing: {reason}")
        checksum = file_sha256(path)
        noted = self._content["sites"].get(learner_name(learner), {}).get("sha256", {})
        if noted.get(path.name, checksum) != checksum:
            raise RunMismatchError(
                f"{path} does not match its checksum in run.json: damaged or altered; "
                f"remove {path.parent} and its record to train it again"
            )
        return checksum


def _wanted(recipe: LearnerRecipe, seed: int, data: LearningData) -> dict[str, Any]:
    """What run.json must say for a run of this recipe, seed and data."""
    return {
        "format": FORMAT,
        "recipe": json.loads(json.dumps(recipe.to_config())),
        "seed": as_integer("seed", seed, 0),
        "data_sha256": data.fingerprint(),
        "labels_sha256": _labels_sha256(data.labels),
    }


def _refuse_foreign(path: Path, labels: Sequence[str]) -> None:
    """Refuse a folder without run.json that holds more than a killed `create` leaves."""
    if path.is_dir():
        names = {p.name for p in path.iterdir() if not p.name.startswith(TEMPORARY)}
        ours = names == {"labels.json"} and _read_json(path / "labels.json") == list(labels)
        if ours or not names:
            return
    raise RunMismatchError(f"{path} is there already and is no run folder: it has no run.json")


def _labels_sha256(labels: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(labels)).encode()).hexdigest()


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RunMismatchError(f"{path} cannot be read: {error}") from error


def _refuse_difference(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in ("recipe", "seed", "data_sha256", "labels_sha256"):
        if name == "recipe":
            for key in sorted({*found[name], *wanted[name]}):
                old, new = found[name].get(key), wanted[name].get(key)
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
