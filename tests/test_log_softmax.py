"""The log-softmax over many entries: its sums, its gradients, its edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch

from labelmapping.nn import (
    AdaptiveSoftmaxHead,
    ClassHead,
    HuffmanHead,
    NegativeSamplingHead,
    OneHotHead,
    TwoLevelHead,
)
from labelmapping.nn.log_softmax import LONG, _LongLogSoftmax, log_softmax


@pytest.mark.parametrize("spread", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("size", [LONG, LONG + 1, 1_000_000])
def test_N60_probabilities_sum_to_one_at_any_length(size: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(2, size, generator=generator) * spread + torch.tensor([[0], [80]])
    found = log_softmax(logits)
    sums = found.double().exp().sum(dim=1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)
    torch.testing.assert_close(
        found.double(), logits.double().log_softmax(dim=1), rtol=2.5e-7, atol=5e-7
    )


@pytest.mark.parametrize(
    "make",
    [
        partial(OneHotHead, 16),
        partial(NegativeSamplingHead, 16, class_counts=torch.ones(300_000)),
        partial(AdaptiveSoftmaxHead, 16),
        partial(HuffmanHead, 16, class_counts=torch.ones(300_000)),
        partial(TwoLevelHead, 16),
    ],
    ids=["one-hot", "negative sampling", "adaptive", "Huffman", "two levels"],
)
def test_N60_rivals_sum_to_one_as_well(make: Callable[[int], ClassHead]) -> None:
    torch.manual_seed(0)
    head = make(300_000)
    with torch.no_grad():
        sums = head.log_prob(3 * torch.randn(4, 16)).double().exp().sum(dim=1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler's own making
def test_N60_compiled_probabilities_sum_to_one_and_have_the_same_gradients() -> None:
    torch.manual_seed(0)
    logits = 3 * torch.randn(2, 200_000) + torch.tensor([[0], [80]])
    mine, theirs = logits.clone().requires_grad_(), logits.double().requires_grad_()
    found = torch.compile(log_softmax, fullgraph=True)(mine)
    sums = found.detach().double().exp().sum(dim=1)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-6)
    torch.autograd.backward(found[:, 5].sum())
    torch.autograd.backward(theirs.log_softmax(dim=1)[:, 5].sum())
    assert mine.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-5, atol=1e-9)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
def test_gradients_are_those_of_the_definition() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(_LongLogSoftmax.apply, logits, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(_LongLogSoftmax.apply, logits)


def test_torch_func_takes_it() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, LONG + 1)

    def first(row: torch.Tensor) -> torch.Tensor:
        return log_softmax(row)[0]

    found = torch.func.vmap(torch.func.grad(first))(logits)
    expected = -logits.softmax(dim=1)
    expected[:, 0] += 1
    torch.testing.assert_close(found, expected)


def test_gradients_are_those_of_torch() -> None:
    torch.manual_seed(0)
    mine = torch.randn(2, 10_000).requires_grad_()
    theirs = mine.detach().double().requires_grad_()
    weights = torch.rand(2, 10_000)
    torch.autograd.backward((log_softmax(mine) * weights).sum())
    torch.autograd.backward((theirs.log_softmax(dim=1) * weights).sum())
    assert mine.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [LONG, LONG + 1])
def test_edges_are_those_of_torch(size: int) -> None:
    logits = torch.zeros(5, size)
    logits[0, 3] = -math.inf
    logits[1] = -math.inf
    logits[2] = -math.inf
    logits[2, 7] = 5
    logits[3, 7] = math.nan
    logits[4, 7] = math.inf
    torch.testing.assert_close(log_softmax(logits), logits.log_softmax(dim=1), equal_nan=True)
    assert log_softmax(logits[:0]).shape == (0, size)
    assert log_softmax(logits.half()).dtype == torch.float32
    assert log_softmax(logits[0]).shape == (size,)
