"""Hashed codes: the closed form of their ways back, and how equal codewords are found."""

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelmapping import HashedMapping
from labelmapping.errors import ArgumentError
from labelmapping.mappings import hashed


def test_hashed_codewords_never_change() -> None:
    mapping = HashedMapping(1000, 6, 41)
    assert mapping.seed == 0
    assert mapping.hashes[:2] == ((1401122455, 1505841537), (831342762, 1409637701))
    assert mapping.encode([0, 999]).tolist() == [[15, 14, 25, 20, 2, 0], [12, 26, 13, 37, 9, 16]]


@pytest.mark.parametrize("n_classes", [4, 10, 1000])
def test_n01_codewords_are_distinct_or_refused_for_every_seed(n_classes: int) -> None:
    made, n_sites = 0, 2 * (n_classes - 1).bit_length()
    for seed in range(60):
        loose = HashedMapping(1, n_sites, 2, seed=seed)
        ids = np.arange(n_classes)
        codewords = np.stack([loose.symbols_at(ids, site) for site in range(n_sites)], axis=1)
        if len(np.unique(codewords, axis=0)) == n_classes:
            made += 1
            assert np.array_equal(loose.grow(n_classes).encode(ids), codewords)
        else:
            with pytest.raises(ArgumentError, match=f"with seed {seed}, got {n_classes}: classes "):
                HashedMapping(n_classes, n_sites, 2, seed=seed)
    assert 0 < made < 60


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.integers(1, 400),
    st.sampled_from([2, 3, 16, 1000, 2**20, 2**31 - 2]),
    st.integers(0, 2**64 - 1),
    st.sampled_from([5, hashed.RUN]),
)
def test_hashed_codes_resolve_in_closed_form(
    n_classes: int, size: int, seed: int, run: int
) -> None:
    mapping = HashedMapping(n_classes, 50 if size < 16 else 16, size, seed=seed)
    a, b = mapping.hashes[0]
    symbols = [(a * x + b) % (2**31 - 1) % size for x in range(n_classes)]
    assert mapping.symbols_at(np.arange(n_classes), 0).tolist() == symbols
    ids = np.arange(0, n_classes, max(1, n_classes // 7))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashed, "RUN", run)
        for symbol in {0, size - 1, symbols[0], symbols[-1]}:
            expected = [x for x in range(n_classes) if symbols[x] == symbol]
            assert mapping.classes_with(0, symbol).tolist() == expected
        sites = np.random.default_rng(0).permutation(mapping.n_sites).tolist()
        codewords = mapping.encode(ids)[:, sites]
        for cost in (0, 10**9):  # symbol by symbol, and by a look at every class
            patch.setattr(hashed, "SYMBOL", cost)
            assert mapping.resolve(sites, codewords).tolist() == ids.tolist()
            assert mapping.resolve(sites, codewords[::-1]).tolist() == ids[::-1].tolist()
            wrong = codewords.copy()
            wrong[:, 5] = (wrong[:, 5] + 1) % size
            assert (mapping.resolve(sites, wrong) == -1).all()


def test_first_within_is_the_first() -> None:
    for modulus in (2, 3, 7, 31):
        for factor, low in product(range(1, modulus), range(modulus)):
            for high in range(low, modulus):
                first = next(x for x in range(modulus) if low <= factor * x % modulus <= high)
                assert hashed._first_within(factor, modulus, low, high) == first


def test_equal_hashed_codewords_are_found_with_the_lowest_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = HashedMapping(3, 3, 16, seed=0)
    ids = np.arange(4000)
    codewords = np.stack([whole.symbols_at(ids, site) for site in range(3)], axis=1).tolist()
    second = next(x for x in ids.tolist() if codewords[x] in codewords[:x])
    first = codewords.index(codewords[second])
    # Also with fingerprints that say little, and where few are compared at first.
    for golden, at_first in ((hashed.GOLDEN, hashed.FIRST), (np.uint64(2**60), 2)):
        monkeypatch.setattr(hashed, "GOLDEN", golden)
        monkeypatch.setattr(hashed, "FIRST", at_first)
        with pytest.raises(ArgumentError) as error:
            HashedMapping(4000, 3, 16)
        assert str(error.value) == (
            f"n_classes must be at most {second} at 3 sites of 16 symbols with seed 0, got 4000: "
            f"classes {first} and {second} are both {codewords[second]}; try another seed, or "
            "n_sites of 8, where equal codewords are unlikely"
        )
        grown = whole.grow(second)
        assert grown.encode(range(second)).tolist() == codewords[:second]


def test_above_the_proof_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = HashedMapping(2**31 - 1, 13, 200)
    assert mapping.capacity == 2**31 - 1
    ids = [0, 77, 2**31 - 2]
    assert mapping.resolve(range(13), mapping.encode(ids)).tolist() == ids
    assert len(pickle.dumps(mapping)) < 1000
    with pytest.raises(ArgumentError, match="n_sites must be at least 11 for 16777217 classes and"):
        HashedMapping(2**24 + 1, 8, 200)
    monkeypatch.setattr(hashed, "PROVEN", 10)
    pairs = 100 * 99 // 2
    assert 2**41 <= pairs * 10**9 < 2**43
    least = next(n for n in range(99) if 2**n > pairs * 10**9)
    assert HashedMapping(100, least, 2).n_sites == least
    with pytest.raises(ArgumentError, match=f"n_sites must be at least {least} for 100 classes"):
        HashedMapping(100, least - 1, 2)


def test_fingerprints_that_are_equal_by_accident_refuse_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = HashedMapping(3000, 12, 16)
    monkeypatch.setattr(hashed, "GOLDEN", np.uint64(2**56))
    monkeypatch.setattr(hashed, "FIRST", 2)
    assert len(np.unique(plain._fingerprints())) < 3000
    assert HashedMapping(3000, 12, 16) == plain
