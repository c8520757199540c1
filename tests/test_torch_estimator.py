"""`TorchSiteClassifier`: by itself, and as the learner of all sites of a code."""

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from labelmapping import MixedMapping, SimplexMapping, torch_estimator
from labelmapping.errors import ArgumentError, DivergedError
from labelmapping.estimator import LabelMappingClassifier
from labelmapping.torch_estimator import TorchSiteClassifier

WAIVED = {
    "check_sample_weight_equivalence_on_dense_data": (
        random := "batches are drawn at random, so a row given twice is not a row of weight 2"
    ),
    "check_sample_weight_equivalence_on_sparse_data": random,
    "check_methods_subset_invariance": (
        "answers are float32, and sums in another order differ by more than its 1e-7"
    ),
}


def draw(n_classes: int, width: int = 12, each: int = 6) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows about random centres, and their classes as words."""
    rng = np.random.default_rng(n_classes)
    centres = rng.standard_normal((n_classes, width))
    ids = np.repeat(np.arange(n_classes), each)
    X = centres[ids] + 0.2 * rng.standard_normal((len(ids), width))
    return X, np.array([f"w{i:04d}" for i in ids])


def small(**options: Any) -> TorchSiteClassifier:
    return TorchSiteClassifier(**{"hidden": 32, "epochs": 5, "batch_size": 64, **options})


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        TorchSiteClassifier(hidden=32, learning_rate=0.02),
        LabelMappingClassifier(TorchSiteClassifier(hidden=32, learning_rate=0.02)),
    ],
    expected_failed_checks=lambda estimator: WAIVED,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    ("mapping", "normalization"), [("simplex", "site"), ("learned", "site"), ("simplex", "class")]
)
def test_a_code_is_learned_about_as_well_as_one_hot(mapping: str, normalization: str) -> None:
    X, y = draw(100)
    learner = small(hidden=64, epochs=20, learning_rate=0.01, normalization=normalization)
    coded = LabelMappingClassifier(learner, mapping=mapping, n_sites=4, random_state=0).fit(X, y)
    plain = LabelMappingClassifier(learner, mapping="one-hot", random_state=0).fit(X, y)
    assert plain.score(X, y) > 0.97
    assert coded.score(X, y) > plain.score(X, y) - 0.04
    assert coded.joint_.network_.head.output.out_features == sum(coded.mapping_.alphabet_sizes)
    assert not hasattr(coded, "sites_")
    # By itself it is the one-hot one.
    alone = clone(learner).set_params(random_state=coded.joint_.random_state).fit(X, y)
    assert np.array_equal(alone.predict(X), plain.predict(X))
    np.testing.assert_allclose(alone.predict_proba(X), plain.predict_proba(X), atol=1e-6)


def test_without_hidden_layers_it_is_linear() -> None:
    X, y = draw(5)
    model = small(hidden=0, epochs=40, learning_rate=0.05).fit(X, y)
    assert [tuple(p.shape) for p in model.network_.parameters()] == [(5, 12), (5,)]
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_rows_are_never_made_dense_whole(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = draw(140, width=30)
    rows = form(np.where(np.abs(X) > 0.8, X, 0.0))
    monkeypatch.setattr(torch_estimator, "BLOCK_NUMBERS", 30 * 50)
    blocks: list[tuple[int, int]] = []
    for kind in (sp.csr_matrix, sp.csr_array):
        dense = kind.toarray

        def spy(self: Any, dense: Any = dense) -> Any:
            blocks.append(self.shape)
            return dense(self)

        monkeypatch.setattr(kind, "toarray", spy)
    model = LabelMappingClassifier(
        small(epochs=30), n_sites=4, mapping="simplex", random_state=0
    ).fit(rows, y)
    assert model.score(rows, y) > 0.8
    assert max(n for n, _ in blocks) == 64  # a batch
    assert {n for n, _ in blocks[-10:]} == {50, 840 % 50}  # of predict


def test_rows_of_any_type_are_read_alike() -> None:
    X, y = draw(20)
    X = np.round(50 + 10 * X)
    expected = small(random_state=0).fit(X, y).predict_proba(X)
    big = X.astype(np.int64)
    big.flags.writeable = False
    for other in (X.astype(np.float32), X.astype(np.uint8), np.asfortranarray(X), big):
        found = small(random_state=0).fit(other, y).predict_proba(other)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    with pytest.raises(ArgumentError, match="finite as float32, and one is too large"):
        small(standardize=False).fit(X * 1e300, y)
    with pytest.raises(ArgumentError, match="finite as float32, and one is too large"):
        small().fit(sp.csr_array(X * 1e300), y)


def test_columns_are_brought_to_one_scale() -> None:
    X, y = draw(20)
    shifted = X * np.logspace(-2, 6, X.shape[1]) + np.linspace(-3, 3, X.shape[1])
    a = small(random_state=0).fit(X, y).predict_proba(X)
    b = small(random_state=0).fit(shifted, y).predict_proba(shifted)
    np.testing.assert_allclose(a, b, atol=1e-3)
    raw = small(random_state=0, standardize=False).fit(X, y)
    assert not raw.network_.centre.any()
    assert not np.allclose(raw.predict_proba(X), a)
    for constant in (0.0, 7.3, 1e-40):
        wide = np.column_stack([X, np.full(len(X), constant)])
        model = small(random_state=0).fit(wide, y)
        assert model.network_.scale[-1] == 1
        assert np.isfinite(model.predict_proba(wide)).all()


def test_N35_rows_of_weight_zero_are_as_good_as_absent() -> None:
    X, y = draw(20)
    weights = np.tile([1.0, 0.0, 1.0], 40)
    model = small(random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=weights)
    fewer = clone(model).fit(X[weights > 0], y[weights > 0])
    np.testing.assert_allclose(weighted.predict_proba(X), fewer.predict_proba(X), rtol=1e-5)
    scaled = clone(model).fit(X, y, sample_weight=1000 * weights)
    np.testing.assert_allclose(scaled.predict_proba(X), fewer.predict_proba(X), rtol=1e-4)
    with pytest.raises(ValueError, match=r"all are 0|non-zero"):
        clone(model).fit(X, y, sample_weight=0 * weights)
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        clone(model).fit(X, y, sample_weight=-weights)


def test_weights_shift_the_answer() -> None:
    X, y = np.zeros((400, 1)), np.repeat(["a", "b"], 200)
    learner = small(epochs=40, learning_rate=0.02, random_state=0)
    model = learner.fit(X, y, np.where(y == "a", 3.0, 1.0))
    np.testing.assert_allclose(model.predict_proba(X[:1]), [[0.75, 0.25]], atol=0.02)
    inside = LabelMappingClassifier(learner, class_weight={"a": 3.0})
    inside.fit(X, y)
    np.testing.assert_allclose(inside.predict_proba(X[:1]), [[0.75, 0.25]], atol=0.02)


def test_N62_equal_seeds_give_equal_weights_and_the_global_generator_is_left_alone() -> None:
    X, y = draw(20)
    model = small(dropout=0.3)
    before = torch.random.get_rng_state()
    fits = [clone(model).set_params(random_state=seed).fit(X, y) for seed in (0, 0, 1)]
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(1)
    fits.append(clone(model).set_params(random_state=0).fit(X, y))
    first, second, other, later = (fit.predict_proba(X) for fit in fits)
    assert np.array_equal(first, second)
    assert np.array_equal(first, later)
    assert not np.array_equal(first, other)
    assert not np.array_equal(clone(model).fit(X, y).predict_proba(X), first)
    # A site each (a pipeline has no fit_sites), in threads that share torch's generator.
    piped = make_pipeline(FunctionTransformer(), model)
    apart = LabelMappingClassifier(piped, mapping=MixedMapping(20, [5, 7, 9]), random_state=0)
    expected = clone(apart).fit(X, y).predict_proba(X)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(clone(apart).fit(X, y).predict_proba(X)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(shares, expected) for shares in found)
    assert len(found) == 3


def test_N57_a_diverged_training_is_told_with_its_step_and_leaves_nothing_fitted() -> None:
    X, y = draw(20)
    X[3, 2] = 3e38
    model = small(standardize=False, hidden=0, learning_rate=1e30)
    with pytest.raises(
        DivergedError, match=r"TorchSiteClassifier: the loss .* at step \d+; a lower"
    ):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    outer = LabelMappingClassifier(model, mapping="simplex", n_sites=3)
    with pytest.raises(DivergedError):
        outer.fit(X, y)
    with pytest.raises(NotFittedError):
        outer.predict(X)


def test_N57_the_last_steps_weights_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = draw(5)
    step = torch.optim.Adam.step

    def spoiled(self: Any) -> None:
        step(self)
        with torch.no_grad():
            self.param_groups[0]["params"][-1][0] = torch.nan

    monkeypatch.setattr(torch.optim.Adam, "step", spoiled)
    with pytest.raises(DivergedError, match="the weights became nan at step 1"):
        small(epochs=1).fit(X, y)


@pytest.mark.parametrize("normalization", ["site", "class"])
def test_N25_batches_of_one_row_and_a_single_row_will_do(normalization: str) -> None:
    X, y = draw(13, each=5)  # 65 rows: the last batch has one
    learner = small(normalization=normalization, epochs=40, learning_rate=0.01)
    mapping = SimplexMapping(13, 3)
    model = LabelMappingClassifier(learner, mapping=mapping, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    ones = learner.set_params(batch_size=1, epochs=1)
    LabelMappingClassifier(ones, mapping=mapping).fit(X, y)
    single = LabelMappingClassifier(learner).fit(X[:1], y[:1])
    assert single.predict(X).tolist() == [y[0]] * 65


def test_it_can_be_cloned_searched_and_pickled() -> None:
    X, y = draw(20)
    model = LabelMappingClassifier(small(), mapping="simplex", n_sites=3, random_state=0)
    search = GridSearchCV(model, {"estimator__hidden": [0, (32, 16)]}, cv=2).fit(X, y)
    best = search.best_estimator_
    assert best.joint_.hidden == search.best_params_["estimator__hidden"]
    copied = pickle.loads(pickle.dumps(best))
    assert np.array_equal(copied.predict_proba(X), best.predict_proba(X))
    assert clone(small(hidden=[8, 4])).hidden == [8, 4]
    # Another learner in its place leaves nothing of it behind.
    model.fit(X, y)
    model.set_params(estimator=make_pipeline(FunctionTransformer(), small())).fit(X, y)
    assert len(model.sites_) == 3
    assert not hasattr(model, "joint_")


def test_names_of_columns_are_kept_and_other_widths_refused() -> None:
    X, y = draw(5, width=3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for model in (small(), LabelMappingClassifier(small())):
        model.fit(frame, y)
        assert model.feature_names_in_.tolist() == ["a", "b", "c"]
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame[["c", "a", "b"]])
        with pytest.raises(ValueError, match="expecting 3 features"):
            model.fit(X, y).predict(X[:, :2])


def test_what_was_fitted_on_a_code_has_no_labels_to_predict() -> None:
    X, y = draw(6)
    model = small().fit(X, y)
    model.fit_sites(X, np.repeat(np.arange(6), 6), SimplexMapping(6, 3))
    assert [p.shape for p in model.site_log_probs(X)] == [(36, 3)] * 3
    assert [p.shape for p in model.site_log_probs(X[:1])] == [(1, 3)] * 3
    for answer in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            answer(X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit_sites(X, np.arange(6), SimplexMapping(6, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer, got 2.5"),
        ({"learning_rate": 0}, "learning_rate must be positive, got 0"),
        ({"hidden": -1}, "hidden must be at least 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"normalization": "other"}, "normalization"),
        ({"device": "abacus"}, "device must be one that torch has here, got 'abacus'"),
        ({"device": "meta"}, "device must be one that torch has here, got 'meta'"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    X, y = draw(4)
    with pytest.raises(ArgumentError, match=message):
        small(**options).fit(X, y)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_N16_a_gpu_trains_and_the_weights_come_back_to_the_cpu(tmp_path: Path) -> None:
    X, y = draw(200)
    model = LabelMappingClassifier(small(device="cuda", dropout=0.1), n_sites=4, random_state=0)
    torch.zeros(1, device="cuda")  # so that there is a generator
    before = torch.cuda.get_rng_state()
    model.fit(X, y)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert {p.device.type for p in model.joint_.network_.parameters()} == {"cpu"}
    on_gpu = model.predict_proba(X)
    assert {p.device.type for p in model.joint_.network_.parameters()} == {"cpu"}
    model.joint_.set_params(device="cpu")
    np.testing.assert_allclose(model.predict_proba(X), on_gpu, atol=1e-4)
