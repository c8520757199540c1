"""Distances between codewords: both ways of counting against every pair by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import distances
from labelmapping.mappings.distances import (
    counting_work,
    distance_counts,
    first_collision,
    matrix_work,
    minimum_distance,
)
from labelmapping.mappings.rows import RowIndex, as_codewords, shown

Matrix = NDArray[np.int64]


@st.composite
def matrices(draw: st.DrawFn, least: int = -1) -> Matrix:
    """Few rows that often agree, more than one word of sites now and then, wide symbols too."""
    n_sites = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 63, 64, 65, 130]))
    n_classes = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([1, 2, 3, 4, 5, 9, 40]))
    matrix = rng.integers(least, size, (n_classes, n_sites))
    wide = rng.random(n_sites) < draw(st.sampled_from([0.0, 0.5]))
    return np.where(wide & (matrix > 0), matrix * 2**40 + 7, matrix)


def pairs_by_hand(matrix: Matrix) -> dict[tuple[int, int], int]:
    """The distance of every pair, in the order of ids."""
    present = matrix >= 0
    return {
        (i, j): int(((matrix[i] != matrix[j]) & present[i] & present[j]).sum())
        for i in range(len(matrix))
        for j in range(i + 1, len(matrix))
    }


ways = pytest.mark.parametrize("way", ["listed", "packed"])


def force(monkeypatch: pytest.MonkeyPatch, way: str) -> list[int]:
    """Makes one way of counting free; the list grows with each count it does."""
    monkeypatch.setattr(distances, "LISTED", 0.0 if way == "listed" else 1e9)
    count: Callable[..., Any] = getattr(distances, f"_count_{way}")
    calls: list[int] = []

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return count(*arguments)

    monkeypatch.setattr(distances, f"_count_{way}", counted)
    return calls


@ways
def test_counts_and_witness_are_those_of_every_pair(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = force(monkeypatch, way)

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(matrices())
    def check(matrix: Matrix) -> None:
        before = matrix.copy()
        pairs = pairs_by_hand(matrix)
        counts = distance_counts(matrix)
        assert counts.dtype == np.int64
        expected = np.bincount(list(pairs.values()), minlength=matrix.shape[1] + 1)
        assert counts.tolist() == expected.tolist()
        least = min(pairs.values(), default=matrix.shape[1])
        first = next((pair for pair, d in pairs.items() if d == least), (0, 0))
        assert minimum_distance(matrix) == (least, first)
        equal = next((pair for pair, d in pairs.items() if d == 0), None)
        assert first_collision(matrix) == equal
        assert np.array_equal(matrix, before)

    check()
    assert len(calls) > 300


@ways
@pytest.mark.parametrize(("n_classes", "n_sites", "size"), [(2500, 5, 3), (1026, 70, 2)])
def test_more_classes_than_a_block(
    way: str, n_classes: int, n_sites: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = np.random.default_rng(0).integers(-1, size, (n_classes, n_sites))
    expected = np.zeros(n_sites + 1, np.int64)
    for i in range(n_classes):
        rest, own = matrix[i + 1 :], matrix[i]
        found = ((rest != own) & (rest >= 0) & (own >= 0)).sum(axis=1)
        expected += np.bincount(found, minlength=n_sites + 1)
    calls = force(monkeypatch, way)
    assert distance_counts(matrix).tolist() == expected.tolist()
    assert minimum_distance(matrix)[0] == np.flatnonzero(expected)[0]
    assert len(calls) == 2


def test_the_witness_may_lie_at_the_end() -> None:
    matrix = np.zeros((3000, 12), np.int64)
    matrix[:] = np.arange(3000)[:, None] >> np.arange(12) & 1
    matrix = np.concatenate([matrix, matrix], axis=1)  # every distance at least 2
    matrix[-1, :12] = matrix[-2, :12]
    matrix[-1, 12:] = matrix[-2, 12:]
    assert minimum_distance(matrix) == (0, (2998, 2999))
    assert first_collision(matrix) == (2998, 2999)
    matrix[-1, 5] ^= 1
    assert minimum_distance(matrix) == (1, (2998 ^ 2**5, 2999))
    assert first_collision(matrix) is None


def test_classes_without_a_common_symbol_are_farthest() -> None:
    matrix = np.repeat(np.arange(50)[:, None], 6, axis=1)
    assert distance_counts(matrix).tolist() == [0] * 6 + [50 * 49 // 2]
    assert minimum_distance(matrix) == (6, (0, 1))
    assert minimum_distance([[4, 4, 4]]) == (3, (0, 0))
    assert distance_counts([[4, 4, 4]]).tolist() == [0, 0, 0, 0]
    assert first_collision([[4, 4]]) is None
    assert first_collision([[4, -1]]) is None


def test_the_cheaper_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    calls = {way: force(monkeypatch, way) for way in ("listed", "packed")}
    monkeypatch.setattr(distances, "LISTED", 4.0)
    distance_counts(rng.integers(0, 317, (500, 4)))
    assert {way: len(c) for way, c in calls.items()} == {"listed": 1, "packed": 0}
    distance_counts(rng.integers(0, 2, (500, 63)))
    assert {way: len(c) for way, c in calls.items()} == {"listed": 1, "packed": 1}
    # 317 symbols are allowed, but nearly all classes have the same: lists do not help.
    skewed = np.where(rng.random((500, 4)) < 0.99, 0, rng.integers(0, 317, (500, 4)))
    distance_counts(skewed)
    assert {way: len(c) for way, c in calls.items()} == {"listed": 1, "packed": 2}
    assert matrix_work(skewed) > 2 * counting_work(skewed.shape, [317] * 4)


def test_work_grows_with_pairs_and_shrinks_with_alphabets() -> None:
    assert counting_work((1, 5), [2] * 5) < counting_work((10, 5), [2] * 5)
    assert counting_work((10**5, 4), [317] * 4) < 3e8 < counting_work((10**5, 8), [64] * 8)
    assert counting_work((2 * 10**4, 63), [2] * 63) < 3e8
    balanced = np.random.default_rng(2).permuted(np.tile(np.arange(100), (8, 50)), axis=1).T
    estimate, exact = counting_work(balanced.shape, [100] * 8), matrix_work(balanced)
    assert estimate == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize(
    ("codewords", "kind", "text"),
    [
        ([0, 1], ArgumentError, "codewords must have shape (n_classes, n_sites), got (2,)"),
        (np.zeros((2, 2, 2), int), ArgumentError, "got (2, 2, 2)"),
        ([], ArgumentError, "got (0,)"),
        ([[], []], ArgumentError, "codewords must not be empty, got shape (2, 0)"),
        ([[0, 1], [1]], ArgumentError, "codewords must be a matrix: "),
        ([[0.0, 1.0]], ArgumentTypeError, "codewords must be integers, got an array of float64"),
        ([[True, False]], ArgumentTypeError, "got an array of bool"),
        ([["0", "1"]], ArgumentTypeError, "got an array of <U1"),
        ([[0, 10**30]], ArgumentTypeError, "got an array of object"),
        ([[0, 1], [5, -2]], ArgumentError, "codewords[1, 1] is -2"),
        ([[0, 2**62]], ArgumentError, "from 0 to 2^62 - 1"),
        (np.array([[2**64 - 1]], np.uint64), ArgumentError, "codewords[0, 0] is 18446744073709551"),
    ],
)
def test_what_is_no_matrix_of_symbols_is_refused(
    codewords: Any, kind: type[Exception], text: str
) -> None:
    for function in (distance_counts, minimum_distance, first_collision, matrix_work, as_codewords):
        with pytest.raises(kind) as error:
            function(codewords)
        assert text in str(error.value)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(matrices(), st.data())
def test_a_row_is_found_by_its_entries(matrix: Matrix, data: st.DataObject) -> None:
    index = RowIndex(matrix)
    first: dict[tuple[int, ...], int] = {}
    for row, entries in enumerate(matrix.tolist()):
        first.setdefault(tuple(entries), row)
    seed = data.draw(st.integers(0, 2**32 - 1))
    asked = np.random.default_rng(seed).permuted(np.concatenate([matrix, matrix]), axis=0)
    asked = np.concatenate([matrix, asked, matrix + 1, matrix - 2])
    found = index.find(asked)
    assert found.tolist() == [first.get(tuple(entries), -1) for entries in asked.tolist()]
    assert index.find(asked[:0]).shape == (0,)
    assert index.find(asked[None, :, None]).tolist() == [[[row] for row in found.tolist()]]
    repeats = [row for row, entries in enumerate(matrix.tolist()) if first[tuple(entries)] < row]
    assert index.repeats().tolist() == repeats


def test_keys_are_exact_where_they_pass_int64() -> None:
    # 40 sites of 41 symbols, and rows that differ at one site only, the first or the last.
    matrix = np.random.default_rng(3).integers(0, 41, (200, 40))
    matrix[150:] = matrix[100:150]
    matrix[150:, 0] = (matrix[150:, 0] + 1) % 41
    matrix[50:100] = matrix[:50]
    matrix[50:100, -1] = (matrix[50:100, -1] + 1) % 41
    index = RowIndex(matrix)
    assert index.find(matrix).tolist() == list(range(200))
    assert index.repeats().size == 0
    assert first_collision(matrix) is None
    assert first_collision(np.concatenate([matrix, matrix[[7, 3]]])) == (3, 201)
    huge = np.array([[2**62 - 1, 2**62 - 1, 0], [2**62 - 1, 2**62 - 2, 0]])
    assert RowIndex(huge).find(huge).tolist() == [0, 1]


def test_a_long_codeword_is_cut_in_messages() -> None:
    assert shown(np.arange(3)) == "[0, 1, 2]"
    assert shown(np.arange(100)).endswith("14, 15, ...]")
