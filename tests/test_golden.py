"""Codes against golden vectors of galois and sympy; golden/make_golden.py made them."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelmapping import EcocMapping, MixedMapping, PolynomialMapping, SimplexMapping
from labelmapping.mappings.fields import irreducible_polynomials, n_irreducible

CODES: dict[str, Any] = json.loads(
    (Path(__file__).parent / "golden" / "codes.json").read_text(encoding="utf-8")
)


def name(case: dict[str, Any]) -> str:
    return f"{case.get('field_order') or case['alphabet_sizes']}-k{case['dimension']}"


def test_golden_file_says_what_made_it() -> None:
    assert set(CODES["made_with"]) == {"galois", "sympy", "seed"}


@pytest.mark.parametrize("case", CODES["evaluation"], ids=name)
def test_simplex_codewords_are_galois_polynomial_values(case: dict[str, Any]) -> None:
    mapping = SimplexMapping(
        case["n_classes"],
        len(case["points"]),
        field_order=case["field_order"],
        dimension=case["dimension"],
        points=case["points"],
    )
    assert mapping.encode(case["ids"]).tolist() == case["codewords"]


@pytest.mark.parametrize("case", CODES["evaluation"][:3], ids=name)
def test_default_points_are_the_papers(case: dict[str, Any]) -> None:
    mapping = SimplexMapping(
        case["n_classes"], len(case["points"]), field_order=case["field_order"]
    )
    assert mapping.encode(case["ids"]).tolist() == case["codewords"]


@pytest.mark.parametrize("case", CODES["evaluation"], ids=name)
def test_simplex_resolve_inverts_golden_codewords(case: dict[str, Any]) -> None:
    k = case["dimension"]
    mapping = SimplexMapping(
        case["n_classes"],
        len(case["points"]),
        field_order=case["field_order"],
        dimension=k,
        points=case["points"],
    )
    last = list(range(mapping.n_sites - k, mapping.n_sites))
    symbols = np.array(case["codewords"])[:, last]
    assert mapping.resolve(last, symbols).tolist() == case["ids"]


@pytest.mark.parametrize("case", CODES["interpolation"], ids=name)
def test_simplex_resolve_is_lagrange_interpolation(case: dict[str, Any]) -> None:
    order, k = case["field_order"], case["dimension"]
    mapping = SimplexMapping(order**k, k, field_order=order, dimension=k, points=case["points"])
    assert mapping.resolve(range(k), case["symbols"]).tolist() == case["ids"]


@pytest.mark.parametrize("case", CODES["reed_solomon"], ids=name)
def test_simplex_codewords_are_all_those_of_a_reed_solomon_code(case: dict[str, Any]) -> None:
    order, k = case["field_order"], case["dimension"]
    mapping = SimplexMapping(
        order**k,
        len(case["points"]),
        field_order=order,
        dimension=k,
        points=case["points"],
    )
    check = np.array(case["parity_check"])
    assert check.shape == (mapping.n_sites - k, mapping.n_sites)
    codewords = mapping.encode(np.arange(mapping.n_classes))
    assert not (codewords @ check.T % order).any()
    # The code has order**k words, so as many different ones are all of them.
    as_bytes = np.ascontiguousarray(codewords).view(f"V{8 * mapping.n_sites}")
    assert np.unique(as_bytes).size == order**k
    assert mapping.min_distance == case["distance"]


@pytest.mark.parametrize("case", CODES["chinese_remainder"], ids=name)
def test_mixed_resolve_is_sympys_chinese_remainder(case: dict[str, Any]) -> None:
    mapping = MixedMapping(case["n_classes"], case["alphabet_sizes"], dimension=case["dimension"])
    k = mapping.dimension
    classes = [x if x < mapping.n_classes else -1 for x in case["ids"]]
    assert mapping.resolve(range(k), case["symbols"]).tolist() == classes
    backwards = [symbols[::-1] for symbols in case["symbols"]]
    assert mapping.resolve(range(k)[::-1], backwards).tolist() == classes
    known = [i for i, x in enumerate(classes) if x >= 0]
    codewords = mapping.encode([classes[i] for i in known])
    assert codewords[:, :k].tolist() == [case["symbols"][i] for i in known]


def test_remainders_that_are_no_class_are_among_the_golden_ones() -> None:
    beyond = [x >= case["n_classes"] for case in CODES["chinese_remainder"] for x in case["ids"]]
    assert 0 < sum(beyond) < len(beyond)


# --- fields of prime-power order, polynomials and BCH codes


def simplex_of(case: dict[str, Any]) -> SimplexMapping:
    order, k = case["field_order"], case["dimension"]
    n_classes = case.get("n_classes", order**k)
    points = case["points"]
    return SimplexMapping(n_classes, len(points), field_order=order, dimension=k, points=points)


@pytest.mark.parametrize("case", CODES["field_evaluation"], ids=name)
def test_codewords_over_fields_are_galois_polynomial_values(case: dict[str, Any]) -> None:
    mapping = simplex_of(case)
    assert mapping.encode(case["ids"]).tolist() == case["codewords"]
    assert mapping.points == tuple(case["points"])
    assert mapping.capacity == case["field_order"] ** case["dimension"]


@pytest.mark.parametrize("case", CODES["field_evaluation"], ids=name)
def test_golden_codewords_over_fields_are_resolved_at_any_k_sites(case: dict[str, Any]) -> None:
    mapping = simplex_of(case)
    k, codewords = mapping.dimension, np.array(case["codewords"])
    rng = np.random.default_rng(0)
    at_infinity = case["points"].index("infinity")
    finite = [site for site in range(mapping.n_sites) if site != at_infinity]
    for _ in range(6):
        order = rng.permutation(finite).tolist()
        for sites in (order[:k], [*order[: k - 1], at_infinity]):
            if len(sites) == k:
                assert mapping.resolve(sites, codewords[:, sites]).tolist() == case["ids"]


@pytest.mark.parametrize("case", CODES["field_reed_solomon"], ids=name)
def test_systematic_reed_solomon_codewords_are_codewords_of_ours(case: dict[str, Any]) -> None:
    mapping = simplex_of(case)
    k, codewords = mapping.dimension, np.array(case["codewords"])
    assert codewords[:, :k].tolist() == case["messages"]  # galois puts them first
    assert mapping.min_distance == case["distance"] == mapping.n_sites - k + 1
    rng = np.random.default_rng(1)
    subsets = [range(k), *(rng.permutation(mapping.n_sites)[:k].tolist() for _ in range(3))]
    for sites in subsets:
        ids = mapping.resolve(sites, codewords[:, sites])
        assert ids.min() >= 0
        assert mapping.encode(ids).tolist() == codewords.tolist()


def degrees(case: dict[str, Any]) -> str:
    moduli = "-".join(map(str, case["moduli"]))
    return f"{case['field_order']}-k{case['dimension']}-{moduli}"


def polynomial_of(case: dict[str, Any]) -> PolynomialMapping:
    return PolynomialMapping(
        case["n_classes"],
        field_order=case["field_order"],
        moduli=case["moduli"],
        dimension=case["dimension"],
    )


@pytest.mark.parametrize("case", CODES["polynomial_remainder"], ids=degrees)
def test_polynomial_symbols_are_galois_remainders(case: dict[str, Any]) -> None:
    mapping = polynomial_of(case)
    assert mapping.encode(case["ids"]).tolist() == case["codewords"]
    assert mapping.capacity == case["capacity"]


@pytest.mark.parametrize("case", CODES["polynomial_remainder"], ids=degrees)
def test_golden_remainders_are_resolved_at_any_k_sites(case: dict[str, Any]) -> None:
    mapping = polynomial_of(case)
    codewords = np.array(case["codewords"])
    for sites in permutations(range(mapping.n_sites), mapping.dimension):
        assert mapping.resolve(sites, codewords[:, list(sites)]).tolist() == case["ids"]


def test_irreducible_polynomials_are_galois_and_counted() -> None:
    galois = pytest.importorskip("galois")
    for case in CODES["irreducible"]:
        order, degree = case["field_order"], case["degree"]
        galois.GF(order, compile="python-calculate")  # else galois compiles for seconds
        assert n_irreducible(order, degree) == case["count"]
        first = case["first"]
        assert irreducible_polynomials(order, degree, len(first)) == tuple(first)


def length(case: dict[str, Any]) -> str:
    return f"{case['n_sites']}-{case['n_bits']}-{case['distance']}"


@pytest.mark.parametrize("case", CODES["bch"], ids=length)
def test_bch_codes_are_galois(case: dict[str, Any]) -> None:
    n_bits, generator = case["n_bits"], case["generator"]
    mapping = EcocMapping(2**n_bits, "bch", distance=case["distance"])
    assert mapping.n_sites == case["n_sites"]
    assert mapping.min_distance >= case["distance"]
    bits = [generator >> i & 1 for i in range(mapping.n_sites)]
    assert mapping.encode(1).tolist() == bits
    # Cyclic: each bit of the id adds the generator polynomial, one place further.
    rows = mapping.encode(2 ** np.arange(n_bits))
    assert rows.tolist() == [np.roll(bits, i).tolist() for i in range(n_bits)]


@pytest.mark.parametrize(
    "case", [case for case in CODES["bch"] if case["n_bits"] <= 20], ids=length
)
def test_bch_distances_are_as_designed_where_all_words_are_weighed(case: dict[str, Any]) -> None:
    mapping = EcocMapping(2 ** case["n_bits"], "bch", distance=case["distance"])
    assert mapping.min_distance == case["distance"]
