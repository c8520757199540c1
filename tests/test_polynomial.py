"""Polynomial codes: residues modulo coprime polynomials over F_q, and the way back."""

from __future__ import annotations

import json
import math
import pickle
import re
import sys
from collections.abc import Callable
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelmapping import LabelMapping, PolynomialMapping, SimplexMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError, MissingExtraError
from labelmapping.mappings import fields, linear

from .test_mappings import class_counts, dimensions, redundancies
from .test_simplex_fields import least_distance, table_of

# q and moduli that are coprime in pairs: of several degrees, reducible ones (x^2, x^4 + x^2 + 1
# = (x^2 + x + 1)^2) and, where q > 2, some that are not monic.
FAMILIES: list[tuple[int, list[int]]] = [
    (2, [0b10, 0b11, 0b111, 0b1011, 0b1101, 0b10011]),
    (2, [0b100, 0b101, 0b10101, 0b11001, 0b1000011]),
    (3, [9, 4, 5, 10, 14, 17]),
    (3, [6, 8, 7, 20, 43]),
    (4, [16, 5, 6, 7, 22]),
    (4, [8, 13, 7, 75]),
    (5, [5, 6, 7, 8, 27]),
    (9, [9, 10, 41, 82]),
]


@st.composite
def polynomial_mappings(draw: st.DrawFn, max_classes: int) -> PolynomialMapping:
    """Moduli of one of the families, in any order, whatever their degrees."""
    order, moduli = draw(st.sampled_from(FAMILIES))
    k = min(draw(dimensions), len(moduli))
    n_sites = min(k + draw(redundancies), len(moduli))
    chosen = draw(st.permutations(moduli))[:n_sites]
    sizes = sorted(order ** (len(digits_of(modulus, order)) - 1) for modulus in chosen)
    n_classes = draw(class_counts(min(math.prod(sizes[:k]), max_classes)))
    return PolynomialMapping(n_classes, field_order=order, moduli=chosen, dimension=k)


def digits_of(number: int, base: int) -> list[int]:
    """Lowest first, without leading zeros."""
    digits = []
    while number:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits


def remainder(number: int, modulus: int, p: int) -> int:
    """Long division over a prime field, in Python's ints."""
    rest, divisor = digits_of(number, p), digits_of(modulus, p)
    inverse = pow(divisor[-1], -1, p)
    while len(rest) >= len(divisor):
        factor, shift = rest[-1] * inverse % p, len(rest) - len(divisor)
        for i, coefficient in enumerate(divisor):
            rest[shift + i] = (rest[shift + i] - factor * coefficient) % p
        while rest and rest[-1] == 0:
            rest.pop()
    return sum(digit * p**i for i, digit in enumerate(rest))


# --- symbols


@pytest.mark.parametrize(("order", "moduli"), [f for f in FAMILIES if f[0] in (2, 3, 5)])
def test_symbols_are_remainders_by_long_division(order: int, moduli: list[int]) -> None:
    for k in (1, 2, 3):
        capacity = PolynomialMapping(1, field_order=order, moduli=moduli, dimension=k).capacity
        n_classes = min(capacity, 3000)
        mapping = PolynomialMapping(n_classes, field_order=order, moduli=moduli, dimension=k)
        expected = [[remainder(x, m, order) for m in moduli] for x in range(n_classes)]
        assert table_of(mapping).tolist() == expected


@pytest.mark.parametrize("order", [2, 3, 5, 7, 4, 8, 9, 16])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_moduli_of_degree_1_make_the_simplex_code(order: int, k: int) -> None:
    # Modulo x - a, a polynomial is its value at a.
    k = min(k, order)  # there are no more moduli of degree 1
    elements = fields.field(order)
    points = list(range(order))
    moduli = [order + elements.subtract(0, a) for a in points]
    n_classes = min(order**k, 2000)
    mapping = PolynomialMapping(n_classes, field_order=order, moduli=moduli, dimension=k)
    simplex = SimplexMapping(n_classes, order, field_order=order, dimension=k, points=points)
    assert mapping.alphabet_sizes == simplex.alphabet_sizes
    assert (mapping.capacity, mapping.min_distance) == (simplex.capacity, simplex.min_distance)
    assert table_of(mapping).tolist() == table_of(simplex).tolist()
    ids = np.arange(n_classes)
    for sites in list(combinations(range(order), k))[:20]:
        symbols = mapping.encode(ids)[:, sites]
        assert mapping.resolve(sites, symbols).tolist() == ids.tolist()
        assert simplex.resolve(sites, symbols).tolist() == ids.tolist()


def test_a_multiple_of_a_modulus_has_the_same_remainders() -> None:
    for factor, order, moduli in ((2, 3, [9, 4, 14]), (3, 5, [5, 8, 27]), (2, 4, [16, 5, 22])):
        elements = fields.field(order)
        multiples = [
            sum(elements.multiply(factor, d) * order**i for i, d in enumerate(digits_of(m, order)))
            for m in moduli
        ]
        assert multiples != moduli
        monic = PolynomialMapping(60, field_order=order, moduli=moduli, dimension=3)
        other = PolynomialMapping(60, field_order=order, moduli=multiples, dimension=3)
        assert table_of(monic).tolist() == table_of(other).tolist()
        assert monic != other


def test_alphabets_are_powers_of_the_order_by_degree() -> None:
    mapping = PolynomialMapping(16, field_order=4, moduli=[16, 5, 66, 22], dimension=2)
    assert mapping.alphabet_sizes == (16, 4, 64, 16)
    assert mapping.capacity == 4 * 16
    assert (mapping.field_order, mapping.moduli) == (4, (16, 5, 66, 22))


def test_defaults_are_the_first_irreducible_polynomials_of_the_least_degree() -> None:
    assert PolynomialMapping(50_000, 4).moduli == (
        0b100011011,
        0b100011101,
        0b100101011,
        0b100101101,
    )
    assert PolynomialMapping(65_536, 4).alphabet_sizes == (256,) * 4
    assert PolynomialMapping(65_537, 4).alphabet_sizes == (512,) * 4
    # Two of degree 1, one of degree 2, two of degree 3: the degree that has enough of them.
    assert PolynomialMapping(4, 2).moduli == (2, 3)
    assert PolynomialMapping(4, 3).moduli == (19, 25, 31)
    assert PolynomialMapping(16, 4, field_order=4).moduli == (4, 5, 6, 7)
    assert PolynomialMapping(17, 4, field_order=4).alphabet_sizes == (16,) * 4
    assert PolynomialMapping(100, 3, degree=9).alphabet_sizes == (512,) * 3
    assert PolynomialMapping(100, 1).dimension == 1
    assert PolynomialMapping(10**6, 5, dimension=3).alphabet_sizes == (128,) * 5
    assert PolynomialMapping(1, 2).encode(0).tolist() == [0, 0]


def test_dimension_is_the_smallest_that_the_moduli_allow() -> None:
    moduli = [0b1011, 0b10, 0b111]  # 8, 2 and 4 residues
    assert [PolynomialMapping(n, moduli=moduli).dimension for n in (2, 3, 8, 9, 64)] == [
        1,
        2,
        2,
        3,
        3,
    ]
    assert PolynomialMapping(2, moduli=moduli, dimension=2).capacity == 8


# --- irreducible polynomials


@pytest.mark.parametrize(("order", "most"), [(2, 9), (3, 5), (5, 3)])
def test_irreducible_polynomials_are_those_that_are_no_product(order: int, most: int) -> None:
    pytest.importorskip("galois").GF(order, compile="python-calculate")
    # Every product of two monic polynomials, struck out.
    monic = {degree: range(order**degree, 2 * order**degree) for degree in range(1, most + 1)}
    products: set[int] = set()
    for first, second in combinations([*range(1, most), *range(1, most)], 2):
        if first <= second and first + second <= most:
            for a, b in product(monic[first], monic[second]):
                x, y = digits_of(a, order), digits_of(b, order)
                total = [0] * (len(x) + len(y) - 1)
                for i, c in enumerate(x):
                    for j, d in enumerate(y):
                        total[i + j] = (total[i + j] + c * d) % order
                products.add(sum(c * order**i for i, c in enumerate(total)))
    for degree, polynomials in monic.items():
        left = [number for number in polynomials if number not in products]
        assert fields.n_irreducible(order, degree) == len(left)
        assert fields.irreducible_polynomials(order, degree, len(left)) == tuple(left)


# --- the code


@settings(max_examples=200, deadline=None, derandomize=True)
@given(polynomial_mappings(max_classes=300))
def test_any_two_classes_differ_at_the_distance_or_more(mapping: PolynomialMapping) -> None:
    if mapping.n_classes > 1:
        assert least_distance(table_of(mapping)) >= mapping.min_distance


@pytest.mark.parametrize(("order", "moduli"), FAMILIES)
def test_the_distance_of_a_full_code_is_exact(order: int, moduli: list[int]) -> None:
    for k in range(1, len(moduli)):
        capacity = PolynomialMapping(1, field_order=order, moduli=moduli, dimension=k).capacity
        if capacity <= 1000:
            mapping = PolynomialMapping(capacity, field_order=order, moduli=moduli, dimension=k)
            expected = len(moduli) - k + 1
            assert mapping.min_distance == least_distance(table_of(mapping)) == expected


@settings(max_examples=150, deadline=None, derandomize=True)
@given(polynomial_mappings(max_classes=250))
def test_classes_with_equals_a_look_at_the_table(mapping: PolynomialMapping) -> None:
    table = table_of(mapping)
    for site, size in enumerate(mapping.alphabet_sizes):
        for symbol in range(size):
            ids = mapping.classes_with(site, symbol)
            assert ids.dtype == np.int64
            assert ids.tolist() == np.flatnonzero(table[:, site] == symbol).tolist()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(polynomial_mappings(max_classes=300), st.data())
def test_resolve_equals_a_search_in_the_table(
    mapping: PolynomialMapping, data: st.DataObject
) -> None:
    """Symbols that no class has come often: alphabets beyond the smallest hold more than N."""
    k = mapping.dimension
    sites = data.draw(st.permutations(range(mapping.n_sites)), "sites")[:k]
    table = table_of(mapping)[:, sites]
    class_of = {tuple(symbols): x for x, symbols in enumerate(table.tolist())}
    assert len(class_of) == mapping.n_classes
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), "seed"))
    sizes = [mapping.alphabet_sizes[site] for site in sites]
    asked = np.concatenate([table, rng.integers(0, sizes, (300, k))])
    classes = mapping.resolve(sites, asked)
    assert classes.tolist() == [class_of.get(tuple(symbols), -1) for symbols in asked.tolist()]


@pytest.mark.parametrize(("order", "moduli"), FAMILIES)
def test_any_k_sites_in_any_order_determine_the_class(order: int, moduli: list[int]) -> None:
    for k in (1, 2, 3):
        mapping = PolynomialMapping(1, field_order=order, moduli=moduli, dimension=k)
        mapping = PolynomialMapping(
            min(mapping.capacity, 2000), field_order=order, moduli=moduli, dimension=k
        )
        table = table_of(mapping)
        for sites in list(permutations(range(len(moduli)), k))[::2]:
            assert mapping.resolve(sites, table[:, sites]).tolist() == list(range(len(table)))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(polynomial_mappings(max_classes=250))
def test_growing_to_the_capacity_keeps_the_codewords(mapping: PolynomialMapping) -> None:
    whole = mapping.grow(mapping.capacity)
    assert isinstance(whole, PolynomialMapping)
    assert whole.moduli == mapping.moduli
    ids = np.arange(mapping.n_classes)
    assert whole.encode(ids).tolist() == mapping.encode(ids).tolist()
    assert whole.n_classes == math.prod(sorted(mapping.alphabet_sizes)[: mapping.dimension])
    with pytest.raises(ArgumentError, match=f"at most the capacity .*{mapping.capacity}"):
        mapping.grow(mapping.capacity + 1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(polynomial_mappings(max_classes=250), st.integers(1, 300))
def test_digits_looked_up_fewer_at_a_time_give_the_same_symbols(
    mapping: PolynomialMapping, entries: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "TABLE", entries)
        other = LabelMapping.from_config(mapping.to_config())
        assert table_of(other).tolist() == table_of(mapping).tolist()


LARGE = [
    PolynomialMapping(2**62, 3),
    PolynomialMapping(10**8, 5),
    PolynomialMapping(10**18, 6, dimension=4),
    PolynomialMapping(3**39, field_order=3, moduli=[1_594_330, 1_594_331, 1_594_361]),
    PolynomialMapping(9**19, moduli=[9**6 * 5 + 8, 9**6 + 9, 9**7 + 5], field_order=9, dimension=3),
    PolynomialMapping(10**8, 4, field_order=2**14),
    PolynomialMapping(
        10**12, moduli=[1_000_003 + 5, 1_000_003 + 7, 2_000_006], field_order=1_000_003
    ),
]


@pytest.mark.parametrize("mapping", LARGE, ids=repr)
def test_large_ids_do_not_overflow(mapping: PolynomialMapping) -> None:
    n_classes, k = mapping.n_classes, mapping.dimension
    rng = np.random.default_rng(1)
    ids = [0, 1, n_classes // 2, *rng.integers(0, n_classes, 60).tolist()]
    ids += [n_classes - 1 - i for i in range(20)]
    codewords = mapping.encode(ids)
    assert (codewords >= 0).all()
    assert (codewords < np.array(mapping.alphabet_sizes)).all()
    if mapping.field_order in (2, 3):
        p = mapping.field_order
        assert codewords.tolist() == [[remainder(x, m, p) for m in mapping.moduli] for x in ids]
    for sites in list(permutations(range(mapping.n_sites), k))[:5]:
        assert mapping.resolve(sites, codewords[:, sites]).tolist() == ids
    with pytest.raises(ArgumentError, match=rf"\[0\] is {n_classes}$"):
        mapping.encode([n_classes])


@pytest.mark.parametrize(
    "mapping", [PolynomialMapping(60, moduli=[4, 7, 11, 13, 19]), *LARGE], ids=repr
)
def test_symbols_of_torch_ids_equal_numpys(mapping: PolynomialMapping) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    ids = rng.integers(0, mapping.n_classes, (3, 50))
    ids[0, 0], ids[0, 1] = 0, mapping.n_classes - 1
    for site in range(mapping.n_sites):
        symbols = mapping.symbols_at(torch.from_numpy(ids), site)
        assert symbols.dtype == torch.int64
        assert np.array_equal(symbols.numpy(), mapping.symbols_at(ids, site))
    assert np.array_equal(mapping.encode(torch.from_numpy(ids)), mapping.encode(ids))


# --- recipes


@settings(max_examples=80, deadline=None, derandomize=True)
@given(polynomial_mappings(max_classes=250))
def test_a_recipe_goes_through_json_pickle_and_repr(mapping: PolynomialMapping) -> None:
    text = json.dumps(mapping.to_config(), allow_nan=False)
    for rebuilt in (
        LabelMapping.from_config(json.loads(text)),
        pickle.loads(pickle.dumps(mapping)),
        eval(repr(mapping)),
    ):
        assert isinstance(rebuilt, PolynomialMapping)
        assert rebuilt == mapping
        assert hash(rebuilt) == hash(mapping)
        assert table_of(rebuilt).tolist() == table_of(mapping).tolist()


def test_the_recipe_is_as_written_in_earlier_files() -> None:
    written = {
        "format": 1,
        "kind": "polynomial",
        "n_classes": 50_000,
        "field_order": 2,
        "moduli": [283, 285, 299, 301],
        "dimension": 2,
    }
    assert PolynomialMapping(50_000, 4).to_config() == written
    assert LabelMapping.from_config(written) == PolynomialMapping(50_000, 4)
    for name in ("n_classes", "field_order", "moduli", "dimension"):
        with pytest.raises(ArgumentError, match="recipe of a polynomial mapping"):
            LabelMapping.from_config({key: v for key, v in written.items() if key != name})


# --- refusals


def gcd_by_hand(a: int, b: int, p: int) -> int:
    """Euclid over a prime field, made monic."""
    while b:
        a, b = b, remainder(a, b, p)
    digits = digits_of(a, p)
    inverse = pow(digits[-1], -1, p)
    return sum(digit * inverse % p * p**i for i, digit in enumerate(digits))


@pytest.mark.parametrize("order", [2, 3, 5])
def test_exactly_coprime_moduli_are_accepted(order: int) -> None:
    limit = {2: 40, 3: 60, 5: 60}[order]
    for a, b in combinations(range(order, limit), 2):
        common = gcd_by_hand(a, b, order)
        if common == 1:
            mapping = PolynomialMapping(order, field_order=order, moduli=[a, b], dimension=2)
            assert mapping.moduli == (a, b)
            continue
        with pytest.raises(ArgumentError) as error:
            PolynomialMapping(order, field_order=order, moduli=[a, b], dimension=2)
        text = str(error.value)
        assert f"moduli must be pairwise coprime: {a} and {b} share the factor " in text
        factor = int(re.findall(r"factor (\d+)", text)[0])
        assert len(digits_of(factor, order)) == len(digits_of(common, order))
        assert remainder(a, factor, order) == remainder(b, factor, order) == 0


@pytest.mark.parametrize(
    ("make", "witnesses"),
    [
        (
            lambda: PolynomialMapping(9, moduli=[7, 11, 14]),
            ["moduli must be pairwise coprime", "7 and 14 share the factor 7"],
        ),
        (
            lambda: PolynomialMapping(9, moduli=[5, 6]),  # (x + 1)^2 and x (x + 1)
            ["5 and 6 share the factor 3 (base-2 digits are the coefficients)"],
        ),
        (lambda: PolynomialMapping(9, moduli=[7, 7]), ["7 and 7 share the factor 7"]),
        (
            lambda: PolynomialMapping(9, moduli=[16, 4, 5], field_order=4),
            ["16 and 4 share the factor 4 (base-4"],
        ),
        (lambda: PolynomialMapping(2, moduli=[7, 1]), ["moduli[1] must be at least 2, got 1"]),
        (
            lambda: PolynomialMapping(2, moduli=[7, 2], field_order=3),
            ["moduli[1] must be at least 3, got 2"],
        ),
        (lambda: PolynomialMapping(2, moduli=[]), ["moduli must not be empty"]),
        (
            lambda: PolynomialMapping(65, moduli=[11, 7, 2]),
            [
                "n_classes must be at most 64",
                "3 smallest",
                "got 65",
                "classes 0 and 64 would share",
            ],
        ),
        (
            lambda: PolynomialMapping(9, moduli=[11, 7, 2], dimension=2),
            ["n_classes must be at most 8", "2 smallest", "got 9", "classes 0 and 8 would share"],
        ),
        (
            lambda: PolynomialMapping(9, 2, moduli=[11, 7, 2]),
            ["n_sites", "length of moduli, 3; got 2"],
        ),
        (
            lambda: PolynomialMapping(9, moduli=[11, 7], degree=3),
            ["degree must not be given beside"],
        ),
        (lambda: PolynomialMapping(9), ["n_sites must be given where moduli are not"]),
        (lambda: PolynomialMapping(9, 0), ["n_sites must be at least 1, got 0"]),
        (lambda: PolynomialMapping(0, 3), ["n_classes must be at least 1, got 0"]),
        (lambda: PolynomialMapping(9, 3, dimension=0), ["dimension must be at least 1, got 0"]),
        (
            lambda: PolynomialMapping(9, moduli=[11, 7], dimension=3),
            ["dimension must be at most the number of sites, 2; got 3"],
        ),
        (lambda: PolynomialMapping(9, 3, degree=0), ["degree must be at least 1, got 0"]),
        (
            lambda: PolynomialMapping(9, 3, degree=3),
            ["n_sites must be at most 2", "irreducible polynomials of degree 3 over F_2", "got 3"],
        ),
        (
            lambda: PolynomialMapping(9, 6, degree=1, field_order=5),
            ["n_sites must be at most 5", "degree 1 over F_5", "got 6"],
        ),
        (
            lambda: PolynomialMapping(10**6, 3, degree=8),
            ["n_classes must be at most 65536", "got 1000000", "classes 0 and 65536"],
        ),
        (
            lambda: PolynomialMapping(9, 3, field_order=6),
            ["field_order must be a prime or a power of one, got 6 = 2^1 x 3^1"],
        ),
        (lambda: PolynomialMapping(9, 3, field_order=2**40), ["field_order must be at most"]),
        (lambda: PolynomialMapping(2**64, 2), ["must stay below 2^63", str(2**64)]),
        (
            lambda: PolynomialMapping(3, moduli=[2**32 + 15, 7], dimension=1),
            ["alphabet_sizes must be at most 3037000499, got 4294967296"],
        ),
    ],
)
def test_a_refusal_names_argument_rule_value_and_witness(
    make: Callable[[], object], witnesses: list[str]
) -> None:
    with pytest.raises(ArgumentError) as error:
        make()
    assert not isinstance(error.value, TypeError)
    for witness in witnesses:
        assert witness in str(error.value)


@pytest.mark.parametrize("value", [10.0, 2.5, "10", True, np.float64(3), [3]])
def test_sizes_that_are_no_integers_are_refused(value: Any) -> None:
    makers: list[Callable[[], object]] = [
        lambda: PolynomialMapping(value, 2),
        lambda: PolynomialMapping(9, value),
        lambda: PolynomialMapping(9, 3, degree=value),
        lambda: PolynomialMapping(9, 3, dimension=value),
        lambda: PolynomialMapping(9, 3, field_order=value),
        lambda: PolynomialMapping(9, moduli=[11, value]),
    ]
    for make in makers:
        with pytest.raises(ArgumentTypeError, match="must be an integer, got"):
            make()


@pytest.mark.parametrize("moduli", ["7", b"7", 7, {7, 11}, iter([7, 11]), np.array([[7, 11]]), 7.0])
def test_moduli_that_are_no_sequence_are_refused(moduli: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="moduli must be a sequence of integers"):
        PolynomialMapping(5, moduli=moduli)


def test_without_galois_the_extra_is_named_and_given_moduli_over_primes_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields.field.cache_clear()
    fields.irreducible_polynomials.cache_clear()
    monkeypatch.setitem(sys.modules, "galois", None)
    makers: list[Callable[[], object]] = [
        lambda: PolynomialMapping(50, 3, field_order=3),
        lambda: PolynomialMapping(50, moduli=[9, 10], field_order=9),
    ]
    for make in makers:
        with pytest.raises(MissingExtraError, match=r"pip install 'labelmapping\[fields\]'"):
            make()
    assert PolynomialMapping(50, moduli=[11, 13, 19]).min_distance == 2
    assert PolynomialMapping(50, 5, field_order=11).min_distance == 4
