"""`LabelMappingEmbedding` with a mode, sparse, tied and compiled, against torch's dense modules."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import EcocMapping, LabelMapping, MixedMapping, TableMapping
from labelmapping.nn import LabelMappingEmbedding, LabelMappingHead

CODE = MixedMapping(60, [7, 11])
MAPPINGS = {
    "mixed": CODE,
    "binary": EcocMapping(60),
    "table": TableMapping(
        np.stack([np.arange(60) % 8, np.arange(60) // 8, np.arange(60) ** 2 % 9], axis=1)
    ),
}
WIDTH = 4
PAD = -1
MODES = ["sum", "mean", "max"]


def new_bag(
    mode: str | None, mapping: LabelMapping = CODE, **options: Any
) -> LabelMappingEmbedding:
    torch.manual_seed(0)
    options = {"padding_idx": PAD, "dtype": torch.float64, **options}
    return LabelMappingEmbedding(mapping, WIDTH, mode=mode, **options)


def dense_bag(
    bag: LabelMappingEmbedding,
    ids: Tensor,
    offsets: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """EmbeddingBag over all classes' vectors and a last row for padding, and the weight below it.

    The vectors are gathered from a copy of the weight by numpy's codewords.
    """
    weight = bag.weight.detach().clone().requires_grad_()
    starts = np.cumsum([0, *bag.mapping.alphabet_sizes[:-1]])
    rows = torch.from_numpy(bag.mapping.encode(np.arange(bag.mapping.n_classes)) + starts)
    table = torch.cat([weight[rows].sum(dim=1), weight.new_zeros(1, WIDTH)])
    n_classes = bag.mapping.n_classes
    pooled = F.embedding_bag(
        torch.where(ids == PAD, n_classes, ids),
        table,
        offsets,
        mode=bag.mode or "sum",
        padding_idx=n_classes,
        per_sample_weights=weights,
    )
    return pooled, weight


def assert_equal_with_gradients(
    found: Tensor, bag: LabelMappingEmbedding, expected: Tensor, weight: Tensor
) -> None:
    torch.testing.assert_close(found, expected)
    factors = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).double()
    torch.autograd.backward((found * factors).sum())
    torch.autograd.backward((expected * factors).sum())
    assert bag.weight.grad is not None
    assert bag.weight.grad.is_sparse == bag.sparse
    torch.testing.assert_close(bag.weight.grad.to_dense(), weight.grad)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Bags of any length, in a row, with padding and repeated ids: ids (M,) and offsets (B,)."""
    ids = st.one_of(st.just(PAD), st.integers(0, 59), st.integers(0, 2))
    bags = draw(st.lists(st.lists(ids, max_size=5), min_size=1, max_size=6))
    ends = np.cumsum([0, *map(len, bags)])
    return torch.tensor([x for bag in bags for x in bag]).long(), torch.from_numpy(ends[:-1])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", MAPPINGS)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25, deadline=None)
@given(bags=runs())
def test_runs_pool_as_an_embedding_bag_of_all_classes(
    mode: str, name: str, sparse: bool, bags: tuple[Tensor, Tensor]
) -> None:
    bag = new_bag(mode, MAPPINGS[name], sparse=sparse)
    expected, weight = dense_bag(bag, *bags)
    assert_equal_with_gradients(bag(*bags), bag, expected, weight)


@pytest.mark.parametrize("padding_idx", [None, PAD, 3])
@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (4,), (3, 1), (0, 3)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_rows_of_ids_are_bags(mode: str, shape: tuple[int, ...], padding_idx: int | None) -> None:
    bag = new_bag(mode, padding_idx=padding_idx)
    ids = torch.randint(5, shape, generator=torch.Generator().manual_seed(3))
    plain = ids if padding_idx is None else torch.where(ids == padding_idx, PAD, ids)
    expected, weight = dense_bag(bag, plain.reshape(-1, shape[-1]))
    if padding_idx == PAD:
        ids = torch.where(ids == 3, PAD, ids)
        expected, weight = dense_bag(bag, ids.reshape(-1, shape[-1]))
    found = bag(ids)
    assert found.shape == (*shape[:-1], WIDTH)
    assert_equal_with_gradients(found.reshape(-1, WIDTH), bag, expected, weight)


@pytest.mark.parametrize("mode", MODES)
def test_empty_bags_are_zeros_without_gradient(mode: str) -> None:
    bag = new_bag(mode)
    for empty in (bag(torch.zeros(2, 0).long()), bag(torch.tensor([[PAD, PAD], [PAD, PAD]]))):
        assert torch.equal(empty, torch.zeros(2, WIDTH).double())
    nothing = torch.zeros(0, dtype=torch.int64)
    assert bag(nothing, nothing).shape == (0, WIDTH)
    assert torch.equal(bag(nothing, torch.tensor([0, 0])), torch.zeros(2, WIDTH).double())
    # The norm of zeros has the gradient NaN: it must not come through.
    vectors = bag(torch.tensor([[PAD, PAD], [4, PAD]]))
    (vectors / vectors.pow(2).sum(dim=1, keepdim=True).sqrt()).nansum().backward()
    assert bag.weight.grad is not None
    assert bool(torch.isfinite(bag.weight.grad).all())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("with_offsets", [False, True])
def test_sums_may_be_weighted(with_offsets: bool, sparse: bool) -> None:
    bag = new_bag("sum", sparse=sparse)
    ids = torch.tensor([[3, PAD, 3], [59, 0, 8]])
    offsets = torch.tensor([0, 2, 2, 5]) if with_offsets else None
    if with_offsets:
        ids = ids.flatten()
    ours, theirs = (
        torch.randn(ids.shape, generator=torch.Generator().manual_seed(5)).double().requires_grad_()
        for _ in range(2)
    )
    expected, weight = dense_bag(bag, ids, offsets, theirs)
    assert_equal_with_gradients(bag(ids, offsets, ours), bag, expected, weight)
    torch.testing.assert_close(ours.grad, theirs.grad)
    # A number at padding does not count, whatever it is.
    with torch.no_grad():
        broken = torch.where(ids == PAD, torch.nan, ours)
        torch.testing.assert_close(bag(ids, offsets, broken), expected)
        assert bag(ids, offsets, ours.float()).dtype == torch.float64


def test_offsets_of_any_integer_type() -> None:
    bag = new_bag("max")
    ids, offsets = torch.tensor([3, 4, 5]), torch.tensor([0, 1])
    for dtype in (torch.int32, torch.uint8):
        assert torch.equal(bag(ids.to(dtype), offsets.to(dtype)), bag(ids, offsets))


@pytest.mark.parametrize(
    ("mode", "offsets", "weights", "message"),
    [
        (None, [0], None, "offsets must be given with a mode only"),
        ("mean", None, [1.0, 1.0, 1.0], "with mode \"sum\" only, got mode 'mean'"),
        (None, None, [1.0, 1.0, 1.0], 'with mode "sum" only, got mode None'),
        ("sum", None, [1.0], r"per_sample_weights must have shape \(3,\), got \(1,\)"),
        ("sum", [1, 2], None, r"offsets must ascend from 0 to 3 at most, got \[1, 2\]"),
        ("sum", [0, 2, 1], None, r"from 0 to 3 at most, got \[0, 2, 1\]"),
        ("sum", [0, 4], None, r"from 0 to 3 at most, got \[0, 4\]"),
        ("sum", [], None, r"from 0 to 3 at most, got \[\]"),
        ("sum", [[0]], None, r"one dimension each, got shapes \(3,\) and \(1, 1\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    mode: str | None, offsets: list[int] | None, weights: list[float] | None, message: str
) -> None:
    starts = None if offsets is None else torch.tensor(offsets).long()
    factors = None if weights is None else torch.tensor(weights)
    with pytest.raises(ArgumentError, match=message):
        new_bag(mode)(torch.tensor([1, 2, 3]), starts, factors)


def test_a_bag_has_a_dimension_and_integer_offsets() -> None:
    with pytest.raises(ArgumentError, match=r"input must have shape \(\.\.\., L\) with a mode"):
        new_bag("sum")(torch.tensor(1))
    with pytest.raises(ArgumentTypeError, match=r"offsets must be integers, got torch\.float32"):
        new_bag("sum")(torch.tensor([1]), torch.tensor([0.0]))
    with pytest.raises(ArgumentError, match=r"input\[2\] is 60$"):
        new_bag("sum")(torch.tensor([1, PAD, 60]), torch.tensor([0]))


@pytest.mark.parametrize("mode", [None, "sum", "max"])
def test_sparse_gradients_train_with_sparse_adam_and_leave_padding_alone(mode: str | None) -> None:
    bags = [new_bag(mode, sparse=sparse) for sparse in (True, False)]
    ids = torch.tensor([[3, PAD], [3, 14]])
    target = torch.ones(bags[0](ids).shape).double()
    for bag in bags:
        torch.autograd.backward(F.mse_loss(bag(ids), target))
    sparse, dense = (bag.weight.grad for bag in bags)
    assert sparse is not None
    assert sparse.is_sparse
    torch.testing.assert_close(sparse.to_dense(), dense)
    # Rows of class 0, which stands in for padding, are not even listed: the symbols of 3 and
    # 14 are 3 and 0 of 7, 3 and 3 of 11.
    assert sparse.coalesce().indices().tolist() == [[0, 3, 7 + 3]]
    optimizer = torch.optim.SparseAdam(bags[0].parameters(), lr=0.1)
    before = F.mse_loss(bags[0](ids), target).item()
    for _ in range(20):
        optimizer.zero_grad()
        torch.autograd.backward(F.mse_loss(bags[0](ids), target))
        optimizer.step()  # type: ignore[no-untyped-call]
    assert F.mse_loss(bags[0](ids), target).item() < before


def test_a_tied_embedding_and_head_share_one_parameter_whose_gradients_add_up() -> None:
    torch.manual_seed(0)
    head = LabelMappingHead(WIDTH, CODE, bias=False, dtype=torch.float64)
    drawn = head.output.weight.detach().clone()
    embedding = LabelMappingEmbedding(CODE, WIDTH, tied_to=head)
    network = nn.ModuleDict({"embedding": embedding, "head": head})
    assert torch.equal(embedding.weight, drawn)
    assert sum(p.numel() for p in network.parameters()) == WIDTH * (7 + 11)
    ids, target = torch.tensor([5, 59]), torch.tensor([6, 0])

    def gradient(vectors: Tensor) -> Tensor:
        network.zero_grad()
        head(vectors, target).loss.backward()
        assert head.output.weight.grad is not None
        return head.output.weight.grad.clone()

    vectors = embedding(ids).detach().requires_grad_()
    of_the_head = gradient(vectors)
    of_both = gradient(embedding(ids))
    network.zero_grad()
    embedding(ids).backward(vectors.grad)
    torch.testing.assert_close(embedding.weight.grad, of_both - of_the_head)
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    assert embedding.weight is head.output.weight
    assert not torch.equal(embedding.weight, drawn)
    assert embedding.bfloat16()(ids).dtype == head.output.weight.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("head", "width", "options", "message"),
    [
        (lambda: LabelMappingHead(8, CODE), WIDTH, {}, "head's last layer, 8, to be tied .* got 4"),
        (lambda: LabelMappingHead(8, CODE, hidden=6), 8, {}, "head's last layer, 6, .* got 8"),
        (lambda: LabelMappingHead(8, MixedMapping(60, [11, 7])), 8, {}, "same mapping.*11, 7"),
        (lambda: LabelMappingHead(8, CODE, sites=[1]), 8, {}, r"got one of sites \[1\]"),
        (lambda: LabelMappingHead(8, CODE, sites=[1, 0]), 8, {}, r"got one of sites \[1, 0\]"),
        (
            lambda: LabelMappingHead(8, CODE),
            8,
            {"dtype": torch.float64},
            r"left out with tied_to: the weight is the head's, torch\.float32 on cpu",
        ),
    ],
    ids=["width", "hidden", "mapping", "sites", "order", "dtype"],
)
def test_heads_that_cannot_be_tied_are_refused(
    head: Callable[[], LabelMappingHead], width: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        LabelMappingEmbedding(CODE, width, tied_to=head(), **options)


def test_a_hidden_layer_is_no_hindrance_to_tying_and_the_pair_grows() -> None:
    head = LabelMappingHead(8, CODE, hidden=WIDTH)
    embedding = LabelMappingEmbedding(CODE, WIDTH, tied_to=head)
    for module in (head, embedding):
        module.grow(77)
    head(torch.zeros(1, 8), torch.tensor([76]))
    assert embedding.weight is head.output.weight
    assert embedding(torch.tensor([76])).shape == (1, WIDTH)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The numbers of elements of all tensors that operators give."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        self.sizes += [x.numel() for x in tree_leaves(found) if isinstance(x, Tensor)]
        return found


@pytest.mark.parametrize("mode", [None, "mean"])
def test_nothing_as_long_as_the_classes_is_made_in_a_step(mode: str | None) -> None:
    n_classes = 5000
    codewords = np.stack([np.arange(n_classes) % 101, np.arange(n_classes) // 101], axis=1)
    embedding = new_bag(mode, TableMapping(codewords))
    tables = {x.data_ptr() for x in embedding.buffers() if x.numel() == n_classes}
    assert len(tables) == 2
    with Recorder() as seen:
        embedding(torch.tensor([[4, 4999]])).sum().backward()
    assert seen.sizes
    assert max(seen.sizes) < n_classes


@pytest.mark.parametrize(("mode", "name"), [(None, "binary"), ("mean", "mixed"), ("max", "table")])
def test_it_compiles_as_one_graph(mode: str | None, name: str) -> None:
    torch.compiler.reset()
    bag = new_bag(mode, MAPPINGS[name])
    compiled = torch.compile(bag, fullgraph=True, backend="aot_eager", dynamic=True)
    for ids in (torch.tensor([[3, PAD, 3], [59, 0, 8]]), torch.tensor([[PAD] * 2] * 5)):
        cases = [(ids,)] if mode is None else [(ids,), (ids.flatten(), torch.tensor([0, 2, 2]))]
        for case in cases:
            bag.zero_grad()
            expected = bag(*case)
            expected.cos().sum().backward()
            gradient = bag.weight.grad
            bag.zero_grad()
            found = compiled(*case)
            found.cos().sum().backward()
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(bag.weight.grad, gradient)
    with pytest.raises(ArgumentError, match=r"input\[0, 1\] is 60$"):
        compiled(torch.tensor([[1, 60]]))
    if mode is not None:
        with pytest.raises(ArgumentError, match="offsets must ascend from 0"):
            compiled(torch.tensor([1, 2]), torch.tensor([1]))
