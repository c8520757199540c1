"""Codes against golden vectors of galois and sympy; golden/make_golden.py made them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelmapping import MixedMapping, SimplexMapping

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
