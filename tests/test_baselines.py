"""The cut-off and the adaptive softmax, and one-hot softmax as a code of one site."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import MixedMapping
from labelmapping.nn import (
    AdaptiveSoftmaxHead,
    CutoffHead,
    HuffmanHead,
    LabelMappingHead,
    OneHotHead,
    TwoLevelHead,
)

N = 20


@pytest.mark.parametrize(
    "counts",
    [
        [1.0] * 19,
        [1.0] * 21,
        [],
        [[1.0] * 20],
        [1.0] * 19 + [-1.0],
        [1.0] * 19 + [math.nan],
        [1.0] * 19 + [math.inf],
    ],
    ids=["short", "long", "empty", "matrix", "negative", "nan", "inf"],
)
def test_wrong_counts_are_refused(counts: Any) -> None:
    with pytest.raises(ArgumentError, match="class_counts must be") as refusal:
        CutoffHead(4, N, n_symbols=5, class_counts=counts)
    if len(counts) == N:
        assert f"class_counts[19] is {counts[19]}" in str(refusal.value)
    for head in (AdaptiveSoftmaxHead, HuffmanHead, TwoLevelHead):
        with pytest.raises(ArgumentError, match="class_counts must be"):
            head(16, N, class_counts=counts)


def cutoff_head(n_symbols: int = 5, counts: Any = None) -> CutoffHead:
    torch.manual_seed(0)
    falling = list(range(2 * N, N, -1)) if counts is None else counts
    return CutoffHead(4, N, n_symbols=n_symbols, class_counts=falling)


@pytest.mark.parametrize("n_symbols", [2, 5, N])
def test_cutoff_log_probs_spread_the_last_symbol_by_frequency(n_symbols: int) -> None:
    counts = [400, 200, 100, 50, 30, *[7] * 10, 3, 2, 1, 0, 0]
    head = cutoff_head(n_symbols, counts)
    features = torch.randn(6, 4)
    (log_probs,) = head.site_log_probs(features)
    probs = F.softmax(head.output(features), dim=-1)
    assert log_probs.shape == (6, N)
    torch.testing.assert_close(log_probs.exp().sum(dim=1), torch.ones(6))
    torch.testing.assert_close(log_probs[:, : n_symbols - 1].exp(), probs[:, :-1])
    rest = torch.tensor(counts[n_symbols - 1 :]) + 1
    torch.testing.assert_close(
        log_probs[:, n_symbols - 1 :].exp(), probs[:, -1:] * rest / rest.sum()
    )
    assert bool(torch.isfinite(log_probs).all())


def test_cutoff_loss_is_cross_entropy_on_clamped_ids() -> None:
    head = cutoff_head()
    features, target = torch.randn(6, 4), torch.tensor([0, 3, 4, 5, 18, 19])
    output, loss = head(features, target)
    logits = head.output(features)
    assert logits.shape == (6, 5)
    symbols = torch.tensor([0, 3, 4, 4, 4, 4])
    torch.testing.assert_close(loss, F.cross_entropy(logits, symbols))
    torch.testing.assert_close(output, -F.cross_entropy(logits, symbols, reduction="none"))
    assert torch.equal(head(features, target.to(torch.uint8)).loss, loss)


def test_a_cutoff_at_all_classes_is_one_hot() -> None:
    head = cutoff_head(N)
    features, target = torch.randn(N, 4), torch.arange(N)
    logits = head.output(features)
    torch.testing.assert_close(head(features, target).loss, F.cross_entropy(logits, target))
    torch.testing.assert_close(head.site_log_probs(features)[0], F.log_softmax(logits, dim=-1))


def test_cutoff_limits_are_refused() -> None:
    with pytest.raises(ArgumentError, match="n_symbols must be at least 2, got 1"):
        cutoff_head(1)
    with pytest.raises(ArgumentError, match="n_symbols must be at most n_classes, 20; got 21"):
        cutoff_head(N + 1)
    with pytest.raises(ArgumentTypeError, match="n_symbols must be an integer"):
        cutoff_head(5.0)  # type: ignore[arg-type]


ADAPTIVE: list[dict[str, Any]] = [
    {},
    {"cutoffs": [1]},
    {"cutoffs": [4, 19], "div_value": 2.0},
    {"cutoffs": [3, 7, 12], "div_value": 1.5, "bias": False},
]


@pytest.mark.parametrize("options", ADAPTIVE, ids=str)
def test_adaptive_softmax_is_that_of_torch(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    head = AdaptiveSoftmaxHead(16, N, **options)
    assert head.output.cutoffs == [*options.get("cutoffs", [1, 5]), N]
    features, target = torch.randn(30, 16), torch.arange(30) % N
    output, loss = head(features, target)
    expected = head.output(features, target)
    torch.testing.assert_close(output, expected.output)
    torch.testing.assert_close(loss, expected.loss)
    parameters = list(head.parameters())
    for found, true in zip(
        torch.autograd.grad(loss, parameters),
        torch.autograd.grad(expected.loss, parameters),
        strict=True,
    ):
        torch.testing.assert_close(found, true)
    torch.testing.assert_close(head.log_prob(features), head.output.log_prob(features))
    assert torch.equal(head.predict(features), head.output.predict(features))


def test_class_counts_put_the_frequent_classes_first() -> None:
    torch.manual_seed(0)
    counts = [(7 * i) % N for i in range(N)]
    head = AdaptiveSoftmaxHead(16, N, class_counts=counts)
    by_frequency = sorted(range(N), key=lambda i: (-counts[i], i))
    features, places = torch.randn(N, 16), torch.arange(N)
    expected = head.output(features, places)
    output, loss = head(features, torch.tensor(by_frequency))
    torch.testing.assert_close(output, expected.output)
    torch.testing.assert_close(loss, expected.loss)
    torch.testing.assert_close(
        head.log_prob(features)[:, by_frequency], head.output.log_prob(features)
    )


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_adaptive_softmax_of_few_classes_has_one_cluster_beside_the_first(n_classes: int) -> None:
    head = AdaptiveSoftmaxHead(4, n_classes)
    assert head.output.cutoffs == [1, n_classes]
    features = torch.randn(3, 4)
    torch.testing.assert_close(head.log_prob(features).exp().sum(dim=1), torch.ones(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cutoffs": [5, 3]}, r"cutoffs must ascend and lie in 1\.\.19, got \[5, 3\]"),
        ({"cutoffs": [5, 5]}, "cutoffs must ascend"),
        ({"cutoffs": [5, 20]}, "cutoffs must ascend"),
        ({"cutoffs": [0, 5]}, r"cutoffs\[0\] must be at least 1, got 0"),
        ({"cutoffs": []}, "cutoffs must"),
        ({"div_value": 0.0}, "div_value must be positive, got 0.0"),
        ({"div_value": 5.0}, "div_value must be at most 4, so that the last of 2 clusters"),
    ],
    ids=str,
)
def test_cutoffs_and_widths_that_cannot_be_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        AdaptiveSoftmaxHead(16, N, **options)


@pytest.mark.parametrize("make", [LabelMappingHead, OneHotHead])
@pytest.mark.parametrize("n_classes", [1, 2, 20])
def test_one_hot_is_a_linear_layer_with_cross_entropy(make: Any, n_classes: int) -> None:
    torch.manual_seed(0)
    head = make(4, MixedMapping.one_hot(n_classes))
    torch.manual_seed(0)
    plain = nn.Linear(4, max(2, n_classes))
    features = torch.randn(6, 4)
    target = torch.arange(6) % n_classes
    loss, expected = head(features, target).loss, F.cross_entropy(plain(features), target)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    torch.autograd.backward(expected)
    torch.testing.assert_close(head.output.weight.grad, plain.weight.grad)
    torch.testing.assert_close(head.output.bias.grad, plain.bias.grad)
    (log_probs,) = head.site_log_probs(features)
    torch.testing.assert_close(log_probs, F.log_softmax(plain(features), dim=-1))
