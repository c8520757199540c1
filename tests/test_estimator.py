"""`LabelMappingClassifier`: what it fits, answers and refuses."""

import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from joblib import parallel_config
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

from labelmapping import EcocMapping, LearnedMapping, MixedMapping, SimplexMapping, decode_topk
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.estimator import ArbitraryCodeWarning, LabelMappingClassifier
from labelmapping.labels import UnknownLabelsError
from labelmapping.site_estimators import SMOOTHING

Rows = NDArray[np.float64]


def draw(n_classes: int, width: int = 12, each: int = 4, noise: float = 0.1) -> tuple[Rows, Any]:
    """Rows about random centres, and integer labels with gaps."""
    rng = np.random.default_rng(n_classes)
    centres = rng.standard_normal((n_classes, width))
    ids = np.repeat(np.arange(n_classes), each)
    return centres[ids] + noise * rng.standard_normal((len(ids), width)), 7 * ids - 100


def nearest() -> KNeighborsClassifier:
    return KNeighborsClassifier(3)


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        LabelMappingClassifier(),
        LabelMappingClassifier(mapping="simplex", n_sites=3),
        LabelMappingClassifier(mapping="learned", n_sites=3),
    ]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("mapping", ["auto", "learned", "simplex", "mixed", "one-hot"])
def test_it_learns_and_names_the_code_and_the_reason(mapping: str) -> None:
    X, y = draw(200)
    n_sites = None if mapping == "one-hot" else 4
    model = LabelMappingClassifier(nearest(), mapping=mapping, n_sites=n_sites, random_state=0)
    model.fit(X, y)
    assert model.score(X, y) > 0.97
    assert model.classes_.tolist() == sorted(set(y.tolist()))
    reason = "200 classes have means" if mapping == "auto" else "asked for"
    kind = {"auto": "learned", "one-hot": "mixed"}.get(mapping, mapping)
    assert reason in repr(model)
    assert f"# {kind}, 200 classes" in repr(model)
    assert model.mapping_.kind == kind


def test_auto_takes_one_hot_for_few_classes_and_simplex_without_numbers() -> None:
    X, y = draw(20)
    few = LabelMappingClassifier(nearest()).fit(X, y)
    assert few.mapping_ == MixedMapping.one_hot(20)
    assert "20 classes are few" in few.mapping_reason_
    X, y = draw(200)
    words = pd.DataFrame({"word": [f"w{label}" for label in y]})
    learner = make_pipeline(OneHotEncoder(handle_unknown="ignore"), DecisionTreeClassifier())
    coded = LabelMappingClassifier(learner, n_sites=3).fit(words, y)
    assert coded.mapping_.kind == "simplex"
    assert "no matrix of finite numbers" in coded.mapping_reason_
    assert coded.score(words, y) == 1.0
    assert coded.feature_names_in_.tolist() == ["word"]
    given = LabelMappingClassifier(learner, n_sites=3, prototypes=X[::4]).fit(words, y)
    assert given.mapping_.kind == "learned"
    assert given.score(words, y) == 1.0


def test_every_answer_is_the_decoders() -> None:
    X, y = draw(150, noise=0.6)
    model = LabelMappingClassifier(GaussianNB(), mapping="learned", n_sites=3, random_state=0)
    model.fit(X, y)
    logs = [site.log_probs(X, len(X)) for site in model.sites_]
    expected = decode_topk(model.mapping_, logs, 150)
    scores = model.decision_function(X)
    assert scores.shape == (600, 150)
    np.testing.assert_allclose(np.sort(scores, axis=1)[:, ::-1], expected.scores, atol=1e-4)
    assert np.array_equal(model.predict(X), model.classes_[expected.ids[:, 0]])
    shares = model.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
    top = model.predict_topk(X, 5)
    assert np.array_equal(top.labels, model.classes_[expected.ids[:, :5]])
    np.testing.assert_allclose(
        top.probabilities, np.take_along_axis(shares, expected.ids[:, :5], 1), rtol=1e-4
    )
    assert 0 < model.score(X, y) < 1  # else the comparison would be of nothing
    whole = model.predict_topk(X[:2], 1000)
    assert whole.labels.shape == (2, 150)
    with pytest.raises(ArgumentError, match="k must be at least 1, got 0"):
        model.predict_topk(X, 0)


def test_blocks_of_rows_change_nothing() -> None:
    X, y = draw(60)
    model = LabelMappingClassifier(GaussianNB(), mapping="mixed", n_sites=3).fit(X, y)
    whole = model.predict_proba(X)
    model.set_params(block_bytes=1)
    assert np.array_equal(model.predict_proba(X), whole)
    assert np.array_equal(model.predict(X), model.classes_[whole.argmax(axis=1)])
    model.set_params(block_bytes=7000)
    assert np.array_equal(model.predict_topk(X, 1).labels[:, 0], model.predict(X))


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, "int64"], ids=str)
def test_sparse_rows_equal_dense_ones(form: Any) -> None:
    X, y = draw(140, width=20)
    X = np.where(np.abs(X) > 0.8, X, 0.0)
    if form == "int64":
        rows = sp.csr_array(X)
        rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    else:
        rows = form(X)
    model = LabelMappingClassifier(SGDClassifier(loss="log_loss"), n_sites=4, random_state=0)
    dense = clone(model).fit(X, y)
    sparse = clone(model).fit(rows, y)
    assert sparse.mapping_ == dense.mapping_
    assert sparse.score(rows, y) > 0.9
    assert np.mean(sparse.predict(rows) == dense.predict(X)) > 0.9


@pytest.mark.parametrize("n_classes", [1, 2, 3])
@pytest.mark.parametrize("mapping", ["auto", "simplex", "learned", "mixed"])
def test_few_classes_and_singletons_work(n_classes: int, mapping: str) -> None:
    X = np.arange(2.0 * n_classes).reshape(n_classes, 2)
    y = [f"c{i}" for i in range(n_classes)]
    model = LabelMappingClassifier(DecisionTreeClassifier(), mapping=mapping, n_sites=3)
    model.fit(X, y)
    assert model.predict(X).tolist() == y
    assert model.predict_proba(X).shape == (n_classes, n_classes)
    assert model.predict_topk(X, 5).labels.shape == (n_classes, n_classes)


def test_N05_singletons_stay_in_training() -> None:
    rng = np.random.default_rng(0)
    y = np.array([*range(600), *np.repeat(np.arange(600, 800), 2)])
    X = rng.standard_normal((len(y), 10))
    model = LabelMappingClassifier(LinearDiscriminantAnalysis(), random_state=0).fit(X, y)
    assert model.classes_.tolist() == list(range(800))
    assert set(model.predict(X)) <= set(range(800))


@pytest.mark.parametrize("kind", ["str", "bool", "digits", "int64"])
def test_labels_come_back_exactly(kind: str) -> None:
    X, ids = draw(2 if kind == "bool" else 6)
    names = sorted(set(ids.tolist()))
    makers: dict[str, Callable[[int], Any]] = {
        "str": lambda i: f"标签 {i}\t",
        "bool": bool,
        "digits": lambda i: 10**20 + i,
        "int64": lambda i: 2**62 + i,
    }
    made = makers[kind]
    y = [made(names.index(i)) for i in ids]
    model = LabelMappingClassifier(nearest()).fit(X, y)
    found = model.predict(X).tolist()
    assert found == y
    assert {type(v) for v in found} == {type(y[0])}
    assert model.score(X, y) == 1.0


def test_N40_labels_from_1_to_n_are_reindexed() -> None:
    X, ids = draw(30)
    y = (ids + 100) // 7 + 1
    model = LabelMappingClassifier(nearest(), mapping="simplex", n_sites=3).fit(X, y)
    assert model.classes_.tolist() == list(range(1, 31))
    assert model.predict(X).max() == 30


def test_N45_score_counts_labels_never_seen_as_errors() -> None:
    X, y = draw(20)
    model = LabelMappingClassifier(nearest()).fit(X, y)
    other = y.copy()
    other[:20] = 10**6
    assert model.score(X, other) == pytest.approx(model.score(X, y) - 0.25)


def test_N35_sample_weights_reach_every_learner() -> None:
    X, y = draw(140, noise=0.3)
    weights = np.tile([1.0, 0.0, 1.0, 1.0], 140)
    model = LabelMappingClassifier(GaussianNB(), n_sites=4, random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=weights)
    fewer = clone(model).fit(X[weights > 0], y[weights > 0])
    assert weighted.mapping_ == fewer.mapping_
    np.testing.assert_allclose(weighted.predict_proba(X), fewer.predict_proba(X), rtol=1e-5)
    plain = clone(model).fit(X, y)
    assert not np.allclose(plain.predict_proba(X), fewer.predict_proba(X), rtol=1e-3)
    # Labels of rows that do not count stay classes.
    weights[y == y[0]] = 0
    assert len(clone(model).fit(X, y, sample_weight=weights).classes_) == 140
    with pytest.raises(TypeError, match=r"KNeighborsClassifier\.fit does not take it"):
        LabelMappingClassifier(nearest()).fit(X, y, sample_weight=weights)
    piped = make_pipeline(StandardScaler(), GaussianNB())
    LabelMappingClassifier(piped, n_sites=4).fit(X, y, sample_weight=np.ones(len(y)))


def test_class_weights_are_sample_weights_of_labels() -> None:
    X, y = draw(10, noise=0.5)
    heavy = {int(y[0]): 3.0}
    weights = np.where(y == y[0], 3.0, 1.0)
    model = LabelMappingClassifier(GaussianNB(), class_weight=heavy).fit(X, y)
    same = LabelMappingClassifier(GaussianNB()).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.predict_proba(X), same.predict_proba(X))
    y[:3] = y[4]
    counts = {label: np.sum(y == label) for label in set(y.tolist())}
    weights = np.array([len(y) / (10 * counts[label]) for label in y])
    model = LabelMappingClassifier(GaussianNB(), class_weight="balanced").fit(X, y)
    same = LabelMappingClassifier(GaussianNB()).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.predict_proba(X), same.predict_proba(X))
    with pytest.raises(UnknownLabelsError, match="class_weight"):
        LabelMappingClassifier(GaussianNB(), class_weight={"no": 1.0}).fit(X, y)
    with pytest.raises(ArgumentError, match="balanced"):
        LabelMappingClassifier(GaussianNB(), class_weight="other").fit(X, y)


class Few(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Answers with the symbols it saw, evenly; by decision_function alone if so asked."""

    def fit(self, X: Any, y: Any) -> "Few":
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def test_N65_symbols_are_aligned_and_those_never_seen_have_the_floor() -> None:
    mapping = MixedMapping(5, [5, 7])
    model = LabelMappingClassifier(Few(), mapping=mapping)
    # Classes 0..4 fill site 0; of site 1's seven symbols five are seen.
    X, y = np.zeros((5, 1)), np.arange(5)
    logs = model.fit(X, y).sites_[1].log_probs(X, 5)
    assert logs.shape == (5, 7)
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(logs[:, 5:], np.log(SMOOTHING / 7), rtol=1e-6)
    np.testing.assert_allclose(np.exp(logs[:, :5]), 1 / 5, rtol=1e-5)


def test_N65_folds_that_lack_a_class_are_scored() -> None:
    X, y = draw(140, each=3)
    y[-1] = 10**6  # a class of one row
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the splitter's, of the rare class
        scores = cross_val_score(
            LabelMappingClassifier(GaussianNB(), n_sites=4, random_state=0),
            X,
            y,
            cv=StratifiedKFold(3),
            scoring="accuracy",
        )
    assert scores.min() > 0.7


def test_learners_with_a_decision_function_alone_are_softmaxed() -> None:
    X, y = draw(140)
    model = LabelMappingClassifier(LinearSVC(), n_sites=6, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    site = model.sites_[0]
    scores = site.estimator.decision_function(X)
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    found = np.exp(site.log_probs(X, len(X)))[:, site.symbols]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    two = LabelMappingClassifier(LinearSVC()).fit(X, y > 0)
    np.testing.assert_allclose(
        two.predict_proba(X)[:, 1],
        1 / (1 + np.exp(-two.sites_[0].estimator.decision_function(X))),
        atol=1e-5,
    )
    assert two.decision_function(X).shape == (len(X),)
    asked = LabelMappingClassifier(LogisticRegression(), probabilities="softmax").fit(X, y > 0)
    np.testing.assert_allclose(asked.predict_proba(X).sum(axis=1), 1)
    with pytest.raises(ArgumentError, match="probabilities must be one of auto, softmax"):
        LabelMappingClassifier(nearest(), probabilities="other").fit(X, y)

    class Mute(BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> "Mute":
            self.classes_ = np.unique(y)
            return self

    with pytest.raises(ArgumentTypeError, match="Mute has neither"):
        LabelMappingClassifier(Mute()).fit(X, y)


def test_scikit_learns_temperature_mends_probabilities_that_are_too_sure() -> None:
    if parse_version(sklearn.__version__) < parse_version("1.8"):
        pytest.skip("this scikit-learn has no temperature scaling")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 6))

    def drawn(rows: int) -> tuple[Any, Any]:
        y = np.concatenate([np.arange(40), rng.integers(0, 40, rows - 40)])
        return centres[y] + 0.6 * rng.normal(size=(rows, 6)), y

    (X, y), held_out, (X_test, y_test) = drawn(1200), drawn(600), drawn(600)
    model = LabelMappingClassifier(LinearDiscriminantAnalysis(), n_sites=6).fit(X, y)
    mended = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(*held_out)
    before, after = (log_loss(y_test, m.predict_proba(X_test)) for m in (model, mended))
    assert after < before - 0.1
    assert (mended.predict(X_test) == model.predict(X_test)).mean() > 0.99


def test_linear_learners_on_an_arbitrary_code_are_warned_of() -> None:
    X, y = draw(140)
    arbitrary = LabelMappingClassifier(LogisticRegression(), mapping="simplex", n_sites=3)
    with pytest.warns(ArbitraryCodeWarning, match='mapping="learned"'):
        arbitrary.fit(X, y)
    learned = LabelMappingClassifier(LogisticRegression(), n_sites=3, random_state=0)
    learned.fit(X, y)  # warnings are errors here
    assert learned.score(X, y) > arbitrary.score(X, y)
    LabelMappingClassifier(nearest(), mapping="simplex", n_sites=3).fit(X, y)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_N62_the_result_does_not_depend_on_the_number_of_jobs(backend: str) -> None:
    X, y = draw(140, noise=0.4)
    learner = SGDClassifier(loss="log_loss", max_iter=20, tol=None)
    model = LabelMappingClassifier(learner, n_sites=3, random_state=0)
    one = clone(model).fit(X, y)
    again = clone(model).fit(X, y)
    with parallel_config(backend=backend):
        two = clone(model).set_params(n_jobs=2).fit(X, y)
        shares = two.predict_proba(X)
    assert one.mapping_ == two.mapping_ == again.mapping_
    assert np.array_equal(one.predict_proba(X), shares)
    assert np.array_equal(one.predict_proba(X), again.predict_proba(X))
    for a, b in zip(one.sites_, two.sites_, strict=True):
        assert np.array_equal(a.estimator.coef_, b.estimator.coef_)
    free = LabelMappingClassifier(learner, n_sites=3)
    assert not np.array_equal(
        clone(free).fit(X, y).predict_proba(X), clone(free).fit(X, y).predict_proba(X)
    )


def test_N62_read_only_rows_will_do() -> None:
    X, y = draw(140)
    X.flags.writeable = False
    LabelMappingClassifier(GaussianNB(), n_sites=3, n_jobs=2).fit(X, y).predict(X)


def test_N63_it_can_be_cloned_searched_and_pickled() -> None:
    X, y = draw(140, noise=0.5)
    model = LabelMappingClassifier(DecisionTreeClassifier(), n_sites=3, random_state=0)
    assert clone(model).get_params(deep=False).keys() == model.get_params(deep=False).keys()
    grid = {"estimator__max_depth": [1, 12], "n_sites": [3, 4]}
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert search.best_params_["estimator__max_depth"] == 12
    fitted = clone(model).fit(X, y)
    copy = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    assert repr(copy) == repr(fitted)


def test_N08_new_classes_get_the_next_codewords_and_the_others_stay() -> None:
    X, y = draw(3, each=40)
    y = np.array([5, 6, 8])[(y + 100) // 7]
    old = y != 8
    model = LabelMappingClassifier(
        SGDClassifier(loss="log_loss"), n_sites=3, max_classes=8, random_state=0
    )
    model.partial_fit(X[old], [*y[old]])
    before = model.mapping_.encode(model.class_ids_).tolist()
    assert model.classes_.tolist() == [5, 6]
    for _ in range(30):
        model.partial_fit(X, y)
    assert model.classes_.tolist() == [5, 6, 8]
    assert model.mapping_.encode(model.class_ids_[:2]).tolist() == before
    assert model.score(X, y) > 0.9
    model.partial_fit(X, np.where(y == 8, 7, y))  # between the others in order, last in the code
    assert model.classes_.tolist() == [5, 6, 7, 8]
    assert model.class_ids_.tolist() == [0, 1, 3, 2]
    assert model.predict_proba(X).shape == (120, 4)
    places = model.predict_proba(X[y == 8]).argmax(axis=1)
    assert set(places.tolist()) <= {2, 3}
    capacity = model.mapping_.capacity
    room = capacity - 4
    with pytest.raises(ValueError, match=rf"at most {room} new classes.*max_classes"):
        model.partial_fit(np.zeros((capacity, X.shape[1])), np.arange(100, 100 + capacity))
    words = np.arange(100, 100 + capacity).astype(str)
    with pytest.raises(ArgumentTypeError, match="must have labels of one type"):
        model.partial_fit(np.zeros((capacity, X.shape[1])), words)
    assert model.classes_.tolist() == [5, 6, 7, 8]
    learnt = LabelMappingClassifier(GaussianNB(), mapping="learned").fit(X, y)
    with pytest.raises(ArgumentError, match="no new classes with a learnt code, and 1 are new"):
        learnt.partial_fit(X, np.where(y == 8, 7, y))
    # Codes asked for at the start.
    listed = LabelMappingClassifier(SGDClassifier(loss="log_loss"), random_state=0)
    listed.partial_fit(X, y, classes=range(20))
    assert listed.classes_.tolist() == list(range(20))


def test_labels_of_later_calls_are_joined_exactly_or_refused() -> None:
    X = np.arange(6.0).reshape(3, 2)
    model = LabelMappingClassifier(GaussianNB(), max_classes=20)
    with pytest.raises(TypeError, match=r"got int \(row 0: 1\) and str"):
        model.partial_fit(X, ["a", "b", "c"], classes=[1, 2])
    model.partial_fit(X, np.array([1, 2, 3], np.uint8), classes=[-7])
    model.partial_fit(X, [10**20, 10**20 + 1, 1])
    assert model.classes_.tolist() == [-7, 1, 2, 3, 10**20, 10**20 + 1]
    with pytest.raises(TypeError, match="and str"):
        model.partial_fit(X, ["a", "b", "c"])
    assert len(model.classes_) == model.mapping_.n_classes == 6
    words = LabelMappingClassifier(GaussianNB(), max_classes=20)
    words.partial_fit(X, np.array(["b", "a", "b"]), classes=["longer"])
    assert words.classes_.tolist() == ["a", "b", "longer"]


class Weighed(GaussianNB):  # type: ignore[misc]
    """Keeps the weights of its last batch, and fails at site 1 when told to."""

    fails = False

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        if type(self).fails and len(classes) == 5:
            raise RuntimeError("site 1 fails")
        self.weights_ = sample_weight
        return super().partial_fit(X, y, classes, sample_weight)


def test_class_weights_follow_labels_and_not_codewords() -> None:
    X = np.arange(6.0).reshape(3, 2)
    model = LabelMappingClassifier(
        Weighed(), mapping=MixedMapping(2, [3, 5]), class_weight={"b": 5.0}
    )
    model.partial_fit(X, ["b", "c", "b"])
    model.partial_fit(X, ["a", "b", "c"])  # "a" sorts first, and is last in the code
    assert model.class_ids_.tolist() == [2, 0, 1]
    assert model.sites_[0].estimator.weights_.tolist() == [1.0, 5.0, 1.0]
    model.set_params(class_weight="balanced")
    with pytest.raises(ArgumentError, match='"balanced" needs all rows at once'):
        model.partial_fit(X, ["a", "b", "c"])
    weights: list[Any] = [-1.0, np.inf, np.nan, "a", "1", None, [1.0, 2.0]]
    for weight in weights:
        with pytest.raises(ArgumentError, match=r"class_weight must be finite .* of 'a' it is "):
            LabelMappingClassifier(GaussianNB(), class_weight={"a": weight}).fit(X, ["a", "b", "a"])


@pytest.mark.parametrize("fault", ["weight", "width", "site 1"])
def test_a_partial_fit_that_fails_changes_nothing(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.arange(6.0).reshape(3, 2)
    model = LabelMappingClassifier(Weighed(), mapping=MixedMapping(2, [3, 5]))
    model.partial_fit(X, ["b", "c", "b"])
    before = pickle.dumps([site.estimator.class_count_ for site in model.sites_])
    monkeypatch.setattr(Weighed, "fails", fault == "site 1")
    with pytest.raises((ValueError, RuntimeError)):
        model.partial_fit(
            X[:, :1] if fault == "width" else X,
            ["a", "b", "c"],
            sample_weight=[-1, 1, 1] if fault == "weight" else None,
        )
    assert model.classes_.tolist() == ["b", "c"]
    assert model.mapping_.n_classes == 2
    assert pickle.dumps([site.estimator.class_count_ for site in model.sites_]) == before


def test_text_goes_to_the_learners_as_it_is() -> None:
    words = pd.Series([f"word{i} and" for i in range(40)] * 2)
    learner = make_pipeline(CountVectorizer(), MultinomialNB(alpha=0.01))
    model = LabelMappingClassifier(learner, mapping="simplex", n_sites=3)
    y = [f"c{i}" for i in range(40)] * 2
    for rows in (words, words.to_numpy(), words.tolist()):
        assert model.fit(rows, y).predict(rows).tolist() == y


def test_sparse_formats_without_rows_are_converted() -> None:
    X, y = draw(20)
    coo = sp.coo_matrix(X)
    model = LabelMappingClassifier(SGDClassifier(loss="log_loss"), block_bytes=1, random_state=0)
    model.fit(coo, y, sample_weight=np.ones(len(y)))
    assert np.array_equal(model.predict(coo), model.predict(X))


def test_pairwise_decision_functions_are_refused() -> None:
    X, y = draw(4)
    with pytest.raises(ArgumentError, match='must be "ovr", whose columns are classes'):
        LabelMappingClassifier(SVC(decision_function_shape="ovo")).fit(X, y)
    assert LabelMappingClassifier(SVC()).fit(X, y).score(X, y) == 1.0


def test_partial_fit_is_there_where_the_learner_has_it() -> None:
    assert not hasattr(LabelMappingClassifier(nearest()), "partial_fit")
    assert hasattr(LabelMappingClassifier(GaussianNB()), "partial_fit")


def test_given_mappings_are_grown_or_refused() -> None:
    X, y = draw(30)
    for mapping in (SimplexMapping(30, 3), SimplexMapping(20, 3, field_order=7)):
        model = LabelMappingClassifier(nearest(), mapping=mapping).fit(X, y)
        assert model.mapping_.n_classes == 30
        assert model.score(X, y) == 1.0
    assert LabelMappingClassifier(nearest(), mapping=SimplexMapping(40, 3)).fit(X, y).mapping_ == (
        SimplexMapping(30, 3, field_order=7)
    )
    # A binary code for fewer classes is shorter: it is refused, not put in the given one's place.
    for kind in ("binary", "bch", "hadamard"):
        with pytest.raises(ArgumentError, match="of y, and has 100; a code of this kind for 30"):
            LabelMappingClassifier(nearest(), mapping=EcocMapping(100, kind)).fit(X, y)
    roomy = SimplexMapping(100, 3, field_order=11)
    model = LabelMappingClassifier(nearest(), mapping=roomy, max_classes=121).fit(X, y)
    assert model.mapping_.capacity == 121
    assert (model.mapping_.encode(range(30)) == roomy.encode(range(30))).all()
    with pytest.raises(ArgumentError, match="capacity"):
        LabelMappingClassifier(nearest(), mapping=SimplexMapping(9, 3, field_order=3)).fit(X, y)
    table = LearnedMapping.fit(X, 3, seed=0)
    with pytest.raises(ArgumentError, match="must have the 30 classes of y, and has 120"):
        LabelMappingClassifier(nearest(), mapping=table).fit(X, y)
    with pytest.raises(ArgumentError, match="n_sites must be None"):
        LabelMappingClassifier(nearest(), mapping=SimplexMapping(30, 3), n_sites=4).fit(X, y)
    ternary = EcocMapping(30, "one-versus-one")
    with pytest.raises(ArgumentError, match="every class at every site"):
        LabelMappingClassifier(nearest(), mapping=ternary).fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mapping": "bogus"}, "one of auto, one-hot, learned, simplex, mixed; got 'bogus'"),
        ({"mapping": "simplex", "n_sites": 1}, "n_sites must be at least 2"),
        ({"prototypes": np.zeros((3, 2))}, r"prototypes must have shape \(30, d\)"),
        ({"max_classes": 7}, "max_classes must be at least 30"),
        ({"mapping": "one-hot", "n_sites": 3}, "n_sites must be None with mapping='one-hot'"),
        ({"mapping": "mixed", "prototypes": [[1]]}, "prototypes must be None with mapping='mix"),
        ({"mapping": "learned", "max_classes": 99}, "max_classes must be None with"),
        ({"mapping": SimplexMapping(30, 3), "max_classes": 99}, "at most the mapping's capacity"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    X, y = draw(30)
    with pytest.raises(ArgumentError, match=message):
        LabelMappingClassifier(nearest(), **options).fit(X, y)


def test_too_many_scores_are_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelmapping.estimator.DENSE_LIMIT", 100)
    X, y = draw(30)
    model = LabelMappingClassifier(nearest()).fit(X, y)
    with pytest.raises(ArgumentError, match=r"at most 3 rows for all 30.*predict_topk\(X, k\)"):
        model.predict_proba(X[:4])
    assert model.predict_proba(X[:3]).shape == (3, 30)
    assert len(model.predict_topk(X, 2).labels) == len(X)


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


class Noted(GaussianNB):  # type: ignore[misc]
    """Keeps what else `fit` was given."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, note: Any = None) -> "Noted":
        self.note_ = note
        super().fit(X, y, sample_weight)
        return self


@pytest.mark.usefixtures("routing")
def test_metadata_are_routed_to_the_learners() -> None:
    X, y = draw(140)
    learner = Noted().set_fit_request(note=True, sample_weight=True)
    model = LabelMappingClassifier(learner, n_sites=3).fit(X, y, note="here")
    assert [site.estimator.note_ for site in model.sites_] == ["here"] * 3
    # Requests of the classifier itself: held-out rows are weighted as asked.
    asked = LabelMappingClassifier(learner, n_sites=3, random_state=0)
    asked.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    noisy, y = draw(20, noise=1.5)
    few = np.tile([1.0, 0.0, 1.0, 0.0], 20)
    options: dict[str, Any] = {"cv": 2, "params": {"sample_weight": few}}
    weighted_scores = cross_validate(asked, noisy, y, **options)["test_score"]
    asked.set_score_request(sample_weight=False)
    assert cross_validate(asked, noisy, y, **options)["test_score"].tolist() != (
        weighted_scores.tolist()
    )
    X, y = draw(140)
    weights = np.tile([1.0, 0.0, 1.0, 1.0], 140)
    weighted = LabelMappingClassifier(learner, n_sites=3, random_state=0)
    weighted.fit(X, y, sample_weight=weights)
    plain = LabelMappingClassifier(learner, n_sites=3, random_state=0).fit(X, y)
    assert not np.allclose(weighted.predict_proba(X), plain.predict_proba(X))


def test_unknown_fit_arguments_are_refused_without_routing() -> None:
    X, y = draw(30)
    with pytest.raises((ValueError, TypeError), match="note"):
        LabelMappingClassifier(Noted()).fit(X, y, note="here")


def test_columns_by_name_and_their_order() -> None:
    X, y = draw(140, width=3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    learner = make_pipeline(
        make_column_transformer((StandardScaler(), ["a", "c"]), remainder="passthrough"),
        GaussianNB(),
    )
    model = LabelMappingClassifier(learner, n_sites=3, random_state=0).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["c", "a", "b"]])


def test_progress_is_told_with_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = draw(140)
    LabelMappingClassifier(GaussianNB(), n_sites=3, verbose=1).fit(X, y)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].startswith("site 3 of 3, 0 s left")
