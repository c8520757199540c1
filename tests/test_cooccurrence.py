"""Prototypes from sequences: what is counted, what is factored, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings.cooccurrence import cooccurrence_factors


def information(sequences: list[list[int]], n_classes: int, window: int) -> NDArray[np.float64]:
    """Positive pointwise mutual information, by loops."""
    counts = np.zeros((n_classes, n_classes))
    for ids in sequences:
        for i, left in enumerate(ids):
            for j, right in enumerate(ids):
                if 0 < abs(i - j) <= window:
                    counts[left, right] += 1
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    ratios = np.divide(counts, expected, out=np.ones_like(counts), where=counts > 0)
    positive: NDArray[np.float64] = np.maximum(np.log(ratios), 0)
    return positive


@pytest.mark.parametrize("window", [1, 2, 30])
def test_factors_are_those_of_the_whole_matrix(window: int) -> None:
    rng = np.random.default_rng(window)
    sequences = [rng.integers(0, 12, rng.integers(0, 20)).tolist() for _ in range(30)]
    factors = cooccurrence_factors(sequences, 13, window=window, n_components=5)
    assert factors.shape == (13, 5)
    assert factors.dtype == np.float32
    vectors, values, _ = np.linalg.svd(information(sequences, 13, window))
    expected = (vectors * np.sqrt(values))[:, :5]
    expected *= np.sign(expected[np.abs(expected).argmax(axis=0), range(5)])
    np.testing.assert_allclose(factors, expected, atol=1e-5)
    assert not factors[12].any()  # in no sequence


def test_classes_in_the_same_company_are_alike_whatever_their_sequences_order() -> None:
    rng = np.random.default_rng(0)
    # Even ids with even ones, odd with odd; sequences lie one behind the other.
    sequences = [2 * rng.integers(0, 10, 8) + rng.integers(0, 2) for _ in range(400)]
    factors = cooccurrence_factors(sequences, 20, n_components=2)
    alike = factors @ factors.T
    same = (np.arange(20)[:, None] - np.arange(20)) % 2 == 0
    assert alike[same].min() > 0.4
    assert np.abs(alike[~same]).max() < 1e-5
    again = cooccurrence_factors(sequences[::-1], 20, n_components=2)
    np.testing.assert_allclose(again @ again.T, alike, atol=1e-5)


def test_the_same_seed_gives_the_same_bits() -> None:
    sequences = [np.random.default_rng(i).integers(0, 50, 9) for i in range(60)]
    first = cooccurrence_factors(sequences, 50, n_components=8, seed=3)
    assert np.array_equal(cooccurrence_factors(sequences, 50, n_components=8, seed=3), first)
    other = cooccurrence_factors(sequences, 50, n_components=8, seed=4)
    np.testing.assert_allclose(other, first, atol=1e-4)


@pytest.mark.parametrize(
    ("sequences", "options", "error", "message"),
    [
        ([[0, 1], [2, 9]], {}, ArgumentError, r"sequences must lie in 0\.\.8 .* is 9"),
        ([[0, -1]], {}, ArgumentError, "is -1"),
        ([[0.0, 1.0]], {}, ArgumentTypeError, "sequences must be integers, got .* float64"),
        ([[3], [], [4]], {}, ArgumentError, "two classes beside each other, they have none"),
        ([], {}, ArgumentError, "two classes beside each other, they have none"),
        ([[0, 1]], {"n_components": 9}, ArgumentError, "below n_classes, 9; got 9"),
        ([[0, 1]], {"n_components": 0}, ArgumentError, "n_components must be at least 1"),
        ([[0, 1]], {"window": 0}, ArgumentError, "window must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_factored_is_refused(
    sequences: list[list[int]], options: dict[str, int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cooccurrence_factors(sequences, 9, **{"n_components": 3, **options})
