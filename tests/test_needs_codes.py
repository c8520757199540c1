"""NEEDS.md, the rows about codes and their class ids. Each test is named after its row."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from labelmapping import EcocMapping, LabelMapping, MixedMapping, SimplexMapping

MODULI = [7, 11, 13]


def n_distinct(codewords: NDArray[np.int64]) -> int:
    rows = np.ascontiguousarray(codewords)
    return int(np.unique(rows.view(f"V{rows.shape[1] * rows.itemsize}")).size)


@pytest.mark.parametrize("n_classes", [4, 10, 1000, 100_000])
def test_N01_every_class_has_a_codeword_of_its_own(n_classes: int) -> None:
    # The codes are arithmetic: there is no seed that could make two classes collide.
    mappings: list[LabelMapping] = [
        MixedMapping(n_classes, n_sites=2),
        MixedMapping(n_classes, n_sites=5, dimension=3),
        MixedMapping.one_hot(n_classes),
        SimplexMapping(n_classes, 2),
        SimplexMapping(n_classes, 5, dimension=3),
        EcocMapping(n_classes),
    ]
    for mapping in mappings:
        assert n_distinct(mapping.encode(np.arange(n_classes))) == n_classes


def test_N01_moduli_hold_1001_classes_and_the_next_is_refused() -> None:
    assert n_distinct(MixedMapping(1001, MODULI).encode(np.arange(1001))) == 1001
    with pytest.raises(ValueError, match=r"at most 1001 .*got 1002: classes 0 and 1001") as error:
        MixedMapping(1002, MODULI)
    assert "would share all symbols" in str(error.value)
    assert [0 % p for p in MODULI] == [1001 % p for p in MODULI]


def test_N02_no_site_at_all_is_refused() -> None:
    makers: list[Callable[[], object]] = [
        lambda: MixedMapping(4, n_sites=0),
        lambda: SimplexMapping(4, 0),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="n_sites must be at least 1, got 0"):
            make()


def test_N02_too_few_sites_are_refused_with_the_least_that_could_do() -> None:
    with pytest.raises(ValueError, match=r"at most 3 .*got 10.* need at least 3 sites") as error:
        MixedMapping(10, [3])
    assert not isinstance(error.value, IndexError)
    assert 3**2 < 10 <= 3**3


def test_N02_a_million_classes_are_coded_below_100_megabytes() -> None:
    mapping = MixedMapping(10**6, n_sites=4)
    tracemalloc.start()
    try:
        table = mapping.encode(np.arange(10**6))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table.shape == (10**6, 4)
    assert peak < 100 * 10**6


@pytest.mark.parametrize(
    ("moduli", "n_classes", "text"),
    [
        ([6, 10], 31, "6 and 10 share the factor 2, so classes 0 and 30 agree at both"),
        ([7, 7], 31, "7 and 7 share the factor 7"),
        ([1, 11], 11, r"alphabet_sizes\[0\] must be at least 2, got 1"),
        ([100, 5], 500, "100 and 5 share the factor 5"),
    ],
)
def test_N04_moduli_with_a_common_factor_are_refused(
    moduli: list[int], n_classes: int, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        MixedMapping(n_classes, moduli)


def test_N04_coprime_moduli_hold_their_product() -> None:
    assert n_distinct(MixedMapping(77, [7, 11]).encode(np.arange(77))) == 77


@pytest.mark.parametrize(
    "ids",
    [
        np.array([16777216, 16777217, 16777216]),
        [16777216, 16777217, 16777216],
        np.array([16777216, 16777217, 16777216], np.uint32),
    ],
    ids=["int64", "ints", "uint32"],
)
def test_N19_neighbours_above_2_to_24_stay_two_classes(ids: Any) -> None:
    mapping = MixedMapping(10**8, [463, 467, 479])
    codewords = mapping.encode(ids)
    assert mapping.resolve([0, 1, 2], codewords).tolist() == [16777216, 16777217, 16777216]
    assert codewords[0].tolist() == codewords[2].tolist() != codewords[1].tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_N19_float_ids_are_refused_for_they_may_be_merged_already(dtype: Any) -> None:
    with pytest.raises(TypeError, match=f"ids must be integers.*{np.dtype(dtype)}"):
        MixedMapping(10**8, [463, 467, 479]).encode(np.array([3, 4], dtype))


def test_N22_ids_beyond_int64_are_refused_and_never_rounded() -> None:
    mapping = MixedMapping(2**62, [3_037_000_493, 3_036_999_999])
    ids = [2**62 - 1, 2**62 - 2, 3]  # 19 digits: float64 would merge the first two
    assert mapping.resolve([0, 1], mapping.encode(ids)).tolist() == ids
    beyond: list[Any] = [[10**20 + 7, 10**20 + 8, 3], ["100000000000000000007"]]
    for bad in beyond:
        with pytest.raises(ValueError, match="ids must be integers"):
            mapping.encode(bad)


def test_N23_uint64_ids_do_not_wrap() -> None:
    mapping = MixedMapping.one_hot(2**63 - 1)
    assert mapping.encode(np.array([2**63 - 2, 5], np.uint64)).tolist() == [[2**63 - 2], [5]]
    with pytest.raises(ValueError, match=r"ids\[0\] is 9223372036854775809"):
        mapping.encode(np.array([2**63 + 1, 5], np.uint64))
    with pytest.raises(ValueError, match="ids must be integers, got an array of float64"):
        mapping.encode([2**63 + 1, -5])  # numpy has rounded it before it is seen


@pytest.mark.parametrize("n_classes", [1, 2, 1000, 1001])
def test_N30_every_size_up_to_the_limit_is_accepted(n_classes: int) -> None:
    mapping = MixedMapping(n_classes, MODULI)
    assert mapping.n_classes == n_classes
    assert mapping.encode(n_classes - 1).tolist() == [(n_classes - 1) % p for p in MODULI]


@pytest.mark.parametrize(
    ("n_classes", "text"),
    [(1002, "at most 1001"), (0, "at least 1, got 0"), (-3, "at least 1, got -3")],
)
def test_N30_a_size_beyond_the_limits_is_a_value_error(n_classes: int, text: str) -> None:
    with pytest.raises(ValueError, match=f"n_classes must be {text}") as error:
        MixedMapping(n_classes, MODULI)
    assert not isinstance(error.value, TypeError)


@pytest.mark.parametrize("n_classes", [10.0, "10"])
def test_N30_a_size_of_another_type_is_a_type_error(n_classes: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: MixedMapping(n_classes, MODULI),
        lambda: SimplexMapping(n_classes, 3),
        lambda: EcocMapping(n_classes),
    ]
    for make in makers:
        with pytest.raises(TypeError, match="n_classes must be an integer"):
            make()


@pytest.mark.parametrize(
    ("target", "row", "other"),
    # With what an unchecked target would have been taken for: the trap.
    [(1000, 0, 1000), (1006, 1, 5), (-1, 2, 1000), (-100, 3, 901)],
)
def test_N38_a_target_out_of_range_is_named_before_it_is_coded(
    target: int, row: int, other: int
) -> None:
    assert [target % p for p in MODULI] == [other % p for p in MODULI]
    ids = np.arange(5)
    ids[row] = target
    with pytest.raises(
        ValueError, match=rf"ids must lie in 0\.\.999 .*; ids\[{row}\] is {target}$"
    ):
        MixedMapping(1000, MODULI).encode(ids)


def test_N39_the_refusal_has_one_class_and_one_text_however_the_ids_come() -> None:
    torch = pytest.importorskip("torch")
    ids = [3, 1006, -1]
    given: list[Any] = [ids, tuple(ids), torch.tensor(ids), torch.tensor(ids, dtype=torch.int32)]
    given += [np.array(ids, dtype) for dtype in (np.int16, np.int32, np.int64)]
    errors = []
    for form in given:
        with pytest.raises(ValueError, match="ids") as error:
            MixedMapping(1000, MODULI).encode(form)
        errors.append((type(error.value), str(error.value)))
    assert len(set(errors)) == 1


def test_N40_ids_from_1_to_N_are_refused_and_the_text_says_0_based() -> None:
    mapping = SimplexMapping(66908, 3)
    with pytest.raises(ValueError, match=r"0\.\.66907 \(ids are 0-based, 66908 in all\)") as error:
        mapping.encode(np.arange(1, 66909))
    assert "ids[66907] is 66908" in str(error.value)


def test_N49_large_ids_reserve_nothing() -> None:
    mapping = MixedMapping(10**12 + 1, [1_000_003, 1_000_033, 1_000_037])
    tracemalloc.start()
    try:
        codewords = mapping.encode([0, 5_999_999, 10**12])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10**5
    assert mapping.resolve([0, 1], codewords[:, :2]).tolist() == [0, 5_999_999, 10**12]
