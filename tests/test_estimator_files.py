"""`LabelMappingClassifier.save` and `load`: the same classifier from a file without code in it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, safe_open, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.naive_bayes import GaussianNB

from labelmapping import SimplexMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError, DataNotFoundError
from labelmapping.estimator import LabelMappingClassifier
from labelmapping.torch_estimator import TorchSiteClassifier


def learner(**options: Any) -> TorchSiteClassifier:
    return TorchSiteClassifier(**{"hidden": (16, 8), "epochs": 2, "dropout": 0.1, **options})


def draw(n_classes: int) -> Any:
    return np.random.default_rng(0).standard_normal((n_classes, 5))


def fitted(y: Any, **options: Any) -> LabelMappingClassifier:
    options = {"mapping": "simplex", "n_sites": 3, "random_state": 0, **options}
    return LabelMappingClassifier(learner(), **options).fit(draw(len(y)), y)


@pytest.mark.parametrize(
    "y",
    [
        ["甲", "乙", "丙", "", "\ud800", "a\x00"],
        np.array(["b", "a", "c", "d\x00e", "ü", "\ud800"]),
        np.array(["b", "a", "ü"], np.dtypes.StringDType()),
        [b"\x00\xff", b"b", b"c"],
        np.array([b"b", b"\xff", b"c"]),
        [10**20 + 7, 10**20 + 8, -3],
        np.array([2**63 + 1, 5, 7], np.uint64),
        np.array([-7, 5, 3], ">i4"),
        [True, False, True],
        [1.0, -3.0, 2.0],
        np.array(["2020-01-01", "1999-12-31"], "datetime64[D]"),
    ],
    ids=lambda y: str(getattr(y, "dtype", type(y[0]).__name__)),
)
def test_labels_come_back_exactly(y: Any, tmp_path: Path) -> None:
    model = fitted(y)
    model.save(tmp_path / "model.safetensors")
    loaded = LabelMappingClassifier.load(tmp_path / "model.safetensors")
    assert loaded.classes_.dtype == model.classes_.dtype
    found, expected = loaded.classes_.tolist(), model.classes_.tolist()
    assert found == expected
    assert [type(v) for v in found] == [type(v) for v in expected]
    X = draw(50)
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("mapping", ["learned", "mixed", "one-hot", SimplexMapping(60, 4)])
def test_all_that_was_fitted_comes_back(mapping: Any, tmp_path: Path) -> None:
    columns = list("abcde")
    X, y = pd.DataFrame(draw(60), columns=columns), 3 * np.arange(60)
    model = LabelMappingClassifier(
        learner(hidden=np.int64(16), normalization="class"),
        mapping=mapping,
        n_sites=4 if mapping == "learned" else None,
        class_weight="balanced",
        block_bytes=5000,
        random_state=3,
    ).fit(X, y)
    path = tmp_path / "new" / "model.safetensors"
    model.save(str(path))
    before = torch.random.get_rng_state()
    loaded = LabelMappingClassifier.load(str(path))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert os.listdir(path.parent) == ["model.safetensors"]
    assert loaded.mapping_ == model.mapping_
    assert repr(loaded) == repr(model).replace("np.int64(16)", "16")
    assert {**loaded.get_params(), "estimator": 0} == {**model.get_params(), "estimator": 0}
    assert loaded.joint_.get_params() == model.joint_.get_params()
    assert loaded.class_ids_.tolist() == list(range(60))
    assert loaded.feature_names_in_.tolist() == columns
    assert loaded.n_features_in_ == 5
    a, b = loaded.predict_topk(X, 7), model.predict_topk(X, 7)
    assert np.array_equal(a.labels, b.labels)
    assert np.array_equal(a.probabilities, b.probabilities)
    again, refitted = clone(loaded).fit(X, y), clone(model).fit(X, y)
    assert np.array_equal(again.predict_proba(X), refitted.predict_proba(X))
    loaded.save(path)  # over itself
    assert np.array_equal(LabelMappingClassifier.load(path).predict(X), model.predict(X))


def test_what_json_cannot_hold_is_left_out_with_a_warning(tmp_path: Path) -> None:
    y = np.arange(20)
    model = LabelMappingClassifier(
        learner(random_state=np.random.RandomState(0)),
        prototypes=draw(20),
        mapping="learned",
        n_sites=3,
        class_weight={3: 2.0},
        random_state=np.random.RandomState(0),
    ).fit(draw(20), y)
    told = "^class_weight, prototypes, random_state, estimator__random_state: JSON cannot hold"
    with pytest.warns(UserWarning, match=told):
        model.save(tmp_path / "file")
    loaded = LabelMappingClassifier.load(tmp_path / "file")
    assert np.array_equal(loaded.predict_proba(draw(20)), model.predict_proba(draw(20)))
    assert loaded.prototypes is loaded.class_weight is loaded.random_state is None
    assert loaded.mapping == "learned"


def test_other_learners_are_refused_with_the_way_out(tmp_path: Path) -> None:
    X, y = draw(20), np.arange(20)
    path = tmp_path / "file"
    with pytest.raises(NotFittedError):
        LabelMappingClassifier(learner()).save(path)
    with pytest.raises(ArgumentTypeError, match=r"got GaussianNB: use skops\.io\.dump, or joblib"):
        LabelMappingClassifier(GaussianNB()).fit(X, y).save(path)

    class Other(TorchSiteClassifier):
        pass

    with pytest.raises(ArgumentTypeError, match=r"must be a TorchSiteClassifier .* got Other"):
        LabelMappingClassifier(Other(epochs=1)).fit(X, y).save(path)
    assert not path.exists()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fitted(["b", "a", "c"]).save(tmp_path / "file")
    return tmp_path / "file"


def texts(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return dict(file.metadata())


def test_N70_damage_is_refused(path: Path) -> None:
    whole, tensors, metadata = path.read_bytes(), load_file(path), texts(path)
    swapped = {**tensors, "labels": tensors["labels"].flip(0)}
    missing = {k: v for k, v in tensors.items() if k != "network.centre"}
    other = {k: v + 1 if k == "network.head.output.bias" else v for k, v in tensors.items()}
    for damaged in (swapped, missing, other):
        save_file(damaged, path, metadata)
        with pytest.raises(ArgumentError, match="file: it is damaged: its contents do not match"):
            LabelMappingClassifier.load(path)
    renamed = {**metadata, "labelmapping.classifier": metadata["labelmapping.classifier"][:-1]}
    save_file(tensors, path, renamed)
    with pytest.raises(ArgumentError, match="it is damaged"):
        LabelMappingClassifier.load(path)
    for part in (whole[:-1], whole[:100], b""):
        path.write_bytes(part)
        with pytest.raises(ArgumentError, match=r"LabelMappingClassifier\.save wrote; "):
            LabelMappingClassifier.load(path)


def test_N68_other_files_and_newer_formats_are_refused(path: Path) -> None:
    tensors, metadata = load_file(path), texts(path)
    contents = json.loads(metadata["labelmapping.classifier"])
    assert contents["format"] == 1
    contents.update(format=2, version="9.1")
    save_file(tensors, path, {**metadata, "labelmapping.classifier": json.dumps(contents)})
    newer = "format must be at most 1, got 2: it was written by a newer labelmapping, 9.1"
    with pytest.raises(ArgumentError, match=newer):
        LabelMappingClassifier.load(path)
    save_file(tensors, path)
    with pytest.raises(ArgumentError, match="file: it has no such classifier"):
        LabelMappingClassifier.load(path)
    path.write_text("hello")
    with pytest.raises(ArgumentError, match="wrote"):
        LabelMappingClassifier.load(path)
    with pytest.raises(DataNotFoundError, match=r"path must be .* is no file"):
        LabelMappingClassifier.load(path.parent)


def run(code: str, *arguments: Path) -> str:
    """What Python code in a new process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_N70_labels_come_back_in_a_new_process(tmp_path: Path) -> None:
    model = fitted(["甲", "乙", "丙"])
    model.save(tmp_path / "model")
    np.save(tmp_path / "X.npy", draw(9))
    code = """
import sys, numpy as np
from labelmapping.estimator import LabelMappingClassifier
model = LabelMappingClassifier.load(sys.argv[1])
print(ascii(model.predict(np.load(sys.argv[2])).tolist()))
"""
    found = run(code, tmp_path / "model", tmp_path / "X.npy")
    assert found.strip() == ascii(model.predict(draw(9)).tolist())
    assert set(model.predict(draw(9))) <= {"甲", "乙", "丙"}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read as on Linux")
def test_N55_saving_takes_little_memory_and_the_file_is_as_large_as_the_weights(
    tmp_path: Path,
) -> None:
    code = """
import resource, sys
import numpy as np
from labelmapping.estimator import LabelMappingClassifier
from labelmapping.torch_estimator import TorchSiteClassifier
def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def now():
    with open("/proc/self/status") as lines:
        return 1024 * int(next(line for line in lines if "VmRSS" in line).split()[1])
X = np.zeros((20, 24_000))
y = np.arange(20)
learner = TorchSiteClassifier(hidden=1000, epochs=1, batch_size=20)
model = LabelMappingClassifier(learner, mapping="simplex", n_sites=3)
LabelMappingClassifier(TorchSiteClassifier(hidden=4, epochs=1)).fit(X, y).save(sys.argv[1])
model.fit(X, y)
weights = sum(p.nbytes for p in model.joint_.network_.parameters())
ballast = np.ones((peak() - now()) // 8)  # so that the memory in use is at its peak
before = peak()
model.save(sys.argv[1])
print(weights, peak() - before)
"""
    path = tmp_path / "model"
    weights, extra = map(int, run(code, path).split())
    assert weights > 95e6
    assert extra < 0.5 * weights
    assert weights < path.stat().st_size < 1.02 * weights
