"""Rows of NEEDS.md about memory, prediction and probabilities, as tests of the estimator."""

import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB

from labelmapping import MixedMapping, SimplexMapping, decode_topk, log_partition
from labelmapping.errors import ArgumentError
from labelmapping.estimator import LabelMappingClassifier

LINUX = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ru_maxrss is in KiB on Linux"
)


class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """All sites at once, with log-probs that are functions of X, the site and its size."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer = answer

    def fit(self, X: Any, y: Any) -> Self:
        raise NotImplementedError

    def fit_sites(self, X: Any, ids: Any, mapping: Any) -> Self:
        self.sizes_ = mapping.alphabet_sizes
        return self

    def site_log_probs(self, X: Any) -> list[NDArray[np.float32]]:
        return [self.answer(X, i, q).astype(np.float32) for i, q in enumerate(self.sizes_)]


def peaked(X: Any, site: int, size: int) -> Any:
    """Log-softmax of X times random weights."""
    logits = 3 * X @ np.random.default_rng(site).standard_normal((X.shape[1], size))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


class Traced:
    """The most bytes that numpy and Python took in a block, beyond those at its start."""

    def __enter__(self) -> Self:
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *error: object) -> None:
        self.peak = tracemalloc.get_traced_memory()[1] - self._before
        tracemalloc.stop()


def test_N02_a_million_classes_have_a_small_code_table() -> None:
    y = np.arange(10**6)
    X = np.zeros((10**6, 1))
    model = LabelMappingClassifier(DummyClassifier(), mapping="simplex")
    with Traced() as fit:
        model.fit(X, y)
    assert fit.peak < 100e6
    assert len(model.classes_) == 10**6
    assert model.mapping_.n_sites == 8
    assert max(model.mapping_.alphabet_sizes) < 1100
    assert sum(table.nbytes for i in range(8) for table in model.mapping_.site_tables(i)) < 1e6


class Labels(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Keeps the labels' type and the classes."""

    def fit(self, X: Any, y: Any) -> Self:
        self.dtype_ = y.dtype
        self.classes_ = np.arange(int(y.max()) + 1)
        return self

    def predict_proba(self, X: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("labels", ["int", "str"])
def test_N52_labels_of_three_million_rows_take_little_memory(labels: str) -> None:
    n = 3 * 10**6
    y = np.random.default_rng(0).integers(5000, size=n)
    X = np.zeros((n, 1), np.int8)
    if labels == "str":
        y, X = y[: n // 10].astype("U4"), X[: n // 10]
    model = LabelMappingClassifier(Labels(), mapping="simplex", n_sites=8)
    with Traced() as fit:
        model.fit(X, y)
    assert fit.peak < len(y) * 8 * 4 + 2e6
    assert {site.estimator.dtype_ for site in model.sites_} == {np.dtype(np.int64)}
    assert len(model.classes_) == 5000


@LINUX
@pytest.mark.slow
def test_N51_bags_of_words_and_14_000_classes_take_as_much_as_the_small_heads() -> None:
    code = """
import resource, warnings
import numpy as np, scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from labelmapping import MixedMapping
from labelmapping.estimator import LabelMappingClassifier
warnings.simplefilter("ignore")  # of linear learners on an arbitrary code
rng = np.random.default_rng(0)
X = sp.random_array((10_000, 200_000), density=1e-4, format="csr", rng=rng, dtype=np.float32)
y = rng.integers(14_000, size=10_000)
def model():
    mapping = MixedMapping(14_000, [23, 24, 25, 29])
    return LabelMappingClassifier(SGDClassifier(loss="log_loss"), mapping=mapping, random_state=0)
model().partial_fit(X[:50, :1000], y[:50], classes=range(14_000))  # what has to be loaded
def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
fitted = model().partial_fit(X, y, classes=range(14_000))
answers = fitted.predict(X[:1000])
weights = sum(site.estimator.coef_.nbytes for site in fitted.sites_)
print(weights, peak() - before, len(fitted.classes_), len(answers))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    weights, peak, n_classes, n_answers = map(int, done.stdout.split())
    assert (n_classes, n_answers) == (14_000, 1000)
    assert weights == (23 + 24 + 25 + 29) * 200_000 * 4  # 81 MB; dense would be 11.2 GB
    assert peak < 2 * weights


def test_N60_probabilities_of_81_000_classes_sum_to_one() -> None:
    mapping = MixedMapping(81_000, [283, 293, 307])
    X, y = np.random.default_rng(0).standard_normal((3, 2)), np.arange(81_000)

    def answer(X: Any, site: int, size: int) -> Any:
        logs = peaked(X, site, size)
        if site == 0:
            logs[1, 5] = -np.inf  # of row 1 a symbol is impossible
            logs[2] = -np.inf  # of row 2 all
        return logs

    model = LabelMappingClassifier(Given(answer), mapping=mapping)
    model.fit(np.zeros((81_000, 2)), y)
    shares = model.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=0, atol=1e-6)
    assert ((shares >= 0) & (shares <= 1)).all()
    impossible = y % 283 == 5
    assert not shares[1, impossible].any()
    assert shares[1, ~impossible].min() > 0
    np.testing.assert_allclose(shares[2], 1 / 81_000)
    top = model.predict_topk(X, 5)
    np.testing.assert_allclose(
        top.probabilities, np.take_along_axis(shares, top.labels, axis=1), rtol=1e-4
    )
    assert top.labels[2].tolist() == [0, 1, 2, 3, 4]
    assert model.predict(X)[2] == 0
    with pytest.raises(ArgumentError, match=r"at most 3314 rows .*predict_topk"):
        model.predict_proba(np.zeros((3315, 2)))


@pytest.mark.parametrize("low", [-2000.0, -370.0])
def test_N60_sums_of_tiny_probabilities_do_not_underflow(low: float) -> None:
    mapping = SimplexMapping(121, 4, field_order=11)
    logs = [np.full((2, 11), low) for _ in range(4)]
    # Each site's best symbol: no class has three of them.
    pair = mapping.encode(mapping.resolve([0, 1], [0, 0]))
    best = [0, 0, (pair[2] + 1) % 11]
    others = [mapping.resolve([i, j], [best[i], best[j]]) for i, j in ((0, 1), (0, 2), (1, 2))]
    best.append(min(set(range(11)) - set(mapping.encode(others)[:, 3].tolist())))
    for site, symbol in zip(logs, best, strict=True):
        site[1, symbol] = 0.0
    found = log_partition(mapping, logs).lower
    expected = decode_topk(mapping, logs, 121).scores.astype(np.float64)
    np.testing.assert_allclose(found, np.logaddexp.reduce(expected, axis=1), rtol=1e-7)
    assert found[1] < 1.9 * low


class Threads(GaussianNB):  # type: ignore[misc]
    """Notes which threads asked."""

    seen: ClassVar[set[int]] = set()
    both = threading.Barrier(2, timeout=20)

    def predict_proba(self, X: Any) -> Any:
        self.seen.add(threading.get_ident())
        if len(X) == 2:
            self.both.wait()  # goes on when two learners are being asked at a time
        return super().predict_proba(X)


def test_N61_predict_asks_n_jobs_learners_at_a_time() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 3)), np.repeat(np.arange(100), 4)
    mapping = MixedMapping(100, [11, 13, 17, 19])
    model = LabelMappingClassifier(Threads(), mapping=mapping).fit(X, y)
    parallel = model.set_params(n_jobs=2).predict_topk(X[:2], 3)
    assert len(Threads.seen) >= 2
    serial = model.set_params(n_jobs=1)
    whole = serial.predict_topk(X, 3)
    assert np.array_equal(parallel.labels, whole.labels[:2])
    np.testing.assert_allclose(parallel.probabilities, whole.probabilities[:2])


@pytest.mark.slow
def test_N61_a_million_classes_answer_rows_by_one_and_by_a_thousand() -> None:
    y = 3 * np.arange(10**6)
    rng = np.random.default_rng(0)
    model = LabelMappingClassifier(Given(peaked), mapping="simplex", n_sites=4)
    model.fit(np.zeros((10**6, 2)), y)
    X = rng.standard_normal((1024, 2))
    with Traced() as answering:
        top = model.predict_topk(X, 10)
    assert answering.peak < 2e8  # scores of all classes would be 8 GB
    assert top.labels.shape == top.probabilities.shape == (1024, 10)
    assert (np.diff(top.probabilities, axis=1) <= 0).all()
    for row in (0, 1023):
        alone = model.predict_topk(X[row : row + 1], 10)
        assert np.array_equal(alone.labels[0], top.labels[row])
        np.testing.assert_allclose(alone.probabilities[0], top.probabilities[row], rtol=1e-4)
    assert np.array_equal(model.predict(X), top.labels[:, 0])
    shares = model.predict_proba(X[:2])
    places = np.argsort(-shares, axis=1, kind="stable")[:, :10]
    assert np.array_equal(model.classes_[places], top.labels[:2])
    np.testing.assert_allclose(
        np.take_along_axis(shares, places, axis=1), top.probabilities[:2], rtol=1e-4
    )


def test_N08_partial_fit_goes_on_from_fit_where_all_symbols_were_there() -> None:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((30, 6))
    y = np.repeat(np.arange(30), 4)
    X = centres[y] + 0.05 * rng.standard_normal((120, 6))
    mapping = SimplexMapping(30, 3, field_order=7)
    model = LabelMappingClassifier(GaussianNB(), mapping=mapping).fit(X[y < 29], y[y < 29])
    model.partial_fit(X, y)
    assert model.classes_.tolist() == list(range(30))
    assert model.score(X, y) > 0.7
    few = LabelMappingClassifier(SGDClassifier(loss="log_loss"), mapping=MixedMapping(5, [5, 7]))
    with pytest.warns(UserWarning, match="linear"):
        few.fit(X[y < 5], y[y < 5])
    with pytest.raises(
        ArgumentError, match=r"partial_fit must come first here.* 5 of .* 7 symbols"
    ):
        few.partial_fit(X[y < 5], y[y < 5])
