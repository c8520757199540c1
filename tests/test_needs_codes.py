"""NEEDS.md, the rows about codes and their class ids. Each test is named after its row."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from labelmapping import (
    EcocMapping,
    LabelMapping,
    MixedMapping,
    PolynomialMapping,
    SimplexMapping,
)

MODULI = [7, 11, 13]
INFINITY: Any = "infinity"


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
        SimplexMapping(n_classes, 3, field_order=512),
        SimplexMapping(n_classes, 4, field_order=729, points=[5, 0, INFINITY, 728]),
        SimplexMapping(n_classes, 3, field_order=317, points=[INFINITY, 0, 1]),
        PolynomialMapping(n_classes, 2),
        PolynomialMapping(n_classes, 5, dimension=3),
        EcocMapping(n_classes, "bch"),
    ]
    if n_classes <= 1000:
        mappings.append(EcocMapping(n_classes, "hadamard"))
    for mapping in mappings:
        assert n_distinct(mapping.encode(np.arange(n_classes))) == n_classes


@pytest.mark.parametrize(
    ("n_classes", "n_sites", "n_seeds"),
    # The first two are the report's: there 179 and 161 of 200 seeds collide.
    [(4, 2, 200), (10, 5, 200), (10, 4, 200), (1000, 10, 5), (1000, 100, 40), (100_000, 20, 2)],
)
def test_N01_codes_that_are_drawn_are_distinct_for_every_seed(
    n_classes: int, n_sites: int, n_seeds: int
) -> None:
    for seed in range(n_seeds):
        mapping = EcocMapping(n_classes, "random", n_sites=n_sites, seed=seed, draw=0)
        assert n_distinct(mapping.encode(np.arange(n_classes))) == n_classes
        if n_classes <= 10 and seed < 5:
            climbed = EcocMapping(n_classes, "hill-climbing", n_sites=n_sites + 1, seed=seed)
            assert n_distinct(climbed.encode(np.arange(n_classes))) == n_classes


@pytest.mark.parametrize("n_classes", [4, 10, 300])
def test_N01_in_drawn_ternary_codes_some_site_tells_any_two_classes_apart(n_classes: int) -> None:
    for seed in range(200 if n_classes < 100 else 5):
        mapping = EcocMapping(n_classes, "sparse-random", seed=seed, draws=2)
        table = mapping.encode(np.arange(n_classes)).astype(np.float32)
        sides = np.hstack([table == 1, table == 0]).astype(np.float32)
        others = np.hstack([table == 0, table == 1]).astype(np.float32)
        apart = sides @ others.T
        assert (apart[~np.eye(n_classes, dtype=bool)] >= mapping.min_distance).all()
        assert mapping.min_distance >= 1


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
        lambda: SimplexMapping(4, 0, field_order=4),
        lambda: PolynomialMapping(4, 0),
        lambda: EcocMapping(4, "random", n_sites=0),
        lambda: EcocMapping(4, "sparse-random", n_sites=0),
        lambda: EcocMapping(4, "hill-climbing", n_sites=0),
    ]
    for make in makers:
        with pytest.raises(ValueError, match="n_sites must be at least 1, got 0"):
            make()


def test_N02_too_few_sites_are_refused_with_the_least_that_could_do() -> None:
    with pytest.raises(ValueError, match=r"at most 3 .*got 10.* need at least 3 sites") as error:
        MixedMapping(10, [3])
    assert not isinstance(error.value, IndexError)
    assert 3**2 < 10 <= 3**3


def test_N02_too_few_symbols_are_refused_with_what_they_hold() -> None:
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: PolynomialMapping(10, moduli=[0b10]), "at most 2.*got 10: classes 0 and 2"),
        (lambda: PolynomialMapping(10, 2, degree=2, field_order=2), "n_sites must be at most 1"),
        (lambda: SimplexMapping(10, 3, field_order=3), "at most 9 .*classes 0 and 9 would share"),
        (lambda: EcocMapping(10, "random", n_sites=3), "n_sites must be at least 4 for 10"),
        (lambda: EcocMapping(10, "hill-climbing", n_sites=3), "n_sites must be at least 4 for 10"),
        (lambda: EcocMapping(10, "sparse-random", n_sites=2), "n_sites must be larger for 10"),
    ]
    for make, text in refusals:
        with pytest.raises(ValueError, match=text) as error:
            make()
        assert not isinstance(error.value, IndexError)


@pytest.mark.parametrize(
    "mapping",
    [
        MixedMapping(10**6, n_sites=4),
        SimplexMapping(10**6, 4, field_order=1024),
        SimplexMapping(10**6, 4, field_order=1009, points=[1, 0, INFINITY, 2]),
        PolynomialMapping(10**6, 4),
    ],
    ids=repr,
)
def test_N02_a_million_classes_are_coded_below_100_megabytes(mapping: LabelMapping) -> None:
    tracemalloc.start()
    try:
        table = mapping.encode(np.arange(10**6))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table.shape == (10**6, 4)
    assert peak < 100 * 10**6


@pytest.mark.parametrize("code", ["binary", "bch"])
def test_N02_a_site_of_a_million_classes_needs_no_table_of_all_sites(code: str) -> None:
    mapping = EcocMapping(10**6, code)
    ids = np.arange(10**6)
    tracemalloc.start()
    try:
        ones = [int(mapping.symbols_at(ids, site).sum()) for site in range(mapping.n_sites)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert min(ones) > 400_000
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
    ("make", "text"),
    [
        # x (x + 1) and x (x^2 + 1); the same again; a constant, which has no remainders.
        (lambda: PolynomialMapping(31, moduli=[6, 10]), "6 and 10 share the factor 6"),
        (lambda: PolynomialMapping(31, moduli=[11, 6, 4]), "6 and 4 share the factor 2"),
        (lambda: PolynomialMapping(7, moduli=[7, 7]), "7 and 7 share the factor 7"),
        (lambda: PolynomialMapping(7, moduli=[1, 11]), r"moduli\[0\] must be at least 2, got 1"),
        (
            lambda: SimplexMapping(16, 3, field_order=16, points=[3, 0, 3]),
            "sites 0 and 2 both evaluate at 3",
        ),
        (
            lambda: SimplexMapping(16, 3, field_order=7, points=[INFINITY, 0, INFINITY]),
            "sites 0 and 2 both evaluate at infinity",
        ),
    ],
)
def test_N04_sites_that_add_nothing_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_N04_coprime_polynomials_hold_their_product() -> None:
    mapping = PolynomialMapping(64, moduli=[0b111, 0b10001], dimension=2)
    assert n_distinct(mapping.encode(np.arange(64))) == 64


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


# A family, its capacity, and the text of the refusal beyond it.
LIMITS: list[tuple[Callable[[Any], LabelMapping], int, str]] = [
    (lambda n: SimplexMapping(n, 4, field_order=11, dimension=3), 1331, r"at most 1331 \(11\^3\)"),
    (lambda n: SimplexMapping(n, 5, field_order=16), 256, r"at most 256 \(16\^2\)"),
    (lambda n: SimplexMapping(n, 28, field_order=27), 729, r"at most 729 \(27\^2\)"),
    (
        lambda n: SimplexMapping(n, 3, field_order=7, points=[INFINITY, 0, 1]),
        49,
        r"at most 49 \(7\^2\)",
    ),
    (lambda n: PolynomialMapping(n, 3, degree=4), 256, "at most 256, the product of the 2"),
    (
        lambda n: PolynomialMapping(n, field_order=3, moduli=[9, 4, 14], dimension=3),
        3**5,
        "at most 243, the product of the 3",
    ),
    (lambda n: EcocMapping(n, "hadamard"), 2**14, r"at most 16384 = 2\^14"),
    (lambda n: EcocMapping(n, "bch"), 2**40, r"at most 1099511627776 = 2\^40"),
    (EcocMapping, 2**62, r"at most 4611686018427387904 = 2\^62"),
    (lambda n: EcocMapping(n, "exhaustive"), 12, "at most 12 for the code 'exhaustive'"),
    (lambda n: EcocMapping(n, "one-versus-one"), 500, "at most 500 for the code"),
    (lambda n: EcocMapping(n, "one-versus-rest"), 5000, "at most 5000 for the code"),
    (lambda n: EcocMapping(n, "random", n_sites=7, draw=0), 128, "n_sites must be at least 8"),
]


@pytest.mark.parametrize(("make", "limit", "text"), LIMITS, ids=[text for _, _, text in LIMITS])
def test_N30_every_family_takes_its_limit_and_refuses_the_next(
    make: Callable[[Any], LabelMapping], limit: int, text: str
) -> None:
    # One versus one of 500 classes is 60 MB of comparisons: a smaller one stands for it.
    largest = 100 if limit == 500 else limit
    for n_classes in (2, 3, largest - 1, largest):
        mapping = make(n_classes)
        assert mapping.n_classes == n_classes
        if mapping.n_sites <= 5000:  # the 16,383 sites of the largest Hadamard code take 2 GB
            codewords = mapping.encode([0, n_classes - 1])
            assert codewords[0].tolist() != codewords[1].tolist()
    for n_classes, message in (
        (limit + 1, text),
        (0, "at least 1, got 0"),
        (-3, "least 1, got -3"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            make(n_classes)
        assert not isinstance(error.value, TypeError)
    for wrong in (10.0, "10", True, None):
        with pytest.raises(TypeError, match="n_classes must be an integer"):
            make(wrong)


@pytest.mark.parametrize("n_classes", [10.0, "10"])
def test_N30_a_size_of_another_type_is_a_type_error(n_classes: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: MixedMapping(n_classes, MODULI),
        lambda: SimplexMapping(n_classes, 3),
        lambda: EcocMapping(n_classes),
        lambda: SimplexMapping(n_classes, 3, field_order=16),
        lambda: PolynomialMapping(n_classes, 3),
        lambda: EcocMapping(n_classes, "one-versus-one"),
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
