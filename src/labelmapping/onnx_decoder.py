"""Answers from an ONNX file that `nn.export_onnx` wrote: onnxruntime and the core, no torch.

Also what such a file says about itself, which the exporter writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import as_integer, check_choice
from .decoding import decode_topk
from .decoding.problem import ClassPrior
from .errors import ArgumentError, ArgumentTypeError, DataNotFoundError, MissingExtraError
from .mappings import LabelMapping

__all__ = ["FileContents", "OnnxClassifier", "TopLabels", "as_labels"]

FORMAT = 1
PREFIX = "labelmapping."  # of every key in a file's metadata
GRAPHS = ("site_log_probs", "topk")
# What inputs may be, by onnxruntime's names; also what the exporter takes.
INPUT_TYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int16)": np.dtype(np.int16),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(bool)": np.dtype(np.bool_),
}


class TopLabels(NamedTuple):
    """The best classes of each row, best first, ties to the lower id.

    Attributes
    ----------
    scores : ndarray of float32, shape (B, min(k, classes))
    ids : ndarray of int64, the same shape
    labels : ndarray, the same shape
        Int64, or object for strings; the ids where the file has no labels.
    """

    scores: NDArray[np.float32]
    ids: NDArray[np.int64]
    labels: NDArray[Any]


@dataclass(frozen=True, eq=False)
class FileContents:
    """What a file's metadata say.

    Attributes
    ----------
    mapping : LabelMapping
    sites : tuple of int
        The sites whose log-probs the network gives, in their order.
    labels : ndarray (N,) or None
        Int64 or str (dtype object).
    top_k : int or None
        The number of answers of a graph that ends in them; None for site log-probs.
    """

    mapping: LabelMapping
    sites: tuple[int, ...]
    labels: NDArray[Any] | None
    top_k: int | None

    def outputs(self) -> list[tuple[str, str, list[int]]]:
        """Name, onnxruntime's type and shape but for the batch, of every output of the graph."""
        if self.top_k is not None:
            shape = [self.top_k]
            return [("scores", "tensor(float)", shape), ("ids", "tensor(int64)", shape)]
        sizes = self.mapping.alphabet_sizes
        return [(f"site_{site}", "tensor(float)", [sizes[site]]) for site in self.sites]

    def to_metadata(self) -> dict[str, str]:
        """Keys and values for the file, all of them text."""
        values: dict[str, Any] = {
            "format": FORMAT,
            "graph": GRAPHS[self.top_k is not None],
            "mapping": self.mapping.to_config(),
            "sites": self.sites,
        }
        if self.top_k is not None:
            values["top_k"] = self.top_k
        if self.labels is not None:
            values["labels"] = self.labels.tolist()
        texts = {PREFIX + key: json.dumps(value) for key, value in values.items()}
        return {**texts, PREFIX + "version": version("labelmapping")}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> FileContents:
        """Read what `to_metadata` wrote.

        Raises
        ------
        ArgumentError
            There is nothing of this kind, it is in a newer format, or damaged.
        """
        if PREFIX + "format" not in metadata:
            raise ArgumentError("it has no metadata of labelmapping")
        texts = {key.removeprefix(PREFIX): metadata[key] for key in metadata}
        written_by = texts.pop("version", "of unknown version")
        try:
            number = as_integer("format", json.loads(texts["format"]), 1)
            if number > FORMAT:
                raise ArgumentError(
                    f"format must be at most {FORMAT}, got {number}: it was written by a newer "
                    f"labelmapping, {written_by}"
                )
            graph = check_choice("graph", json.loads(texts["graph"]), GRAPHS)
            mapping = LabelMapping.from_config(json.loads(texts["mapping"]))
            sites = mapping.check_sites(json.loads(texts["sites"]))
            labels = None
            if "labels" in texts:
                labels = as_labels(json.loads(texts["labels"]), mapping.n_classes)
            top_k = as_integer("top_k", json.loads(texts["top_k"]), 1) if graph == "topk" else None
        except KeyError as error:
            raise ArgumentError(f"its metadata lack {error}") from error
        except (ValueError, TypeError) as error:
            raise ArgumentError(
                f"its metadata say what this version cannot read: {error}"
            ) from error
        return cls(mapping, sites, labels, top_k)


def as_labels(labels: object, n_classes: int) -> NDArray[Any]:
    """Labels of all classes as int64 or str (dtype object), shape (N,).

    Raises
    ------
    ArgumentTypeError
        They are no sequence, or neither all str nor all integers.
    ArgumentError
        Their number is not N, two are equal (with their classes), or one passes int64.
    """
    if isinstance(labels, np.ndarray):
        labels = labels.tolist()
    if not isinstance(labels, Sequence) or isinstance(labels, (str, bytes)):
        raise ArgumentTypeError(f"labels must be a sequence, got {labels!r}")
    if len(labels) != n_classes:
        raise ArgumentError(
            f"labels must be one for each of {n_classes} classes, got {len(labels)}"
        )
    text = isinstance(labels[0], str)
    if text:
        for place, label in enumerate(labels):
            if not isinstance(label, str):
                raise ArgumentTypeError(
                    f"labels must be all str or all integers: labels[0] is {labels[0]!r}, "
                    f"labels[{place}] is {label!r}"
                )
        values = np.array([str(label) for label in labels], dtype=object)
    else:
        numbers = [as_integer(f"labels[{i}]", label) for i, label in enumerate(labels)]
        try:
            values = np.array(numbers, dtype=np.int64)
        except OverflowError as error:
            largest = max(numbers, key=abs)
            raise ArgumentError(f"labels must fit into int64, one is {largest}") from error
    classes: dict[Any, int] = {}
    for place, label in enumerate(values.tolist()):
        first = classes.setdefault(label, place)
        if first != place:
            raise ArgumentError(
                f"labels must be different from each other: classes {first} and {place} are "
                f"both {label!r}"
            )
    return values


class OnnxClassifier:
    """A network in an ONNX file, and exact answers from it.

    Needs onnxruntime and this package's core; loads neither torch nor any pickle.

    Parameters
    ----------
    path : str or Path
        A file that ``labelmapping.nn.export_onnx`` wrote.
    providers : sequence, optional
        onnxruntime's execution providers, the preferred first. Default the CPU's.

    Attributes
    ----------
    contents : FileContents

    Raises
    ------
    MissingExtraError
        onnxruntime is not installed.
    DataNotFoundError
        There is no such file.
    ArgumentError
        It is no ONNX file or not one of ours, was written in a newer format, or its graph
        does not fit its recipe.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        providers: Sequence[str | tuple[str, dict[str, Any]]] | None = None,
    ) -> None:
        try:
            import onnxruntime
            from onnxruntime.capi import onnxruntime_pybind11_state as runtime_errors
        except ImportError as error:
            raise MissingExtraError(
                "OnnxClassifier needs onnxruntime: pip install 'labelmapping[onnx]', or "
                "onnxruntime alone"
            ) from error
        path = Path(path)
        if not path.is_file():
            raise DataNotFoundError(
                f"path must be that of a file that labelmapping.nn.export_onnx wrote, got {path}, "
                "where there is none"
            )
        self._errors = (
            runtime_errors.Fail,
            runtime_errors.InvalidArgument,
            runtime_errors.InvalidGraph,
            runtime_errors.InvalidProtobuf,
            runtime_errors.NoModel,
            runtime_errors.NotImplemented,
            runtime_errors.RuntimeException,
        )
        try:
            self._session = onnxruntime.InferenceSession(
                path, providers=["CPUExecutionProvider"] if providers is None else list(providers)
            )
        except self._errors as error:
            raise ArgumentError(
                f"path must be an ONNX file that onnxruntime can load, {path} is none: {error}"
            ) from error
        try:
            self.contents = FileContents.from_metadata(
                self._session.get_modelmeta().custom_metadata_map
            )
            self._input = self._check_graph()
        except ArgumentError as error:
            raise ArgumentError(
                f"path must be a file that labelmapping.nn.export_onnx wrote; {path}: {error}"
            ) from error

    def _check_graph(self) -> tuple[str, np.dtype[Any], list[int]]:
        """Name, dtype and shape but for the batch, of the input; refuses what does not fit."""
        found = [(o.name, o.type, list(o.shape[1:])) for o in self._session.get_outputs()]
        if found != self.contents.outputs():
            raise ArgumentError(
                f"its outputs must be {self.contents.outputs()} by its recipe, they are {found}"
            )
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in INPUT_TYPES or not inputs[0].shape:
            kinds = [(i.name, i.type, i.shape) for i in inputs]
            raise ArgumentError(f"its graph must have one input of numbers, it has {kinds}")
        return inputs[0].name, INPUT_TYPES[inputs[0].type], list(inputs[0].shape[1:])

    @property
    def mapping(self) -> LabelMapping:
        """The code."""
        return self.contents.mapping

    @property
    def labels(self) -> NDArray[Any] | None:
        """The classes' labels (N,), int64 or str (dtype object); None where the file has none."""
        return self.contents.labels

    def _run(self, inputs: ArrayLike) -> list[NDArray[Any]]:
        name, dtype, shape = self._input
        array = np.asarray(inputs)
        if array.dtype != dtype:
            raise ArgumentTypeError(f"inputs must be {dtype}, got {array.dtype}")
        if array.ndim == 0 or list(array.shape[1:]) != shape:
            expected = ", ".join(map(str, ["B", *shape]))
            raise ArgumentError(f"inputs must have shape ({expected}), got {array.shape}")
        if len(array) == 0:  # onnxruntime's recurrent layers end the process on no rows
            return [
                np.empty((0, *shape), np.int64 if kind == "tensor(int64)" else np.float32)
                for _, kind, shape in self.contents.outputs()
            ]
        try:
            outputs: list[NDArray[Any]] = self._session.run(None, {name: array})
        except self._errors as error:
            raise ArgumentError(
                f"inputs must be what the network takes, ids in their range above all: {error}"
            ) from error
        return outputs

    def site_log_probs(self, inputs: ArrayLike) -> tuple[NDArray[np.float32], ...]:
        """What `topk` sums over the sites: float32 (B, q_i) for each of ``contents.sites``.

        Log-probs, but for a `MachHead`: its estimates.

        Parameters
        ----------
        inputs : array (B, ...)
            Of the network's dtype and shape; nothing is converted.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            The inputs do not fit, or the file's graph ends in answers.
        """
        self._refuse_answers("site_log_probs")
        return tuple(self._run(inputs))

    def topk(
        self,
        inputs: ArrayLike,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        prior: ArrayLike | ClassPrior | None = None,
    ) -> TopLabels:
        """The k best classes of each row, exactly: by ``decode_topk``, or the graph's own answers.

        Parameters
        ----------
        inputs : array (B, ...)
            Of the network's dtype and shape; nothing is converted.
        k : int
            At least 1; more than there are classes gives all of them. At most the graph's
            own number, where it ends in answers.
        allowed, prior
            As in ``decode_topk``; not where the graph ends in answers.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            An argument is out of range or does not fit, or the network gave NaN.
        """
        k = as_integer("k", k, 1)
        top_k = self.contents.top_k
        if top_k is None:
            found = decode_topk(
                self.mapping,
                self._run(inputs),
                k,
                sites=self.contents.sites,
                allowed=allowed,
                prior=prior,
            )
            scores, ids = found.scores, found.ids
        else:
            for name, value in (("allowed", allowed), ("prior", prior)):
                if value is not None:
                    self._refuse_answers(name)
            if k > top_k < self.mapping.n_classes:
                self._refuse_answers(f"k of {k}")
            scores, ids = (values[:, :k] for values in self._run(inputs))
            bad = np.flatnonzero(np.isnan(scores).any(axis=1))
            if bad.size:
                raise ArgumentError(f"inputs must not give NaN, row {bad[0]} does")
        return TopLabels(scores, ids, ids if self.labels is None else self.labels[ids])

    def predict(self, inputs: ArrayLike) -> NDArray[Any]:
        """The best class's label of each row, shape (B,); its id where the file has no labels."""
        best: NDArray[Any] = self.topk(inputs, 1).labels[:, 0]
        return best

    def _refuse_answers(self, what: str) -> None:
        """Refuse what needs site log-probs where the graph ends in answers."""
        if self.contents.top_k is not None:
            raise ArgumentError(
                f"{what} must not be asked of this file, whose graph ends in the "
                f"{self.contents.top_k} best classes: export it without top_k for that"
            )
