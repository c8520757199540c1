"""A fitted `LabelMappingClassifier` with a torch learner as one safetensors file, and back.

The file has tensors (the network's, which hold the code's recipe, the labels, the class ids),
one text of JSON with all else, and a checksum over both. Nothing in it is code.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError, ArgumentTypeError, DataNotFoundError, MissingExtraError

try:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import safe_open, save_file
except ImportError as missing:
    raise MissingExtraError(
        "saving and loading a classifier needs torch and safetensors: "
        "pip install 'labelmapping[sklearn,train]'"
    ) from missing

from torch import Tensor

from .arguments import as_integer
from .atomic import replacing
from .mappings import LabelMapping
from .nn.recipe_state import read_mapping
from .torch_estimator import TorchSiteClassifier

__all__ = ["read", "write"]

FORMAT = 1
CONTENTS, CHECKSUM = "labelmapping.classifier", "labelmapping.sha256"
NETWORK = "network."  # before the names of the network's tensors
OBJECTS = (str, bytes, int)  # what labels of dtype object may be


class _Labels(NamedTuple):
    """Labels as bytes: the array's own, or JSON's for Python's objects.

    Attributes
    ----------
    dtype : str
        numpy's name of the array's type with byte order; for JSON the type of a label.
    data : uint8 array
    """

    dtype: str
    data: NDArray[np.uint8]

    @classmethod
    def of(cls, classes: NDArray[Any]) -> _Labels:
        if classes.dtype.kind not in "OT":
            raw = np.frombuffer(classes.tobytes(), np.uint8)
            return cls(classes.dtype.str, raw)
        values = classes.tolist()
        name = "StringDType"
        if classes.dtype.kind == "O":
            name = next(kind.__name__ for kind in OBJECTS if isinstance(values[0], kind))
        if name == "bytes":
            values = [label.decode("latin-1") for label in values]
        return cls(name, np.frombuffer(json.dumps(values).encode(), np.uint8))

    def classes(self) -> NDArray[Any]:
        if self.dtype not in ("StringDType", *(kind.__name__ for kind in OBJECTS)):
            return np.frombuffer(self.data.tobytes(), np.dtype(self.dtype)).copy()
        values = json.loads(self.data.tobytes())
        if self.dtype == "bytes":
            values = [label.encode("latin-1") for label in values]
        if self.dtype == "StringDType":
            return np.array(values, np.dtypes.StringDType())
        labels = np.empty(len(values), object)
        labels[:] = values
        return labels


def write(model: Any, path: str | PathLike[str]) -> None:
    """`LabelMappingClassifier.save`."""
    for each in (*model._fitted_learners(), model._learner()):
        if type(each) is not TorchSiteClassifier:
            raise ArgumentTypeError(
                "estimator must be a TorchSiteClassifier to be saved without pickles, got "
                f"{type(each).__name__}: use skops.io.dump, or joblib.dump where those who load "
                "the file trust its origin"
            )
    learner = model.joint_
    labels = _Labels.of(model.classes_)
    given = {"": model, "estimator__": model.estimator}
    ours, theirs = (_plain(each.get_params(deep=False)) for each in given.values())
    left_out = [
        prefix + name
        for (prefix, each), kept in zip(given.items(), (ours, theirs), strict=True)
        for name in each.get_params(deep=False)
        if name not in kept
    ]
    left_out.remove("estimator")  # whose parameters are kept
    if isinstance(model.mapping, LabelMapping):
        left_out.remove("mapping")  # comes back as the fitted one
    if left_out:
        warnings.warn(
            f"{', '.join(left_out)}: JSON cannot hold them, and the saved classifier has the "
            "defaults there; its answers are the same, but not what it would learn in another fit",
            stacklevel=3,
        )
    names = getattr(learner, "feature_names_in_", None)
    contents = {
        "format": FORMAT,
        "version": version("labelmapping"),
        "parameters": ours,
        "estimator": theirs,
        "joint": _plain(learner.get_params(deep=False)),
        "mapping_reason": model.mapping_reason_,
        "n_features": learner.n_features_in_,
        "feature_names": None if names is None else list(names),
        "labels": labels.dtype,
        "seed": model._seed,
    }
    tensors = {
        "labels": torch.from_numpy(labels.data.copy()),
        "class_ids": torch.from_numpy(model.class_ids_),
        **{NETWORK + k: t.contiguous() for k, t in learner.network_.state_dict().items()},
    }
    text = json.dumps(contents)
    with replacing(Path(path)) as temporary:
        save_file(tensors, temporary, {CONTENTS: text, CHECKSUM: _sha256(text, tensors)})


def read(cls: Any, path: str | PathLike[str]) -> Any:
    """`LabelMappingClassifier.load`."""
    path = Path(path)
    if not path.is_file():
        raise DataNotFoundError(f"path must be that of a saved classifier, and {path} is no file")
    try:
        with safe_open(path, "pt") as file:
            text, checksum = _texts(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if _sha256(text, tensors) != checksum:
            raise ArgumentError("it is damaged: its contents do not match their checksum")
        return _model(cls, json.loads(text), tensors)
    except (SafetensorError, ArgumentError) as error:
        raise ArgumentError(
            f"path must be a file that LabelMappingClassifier.save wrote; {path}: {error}"
        ) from error


def _texts(metadata: Mapping[str, str]) -> tuple[str, str]:
    """The text and the checksum of a file in a format that is known here."""
    if CONTENTS not in metadata:
        raise ArgumentError("it has no such classifier")
    try:
        text, checksum = metadata[CONTENTS], metadata[CHECKSUM]
        contents = json.loads(text)
        number, written_by = as_integer("format", contents["format"], 1), contents["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"it is damaged: {error}") from error
    if number > FORMAT:
        raise ArgumentError(
            f"format must be at most {FORMAT}, got {number}: it was written by a newer "
            f"labelmapping, {written_by}"
        )
    return text, checksum


def _model(cls: Any, contents: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """The classifier, of contents that are as they were written."""
    state = {
        name.removeprefix(NETWORK): tensor
        for name, tensor in tensors.items()
        if name.startswith(NETWORK)
    }
    mapping = read_mapping(state, "head.")
    joint = TorchSiteClassifier(**contents["joint"])
    with torch.random.fork_rng(devices=[]):
        joint.network_ = joint.new_network(contents["n_features"], mapping).eval()
    joint.network_.load_state_dict(state)
    joint.mapping_, joint.n_features_in_ = mapping, contents["n_features"]
    if contents["feature_names"] is not None:
        joint.feature_names_in_ = np.array(contents["feature_names"], object)
    model = cls(TorchSiteClassifier(**contents["estimator"]), **contents["parameters"])
    if "mapping" not in contents["parameters"]:
        model.mapping = mapping
    model.classes_ = _Labels(contents["labels"], tensors["labels"].numpy()).classes()
    model.class_ids_ = tensors["class_ids"].numpy().copy()
    model.mapping_, model.mapping_reason_ = mapping, contents["mapping_reason"]
    model.joint_, model._seed = joint, contents["seed"]
    model._remember_names()
    return model


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that JSON can hold, as it gives them back."""
    kept = {}
    for name, value in parameters.items():
        if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
            continue  # JSON would make strings of its keys
        try:
            kept[name] = json.loads(json.dumps(value, default=_as_python))
        except TypeError:
            continue
    return kept


def _as_python(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, range):
        return list(value)
    raise TypeError(f"JSON cannot hold {value!r}")


def _sha256(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Checksum of the text and of all tensors' bytes, by name."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].numpy().reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
