"""Free codewords: beside a search of all words, whatever the alphabets and the dimension."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping.mappings.placing import TakenWords

Floats = NDArray[np.float64]
Symbols = NDArray[np.int64]
seeds = st.integers(0, 2**32 - 1)


@st.composite
def codes(draw: st.DrawFn) -> tuple[list[int], int, Symbols, Floats]:
    """Alphabets, k, some codewords of which no two agree at k sites, and costs of three classes."""
    n_sites = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(1, 4), min_size=n_sites, max_size=n_sites))
    dimension = draw(st.integers(1, n_sites))
    rng = np.random.default_rng(draw(seeds))
    words: list[Symbols] = []
    for word in rng.permutation(list(itertools.product(*map(range, sizes)))):
        if is_free(word, np.array(words).reshape(-1, n_sites), dimension) and rng.random() < 0.6:
            words.append(word)
    # Whole numbers give ties.
    costs = rng.integers(0, 6, (3, n_sites, max(sizes))).astype(np.float64)
    return sizes, dimension, np.array(words, np.int64).reshape(-1, n_sites), costs


def is_free(word: Symbols, words: Symbols, dimension: int) -> bool:
    return bool(((words == word).sum(axis=1) < dimension).all())


def cost_of(word: Symbols, costs: Floats) -> float:
    return float(costs[range(len(word)), word].sum())


def least(sizes: list[int], words: Symbols, dimension: int, costs: Floats) -> float:
    """What the cheapest free word costs, of all words; inf where none is free."""
    every = (np.array(word) for word in itertools.product(*map(range, sizes)))
    free = (cost_of(word, costs) for word in every if is_free(word, words, dimension))
    return min(free, default=np.inf)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(codes(), st.sampled_from([1, 3, 256]))
def test_classes_take_free_codewords_and_the_cheapest_by_a_wide_beam(
    code: tuple[list[int], int, Symbols, Floats], width: int
) -> None:
    sizes, dimension, words, costs = code
    taken = TakenWords(sizes, dimension)
    taken.add(words)
    placed = taken.place(costs, width)
    for word, cost in zip(placed, costs, strict=False):
        assert (word >= 0).all()
        assert (word < sizes).all()
        assert is_free(word, words, dimension)
        best = least(sizes, words, dimension, cost)
        assert cost_of(word, cost) >= best
        if width == 256:
            assert cost_of(word, cost) == best
        words = np.vstack([words, word])
    if len(placed) < 3 and width == 256:
        assert least(sizes, words, dimension, costs[len(placed)]) == np.inf


@settings(max_examples=150, deadline=None, derandomize=True)
@given(codes(), st.sampled_from([1, 3, 256]))
def test_classes_exchange_codewords_for_cheaper_ones_alone(
    code: tuple[list[int], int, Symbols, Floats], width: int
) -> None:
    sizes, dimension, words, costs = code
    taken = TakenWords(sizes, dimension)
    taken.add(words)
    rows = words[:3].copy()
    changed = taken.exchange(costs[: len(rows)], rows, width)
    assert changed == (rows != words[:3]).any(axis=1).sum()
    everything = words.copy()
    for row, (word, cost) in enumerate(zip(rows, costs, strict=False)):
        others = np.delete(everything, row, axis=0)
        assert is_free(word, others, dimension)
        better = (word != everything[row]).any()
        assert (cost_of(word, cost) < cost_of(everything[row], cost)) == better
        if width == 256:
            assert cost_of(word, cost) == least(sizes, others, dimension, cost)
        everything[row] = word
    # What was given up is free again, and what was taken is not.
    again = TakenWords(sizes, dimension)
    again.add(everything)
    assert again.place(costs, 256).tolist() == taken.place(costs, 256).tolist()


def test_of_equal_costs_the_lowest_symbols_come_first() -> None:
    taken = TakenWords([3, 3, 3], 2)
    assert taken.place(np.zeros((4, 3, 3)), 27).tolist() == [
        [0, 0, 0], [0, 1, 1], [0, 2, 2], [1, 0, 1],
    ]  # fmt: skip
