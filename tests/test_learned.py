"""Learnt codes: the certificate by brute force, natural symbols, growth, recipes, refusals."""

from __future__ import annotations

import copy
import json
import logging
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from labelmapping import LabelMapping, LearnedMapping, MixedMapping, SimplexMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import learned
from labelmapping.mappings.assignment import SLACK, explained_variance

Floats = NDArray[np.float64]


def most_agreements(codewords: NDArray[np.int64]) -> int:
    """At how many sites two classes agree at most, pair by pair."""
    pairs = [(row == codewords[x + 1 :]).sum(axis=1) for x, row in enumerate(codewords[:-1])]
    return int(max((p.max() for p in pairs), default=0))


def check_certificate(mapping: LearnedMapping) -> None:
    codewords = mapping.codewords
    assert codewords.min() >= 0
    assert (codewords < mapping.alphabet_sizes).all()
    assert most_agreements(codewords) <= mapping.dimension - 1
    assert mapping.min_distance == mapping.n_sites - mapping.dimension + 1


def clusters(n_clusters: int, each: int, width: int, seed: int = 0, noise: float = 0.3) -> Floats:
    """Classes of a cluster lie together, in this order."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(n_clusters, width))
    return np.repeat(middles, each, axis=0) + noise * rng.normal(size=(n_clusters * each, width))


def random_prototypes(rng: np.random.Generator, n_classes: int, width: int) -> NDArray[Any]:
    """Equal rows, constant columns, small integers, outliers, far from the origin, and plain."""
    rows: NDArray[Any] = rng.normal(size=(n_classes, width))
    style = rng.integers(9)
    if style == 0:
        rows = rows[rng.integers(0, max(1, n_classes // 3), n_classes)]
    elif style == 1:
        rows = np.ones_like(rows)
    elif style == 2:
        rows[:, rng.random(width) < 0.7] = 3.0
    elif style == 3:
        rows = rng.integers(-3, 4, rows.shape)
    elif style == 4:
        rows = rows.astype(np.float32)
    elif style == 5:
        rows = rows * 10.0 ** rng.integers(-6, 7) + 10.0 ** rng.integers(-3, 4)
    elif style == 6:
        rows[rng.integers(n_classes)] *= 1e6
    elif style == 7:
        rows = rows**5
    return rows


# --- the certificate


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_any_two_classes_agree_at_fewer_sites_than_the_dimension(part: int) -> None:
    """200 random sizes, with the alphabet given and left open."""
    for seed in range(50 * part, 50 * part + 50):
        rng = np.random.default_rng(seed)
        dimension = int(rng.choice([1, 2, 2, 2, 3]))
        most = 120 if dimension == 3 else 400
        n_classes = int(np.exp(rng.uniform(np.log(2), np.log(most))))
        width = int(rng.choice([1, 2, 5, 16, 70, 500]))
        n_sites = int(rng.integers(dimension, 7 if dimension < 3 else 6))
        views = str(rng.choice(learned.VIEWS))
        prototypes = random_prototypes(rng, n_classes, width)
        size = None
        if rng.random() < 0.5:
            size = max(n_sites + 2, math.ceil((3 * n_classes) ** (1 / dimension)) + 1)
        mapping = LearnedMapping.fit(
            prototypes, n_sites, alphabet_size=size, dimension=dimension, views=views, seed=seed
        )
        assert mapping.n_classes == n_classes
        assert mapping.n_sites == n_sites
        assert mapping.dimension == dimension
        assert len(set(mapping.alphabet_sizes)) == 1
        assert size in (None, mapping.alphabet_sizes[0])
        assert mapping.capacity == mapping.alphabet_sizes[0] ** dimension >= n_classes
        check_certificate(mapping)
        if n_classes <= 40:
            sites = rng.permutation(n_sites)[:dimension].tolist()
            words = mapping.codewords[:, sites]
            assert mapping.resolve(sites, words).tolist() == list(range(n_classes))


@pytest.mark.parametrize("views", learned.VIEWS)
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 5), (2, 1), (2, 5), (3, 2), (50, 1), (5, 60), (7, 1500), (150, 1100)],
    ids=str,
)  # fmt: skip
def test_few_classes_one_column_and_more_columns_than_classes(
    shape: tuple[int, int], views: str
) -> None:
    prototypes = np.random.default_rng(0).normal(size=shape)
    for rows in (prototypes, np.ones(shape), np.arange(shape[0])[:, None] * np.ones(shape)):
        mapping = LearnedMapping.fit(rows, 3, views=views)
        assert mapping.n_classes == shape[0]
        check_certificate(mapping)
        assert all(-1e-9 <= share <= 1 + 1e-9 for share in mapping.naturalness(rows))
        assert LabelMapping.from_config(mapping.to_config()) == mapping


def test_a_code_that_is_full_is_found_with_three_sites() -> None:
    for size in (2, 3, 5, 8):
        prototypes = np.random.default_rng(0).normal(size=(size**2, 4))
        mapping = LearnedMapping.fit(prototypes, 3, alphabet_size=size)
        assert mapping.n_classes == mapping.capacity
        check_certificate(mapping)


@pytest.mark.parametrize("scale", [1e-300, 1e-161, 1e-30, 1e29])
def test_very_small_and_very_large_prototypes_are_coded(scale: float) -> None:
    prototypes = scale * np.random.default_rng(0).uniform(-1, 1, size=(40, 5))
    mapping = LearnedMapping.fit(prototypes, 3)
    check_certificate(mapping)
    grown = mapping.grow(42, prototypes[:2])
    check_certificate(grown)


@pytest.mark.parametrize("dimension", [1, 2])
def test_symbols_are_balanced(dimension: int) -> None:
    """At the first site 1.3 times the even share, rounded up, at most; at the others twice that."""
    for seed, prototypes in enumerate(
        [
            np.random.default_rng(0).normal(size=(300, 10)),
            clusters(12, 25, 8, noise=0.05),
            np.random.default_rng(1).normal(size=(300, 1)) ** 5,
            np.ones((300, 3)),
        ]
    ):
        mapping = LearnedMapping.fit(prototypes, 4, dimension=dimension, seed=seed)
        size = mapping.alphabet_sizes[0]
        share = max(1, math.ceil(300 / size * SLACK))
        counts = [np.bincount(column, minlength=size) for column in mapping.codewords.T]
        assert counts[0].max() <= share
        assert max(c.max() for c in counts) <= 2 * share
        assert min(np.count_nonzero(c) for c in counts) >= min(300, 0.6 * size)


# --- a function of prototypes and seed


def test_equal_values_and_seeds_give_equal_codes() -> None:
    values = np.random.default_rng(0).integers(-4, 5, (150, 12))
    before = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
    mapping = LearnedMapping.fit(values, 4, seed=7)
    for same in (
        values.astype(np.float32),
        values.astype(np.float64),
        values.astype(np.int8),
        np.asfortranarray(values),
        values.tolist(),
    ):
        assert LearnedMapping.fit(same, 4, seed=7) == mapping
    assert LearnedMapping.fit(values, 4, seed=8) != mapping
    after = np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002
    assert np.array_equal(before, after)


def test_prototypes_are_not_changed() -> None:
    prototypes = np.random.default_rng(0).normal(size=(40, 6))
    before = prototypes.copy()
    LearnedMapping.fit(prototypes, 3).grow(41, prototypes[:1])
    assert np.array_equal(prototypes, before)


# --- natural symbols


def test_symbols_follow_the_prototypes_far_more_than_those_of_a_simplex_code() -> None:
    prototypes = clusters(20, 20, 16)
    mapping = LearnedMapping.fit(prototypes, 4, alphabet_size=31)
    simplex = SimplexMapping(400, 4, field_order=31).encode(range(400))
    order = np.random.default_rng(0).permutation(400)
    assert mapping._sites is not None
    views = [mapping._sites.views.of(prototypes, site) for site in range(4)]
    for view, natural, arbitrary in zip(
        views, mapping.naturalness(prototypes), simplex[order].T, strict=True
    ):
        blind = explained_variance(view, arbitrary)  # about 30/399
        assert blind < 0.12
        assert natural > 4 * blind


def test_naturalness_is_the_share_of_variance_between_symbols() -> None:
    prototypes = clusters(10, 12, 6)
    mapping = LearnedMapping.fit(prototypes, 3)
    shares = mapping.naturalness(prototypes)
    assert len(shares) == 3
    assert all(0 < share < 1 for share in shares)
    stranger = mapping.naturalness(np.random.default_rng(5).normal(size=prototypes.shape))
    assert max(stranger) < min(shares)


def test_auto_deals_components_on_structured_data_and_shares_them_on_isotropic_data() -> None:
    structured, noise = clusters(15, 20, 24), np.random.default_rng(0).normal(size=(300, 40))
    for prototypes, same in ((structured, "components"), (noise, "full")):
        auto = LearnedMapping.fit(prototypes, 4, alphabet_size=23)
        assert auto == LearnedMapping.fit(prototypes, 4, alphabet_size=23, views=same)
        maps = auto.to_config()["sites"]["maps"]
        assert len(maps) == (1 if same == "full" else 4)
    # On clusters the constraint leaves little to a second look at all components.
    dealt = LearnedMapping.fit(structured, 4, alphabet_size=23).naturalness(structured)
    full = LearnedMapping.fit(structured, 4, alphabet_size=23, views="full")
    assert min(dealt) > 1.5 * min(full.naturalness(structured))


# --- alphabets that are too small


def test_the_alphabet_that_is_left_open_is_enlarged_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(learned, "FREE", 100.0)  # as if sites did not matter
    # Of four symbols at seven sites, at most 8 words differ at six (Plotkin): nine do not.
    prototypes = np.random.default_rng(0).normal(size=(9, 4))
    with caplog.at_level(logging.WARNING, logger="labelmapping"):
        mapping = LearnedMapping.fit(prototypes, 7)
    check_certificate(mapping)
    assert mapping.alphabet_sizes[0] > 4
    assert caplog.records
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert "with 4 symbols a site; trying 5" in caplog.messages[0]
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="labelmapping"):
        LearnedMapping.fit(prototypes, 3, alphabet_size=5)
    assert not caplog.records


@pytest.mark.parametrize(
    ("n_classes", "n_sites", "size", "dimension"), [(4, 4, 2, 2), (9, 7, 4, 2), (36, 4, 6, 2)]
)
def test_an_alphabet_for_which_there_is_no_code_is_refused(
    n_classes: int, n_sites: int, size: int, dimension: int
) -> None:
    """Four bits, Plotkin's bound, and the two orthogonal Latin squares of order 6."""
    prototypes = np.random.default_rng(0).normal(size=(n_classes, 4))
    text = rf"alphabet_size must be larger than {size} for {n_classes} classes, {n_sites} sites"
    with pytest.raises(ArgumentError, match=text):
        LearnedMapping.fit(prototypes, n_sites, alphabet_size=size, dimension=dimension)


def test_no_code_is_handed_out_where_every_enlargement_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(learned, "ENLARGEMENTS", 1)
    monkeypatch.setattr(learned, "FREE", 100.0)
    with pytest.raises(ArgumentError, match=r"larger than 4 for 9 classes.*symbols clash"):
        LearnedMapping.fit(np.random.default_rng(0).normal(size=(9, 4)), 7)
    assert not caplog.messages


@pytest.mark.parametrize("n_sites", [4, 8, 12, 24])
def test_the_first_alphabet_holds_the_classes_however_many_sites_there_are(
    n_sites: int, caplog: pytest.LogCaptureFixture
) -> None:
    prototypes = np.random.default_rng(0).normal(size=(250, 8))
    with caplog.at_level(logging.WARNING, logger="labelmapping"):
        mapping = LearnedMapping.fit(prototypes, n_sites)
    check_certificate(mapping)
    assert len(caplog.records) <= 1  # a guess may be short by a tenth
    assert mapping.alphabet_sizes[0] >= math.sqrt(1.56 * 250)


@pytest.mark.parametrize(
    ("n_classes", "n_sites", "size", "dimension"),
    [(169, 13, 13, 2), (160, 8, 13, 2), (120, 11, 12, 2), (343, 6, 7, 3)],
)
def test_alphabets_too_full_for_clusters_get_an_algebraic_code(
    n_classes: int, n_sites: int, size: int, dimension: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Of as many sites as the largest prime in the alphabet, and of all its words."""
    prototypes = clusters(n_classes // 4 + 1, 4, 6)[:n_classes]
    with caplog.at_level(logging.WARNING, logger="labelmapping"):
        mapping = LearnedMapping.fit(prototypes, n_sites, alphabet_size=size, dimension=dimension)
    check_certificate(mapping)
    assert mapping.alphabet_sizes == (size,) * n_sites
    assert len(caplog.messages) == 1
    assert "those of an algebraic code" in caplog.messages[0]
    assert mapping.grow(n_classes) is mapping
    blind = (size - 1) / (n_classes - 1)
    assert min(mapping.naturalness(prototypes)[:dimension]) > 1.5 * blind


# --- the constructor


def test_codewords_that_exist_are_a_learned_mapping_too() -> None:
    words = SimplexMapping(60, 4, field_order=11, dimension=3).encode(range(60))
    mapping = LearnedMapping(words, [11, 12, 13, 11], 3)
    check_certificate(mapping)
    assert mapping.alphabet_sizes == (11, 12, 13, 11)
    assert mapping.capacity == 11 * 11 * 12
    assert LearnedMapping(words.tolist(), [11] * 4, 3).codewords.tolist() == words.tolist()
    assert LearnedMapping([[0, 1]], [2, 2]).n_classes == 1
    wide = LearnedMapping([[0, 0, 0], [4, 0, 0], [0, 2**20, 2**30]], [2**31] * 3, 3)
    assert wide.capacity == 2**62  # as much as int64 holds, and keys do not wrap around
    assert LearnedMapping([[0, 0], [1, 0]], [2**31, 2], 2).min_distance == 1


@pytest.mark.parametrize(
    ("codewords", "sizes", "dimension", "texts"),
    [
        (
            [[0, 0, 0], [1, 1, 1], [2, 0, 1], [3, 1, 1]],
            [4, 2, 2],
            2,
            ["agree at 1 sites at most", "classes 1 and 3 both have [1, 1] at sites [1, 2]"],
        ),
        ([[0, 1], [1, 1]], [2, 2], 1, ["classes 0 and 1 both have [1] at sites [1]"]),
        ([[0, 1, 2]] * 2, [3, 3, 3], 3, ["classes 0 and 1 both have [0, 1, 2]"]),
        ([[0, -1], [1, 1]], [2, 2], 2, ["must have a symbol everywhere"]),
        ([[0, 1], [1, 2]], [2, 2], 2, ["0..1 at site 1", "codewords[1, 1] is 2"]),
        ([[0, 1]], [2], 1, ["an entry for each of 2 sites, got 1"]),
        ([[0, 1]], [2, 1], 1, ["alphabet_sizes[1] must be at least 2, got 1"]),
        ([[0, 1]], [2, 2], 3, ["dimension must be at most the number of sites, 2; got 3"]),
        ([[0, 1]], [2, 2], 0, ["dimension must be at least 1, got 0"]),
        ([], [2], 1, ["codewords must have shape"]),
        ([[0.0, 1.0]], [2, 2], 1, ["codewords must be integers"]),
    ],
)
def test_codewords_without_the_certificate_are_refused_with_two_classes(
    codewords: Any, sizes: list[int], dimension: int, texts: list[str]
) -> None:
    with pytest.raises(ArgumentError) as error:
        LearnedMapping(codewords, sizes, dimension)
    for text in texts:
        assert text in str(error.value)


def test_the_certificate_is_the_same_by_counting_and_by_sorting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = SimplexMapping(400, 4, field_order=23).encode(range(400))
    broken = words.copy()
    broken[250, :2] = broken[31, :2]
    messages = []
    for least in (learned.BITMAP, -(10**9)):
        monkeypatch.setattr(learned, "BITMAP", least)
        assert LearnedMapping(words, [23] * 4, 2).min_distance == 3
        with pytest.raises(ArgumentError, match="classes 31 and 250") as error:
            LearnedMapping(broken, [23] * 4, 2)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_the_witnesses_of_a_broken_certificate_do_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        words = MixedMapping(60, [11, 12, 13, 17]).encode(range(60))
        first, second = sorted(rng.choice(60, 2, replace=False).tolist())
        sites = np.sort(rng.choice(4, 2, replace=False))
        words[second, sites] = words[first, sites]
        pairs = [p for p in range(60) if most_agreements(words[[p, second]]) > 1 and p != second]
        with pytest.raises(ArgumentError, match="agree at 1 sites at most") as error:
            LearnedMapping(words, [11, 12, 13, 17])
        named = str(error.value).split("classes ")[1].split(" both")[0].split(" and ")
        one, other = (int(number) for number in named)
        assert one < other
        assert second in (one, other)
        assert one in pairs or other in pairs


# --- recipes


def make(views: str = "components") -> LearnedMapping:
    return LearnedMapping.fit(clusters(8, 6, 5), 3, views=views, alphabet_size=11)


@pytest.mark.parametrize("views", ["components", "full"])
def test_a_recipe_goes_through_json_and_rebuilds_the_mapping_with_its_sites(views: str) -> None:
    mapping, new = make(views), clusters(8, 6, 5, seed=3)[:4]
    recipe = mapping.to_config()
    rebuilt = LabelMapping.from_config(json.loads(json.dumps(recipe, allow_nan=False)))
    copies = (rebuilt, pickle.loads(pickle.dumps(mapping)), copy.deepcopy(mapping))
    for other in copies:
        assert isinstance(other, LearnedMapping)
        assert other == mapping
        assert hash(other) == hash(mapping)
        assert other.to_config() == recipe
        assert other.naturalness(clusters(8, 6, 5)) == mapping.naturalness(clusters(8, 6, 5))
        assert other.grow(52, new) == mapping.grow(52, new)
    assert repr(mapping) == (
        "LearnedMapping(n_classes=48, alphabet_sizes=(11, 11, 11), dimension=2)"
    )
    for name in recipe:
        with pytest.raises(ArgumentError, match=r"of the recipe|^recipe of a"):
            LabelMapping.from_config({k: v for k, v in recipe.items() if k != name})


def test_the_sites_are_part_of_what_a_mapping_is() -> None:
    mapping = make()
    bare = LearnedMapping(mapping.codewords, mapping.alphabet_sizes, 2)
    assert bare != mapping
    assert LabelMapping.from_config(bare.to_config()) == bare
    assert bare.to_config()["sites"] is None
    assert bare.to_config()["checksum"] == mapping.to_config()["checksum"]


def test_views_that_all_sites_share_are_written_once() -> None:
    config = make("full").to_config()
    assert len(config["sites"]["maps"]) == 1
    assert len(config["sites"]["centroids"]) == 3
    # A recipe may write them out.
    written = copy.deepcopy(config)
    written["sites"]["maps"] *= 3
    assert LabelMapping.from_config(written) == make("full")


def test_what_was_handed_out_is_a_copy() -> None:
    mapping = make()
    before = json.dumps(mapping.to_config())
    recipe = mapping.to_config()
    recipe["sites"]["maps"].clear()
    recipe["sites"]["centre"]["shape"].clear()
    recipe["alphabet_sizes"].clear()
    mapping.codewords[:] = 0
    assert json.dumps(mapping.to_config()) == before


def damages() -> list[tuple[Callable[[dict[str, Any]], object], str]]:
    return [
        (lambda r: r.update(checksum="0" * 64), "checksum of the codewords must be"),
        (lambda r: r["codewords"].update(data="AAAA"), "data of the codewords must be 144 bytes"),
        (lambda r: r.update(dimension=1), "must agree at 0 sites at most"),
        (lambda r: r.update(sites=5), "sites must be a dict with the fields centre, maps, centroi"),
        (lambda r: r["sites"].pop("maps"), "sites must be a dict with the fields"),
        (lambda r: r["sites"].update(colour=1), "sites must be a dict with the fields"),
        (lambda r: r["sites"].update(maps=5), "maps and centroids of the sites must be lists"),
        (lambda r: r["sites"].update(centroids={}), "maps and centroids of the sites must be list"),
        (lambda r: r["sites"]["maps"].pop(), "maps and centroids for 3 sites"),
        (lambda r: r["sites"]["centroids"].pop(), "maps and centroids for 3 sites"),
        (lambda r: r["sites"]["maps"].clear(), "maps and centroids for 3 sites"),
        (lambda r: r["sites"].update(centre=None), "centre of the sites are damaged"),
        (lambda r: r["sites"]["centre"].update(data="*"), "centre of the sites are damaged"),
        (lambda r: r["sites"]["centre"].update(data="AAA="), "centre of the sites are damaged"),
        (lambda r: r["sites"]["centre"].update(data="AAAA"), "centre of the sites are damaged"),
        (lambda r: r["sites"]["centre"].update(data=5), "centre of the sites are damaged"),
        (lambda r: r["sites"]["centre"].update(shape=[6]), "centre of the sites are damaged"),
        (lambda r: r["sites"]["centre"].update(shape=[10**30]), "centre of the sites are damaged"),
        (lambda r: r["sites"]["centre"].update(shape=[5, 1]), "centre of the sites must be 1-dime"),
        (lambda r: r["sites"]["centre"].update(data="AADAfwAAwH8AAMB/AADAfwAAwH8="), "finite"),
        (
            lambda r: r["sites"]["centre"].update(shape=[4], data="AAAAAAAAAAAAAAAAAAAAAA=="),
            "sites must have maps of shape (4, d)",
        ),
        (
            lambda r: r["sites"]["centroids"].__setitem__(0, r["sites"]["maps"][0]),
            "centroids of shape (11, d), got",
        ),
    ]


@pytest.mark.parametrize(("damage", "text"), damages())
def test_a_damaged_recipe_is_refused(damage: Callable[[dict[str, Any]], object], text: str) -> None:
    recipe = copy.deepcopy(make().to_config())
    damage(recipe)
    with pytest.raises(ArgumentError) as error:
        LabelMapping.from_config(recipe)
    assert text in str(error.value)
    fields = {k: v for k, v in recipe.items() if k not in ("format", "kind")}
    with pytest.raises(ArgumentError) as error:
        LearnedMapping(**fields)
    assert text in str(error.value)


# --- growing


def test_growing_keeps_old_codewords_and_the_distance() -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        dimension = int(rng.choice([1, 2, 2, 3]))
        n_sites = dimension + int(rng.integers(0, 3))
        prototypes = rng.normal(size=(60, 5))
        size = {1: 75, 2: 11, 3: 7}[dimension]
        mapping = LearnedMapping.fit(
            prototypes[:50], n_sites, alphabet_size=size, dimension=dimension, seed=seed
        )
        grown = mapping.grow(60, prototypes[50:])
        assert isinstance(grown, LearnedMapping)
        assert grown.n_classes == 60
        assert grown.alphabet_sizes == mapping.alphabet_sizes
        assert grown.codewords[:50].tolist() == mapping.codewords.tolist()
        check_certificate(grown)
        # One after the other is the same, and so is a prototype in float32.
        steps = mapping
        for row in range(50, 60):
            steps = steps.grow(row + 1, prototypes[row : row + 1])
        assert steps == grown
    assert mapping.grow(50) is mapping


def test_a_new_class_shares_symbols_with_its_own_cluster() -> None:
    prototypes = clusters(12, 10, 6, noise=0.15)
    old = np.arange(120) % 10 < 8  # two of each cluster come later
    mapping = LearnedMapping.fit(prototypes[old], 4, alphabet_size=23)
    grown = mapping.grow(120, prototypes[~old])
    words, cluster = mapping.codewords, np.repeat(range(12), 8)
    near, far = 0.0, 0.0
    for word, own in zip(grown.codewords[96:], np.repeat(range(12), 2), strict=True):
        shared = (words == word).sum(axis=1)
        near += shared[cluster == own].mean() / 24
        far += shared[cluster != own].mean() / 24
    assert near > 4 * far
    assert near > 4 / 23  # what chance gives


def test_a_new_class_takes_the_symbols_of_its_centroids_where_they_are_free() -> None:
    mapping = make()
    assert mapping._sites is not None
    sites = mapping._sites
    prototypes = np.random.default_rng(4).normal(size=(5, 5))
    for prototype in prototypes:
        nearest = []
        for site in range(3):
            view = sites.views.of(prototype[None], site)
            nearest.append(int(((sites.centroids[site] - view) ** 2).sum(axis=1).argmin()))
        word = mapping.grow(49, prototype[None]).codewords[48].tolist()
        free = most_agreements(np.vstack([mapping.codewords, nearest])) <= 1
        assert (word == nearest) == free


@pytest.mark.parametrize("dimension", [1, 2])
def test_a_code_that_fills_up_says_how_many_classes_fit(dimension: int) -> None:
    rng = np.random.default_rng(0)
    size = {1: 12, 2: 5}[dimension]
    mapping = LearnedMapping.fit(
        rng.normal(size=(10, 3)), 4 if dimension == 2 else 2, alphabet_size=size,
        dimension=dimension,
    )  # fmt: skip
    new = rng.normal(size=(mapping.capacity - 10, 3))
    if dimension == 1:  # any free symbols will do
        full = mapping.grow(12, new)
        check_certificate(full)
        with pytest.raises(ArgumentError, match=r"capacity of these alphabets, 12 \(0 more"):
            full.grow(13, new[:1])
        return
    with pytest.raises(ArgumentError, match=r"n_classes must be at most (\d+) for these") as error:
        mapping.grow(mapping.capacity, new)
    fit = int(str(error.value).split("at most ")[1].split()[0])
    assert 10 <= fit < mapping.capacity
    check_certificate(mapping.grow(fit, new[: fit - 10]))
    with pytest.raises(ArgumentError, match=f"at most {fit} for these"):
        mapping.grow(fit + 1, new[: fit - 9])


@pytest.mark.parametrize(
    ("n_classes", "shape", "text"),
    [
        (47, None, "n_classes must be at least the present 48, got 47"),
        (122, (74, 5), "at most the capacity of these alphabets, 121 (73 more than now); got 122"),
        (0, None, "n_classes must be at least 1, got 0"),
        (49, None, "prototypes must be given for the new classes"),
        (50, (1, 5), "prototypes must have shape (2, 5), got (1, 5)"),
        (50, (2, 4), "prototypes must have shape (2, 5), got (2, 4)"),
        (50, (5,), "prototypes must have shape (N, d), got (5,)"),
    ],
)
def test_growing_refuses(n_classes: int, shape: tuple[int, ...] | None, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        make().grow(n_classes, None if shape is None else np.zeros(shape))
    assert text in str(error.value)


def test_a_mapping_that_was_not_fitted_has_no_views() -> None:
    mapping = LearnedMapping(make().codewords, [11] * 3)
    assert mapping.grow(48) is mapping
    with pytest.raises(ArgumentError, match="only a mapping made by fit can grow"):
        mapping.grow(49, np.zeros((1, 5)))
    with pytest.raises(ArgumentError, match="only a mapping made by fit has views"):
        mapping.naturalness(np.zeros((48, 5)))
    with pytest.raises(ArgumentError, match=r"prototypes must have shape \(48, 5\), got \(48, 4\)"):
        make().naturalness(np.zeros((48, 4)))
    with pytest.raises(ArgumentError, match="row 0 has nan"):
        make().grow(49, np.full((1, 5), np.nan))


# --- refusals of fit


def with_a_bad(value: float) -> Floats:
    prototypes = np.random.default_rng(0).normal(size=(40, 4))
    prototypes[17, 2] = prototypes[30, 0] = value
    return prototypes


GOOD = np.random.default_rng(0).normal(size=(40, 4))


@pytest.mark.parametrize(
    ("prototypes", "options", "text"),
    [
        (with_a_bad(np.nan), {}, "row 17 has nan"),
        (with_a_bad(np.inf), {}, "row 17 has inf"),
        (with_a_bad(-np.inf), {}, "row 17 has -inf"),
        (with_a_bad(1e31), {}, "within +-1e+30: row 17 has 1e+31"),
        (with_a_bad(np.inf).astype(np.float32), {}, "row 17 has inf"),
        (GOOD[0], {}, "prototypes must have shape (N, d), got (4,)"),
        (GOOD[None], {}, "prototypes must have shape (N, d), got (1, 40, 4)"),
        (GOOD[:0], {}, "prototypes must have shape (N, d), got (0, 4)"),
        (GOOD[:, :0], {}, "prototypes must have shape (N, d), got (40, 0)"),
        ([], {}, "prototypes must have shape (N, d), got (0,)"),
        ([[1.0, 2.0], [1.0]], {}, "prototypes must be a matrix"),
        (GOOD, {"n_sites": 1}, "n_sites must be at least 2, got 1"),
        (GOOD, {"n_sites": 2, "dimension": 3}, "n_sites must be at least 3, got 2"),
        (GOOD, {"dimension": 0}, "dimension must be at least 1, got 0"),
        (GOOD, {"seed": -1}, "seed must be at least 0, got -1"),
        (GOOD, {"alphabet_size": 1}, "alphabet_size must be at least 2, got 1"),
        (GOOD, {"views": "all"}, "views must be one of auto, components, full; got 'all'"),
        (
            GOOD,
            {"alphabet_size": 6},
            "alphabet_size 6 holds at most 36 classes (6^2), got 40 prototypes",
        ),
        (
            GOOD,
            {"alphabet_size": 39, "dimension": 1},
            "alphabet_size 39 holds at most 39 classes (39^1), got 40 prototypes",
        ),
        (GOOD, {"alphabet_size": 3, "dimension": 3}, "at most 27 classes (3^3), got 40"),
    ],
)
def test_fit_refuses_naming_argument_rule_and_value(
    prototypes: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ArgumentError) as error:
        LearnedMapping.fit(prototypes, **{"n_sites": 3, **options})
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("prototypes", "options"),
    [
        (GOOD > 0, {}),
        (GOOD.astype(str), {}),
        (GOOD.astype(object), {}),
        (GOOD.astype(complex), {}),
        (None, {}),
        (GOOD, {"n_sites": 3.0}),
        (GOOD, {"dimension": True}),
        (GOOD, {"alphabet_size": "11"}),
        (GOOD, {"seed": None}),
    ],
)
def test_fit_refuses_wrong_types(prototypes: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentTypeError, match=r"must be floats, got|must be an integer, got"):
        LearnedMapping.fit(prototypes, **{"n_sites": 3, **options})


def test_noise_is_not_what_symbols_follow() -> None:
    # Two columns tell the classes apart; the third is larger, and noise within each class.
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(400, 2)), 5 * rng.normal(size=(400, 1))], axis=1)
    covariance = np.diag([0.01, 0.01, 25.0])
    signal = np.delete(rows, 2, axis=1)

    def shares(**options: Any) -> Floats:
        mapping = LearnedMapping.fit(rows, 3, alphabet_size=29, views="full", **options)
        return np.array([explained_variance(signal, symbols) for symbols in mapping.codewords.T])

    plain = shares()
    assert (shares(covariance=covariance) > plain + 0.2).all()
    # All of it replaced by a multiple of the identity, or none known: as if not given.
    assert np.allclose(shares(covariance=covariance, shrinkage=1), plain)
    assert np.array_equal(shares(covariance=np.zeros((3, 3))), plain)


@pytest.mark.parametrize("width", [5, 1030])
def test_scaled_distances_do_not_depend_on_the_units(width: int) -> None:
    rng = np.random.default_rng(1)
    rows, units = rng.normal(size=(150, width)), rng.uniform(0.5, 2.0, size=width)
    mixing = np.linalg.qr(rng.normal(size=(width, width)))[0] * units
    one = LearnedMapping.fit(rows, 3, alphabet_size=17)
    other = LearnedMapping.fit(
        rows @ mixing, 3, alphabet_size=17, covariance=mixing.T @ mixing, shrinkage=0.0
    )
    assert other.naturalness(rows @ mixing) == pytest.approx(one.naturalness(rows), abs=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"covariance": np.eye(3)}, r"covariance must have shape \(4, 4\), got \(3, 3\)"),
        ({"covariance": np.full((4, 4), np.nan)}, "covariance must be finite .* row 0 has nan"),
        ({"covariance": np.triu(np.ones((4, 4)))}, "covariance must be symmetric"),
        ({"covariance": -np.eye(4)}, "covariance must have no negative eigenvalue, got -1"),
        ({"covariance": np.ones((4, 4)), "shrinkage": 0}, "shrinkage must be above 0 for a sing"),
        ({"covariance": np.eye(4), "shrinkage": 1.5}, "shrinkage must lie in 0..1, got 1.5"),
    ],
)
def test_a_wrong_covariance_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        LearnedMapping.fit(np.random.default_rng(0).normal(size=(20, 4)), 3, **options)
