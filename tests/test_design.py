"""`design`: what it returns meets the request, is what it says, and is refused with a way out."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from labelmapping import LabelMapping, MixedMapping, SimplexMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings.design import Choice, design
from labelmapping.nn import LabelMappingHead

many = settings(max_examples=150, deadline=None, derandomize=True)


def optional(values: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.one_of(st.none(), st.none(), values)


families = st.sampled_from(
    [None, None, "mixed", "simplex", None, ["simplex", "mixed"], ["mixed", "one-hot"], "one-hot"]
)
requests = st.fixed_dictionaries(
    {
        "n_classes": st.one_of(st.integers(2, 300), st.integers(2, 10**6)),
        "sites": st.one_of(st.none(), st.integers(1, 10)),
        "distance": optional(st.integers(1, 6)),
        "lost_sites": optional(st.integers(0, 5)),
        "max_alphabet": optional(st.one_of(st.integers(2, 20), st.integers(2, 2000))),
        "max_parameters": optional(st.integers(1, 1_000_000)),
        "in_features": st.integers(1, 300),
        "hidden": st.sampled_from([0, 0, 5, [8, 3], ()]),
        "family": families,
    }
)


def least_distance(request: dict[str, Any]) -> int:
    return max(request["distance"] or 1, (request["lost_sites"] or 0) + 1)


def check_meets(choice: Choice, request: dict[str, Any]) -> None:
    assert choice.n_classes == request["n_classes"] <= choice.capacity
    assert request["sites"] in (None, choice.n_sites)
    assert choice.min_distance >= least_distance(request)
    assert max(choice.alphabet_sizes) <= (request["max_alphabet"] or math.inf)
    assert choice.head_parameters <= (request["max_parameters"] or math.inf)
    named = request["family"] or ["mixed", "simplex"]
    assert choice.family in ([named] if isinstance(named, str) else named)


def check_is_its_mapping(choice: Choice) -> None:
    mapping = choice.mapping()
    assert list(choice.recipe().items()) == list(mapping.to_config().items())
    assert choice.n_classes == mapping.n_classes
    assert choice.alphabet_sizes == mapping.alphabet_sizes
    assert choice.n_sites == mapping.n_sites
    assert choice.dimension == mapping.dimension
    assert choice.min_distance == mapping.min_distance
    assert choice.capacity == mapping.capacity == choice.n_classes + choice.spare
    assert choice.errors_corrected == (choice.min_distance - 1) // 2
    assert choice.sites_that_may_be_lost == choice.min_distance - 1


@settings(many, max_examples=60)
@given(requests)
def test_every_choice_meets_the_request_and_is_what_it_says(request: dict[str, Any]) -> None:
    try:
        choices = design(**request, top=100)
    except ArgumentError:
        return
    assert choices
    assert len({(c.family, c.alphabet_sizes, c.dimension) for c in choices}) == len(choices)
    for choice in choices:
        check_meets(choice, request)
        check_is_its_mapping(choice)


@many
@given(requests)
def test_a_refusal_names_the_nearest_that_would_do(request: dict[str, Any]) -> None:
    try:
        design(**request)
        return
    except ArgumentError as error:
        text = str(error).replace(",", "")
    if sites := re.search(r"(distance|lost_sites) of \d+ sites must be at most (\d+)", text):
        assert least_distance(request) > request["sites"]
        asked = {**request, "distance": None, "lost_sites": None, sites[1]: int(sites[2])}
        design(**{**asked, "family": None, "max_alphabet": None, "max_parameters": None})
    elif "one-hot has 1 site and distance 1" in text:
        assert request["family"] == "one-hot"
        assert request["sites"] not in (None, 1) or least_distance(request) > 1
    elif "max_alphabet" in text.split()[0]:
        free = {**request, "max_parameters": None}
        least = re.search(r"(?:need max_alphabet|must be) at least (\d+)", text)
        assert least is not None
        assert int(least[1]) > request["max_alphabet"]
        design(**{**free, "max_alphabet": int(least[1])})
        with pytest.raises(ArgumentError, match="max_alphabet"):
            design(**{**free, "max_alphabet": int(least[1]) - 1})
        if sites := re.search(r"or (\d+) sites", text):
            design(**{**free, "sites": int(sites[1])})
            with pytest.raises(ArgumentError, match="max_alphabet"):
                design(**{**free, "sites": int(sites[1]) - 1})
        if held := re.search(r"holds at most (\d+) classes", text):
            design(**{**free, "n_classes": max(2, int(held[1]))})
    else:
        least = re.match(r"max_parameters must be at least (\d+) ", text)
        assert least is not None
        assert int(least[1]) > request["max_parameters"]
        best, *_ = design(**{**request, "max_parameters": int(least[1])})
        assert best.head_parameters <= int(least[1])
        if fewer := re.search(r"enough for distance (\d+)", text):
            asked = {**request, "distance": int(fewer[1]), "lost_sites": None}
            assert design(**asked)[0].min_distance < least_distance(request)


def brute_force(mapping: LabelMapping) -> tuple[int, float]:
    """The least distance of two classes, and the most bits two sites share."""
    table = mapping.encode(np.arange(mapping.n_classes))
    differ = (table[:, None] != table[None, :]).sum(axis=2)
    distance = int(differ[np.triu_indices(mapping.n_classes, 1)].min())
    shared = 0.0
    for i, j in combinations(range(mapping.n_sites), 2):
        joint = np.zeros((mapping.alphabet_sizes[i], mapping.alphabet_sizes[j]))
        np.add.at(joint, (table[:, i], table[:, j]), 1 / mapping.n_classes)
        apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
        some = joint > 0
        shared = max(shared, float((joint[some] * np.log2(joint[some] / apart[some])).sum()))
    return distance, shared


@pytest.mark.parametrize("n_classes", [2, 5, 64, 97, 125, 210, 256])
@pytest.mark.parametrize("sites", [None, 1, 2, 4, 5])
def test_distance_and_information_by_brute_force(n_classes: int, sites: int | None) -> None:
    for choice in design(n_classes, sites=sites, family=["mixed", "simplex", "one-hot"], top=99):
        distance, shared = brute_force(choice.mapping())
        assert distance >= choice.min_distance
        assert shared == pytest.approx(choice.mutual_information, abs=1e-11)
        if choice.spare == 0:
            assert distance == choice.min_distance


@pytest.mark.parametrize("n_classes", [30, 100, 128, 343])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_no_primes_and_no_field_with_a_smaller_largest_alphabet_do(
    n_classes: int, dimension: int
) -> None:
    n_sites = dimension + 1
    choices = design(n_classes, sites=n_sites, top=99)
    found = {
        family: min(max(c.alphabet_sizes) for c in choices if c.family == family)
        for family in ("mixed", "simplex")
        if any(c.family == family for c in choices)
    }
    holds = [
        max(sizes)
        for k in range(1, n_sites + 1)
        for sizes in combinations(sympy.primerange(min(found["mixed"], 60)), n_sites)
        if math.prod(sizes[:k]) >= n_classes
    ]
    assert min(holds, default=math.inf) >= found["mixed"]
    orders = [q for q in range(n_sites, n_classes + 99) if len(sympy.factorint(q)) == 1]
    assert found["simplex"] == min(q for q in orders if q**n_sites >= n_classes)


@pytest.mark.parametrize("in_features", [1, 64, 512])
@pytest.mark.parametrize("hidden", [0, 7, [16], [16, 9], ()])
def test_parameters_are_those_of_the_head(in_features: int, hidden: int | Sequence[int]) -> None:
    choices = design(
        900, sites=4, in_features=in_features, hidden=hidden, family=["mixed", "simplex"]
    )
    one_hot = LabelMappingHead(in_features, MixedMapping.one_hot(900))
    for choice in choices:
        head = LabelMappingHead(in_features, choice.mapping(), hidden=hidden)
        assert choice.head_parameters == sum(p.numel() for p in head.parameters())
        assert choice.head_bytes == sum(p.nbytes for p in head.parameters())
        assert choice.one_hot_parameters == sum(p.numel() for p in one_hot.parameters())
        assert choice.one_hot_bytes == sum(p.nbytes for p in one_hot.parameters())
        assert choice.ratio == choice.one_hot_parameters / choice.head_parameters
        assert choice.bits_to_hold == 900 * math.log2(900)


def test_without_a_budget_dimension_2_comes_first_and_1_last() -> None:
    choices = design(20_901, sites=4)
    assert [(c.dimension, c.family) for c in choices] == [
        (k, family) for k in (2, 3, 4, 1) for family in ("simplex", "mixed")
    ]
    assert choices[0].mapping() == SimplexMapping(20_901, 4, field_order=149)
    assert choices[1].mapping() == MixedMapping(20_901, [149, 151, 157, 163])
    assert [c.min_distance for c in design(20_901, sites=4, top=3)] == [3, 3, 2]
    dimensions = [c.dimension for c in design(10**8, family="mixed", top=50)]
    assert dimensions == [*range(2, 10), 1]


def test_with_a_budget_the_largest_distance_comes_first_then_the_smallest_head() -> None:
    for sites in (None, 5):
        choices = design(10**6, sites=sites, max_parameters=500_000, top=50)
        order = [(-c.min_distance, c.head_parameters) for c in choices]
        assert len(choices) > 3
        assert order == sorted(order)
    (best, *_) = design(10**6, sites=5, max_parameters=2_600_000)
    assert (best.dimension, best.min_distance) == (2, 4)
    (best, *_) = design(10**6, sites=5, max_parameters=2_500_000)
    assert (best.dimension, best.min_distance) == (3, 3)


def test_codes_no_smaller_than_one_hot_come_last() -> None:
    choices = design(40, sites=4, max_parameters=10**9, in_features=16, top=50)
    saves = [c.ratio > 1 for c in choices]
    assert saves == sorted(saves, reverse=True)
    assert any(saves)
    assert not all(saves)


def test_without_sites_one_error_is_corrected_where_that_can_be() -> None:
    assert {c.min_distance for c in design(10**8, top=50)} == {3}
    assert [c.n_sites for c in design(10**8, distance=5, family="mixed", top=3)] == [6, 7, 8]
    # Three letters of F_7 less than its seven points allow hold 16,807 classes only.
    (only,) = design(20_000, max_alphabet=7)
    assert (only.n_sites, only.min_distance, only.alphabet_sizes[0]) == (7, 2, 7)


def test_a_hundred_million_classes() -> None:
    choices = design(10**8, sites=6, family=["mixed", "simplex"], top=50)
    of_3 = {c.family: c for c in choices if c.dimension == 3}
    assert of_3["mixed"].alphabet_sizes == (463, 467, 479, 487, 491, 499)
    assert of_3["simplex"].alphabet_sizes == (467,) * 6
    assert of_3["mixed"].head_parameters == 513 * sum(of_3["mixed"].alphabet_sizes)
    assert of_3["mixed"].one_hot_bytes == 4 * 513 * 10**8
    for choice in choices:
        check_is_its_mapping(choice)


def test_fields_of_prime_power_order_are_named_where_they_are_smaller() -> None:
    best, second, *_ = design(16_200, sites=4, family="simplex")
    assert (best.alphabet_sizes, second.alphabet_sizes) == ((128,) * 4, (131,) * 4)
    assert best.warnings == (
        "the field of 128 elements needs galois: pip install 'labelmapping[fields]'",
    )
    assert second.warnings == ()


def test_warnings() -> None:
    (one_hot,) = design(50, family="one-hot")
    assert one_hot.warnings == ("distance 1: no error is corrected and no learner may be lost",)
    assert one_hot.ratio == 1
    assert one_hot.mapping() == MixedMapping.one_hot(50)
    (best,) = design(50, sites=4, distance=3, family="mixed", in_features=9, hidden=90, top=1)
    assert best.warnings == ("the code saves nothing: the head has 10.7 times one-hot's size",)
    assert best.head_parameters == 90 * 11 + 91 * (7 + 11 + 13 + 17) > 50 * 10


def test_a_trunk_that_cannot_hold_the_code_is_warned_about() -> None:
    bits = 1024 * 10
    enough = bits // 2 - 4 * (2 + 2)
    for trunk_parameters, warned in [(enough, False), (enough - 1, True)]:
        (best,) = design(
            1024,
            sites=4,
            in_features=2,
            hidden=4,
            family="mixed",
            trunk_parameters=trunk_parameters,
            top=1,
        )
        assert best.bits_to_hold == bits
        assert any("Allen-Zhu and Li 2024" in text for text in best.warnings) is warned
    assert "10,238 bits at 2 a parameter" in " ".join(best.warnings)
    assert "need 10,240" in " ".join(best.warnings)


def test_to_dict_is_json_that_rebuilds_the_mapping() -> None:
    for choice in design(16_200, sites=4, trunk_parameters=0):
        values = choice.to_dict()
        assert json.loads(json.dumps(values, allow_nan=False)) == values
        assert LabelMapping.from_config(values["recipe"]) == choice.mapping()
        assert values["warnings"]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            {"n_classes": 10**8, "sites": 4, "distance": 3, "max_alphabet": 100},
            "max_alphabet 100 with 4 sites and distance 3 holds at most 9,409 classes (97^2, "
            "simplex); 100,000,000 need max_alphabet at least 10,007, or 7 sites",
        ),
        (
            {"n_classes": 10**4, "sites": 3, "max_alphabet": 9, "family": "mixed"},
            "max_alphabet 9 with 3 sites holds at most 105 classes (3 x 5 x 7, mixed); "
            "10,000 need max_alphabet at least 29",
        ),
        (
            {"n_classes": 10**4, "max_alphabet": 50, "lost_sites": 99},
            "max_alphabet 50 with distance 100 (lost_sites 99) allows no code at all; it must be "
            "at least 101",
        ),
        (
            {"n_classes": 10**4, "sites": 6, "distance": 9},
            "distance of 6 sites must be at most 6",
        ),
        (
            {"n_classes": 10**4, "sites": 6, "lost_sites": 6},
            "lost_sites of 6 sites must be at most",
        ),
        ({"n_classes": 10**4, "distance": 257}, "distance must be at most 256, got 257"),
        (
            {"n_classes": 10**4, "sites": 4, "distance": 3, "max_parameters": 100_000},
            "max_parameters must be at least 207,252 for 10,000 classes with 4 sites and distance "
            "3 (simplex, alphabets 101 101 101 101); got 100,000, enough for distance 2",
        ),
        (
            {"n_classes": 10**4, "max_parameters": 100, "max_alphabet": 30},
            "for 10,000 classes with max_alphabet 30 (simplex, alphabets 7 7 7 7 7); got 100",
        ),
        ({"n_classes": 9, "family": "one-hot", "sites": 3}, "1 site and distance 1, got 3 sites"),
        ({"n_classes": 9, "family": "one-hot", "distance": 2}, "distance 1, got distance 2"),
        (
            {"n_classes": 9, "family": "one-hot", "max_alphabet": 8},
            "max_alphabet 8 holds at most 8 classes (8, one-hot); 9 need max_alphabet at least 9",
        ),
        ({"n_classes": 2**63 - 1}, "beyond int64 in every code of family mixed, simplex; 9,223,37"),
        ({"n_classes": 2**63 - 1, "sites": 4}, "with 4 sites needs numbers beyond int64"),
        ({"n_classes": 2**63}, "n_classes must be below 2^63, got 9223372036854775808"),
        ({"n_classes": 1}, "n_classes must be at least 2, got 1"),
        ({"n_classes": 9, "sites": 0}, "sites must be at least 1, got 0"),
        ({"n_classes": 9, "sites": 257}, "sites must be at most 256, got 257"),
        ({"n_classes": 9, "distance": 0}, "distance must be at least 1, got 0"),
        ({"n_classes": 9, "lost_sites": -1}, "lost_sites must be at least 0, got -1"),
        ({"n_classes": 9, "max_alphabet": 1}, "max_alphabet must be at least 2, got 1"),
        ({"n_classes": 9, "max_parameters": 0}, "max_parameters must be at least 1, got 0"),
        ({"n_classes": 9, "in_features": 0}, "in_features must be at least 1, got 0"),
        ({"n_classes": 9, "hidden": -1}, "hidden must be at least 0, got -1"),
        ({"n_classes": 9, "hidden": [4, 0]}, "hidden[1] must be at least 1, got 0"),
        ({"n_classes": 9, "trunk_parameters": -1}, "trunk_parameters must be at least 0, got -1"),
        ({"n_classes": 9, "top": 0}, "top must be at least 1, got 0"),
        ({"n_classes": 9, "family": "hashed"}, "one of mixed, simplex, one-hot; got 'hashed'"),
        ({"n_classes": 9, "family": []}, "family must name at least one of mixed, simplex, one"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_the_constraint_that_binds(
    request_: dict[str, Any], text: str
) -> None:
    with pytest.raises(ArgumentError, match=re.escape(text)) as error:
        design(**request_)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_classes", 1e8),
        ("n_classes", "9"),
        ("sites", 4.0),
        ("distance", True),
        ("lost_sites", "1"),
        ("max_alphabet", 9.5),
        ("hidden", 2.0),
        ("top", None),
        ("family", 3),
    ],
)
def test_wrong_types_are_refused(name: str, value: object) -> None:
    arguments: dict[str, Any] = {"n_classes": 9, name: value}
    with pytest.raises(ArgumentTypeError, match=name):
        design(**arguments)


def test_the_largest_numbers_of_classes_have_codes() -> None:
    for choice in design(2**62, sites=6, top=50):
        check_is_its_mapping(choice)
    with pytest.raises(ArgumentError) as error:
        design(2**63 - 1, sites=4)
    nearest = int(str(error.value).replace(",", "").split()[-4])
    for choice in design(nearest, sites=4, top=50):
        check_is_its_mapping(choice)


def test_it_loads_neither_torch_nor_galois() -> None:
    code = (
        "import sys; from labelmapping.mappings.design import design\n"
        "best = design(16_200, sites=4)[0]\n"
        "assert best.recipe()['field_order'] == 128\n"
        "assert not {'torch', 'galois', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
