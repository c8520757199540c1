"""What stands for each class: means and scatter of rows, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import LearnedMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import class_means, class_statistics
from labelmapping.mappings.prototypes import WIDEST

Rows = NDArray[np.float64]
Ids = NDArray[np.int64]


def draw(seed: int, n_rows: int = 60, n_classes: int = 7, width: int = 5) -> tuple[Rows, Ids]:
    rng = np.random.default_rng(seed)
    ids = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n_rows - n_classes)])
    rng.shuffle(ids)
    return rng.normal(size=(n_rows, width)) + 3 * ids[:, None], ids


def in_batches(rows: Rows, ids: Ids, size: int) -> Iterator[tuple[Rows, Ids]]:
    for start in range(0, len(ids), size):
        yield rows[start : start + size], ids[start : start + size]


def scatter(rows: Rows, ids: Ids) -> Rows:
    parts = [rows[ids == c] for c in np.unique(ids)]
    residues: Rows = np.vstack([part - part.mean(axis=0) for part in parts])
    products: Rows = residues.T @ residues / len(rows)
    return products


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 70))
def test_means_and_scatter_do_not_depend_on_the_batches(seed: int, size: int) -> None:
    rows, ids = draw(seed)
    found = class_statistics(in_batches(rows, ids, size), 7)
    means = np.stack([rows[ids == c].mean(axis=0) for c in range(7)])
    np.testing.assert_allclose(found.means, means, rtol=1e-6)
    np.testing.assert_allclose(class_means(in_batches(rows, ids, size), 7), means, rtol=1e-6)
    np.testing.assert_allclose(found.covariance, scatter(rows, ids), atol=1e-12)
    assert np.array_equal(found.covariance, found.covariance.T)


def test_a_large_offset_does_not_drown_the_scatter() -> None:
    rows, ids = draw(1)
    found = class_statistics(in_batches(rows + 1e7, ids, 16), 7)
    np.testing.assert_allclose(found.covariance, scatter(rows, ids), rtol=1e-5)


@pytest.mark.parametrize("n_components", [None, 3])
def test_tensors_and_sparse_rows_are_as_dense_ones(n_components: int | None) -> None:
    rows, ids = draw(2)
    rows = np.where(rows > 4, rows, 0.0).astype(np.float32).astype(np.float64)
    dense = class_statistics([(rows, ids)], 7, n_components=n_components, seed=5)
    for kind in (scipy.sparse.csr_matrix, scipy.sparse.csc_array, torch.from_numpy):
        other = class_statistics([(kind(rows), ids)], 7, n_components=n_components, seed=5)
        np.testing.assert_allclose(other.means, dense.means, rtol=1e-5)
        np.testing.assert_allclose(other.covariance, dense.covariance, rtol=1e-4, atol=1e-5)
    images = torch.from_numpy(rows.reshape(60, 1, 5))
    assert np.array_equal(class_means([(images, torch.from_numpy(ids))], 7), dense.means) == (
        n_components is None
    )


def test_a_projection_keeps_distances_and_follows_its_seed() -> None:
    rng = np.random.default_rng(0)
    rows, ids = rng.normal(size=(40, 3000)), np.arange(40)
    means = class_means([(rows, ids)], 40, n_components=1000, seed=1)
    assert means.shape == (40, 1000)
    between = np.linalg.norm(means[:20] - means[20:], axis=1)
    assert np.abs(between / np.linalg.norm(rows[:20] - rows[20:], axis=1) - 1).max() < 0.12
    assert np.array_equal(means, class_means([(rows, ids)], 40, n_components=1000, seed=1))
    assert not np.array_equal(means, class_means([(rows, ids)], 40, n_components=1000, seed=2))


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "batches must have a row of every class: 3 of 3 have none, the first is 0"),
        ([([[1.0], [2.0]], [0, 2])], "1 of 3 have none, the first is 1"),
        ([([[1.0], [2.0]], [0])], r"batch 0 has 1 ids and shape \(2, 1\)"),
        ([([[1.0]], [0]), ([[1.0, 2.0]], [1])], "1 columns; batch 1 has 1 ids and shape"),
        ([([[1.0]], [3])], "ids must"),
    ],
)
def test_batches_that_do_not_fit_are_refused(batches: object, words: str) -> None:
    for function in (class_means, class_statistics):
        with pytest.raises(ArgumentError, match=words):
            function(batches, 3)  # type: ignore[arg-type]


def test_single_rows_do_not_scatter() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 3))
    assert np.abs(class_statistics([(rows, np.arange(9))], 9).covariance).max() < 1e-15


@pytest.mark.parametrize("rows_a_class", [1, 3])
def test_rows_that_equal_their_mean_do_not_scatter(rows_a_class: int) -> None:
    """Only rounding is left of them, which `LearnedMapping.fit` would refuse or divide by."""
    rng = np.random.default_rng(0)
    for scale in (1e-6, 1.0, 1e6):
        rows = np.repeat(scale * rng.normal(size=(300, 20)), rows_a_class, axis=0)
        ids = np.repeat(np.arange(300), rows_a_class)
        seen = class_statistics(in_batches(rows, ids, 77), 300)
        assert not seen.covariance.any()
        fitted = LearnedMapping.fit(seen.means, 3, covariance=seen.covariance, seed=0)
        assert fitted == LearnedMapping.fit(seen.means, 3, seed=0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_that_is_not_finite_is_named(bad: float, sparse: bool) -> None:
    rows = np.eye(6)
    rows[4, 1] = bad
    batches = [(r, i) for r, i in ((rows[:3], [0, 1, 2]), (rows[3:], [0, 1, 2]))]
    if sparse:
        batches = [(scipy.sparse.csr_array(r), i) for r, i in batches]
    for means in (class_means, class_statistics):
        with pytest.raises(ArgumentError, match=f"row 1 of batch 1, of class 1, has {bad}"):
            means(batches, 3)


def test_tensors_of_networks_are_prototypes() -> None:
    layer = torch.nn.Linear(4, 100)
    fitted = LearnedMapping.fit(layer.weight, 4, seed=0)
    assert fitted == LearnedMapping.fit(layer.weight.detach().numpy(), 4, seed=0)
    rounded = layer.weight.bfloat16()
    assert LearnedMapping.fit(rounded, 4, seed=0) == LearnedMapping.fit(
        rounded.detach().float().numpy(), 4, seed=0
    )
    ids = torch.arange(100)
    assert np.array_equal(
        class_statistics([(rounded, ids)], 100).means, class_means([(rounded.float(), ids)], 100)
    )


def test_scatter_needs_few_columns() -> None:
    wide = np.zeros((4, WIDEST + 1))
    with pytest.raises(ArgumentError, match=r"n_components must be given, at most 4096.* 4097 col"):
        class_statistics([(wide, [0, 0, 1, 1])], 2)
    assert class_statistics([(wide, [0, 0, 1, 1])], 2, n_components=8).covariance.shape == (8, 8)
    with pytest.raises(ArgumentError, match="n_components must be at least 1, got 0"):
        class_means([(wide, [0, 0, 1, 1])], 2, n_components=0)
    with pytest.raises(ArgumentTypeError, match="seed must be an integer"):
        class_means([(wide, [0, 0, 1, 1])], 2, seed=0.5)  # type: ignore[arg-type]
