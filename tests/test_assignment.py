"""Symbols that follow prototypes: caps, groups that must differ, views, and what is missing."""

from __future__ import annotations

import itertools
import math
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelmapping import LabelMapping, LearnedMapping, decode_topk
from labelmapping.errors import MissingExtraError
from labelmapping.mappings import assignment
from labelmapping.mappings.assignment import explained_variance, fit_codewords, views_of

Floats = NDArray[np.float64]
seeds = st.integers(0, 2**32 - 1)


def clusters(n_clusters: int, each: int, width: int, seed: int = 0, noise: float = 0.05) -> Floats:
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(n_clusters, width))
    return np.repeat(middles, each, axis=0) + noise * rng.normal(size=(n_clusters * each, width))


# --- capped means


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(1, 120), st.integers(2, 12), st.integers(1, 5), seeds, st.data())
def test_no_symbol_has_more_classes_than_its_cap_in_any_group(
    n_classes: int, size: int, width: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    view = rng.normal(size=(n_classes, width))
    if data.draw(st.booleans(), "equal rows"):
        view = np.round(view)
    groups = np.sort(rng.integers(0, data.draw(st.integers(1, 5), "groups"), n_classes))
    groups = rng.permutation(np.unique(groups, return_inverse=True)[1])
    largest = int(np.bincount(groups).max())
    most = data.draw(st.integers(math.ceil(largest / size), largest), "most")
    symbols, centroids = assignment._capped_means(view, view[:1] * np.ones((size, 1)), groups, most)
    for group in range(int(groups.max()) + 1):
        counts = np.bincount(symbols[groups == group], minlength=size)
        share = math.ceil(counts.sum() / size * assignment.SLACK)
        assert counts.sum() == np.count_nonzero(groups == group)
        assert counts.max() <= min(most, max(1, share))
    for symbol in np.unique(symbols):
        assert centroids[symbol] == pytest.approx(view[symbols == symbol].mean(axis=0))


def test_classes_that_would_lose_most_choose_first() -> None:
    view, centroids = np.array([[4.0], [1.0], [9.0]]), np.array([[0.0], [10.0], [100.0]])
    # 1 and 4 both want 0; 1 would lose more at 10. There 9 is better off than 4.
    assert assignment._nearest_with_room(view, centroids, 1).tolist() == [2, 0, 1]
    assert assignment._nearest_with_room(view, centroids, 2).tolist() == [0, 0, 1]


def test_clusters_that_fit_their_caps_are_found() -> None:
    view = clusters(6, 10, 4)
    start = view[::10]
    symbols, centroids = assignment._capped_means(view, start, np.zeros(60, np.int64), 60)
    assert symbols.tolist() == np.repeat(range(6), 10).tolist()
    assert centroids == pytest.approx(view.reshape(6, 10, 4).mean(axis=1))


# --- groups


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(0, 5), st.integers(2, 5), seeds, st.data())
def test_a_column_numbers_the_classes_that_agree_at_some_sites(
    n_classes: int, n_sites: int, size: int, seed: int, data: st.DataObject
) -> None:
    codewords = np.random.default_rng(seed).integers(0, size, (n_classes, n_sites))
    n_agreeing = data.draw(st.integers(0, min(3, n_sites)))
    columns = assignment._groups(codewords, n_agreeing, size)
    choices = list(itertools.combinations(range(n_sites), n_agreeing))
    assert columns.shape == (n_classes, len(choices))
    for sites, column in zip(choices, columns.T, strict=True):
        words = codewords[:, list(sites)]
        agree = (words[:, None] == words[None]).all(axis=2)
        assert np.array_equal(agree, column[:, None] == column[None])
        assert sorted(set(column.tolist())) == list(range(int(column.max()) + 1))


# --- assignment


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(2, 9), st.integers(1, 6), st.booleans(), seeds)
def test_classes_of_a_group_differ_also_where_a_group_has_as_many_as_there_are_symbols(
    size: int, n_groups: int, constant: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(n_groups), size))
    view = np.ones((groups.size, 2)) if constant else rng.normal(size=(groups.size, 2))
    symbols, _, clashes = assignment._assign(
        view, rng.normal(size=(size, 2)), groups[:, None], np.array([1]), rng
    )
    assert clashes == 0
    for group in range(n_groups):
        assert sorted(symbols[groups == group]) == list(range(size))


@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_no_clash_is_left_where_a_solution_is_easy(n_columns: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(8, 20))
        n_classes = size * size // 3
        view = rng.normal(size=(n_classes, 3))
        groups = rng.integers(0, size, (n_classes, n_columns))
        symbols, _, clashes = assignment._assign(
            view, view[:size], groups, np.ones(n_columns, np.int64), rng
        )
        assert clashes == 0
        for column in groups.T:
            assert len(set(zip(column.tolist(), symbols.tolist(), strict=True))) == n_classes


def test_clashes_that_no_code_can_avoid_are_counted() -> None:
    groups = np.array([[0], [0], [0], [0], [0], [1]])
    rng = np.random.default_rng(0)
    symbols, _, clashes = assignment._assign(
        rng.normal(size=(6, 2)), rng.normal(size=(3, 2)), groups, np.array([1]), rng
    )
    assert clashes == 2  # five classes, three symbols
    assert set(symbols.tolist()) <= {0, 1, 2}


def test_a_looser_column_is_kept_to_its_limit_where_there_is_room() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n_classes, size, limit = 60, 8, 3
        view = clusters(3, 20, 2, seed)
        groups = np.stack([np.arange(n_classes) // 2, np.arange(n_classes) // 20], axis=1)
        symbols, _, clashes = assignment._assign(
            view, rng.normal(size=(size, 2)), groups, np.array([1, limit]), rng
        )
        assert clashes == 0
        for group in range(3):
            assert np.bincount(symbols[groups[:, 1] == group]).max() <= limit


def test_classes_that_are_in_no_ones_way_get_their_nearest_symbol() -> None:
    """Also where a looser column has them all in one group, within its limit."""
    view = clusters(5, 8, 3, seed=2)
    rng = np.random.default_rng(0)
    groups = np.stack([np.arange(40), np.zeros(40, np.int64)], axis=1)
    symbols, centroids, clashes = assignment._assign(view, view[::8], groups, np.array([1, 8]), rng)
    assert clashes == 0
    assert symbols.tolist() == np.repeat(range(5), 8).tolist()
    assert centroids == pytest.approx(view.reshape(5, 8, 3).mean(axis=1))


def test_one_group_is_assigned_at_the_least_cost() -> None:
    """Where the centroids stay: each class's symbol is its own alone, so they are the classes."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        view, start = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
        together = np.zeros((5, 1), np.int64)
        symbols, centroids, _ = assignment._assign(view, start, together, np.array([1]), rng)
        far = ((view[:, None] - start[None]) ** 2).sum(axis=2)
        best = min(itertools.permutations(range(5)), key=lambda p: far[range(5), p].sum())
        assert symbols.tolist() == list(best)
        assert centroids[symbols] == pytest.approx(view)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(2, 60), st.integers(1, 3), st.integers(1, 4), seeds)
def test_codewords_of_fit_have_as_many_clashes_as_it_says(
    n_classes: int, dimension: int, width: int, seed: int
) -> None:
    prototypes = np.random.default_rng(seed).normal(size=(n_classes, width))
    size = max(2, math.ceil((1.2 * n_classes) ** (1 / dimension)))
    views = views_of(prototypes, dimension + 2, "full", size, seed)
    codewords, centroids, clashes = fit_codewords(prototypes, views, size, dimension, seed)
    assert codewords.min() >= 0
    assert codewords.max() < size
    assert [c.shape for c in centroids] == [(size, min(n_classes, width))] * (dimension + 2)
    repeats = 0
    for sites in itertools.combinations(range(dimension + 2), dimension):
        repeats += n_classes - len(np.unique(codewords[:, list(sites)], axis=0))
    assert clashes == repeats


# --- sweeps


def test_sweeps_make_symbols_follow_the_prototypes_more_and_keep_the_distance() -> None:
    for dimension, size in ((2, 20), (3, 8)):
        prototypes = clusters(60, 5, 12, noise=0.5)
        views = views_of(prototypes, 4, "components", size, 0)
        sums, least = [], []
        for sweeps in (0, 2):
            words, centroids, clashes = fit_codewords(
                prototypes, views, size, dimension, 0, sweeps=sweeps
            )
            assert clashes == 0
            for sites in itertools.combinations(range(4), dimension):
                assert len(np.unique(words[:, list(sites)], axis=0)) == len(words)
            shares = []
            for site, middles in enumerate(centroids):
                view = views.of(prototypes, site)
                shares.append(explained_variance(view, words[:, site]))
                for symbol in np.unique(words[:, site]):
                    mean = view[words[:, site] == symbol].mean(axis=0)
                    assert middles[symbol] == pytest.approx(mean)
            sums.append(sum(shares))
            least.append(min(shares))
        assert sums[1] > 1.02 * sums[0]
        assert least[1] > least[0]


def test_classes_that_clash_get_free_codewords() -> None:
    rng = np.random.default_rng(0)
    view, middles = rng.normal(size=(40, 3)), rng.normal(size=(9, 3))
    words = np.stack([np.arange(40) // 9, np.arange(40) % 9, np.arange(40) % 9], axis=1)
    before = words.copy()
    code = assignment._Code(words)
    for _ in range(3):
        code.add(view, middles)
    assert assignment._mend(code, 2) == 0
    for sites in itertools.combinations(range(3), 2):
        assert len(np.unique(words[:, list(sites)], axis=0)) == 40
    assert words[:9].tolist() == before[:9].tolist()  # the first that have a pair keep it
    full = assignment._Code(np.zeros((6, 2), np.int64))
    for _ in range(2):
        full.add(view[:6], middles[:2])
    assert assignment._mend(full, 2) == 2  # six classes, four words


# --- memory


def peak(function: Callable[[], object]) -> int:
    """The most bytes of arrays that are held at a time."""
    tracemalloc.start()
    function()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_distances_of_all_classes_to_all_centroids_are_never_held_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment, "BLOCK", 128)
    rng = np.random.default_rng(0)
    view = rng.normal(size=(6000, 4))
    centroids = view[:300]
    assignment._nearest_with_room(view[:300], centroids, 2)  # compiled
    assert peak(lambda: assignment._nearest_with_room(view, centroids, 26)) < 6000 * 300 * 8 / 4


def test_a_fit_holds_no_copy_of_wide_prototypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "BLOCK", 128)
    monkeypatch.setattr(assignment, "COMPONENTS", 4)
    prototypes = np.random.default_rng(0).normal(size=(3000, 700)).astype(np.float32)
    with assignment.one_thread():
        views = views_of(prototypes, 4, "components", 70, 0)
        views.of(prototypes, 0)
        most = peak(lambda: views_of(prototypes, 4, "components", 70, 0))
        assert most < 700 * 700 * 8 * 5 + 128 * 700 * 8 * 4
        assert most < 3000 * 700 * 8 * 1.5
        assert peak(lambda: views.of(prototypes, 0)) < 128 * 700 * 8 * 4


def test_blocks_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    prototypes = clusters(30, 10, 9, noise=0.3)
    views = views_of(prototypes, 3, "components", 25, 0)
    monkeypatch.setattr(assignment, "BLOCK", 7)
    again = views_of(prototypes, 3, "components", 25, 0)
    assert again.centre == pytest.approx(views.centre)
    for site in range(3):
        one, other = views.of(prototypes, site), again.of(prototypes, site)
        assert np.abs(one) == pytest.approx(np.abs(other), abs=1e-9)
    assert assignment._spread(one) == pytest.approx(one.var(axis=0).sum())


def test_views_are_chosen_by_a_sample_of_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "TRIED", 300)
    sizes = []

    def spy(rows: Floats, *options: Any, **more: Any) -> Any:
        sizes.append((len(rows), options[1]))
        return fit_codewords(rows, *options, **more)

    monkeypatch.setattr(assignment, "fit_codewords", spy)
    noise = np.random.default_rng(1).normal(size=(1200, 40))
    for prototypes, shared in ((clusters(20, 60, 32), False), (noise, True)):
        views = views_of(prototypes, 4, "auto", 44, 0)
        assert (views.maps[0] is views.maps[1]) == shared
    assert sizes == [(300, 22)] * 2


# --- variance


def test_explained_variance_is_the_share_between_symbols() -> None:
    rng = np.random.default_rng(0)
    view = rng.normal(size=(60, 3)) + 7
    symbols = rng.integers(0, 9, 60)
    within = sum(
        ((view[symbols == s] - view[symbols == s].mean(axis=0)) ** 2).sum() for s in range(9)
    )
    whole = ((view - view.mean(axis=0)) ** 2).sum()
    assert explained_variance(view, symbols) == pytest.approx(1 - within / whole)
    assert explained_variance(view, np.arange(60)) == pytest.approx(1)
    assert explained_variance(view, np.zeros(60, np.int64)) == pytest.approx(0)
    assert explained_variance(np.ones((60, 3)), symbols) == 1.0
    # Symbols that know nothing have (q-1)/(N-1) on average.
    blind = [explained_variance(view, rng.permutation(np.arange(60) % 9)) for _ in range(300)]
    assert np.mean(blind) == pytest.approx(8 / 59, rel=0.05)


# --- views


@pytest.mark.parametrize("shape", [(40, 30), (300, 20), (50, 1100), (140, 1100)], ids=str)
def test_components_are_those_of_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    n_classes, width = shape
    rank = 12  # far apart, so that the randomised decomposition is exact, too
    prototypes = rng.normal(size=(n_classes, rank)) * 2.0 ** -np.arange(rank)
    prototypes = prototypes @ np.linalg.qr(rng.normal(size=(width, rank)))[0].T
    centre = prototypes.mean(axis=0)
    with assignment.one_thread():
        components, variances = assignment._principal(prototypes, centre, 0, None)
        again = assignment._principal(prototypes, centre, 0, None)[0]
    count = min(assignment.COMPONENTS, *shape)
    assert components.shape == (width, count)
    _, lengths, rows = np.linalg.svd(prototypes - centre, full_matrices=False)
    assert variances == pytest.approx(lengths[:count] ** 2 / n_classes, abs=1e-12)
    assert (np.diff(variances) <= 1e-12).all()
    assert components.T @ components == pytest.approx(np.eye(count), abs=1e-9)
    assert np.abs((components[:, :rank] * rows[:rank].T).sum(axis=0)) == pytest.approx(1)
    assert np.array_equal(components, again)


def test_components_are_dealt_so_that_every_site_has_its_share() -> None:
    rng = np.random.default_rng(1)
    prototypes = rng.normal(size=(200, 30)) * np.linspace(0.2, 3, 30)
    views = views_of(prototypes, 5, "components", 15, 0)
    assert sum(m.shape[1] for m in views.maps) == 30
    together = np.concatenate(views.maps, axis=1)
    assert together.T @ together == pytest.approx(np.eye(30), abs=1e-9)
    loads = [views.of(prototypes, site).var(axis=0).sum() for site in range(5)]
    assert sum(loads) == pytest.approx(prototypes.var(axis=0).sum())
    assert max(loads) < 1.1 * min(loads)


def test_every_site_has_a_component_also_where_most_have_no_variance() -> None:
    line = np.zeros((50, 8))
    line[:, 3] = np.random.default_rng(0).normal(size=50)
    for prototypes in (line, np.ones((50, 8)), np.zeros((150, 1100))):
        views = views_of(prototypes, 4, "components", 9, 0)
        assert min(m.shape[1] for m in views.maps) >= 1


def test_all_sites_see_all_where_there_are_fewer_components_than_sites() -> None:
    rng = np.random.default_rng(0)
    for shape, n_sites, kind in [
        ((50, 3), 4, "components"),
        ((3, 50), 4, "components"),
        ((50, 8), 1, "components"),
        ((50, 8), 4, "full"),
    ]:
        views = views_of(rng.normal(size=shape), n_sites, kind, 9, 0)
        assert len(views.maps) == n_sites
        assert all(m is views.maps[0] for m in views.maps)


def test_auto_deals_components_on_structured_data_and_shares_them_on_isotropic_data() -> None:
    structured = clusters(20, 20, 32)
    low_rank = np.random.default_rng(0).normal(size=(400, 5)) * [9, 8, 7, 6, 5]
    noise = np.random.default_rng(1).normal(size=(400, 40))
    for prototypes, shared in ((structured, False), (low_rank, False), (noise, True)):
        views = views_of(prototypes, 4, "auto", 25, 0)
        assert (views.maps[0] is views.maps[1]) == shared


# --- k-means


def testinitial_centroids_are_rows_where_there_are_no_more_different_ones() -> None:
    rng = np.random.default_rng(0)
    view = np.repeat(rng.normal(size=(5, 2)), 4, axis=0)
    centroids = assignment.initial_centroids(view, 8, rng)
    assert centroids.shape == (8, 2)
    assert {tuple(row) for row in centroids.tolist()} <= {tuple(row) for row in view.tolist()}
    few = assignment.initial_centroids(view[:3], 8, rng)
    assert few.tolist() == [view[0].tolist()] * 8


def test_k_means_sees_a_sample_of_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "SAMPLED", 4)
    view = clusters(3, 50, 2, noise=0.01)
    centroids = assignment.initial_centroids(view, 3, np.random.default_rng(0))
    nearest = ((view[::50, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    assert sorted(nearest.tolist()) == [0, 1, 2]


def test_rows_that_differ_by_rounding_alone_give_no_warning() -> None:
    view = 1e-9 * np.random.default_rng(0).normal(size=(60, 4))
    view[0] = 1e3  # beside it the distances of the others vanish
    assert assignment.initial_centroids(view, 10, np.random.default_rng(0)).shape == (10, 4)


def test_threads_are_limited_inside_and_given_back() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpoolctl.threadpool_info()]

    before = threads()
    with assignment.one_thread():
        assert set(threads()) <= {1}
    assert threads() == before


# --- what is missing


@pytest.mark.parametrize("package", ["sklearn", "scipy.optimize", "threadpoolctl"])
def test_a_missing_package_is_told_with_the_extra_that_brings_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prototypes = clusters(10, 5, 6)
    fitted = LearnedMapping.fit(prototypes, 3)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'labelmapping\[sklearn\]'") as error:
        LearnedMapping.fit(prototypes, 3)
    assert isinstance(error.value, ImportError)
    # What is fitted needs neither.
    rebuilt = LabelMapping.from_config(fitted.to_config())
    assert rebuilt == fitted
    assert isinstance(rebuilt, LearnedMapping)
    assert rebuilt.grow(51, prototypes[:1]).n_classes == 51
    arrays = [np.zeros((1, size)) for size in fitted.alphabet_sizes]
    assert decode_topk(rebuilt, arrays, 1).ids.tolist() == [[0]]
