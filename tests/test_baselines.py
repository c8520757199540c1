"""The rivals: negative sampling, the cut-off, and one-hot softmax as a code of one site."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import MixedMapping
from labelmapping.nn import CutoffHead, LabelMappingHead, NegativeSamplingHead

N = 20


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def hand_losses(
    head: NegativeSamplingHead, features: Tensor, target: Tensor, seed: int
) -> list[float]:
    """Each row's loss by the formula, term by term, from the draws that `seed` gives."""
    weight, bias, noise = head.output.weight, head.output.bias, head.noise
    logits = features.double() @ weight.double().T + bias.double()
    if head.log_q_correction:
        logits = logits - (head.n_negatives * noise.double()).log()
    torch.manual_seed(seed)
    draws = torch.multinomial(noise, len(target) * head.n_negatives, replacement=True)
    losses = []
    for scores, positive, negatives in zip(
        logits.tolist(), target.tolist(), draws.view(-1, head.n_negatives).tolist(), strict=True
    ):
        loss = -log_sigmoid(scores[positive])
        for negative in negatives:
            if head.log_q_correction or negative != positive:
                loss -= log_sigmoid(-scores[negative])
        losses.append(loss)
    return losses


@pytest.mark.parametrize("log_q_correction", [True, False])
@pytest.mark.parametrize("counts", [None, list(range(N))], ids=["uniform", "unigram"])
def test_negative_sampling_loss_equals_the_formula(
    log_q_correction: bool, counts: list[int] | None
) -> None:
    torch.manual_seed(0)
    head = NegativeSamplingHead(
        4, N, n_negatives=6, class_counts=counts, log_q_correction=log_q_correction
    )
    features, target = torch.randn(5, 4), torch.tensor([0, 19, 7, 7, 12])
    expected = hand_losses(head, features, target, seed=3)
    torch.manual_seed(3)
    output, loss = head(features, target)
    assert loss.item() == pytest.approx(sum(expected) / 5, rel=1e-5)
    logits = head.output(features).gather(1, target[:, None])[:, 0]
    if log_q_correction:
        logits = logits - (6 * head.noise[target]).log()
    torch.testing.assert_close(output, F.logsigmoid(logits))


def test_a_sampled_negative_that_is_the_target_counts_with_the_correction_only() -> None:
    # With one class every draw is the target.
    features, target = torch.ones(3, 4), torch.zeros(3, dtype=torch.int64)
    plain = NegativeSamplingHead(4, 1, n_negatives=5, log_q_correction=False)
    output, loss = plain(features, target)
    assert torch.equal(loss, -output.mean())
    corrected = NegativeSamplingHead(4, 1, n_negatives=5)
    output, loss = corrected(features, target)
    logit = corrected.output(features)[:, 0] - math.log(5)
    torch.testing.assert_close(loss, (-output - 5 * F.logsigmoid(-logit)).mean())


# How often each class follows a context, in 100 rows.
FLAT = [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 7, 7, 9, 9, 10, 10]
PEAKED = [*[1] * 19, 81]


def toy_counts(counts: list[int]) -> Tensor:
    """Three contexts with `counts` in different orders: (3, N)."""
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(N, generator=generator) for _ in range(3)]
    return torch.tensor(counts)[torch.stack(orders)]


def train_on(counts: Tensor, log_q_correction: bool) -> NegativeSamplingHead:
    """A linear model of the contexts, trained to convergence on all rows at once."""
    torch.manual_seed(0)
    contexts = torch.eye(3).repeat_interleave(100, dim=0)
    target = torch.cat([torch.arange(N).repeat_interleave(row) for row in counts])
    head = NegativeSamplingHead(
        3, N, class_counts=counts.sum(dim=0), log_q_correction=log_q_correction
    )
    steps = 600
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        head(contexts, target).loss.backward()
        optimizer.step()
        schedule.step()
    return head


@pytest.mark.parametrize("often", [FLAT, PEAKED], ids=["flat", "peaked"])
def test_negative_sampling_recovers_the_class_probabilities(often: list[int]) -> None:
    counts = toy_counts(often)
    truth = counts / 100
    (log_probs,) = train_on(counts, log_q_correction=True).site_log_probs(torch.eye(3))
    # For the sampling: the rare classes have one positive in 100 rows.
    assert (log_probs - truth.log()).abs().max().item() < 0.25
    assert (log_probs.exp() - truth).abs().sum(dim=1).max().item() / 2 < 0.03


@pytest.mark.parametrize("log_q_correction", [True, False])
def test_where_the_logits_of_negative_sampling_converge(log_q_correction: bool) -> None:
    counts = toy_counts(PEAKED)
    head = train_on(counts, log_q_correction)
    if log_q_correction:
        expected = (counts / 100).log()
    else:
        # sigmoid(logit) = p / (p + n q (1 - p)), with n negatives from the noise q.
        expected = torch.logit(counts / 100) - (head.n_negatives * head.noise).log()
    difference = head.output(torch.eye(3)) - expected
    # The log-probability of the common class is 1.66 away from its log-odds.
    assert difference.abs().max().item() < 0.25


def test_unseen_classes_keep_some_noise() -> None:
    counts = [0, 15, 0, 80]
    noise = NegativeSamplingHead(2, 4, class_counts=counts).noise
    shares = [(count + 1) ** 0.75 for count in counts]
    torch.testing.assert_close(noise, torch.tensor(shares) / sum(shares))
    assert bool((noise > 0).all())
    flat = NegativeSamplingHead(2, 4, class_counts=counts, power=0.0).noise
    assert flat.tolist() == [0.25] * 4
    assert NegativeSamplingHead(2, 4).noise.tolist() == [0.25] * 4


def test_with_the_correction_an_untrained_head_answers_with_the_noise() -> None:
    head = NegativeSamplingHead(2, 4, class_counts=[0, 15, 0, 80])
    nn.init.zeros_(head.output.weight)
    (log_probs,) = head.site_log_probs(torch.randn(3, 2))
    torch.testing.assert_close(log_probs, head.noise.log().expand(3, 4))
    # Target and noise are then told apart at the odds of 1 to n: no logit is far off.
    output, _ = head(torch.randn(3, 2), torch.tensor([0, 1, 3]))
    torch.testing.assert_close(output, torch.full((3,), -math.log(11.0)))


def test_negative_sampling_answers_over_all_classes() -> None:
    torch.manual_seed(0)
    head = NegativeSamplingHead(4, N)
    features = torch.randn(3, 4)
    (log_probs,) = head.site_log_probs(features)
    torch.testing.assert_close(log_probs, F.log_softmax(head.output(features), dim=-1))
    assert log_probs.shape == (3, N)


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
        NegativeSamplingHead(4, N, class_counts=counts)
    if len(counts) == N:
        assert f"class_counts[19] is {counts[19]}" in str(refusal.value)
    with pytest.raises(ArgumentError, match="class_counts must be"):
        CutoffHead(4, N, n_symbols=5, class_counts=counts)


@pytest.mark.parametrize("counts", [torch.arange(N), torch.arange(N).float(), range(N)], ids=str)
def test_counts_may_be_a_tensor_or_any_sequence(counts: Any) -> None:
    expected = (torch.arange(N, dtype=torch.float64) + 1) ** 0.75
    noise = NegativeSamplingHead(4, N, class_counts=counts).noise
    torch.testing.assert_close(noise, (expected / expected.sum()).float())


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


def both_heads() -> list[CutoffHead | NegativeSamplingHead]:
    return [cutoff_head(), NegativeSamplingHead(4, N)]


@pytest.mark.parametrize("head", both_heads(), ids=lambda h: type(h).__name__)
@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ([0, 20], ArgumentError, r"target must lie in 0\.\.19 .*0-based.*; target\[1\] is 20"),
        ([-1, 0], ArgumentError, r"target\[0\] is -1"),
        ([-100, 0], ArgumentError, r"target\[0\] is -100"),
        ([1.0, 2.0], ArgumentTypeError, "target must be integers, got torch.float32"),
    ],
    ids=str,
)
def test_bad_targets_are_refused_by_both(
    head: nn.Module, target: list[float], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        head(torch.zeros(2, 4), torch.tensor(target))


@pytest.mark.parametrize("head", both_heads(), ids=lambda h: type(h).__name__)
def test_both_give_float32_in_half_precision_and_gradients_to_every_weight(
    head: nn.Module,
) -> None:
    features, target = torch.randn(3, 4), torch.tensor([0, 19, 7])
    with torch.autocast("cpu", torch.bfloat16):
        output, loss = head(features, target)
    assert output.dtype == loss.dtype == torch.float32
    loss.backward()
    for parameter in head.parameters():
        assert parameter.grad is not None
        assert bool(torch.isfinite(parameter.grad).all())


@pytest.mark.parametrize("n_classes", [1, 2, 20])
def test_one_hot_is_a_linear_layer_with_cross_entropy(n_classes: int) -> None:
    torch.manual_seed(0)
    head = LabelMappingHead(4, MixedMapping.one_hot(n_classes))
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
