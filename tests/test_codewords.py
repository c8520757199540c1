"""`CodewordEncoder` against `encode`, and which codes are taken for the same."""

import copy
import pickle

import numpy as np
import pytest
import torch

from labelmapping.errors import ArgumentError
from labelmapping.mappings import (
    EcocMapping,
    HashedMapping,
    LabelMapping,
    MixedMapping,
    PolynomialMapping,
    RandomMapping,
    SimplexMapping,
    TableMapping,
)
from labelmapping.nn import CodewordEncoder
from labelmapping.nn.codewords import check_extends, codeword_encoder

CODE = MixedMapping(1000, [7, 11, 13])
ORDER = np.random.default_rng(0).permutation(100).tolist()
COMPUTED = {
    "mixed": CODE,
    "one-hot": MixedMapping.one_hot(50),
    "simplex": SimplexMapping(100, 4, field_order=11),
    "hashed": HashedMapping(300, 6, 16),
    "binary": EcocMapping(100),
}
LOOKED_UP = {
    "simplex-9": SimplexMapping(80, 4, field_order=9),
    "simplex-16": SimplexMapping(256, 4, field_order=16),
    "polynomial": PolynomialMapping(100, 3, field_order=2, degree=4),
    "bch": EcocMapping(100, "bch", distance=5),
    "table": TableMapping(RandomMapping(200, 4, 300).codewords),
    "ordered": SimplexMapping(100, 4, field_order=11, order=ORDER),
    "ternary": EcocMapping(7, "one-versus-one"),
}
MAPPINGS = COMPUTED | LOOKED_UP


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
def test_it_is_encode_for_any_shape_and_sites(mapping: LabelMapping) -> None:
    encoder = CodewordEncoder(mapping)
    codewords = torch.from_numpy(mapping.encode(range(mapping.n_classes)))
    ids = torch.arange(mapping.n_classes)
    assert torch.equal(encoder(ids), codewords)
    assert torch.equal(encoder(ids[3]), codewords[3])
    assert torch.equal(encoder(ids[:6].reshape(2, 1, 3)), codewords[:6].reshape(2, 1, 3, -1))
    assert encoder(ids[:0]).shape == (0, mapping.n_sites)
    order = list(range(mapping.n_sites))[::-1][:2]
    part = CodewordEncoder(mapping, order)
    assert torch.equal(part(ids), codewords[:, order])
    assert part.sizes == [mapping.alphabet_sizes[site] for site in order]
    assert part.offsets.tolist() == [0, *part.sizes[:1]][: len(order)]
    assert encoder.abstains == bool((codewords < 0).any())
    for twin in (copy.deepcopy(part), pickle.loads(pickle.dumps(part))):
        assert torch.equal(twin(ids), codewords[:, order])


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
def test_its_tables_are_narrow_not_saved_and_made_anew_after_meta(mapping: LabelMapping) -> None:
    encoder = CodewordEncoder(mapping)
    tables = {name: x for name, x in encoder.named_buffers() if name != "offsets"}
    assert bool(tables) == (mapping in LOOKED_UP.values())
    for table in tables.values():
        assert table.dtype == (torch.int16 if int(table.max()) > 255 else torch.uint8) or (
            table.dtype == torch.int8 and int(table.min()) == -1
        )
    assert not encoder.state_dict()
    with torch.device("meta"):
        unmade = CodewordEncoder(mapping)
    for made in (unmade, CodewordEncoder(mapping, device="meta")):
        made.to_empty(device="cpu")
        assert torch.equal(made.offsets, encoder.offsets)
        ids = torch.arange(mapping.n_classes)
        assert torch.equal(made(ids), encoder(ids))
    # Float types of the model it is in do not reach the tables.
    assert torch.equal(encoder.half()(ids), CodewordEncoder(mapping)(ids))


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
def test_symbols_are_counted(mapping: LabelMapping) -> None:
    sites = list(range(mapping.n_sites))[::-1]
    codewords = mapping.encode(range(mapping.n_classes))
    expected = [
        (codewords[:, site] == symbol).sum()
        for site in sites
        for symbol in range(mapping.alphabet_sizes[site])
    ]
    assert CodewordEncoder(mapping, sites).symbol_counts().tolist() == expected


def test_an_encoder_is_used_as_it_is_for_its_own_sites_only() -> None:
    encoder = CodewordEncoder(CODE, [2, 0])
    cpu = torch.device("cpu")
    assert codeword_encoder(encoder, None, cpu) is encoder
    assert codeword_encoder(encoder, [2, 0], cpu) is encoder
    assert codeword_encoder(CODE, [1], cpu).sites == (1,)
    with pytest.raises(ArgumentError, match=r"those of the encoder, \[2, 0\], got \[0, 2\]"):
        codeword_encoder(encoder, [0, 2], cpu)


@pytest.mark.parametrize(
    ("mapping", "n_classes"),
    [
        (MixedMapping(10**8, [463, 467, 479]), 463 * 467 * 479),
        (COMPUTED["simplex"], 121),
        (LOOKED_UP["simplex-9"], 81),
        (LOOKED_UP["bch"], 128),
        (RandomMapping(20, 4, 11), 30),
        (HashedMapping(300, 6, 16), 400),
    ],
    ids=repr,
)
def test_more_classes_are_the_same_code(mapping: LabelMapping, n_classes: int) -> None:
    grown = mapping.grow(n_classes)
    check_extends("x", grown, mapping)
    check_extends("x", mapping, grown)
    check_extends("x", mapping, mapping)


def test_the_same_codewords_by_another_recipe_are_the_same_code() -> None:
    table = TableMapping(CODE.encode(range(500)), [7, 11, 13])
    check_extends("x", table, CODE)
    check_extends("x", CODE, table)


@pytest.mark.parametrize(
    ("other", "mapping", "message"),
    [
        (
            MixedMapping(1000, [7, 11, 17]),
            CODE,
            r"x must be for the same code: .*alphabet_sizes is \[7, 11, 13\] here and \[7, 11, 17\]"
            " there$",
        ),
        (
            SimplexMapping(100, 3, field_order=11, points=[2, 1, 3]),
            SimplexMapping(100, 3, field_order=11),
            r"class 11 has \[1, 2, 3\] here and \[2, 1, 3\] there; .*points is ",
        ),
        (  # the kind that is a function of N: the recipes differ in n_classes alone
            EcocMapping(25, "hill-climbing", n_sites=10, seed=0),
            EcocMapping(20, "hill-climbing", n_sites=10, seed=0),
            r"class \d+ has .* the recipes differ: n_classes is 20 here and 25 there$",
        ),
        (
            HashedMapping(300, 6, 16, seed=1),
            HashedMapping(300, 6, 16),
            "seed is 0 here and 1 there",
        ),
        (EcocMapping(100), CODE, "kind is 'mixed' here and 'ecoc' there"),
    ],
    ids=lambda x: x.kind if isinstance(x, LabelMapping) else "",
)
def test_other_codes_are_refused_with_a_witness_and_the_fields(
    other: LabelMapping, mapping: LabelMapping, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        check_extends("x", other, mapping)


def test_tables_are_made_again_after_meta() -> None:
    mapping = SimplexMapping(200, 3, field_order=16)
    encoder = CodewordEncoder(mapping)
    encoder.to("meta")
    encoder.to_empty(device="cpu")
    ids = torch.arange(200)
    assert encoder(ids).tolist() == mapping.encode(range(200)).tolist()
    assert encoder.offsets.tolist() == [0, 16, 32]
