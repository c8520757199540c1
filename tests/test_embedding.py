"""`LabelMappingEmbedding` against a matrix product with the explicit n-hot encoding."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import (
    EcocMapping,
    LabelMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
    TableMapping,
)
from labelmapping.nn import LabelMappingEmbedding, read_mapping

CODE = MixedMapping(1000, [7, 11, 13])
MAPPINGS = [
    CODE,
    SimplexMapping(100, 4, field_order=11),
    EcocMapping(100),
    MixedMapping.one_hot(50),
]
WIDTH = 3


def new_embedding(
    mapping: LabelMapping = CODE, padding_idx: int | None = None, seed: int = 0
) -> LabelMappingEmbedding:
    torch.manual_seed(seed)
    return LabelMappingEmbedding(mapping, WIDTH, padding_idx=padding_idx).double()


def n_hot(mapping: LabelMapping, ids: Tensor) -> Tensor:
    """Ones at the codewords' symbols, site after site: (..., sum of the alphabets)."""
    rows = []
    for codeword in mapping.encode(ids.numpy()).reshape(-1, mapping.n_sites).tolist():
        row: list[float] = []
        for size, symbol in zip(mapping.alphabet_sizes, codeword, strict=True):
            row += [float(symbol == s) for s in range(size)]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64).reshape(*ids.shape, sum(mapping.alphabet_sizes))


def draw_ids(mapping: LabelMapping, shape: Sequence[int]) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(mapping.n_classes, tuple(shape), generator=generator)


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda m: m.kind + str(m.n_sites))
@pytest.mark.parametrize("shape", [(), (1,), (9,), (2, 3), (2, 1, 3), (0,), (2, 0)], ids=str)
def test_equals_the_n_hot_product_with_its_gradient(
    mapping: LabelMapping, shape: tuple[int, ...]
) -> None:
    ids = draw_ids(mapping, shape)
    embedding = new_embedding(mapping)
    weight = embedding.weight.detach().clone().requires_grad_()
    vectors = embedding(ids)
    expected = n_hot(mapping, ids) @ weight
    assert vectors.shape == (*shape, WIDTH)
    torch.testing.assert_close(vectors, expected)
    weights = torch.arange(1.0, vectors.numel() + 1, dtype=torch.float64).reshape(vectors.shape)
    (vectors * weights).sum().backward()
    torch.autograd.backward((expected * weights).sum())
    torch.testing.assert_close(embedding.weight.grad, weight.grad)


def test_every_class_has_its_own_vector() -> None:
    vectors = new_embedding()(torch.arange(1000))
    assert len(torch.unique(vectors, dim=0)) == 1000


@pytest.mark.parametrize("padding_idx", [-1, 0, 999, 10**6, -100])
def test_padding_gives_zeros_and_no_gradient(padding_idx: int) -> None:
    embedding = new_embedding(padding_idx=padding_idx)
    plain = new_embedding()
    ids = torch.tensor([[5, padding_idx], [padding_idx, 8]])
    vectors = embedding(ids)
    assert not vectors[[0, 1], [1, 0]].any()
    expected = plain(torch.tensor([5, 8]))
    assert torch.equal(vectors[[0, 1], [0, 1]], expected)
    vectors.sum().backward()
    expected.sum().backward()
    assert torch.equal(embedding.weight.grad, plain.weight.grad)  # type: ignore[arg-type]


def test_padding_alone_gives_a_gradient_of_zeros() -> None:
    embedding = new_embedding(padding_idx=-1)
    embedding(torch.tensor([-1, -1])).sum().backward()
    assert embedding.weight.grad is not None
    assert not embedding.weight.grad.any()


@pytest.mark.parametrize(
    ("ids", "padding_idx", "message"),
    [
        ([[1, 2], [3, 1000]], None, r"input must lie in 0\.\.999 .*; input\[1, 1\] is 1000$"),
        ([-1], None, r"input\[0\] is -1$"),
        ([-1, -2], -1, r"input\[1\] is -2$"),
        ([-1, 1000], -1, r"input\[1\] is 1000$"),
        (1000, None, r"; got 1000$"),
    ],
    ids=str,
)
def test_ids_out_of_range_are_refused(
    ids: list[int] | int, padding_idx: int | None, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        new_embedding(padding_idx=padding_idx)(torch.tensor(ids))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bool], ids=str)
@pytest.mark.parametrize("padding_idx", [None, -1])
def test_ids_that_are_no_integers_are_refused(dtype: torch.dtype, padding_idx: int | None) -> None:
    with pytest.raises(ArgumentTypeError, match=f"input must be integers, got {dtype}"):
        new_embedding(padding_idx=padding_idx)(torch.tensor([1, 0]).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8, torch.uint16], ids=str)
@pytest.mark.parametrize("padding_idx", [None, -1, 256 + 44])
def test_narrow_ids_are_the_same_ids(dtype: torch.dtype, padding_idx: int | None) -> None:
    # Compared in uint8, -1 would be 255 and 300 would be 44.
    embedding = new_embedding(padding_idx=padding_idx)
    ids = torch.tensor([0, 255, 44])
    vectors = embedding(ids.to(dtype))
    assert torch.equal(vectors, embedding(ids))
    assert bool(vectors.any(dim=-1).all())


def test_the_weight_and_the_recipe_are_saved() -> None:
    embedding = new_embedding()
    saved = safetensors.torch.load(safetensors.torch.save(embedding.state_dict()))
    assert sorted(saved) == ["_extra_state", "weight"]
    assert read_mapping(saved) == CODE
    other = new_embedding(seed=1)
    other.load_state_dict(saved)
    ids = draw_ids(CODE, (4,))
    assert torch.equal(other(ids), embedding(ids))


def test_weights_of_another_code_are_refused_and_not_loaded() -> None:
    saved = new_embedding(SimplexMapping(100, 3, field_order=11)).state_dict()
    # The same alphabets, and other symbols in them.
    embedding = new_embedding(SimplexMapping(100, 3, field_order=11, points=[4, 5, 6]), seed=1)
    before = embedding.weight.detach().clone()
    message = r"class 11 has \[4, 5, 6\] here and \[1, 2, 3\] there; .* points is .*"
    with pytest.raises(ArgumentError, match=message):
        embedding.load_state_dict(saved)
    assert torch.equal(embedding.weight, before)
    with pytest.raises(ArgumentError, match="the recipes differ: alphabet_sizes is "):
        new_embedding(MixedMapping(1000, [7, 11, 17])).load_state_dict(new_embedding().state_dict())


def test_weights_without_a_recipe_load_and_unknown_names_do_not() -> None:
    embedding, other = new_embedding(), new_embedding(seed=1)
    other.load_state_dict({"weight": embedding.weight.detach()})
    assert torch.equal(other.weight, embedding.weight)
    for wrong in ({}, {**embedding.state_dict(), "bias": torch.zeros(1)}):
        with pytest.raises(RuntimeError, match=r"(Missing|Unexpected) key"):
            other.load_state_dict(wrong)


GROWING = [SimplexMapping(100, 3, field_order=11), RandomMapping(100, 3, alphabet_size=8, seed=0)]


@pytest.mark.parametrize("mapping", GROWING, ids=lambda m: m.kind)
def test_growing_keeps_every_vector_and_the_weight(mapping: LabelMapping) -> None:
    embedding = new_embedding(mapping)
    weight, ids = embedding.weight, torch.arange(100)
    before = embedding(ids)
    with pytest.raises(ArgumentError, match=str(mapping.capacity)):
        embedding.grow(mapping.capacity + 1)
    embedding.grow(121)
    assert embedding.weight is weight
    assert torch.equal(embedding(ids), before)
    assert len(torch.unique(embedding(torch.arange(121)), dim=0)) == 121
    embedding.load_state_dict(new_embedding(mapping, seed=1).state_dict())
    with pytest.raises(ArgumentError, match="n_classes must be at least the present 121, got 100"):
        embedding.grow(mapping)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_weights_keep_the_ids_exact(dtype: torch.dtype) -> None:
    # Row offsets above 2048 are no float16 numbers: they must not be cast with the weights.
    mapping = MixedMapping(4_000_000, [2003, 2011])
    torch.manual_seed(0)
    embedding = LabelMappingEmbedding(mapping, WIDTH).to(dtype)
    ids = torch.tensor([2002, 3_999_999, 2**20 + 1])
    vectors = embedding(ids)
    assert vectors.dtype == dtype
    rows = embedding.weight.detach()
    expected = rows[ids % 2003].float() + rows[2003 + ids % 2011].float()
    torch.testing.assert_close(vectors.float(), expected, rtol=1e-2, atol=1e-2)


def test_gradients_by_finite_differences() -> None:
    embedding = new_embedding(EcocMapping(6), padding_idx=-1)
    ids = torch.tensor([[5, -1], [0, 3]])

    def embed(weight: Tensor) -> Tensor:
        return cast(Tensor, torch.func.functional_call(embedding, {"weight": weight}, (ids,)))

    assert torch.autograd.gradcheck(embed, embedding.weight.detach().requires_grad_())


def test_fresh_vectors_have_unit_variance_and_follow_the_seed() -> None:
    mapping = MixedMapping(7409, [107, 109, 113, 127, 131, 137])
    torch.manual_seed(0)
    first = LabelMappingEmbedding(mapping, 64)
    vectors = first(torch.arange(7409)).detach()
    # 724 x 64 independent weights: the standard error of the deviation is 0.3 %.
    assert vectors.std().item() == pytest.approx(1.0, abs=0.02)
    torch.manual_seed(0)
    assert torch.equal(LabelMappingEmbedding(mapping, 64).weight, first.weight)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="embedding_dim must be at least 1, got 0"):
        LabelMappingEmbedding(CODE, 0)
    with pytest.raises(ArgumentTypeError, match="embedding_dim must be an integer"):
        LabelMappingEmbedding(CODE, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="padding_idx must be an integer"):
        LabelMappingEmbedding(CODE, 3, padding_idx=0.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"mode must be one of .*got 'median'"):
        LabelMappingEmbedding(CODE, 3, mode="median")


def test_unchecked_ids_are_the_callers_business() -> None:
    embedding = LabelMappingEmbedding(CODE, WIDTH, check_ids=False)
    assert torch.equal(embedding(torch.tensor([1001])), embedding(torch.tensor([1001 - 1001])))
    assert not torch.equal(embedding(torch.tensor([1000])), embedding(torch.tensor([999])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_weight_has_the_dtype_and_device_asked_for(dtype: torch.dtype) -> None:
    embedding = LabelMappingEmbedding(CODE, WIDTH, dtype=dtype, device="meta")
    assert (embedding.weight.dtype, embedding.weight.device.type) == (dtype, "meta")
    embedding = embedding.to_empty(device="cpu")
    embedding.reset_parameters()
    ids = torch.arange(1000)
    assert embedding(ids).dtype == dtype
    expected = n_hot(CODE, ids) @ embedding.weight.detach().double()
    torch.testing.assert_close(embedding(ids).double(), expected, rtol=1e-2, atol=3e-2)


def test_buffers_that_a_loader_fills_with_anything_are_made_anew() -> None:
    # As transformers does: made on "meta", weights from a file, other buffers from memory.
    table = TableMapping(CODE.encode(np.arange(1000)))
    with torch.device("meta"):
        embedding = LabelMappingEmbedding(table, WIDTH, dtype=torch.float64)
    for module in embedding.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.full_like(buffer, 99, device="cpu"))
    saved = LabelMappingEmbedding(table, WIDTH, dtype=torch.float64)
    embedding.load_state_dict(saved.state_dict(), assign=True)
    ids = torch.arange(1000)
    assert torch.equal(embedding(ids), saved(ids))


def test_its_repr_is_one_line_as_that_of_an_embedding() -> None:
    assert repr(new_embedding()) == f"LabelMappingEmbedding(mapping={CODE!r}, embedding_dim=3)"
    bag = LabelMappingEmbedding(CODE, 3, padding_idx=-1, mode="max", sparse=True)
    assert repr(bag).endswith("embedding_dim=3, padding_idx=-1, mode='max', sparse=True)")
