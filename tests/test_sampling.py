"""Negative sampling: noise, both objectives by their formulas, and what they converge to."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelmapping.errors import ArgumentError
from labelmapping.nn import NegativeSamplingHead, sampling

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


# Noise that draws nothing but the last class of four.
LAST = {"class_counts": [0, 0, 0, 1e30], "power": 1.0}


@pytest.mark.parametrize("objective", ["logistic", "softmax"])
def test_a_draw_of_the_target_counts_with_the_correction_only(objective: str) -> None:
    torch.manual_seed(0)
    features, target = torch.randn(3, 4), torch.full((3,), 3)
    options: dict[str, Any] = {"n_negatives": 5, "objective": objective, **LAST}
    plain = NegativeSamplingHead(4, 4, log_q_correction=False, **options)
    output, loss = plain(features, target)
    assert torch.equal(loss, -output.mean())
    corrected = NegativeSamplingHead(4, 4, **options)
    output, loss = corrected(features, target)
    logit = corrected.output(features)[:, 3] - math.log(5)
    if objective == "logistic":
        torch.testing.assert_close(loss, (-output - 5 * F.logsigmoid(-logit)).mean())
    else:
        assert plain(features, target).loss.item() == 0.0  # against nothing
        torch.testing.assert_close(loss.item(), math.log(6))  # against itself five times


@pytest.mark.parametrize("log_q_correction", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_sampled_softmax_equals_the_formula(log_q_correction: bool, bias: bool) -> None:
    torch.manual_seed(0)
    head = NegativeSamplingHead(
        4,
        N,
        n_negatives=6,
        class_counts=range(N),
        log_q_correction=log_q_correction,
        objective="softmax",
        bias=bias,
    )
    features, target = torch.randn(5, 4), torch.tensor([0, 19, 7, 7, 12])
    torch.manual_seed(3)
    (drawn,) = head.draw(1).tolist()  # the same for all rows
    scores = head.output(features).double()
    if log_q_correction:
        scores = scores - (6 * head.noise.double()).log()
    expected = []
    for row, positive in zip(scores.tolist(), target.tolist(), strict=True):
        negatives = [c for c in drawn if log_q_correction or c != positive]
        total = sum(math.exp(row[c]) for c in (positive, *negatives))
        expected.append(row[positive] - math.log(total))
    torch.manual_seed(3)
    output, loss = head(features, target)
    torch.testing.assert_close(output, torch.tensor(expected))
    torch.testing.assert_close(loss, -output.mean())


def test_the_gradient_of_sampled_softmax_tends_to_the_full_one() -> None:
    torch.manual_seed(0)
    head = NegativeSamplingHead(
        4, N, n_negatives=100_000, class_counts=range(N), objective="softmax"
    )
    # Rows that are sure of their target as well as others.
    features = torch.randn(8, 4) * torch.tensor([0.5, 4.0]).repeat(4)[:, None]
    target = head.output(features).argmax(dim=1)
    sampled = torch.autograd.grad(head(features, target).loss, list(head.parameters()))
    full = torch.autograd.grad(
        F.cross_entropy(head.output(features), target), list(head.parameters())
    )
    for found, expected in zip(sampled, full, strict=True):
        torch.testing.assert_close(found, expected, atol=0.005, rtol=0.0)


# How often each class follows a context, in 100 rows.
FLAT = [1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6, 7, 7, 9, 9, 10, 10]
PEAKED = [*[1] * 19, 81]


def toy_counts(counts: list[int]) -> Tensor:
    """Three contexts with `counts` in different orders: (3, N)."""
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(N, generator=generator) for _ in range(3)]
    return torch.tensor(counts)[torch.stack(orders)]


def train_on(counts: Tensor, **options: Any) -> NegativeSamplingHead:
    """A linear model of the contexts, trained to convergence on all rows at once."""
    torch.manual_seed(0)
    contexts = torch.eye(3).repeat_interleave(100, dim=0)
    target = torch.cat([torch.arange(N).repeat_interleave(row) for row in counts])
    head = NegativeSamplingHead(3, N, class_counts=counts.sum(dim=0), **options)
    steps = 600
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        head(contexts, target).loss.backward()
        optimizer.step()
        schedule.step()
    return head


# All rows share the draws of the softmax: it takes more of them for as little noise.
@pytest.mark.parametrize(("objective", "n_negatives"), [("logistic", 10), ("softmax", 150)])
@pytest.mark.parametrize("often", [FLAT, PEAKED], ids=["flat", "peaked"])
def test_both_objectives_recover_the_class_probabilities(
    often: list[int], objective: str, n_negatives: int
) -> None:
    counts = toy_counts(often)
    truth = counts / 100
    head = train_on(counts, objective=objective, n_negatives=n_negatives)
    (log_probs,) = head.site_log_probs(torch.eye(3))
    # For the sampling: the rare classes have one positive in 100 rows.
    assert (log_probs - truth.log()).abs().max().item() < 0.25
    assert (log_probs.exp() - truth).abs().sum(dim=1).max().item() / 2 < 0.03


@pytest.mark.parametrize("log_q_correction", [True, False])
def test_where_the_logits_of_negative_sampling_converge(log_q_correction: bool) -> None:
    counts = toy_counts(PEAKED)
    head = train_on(counts, log_q_correction=log_q_correction)
    if log_q_correction:
        expected = (counts / 100).log()
    else:
        # sigmoid(logit) = p / (p + n q (1 - p)), with n negatives from the noise q.
        expected = torch.logit(counts / 100) - (head.n_negatives * head.noise).log()
    difference = head.output(torch.eye(3)) - expected
    # The log-probability of the common class is 1.66 away from its log-odds.
    assert difference.abs().max().item() < 0.25


def test_log_uniform_noise_is_its_formula() -> None:
    noise = NegativeSamplingHead(2, 3, noise="log-uniform").noise
    expected = [math.log((i + 2) / (i + 1)) / math.log(4) for i in range(3)]
    torch.testing.assert_close(noise, torch.tensor(expected))
    large = NegativeSamplingHead(1, 10**5, noise="log-uniform").noise
    assert large.double().sum().item() == pytest.approx(1, abs=1e-6)
    assert bool((large.diff() < 0).all())


@pytest.mark.parametrize("largest", [sampling.LARGEST_MULTINOMIAL, 1], ids=["torch", "search"])
@pytest.mark.parametrize(
    "options",
    [{}, {"noise": "log-uniform"}, {"class_counts": [(7 * i) % N for i in range(N)]}],
    ids=["uniform", "log-uniform", "frequency"],
)
def test_draws_follow_the_noise(
    options: dict[str, Any], largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "LARGEST_MULTINOMIAL", largest)
    torch.manual_seed(0)
    head = NegativeSamplingHead(2, N, n_negatives=40, **options)
    draws = head.draw(1000)
    assert draws.shape == (1000, 40)
    assert draws.dtype == torch.int64
    assert head.draw(0).shape == (0, 40)
    expected = head.noise.double() * draws.numel()
    counts = torch.bincount(draws.flatten(), minlength=N)
    # Chi-square with 19 degrees of freedom passes 43.8 once in a thousand.
    assert ((counts - expected) ** 2 / expected).sum().item() < 43.8
    if options == {}:
        return
    # The noise is saved, and a head that was made with another one draws from it.
    other = NegativeSamplingHead(2, N, n_negatives=40)
    other.load_state_dict(head.state_dict())
    torch.manual_seed(1)
    drawn = head.draw(100)
    torch.manual_seed(1)
    assert torch.equal(other.draw(100), drawn)


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


@pytest.mark.parametrize("counts", [torch.arange(N), torch.arange(N).float(), range(N)], ids=str)
def test_counts_may_be_a_tensor_or_any_sequence(counts: Any) -> None:
    expected = (torch.arange(N, dtype=torch.float64) + 1) ** 0.75
    noise = NegativeSamplingHead(4, N, class_counts=counts).noise
    torch.testing.assert_close(noise, (expected / expected.sum()).float())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "zipf"}, "noise must be one of uniform, log-uniform, frequency"),
        ({"noise": "frequency"}, 'noise is "frequency" and class_counts are missing'),
        ({"noise": "uniform", "class_counts": [1] * N}, "class_counts are given"),
        ({"objective": "hinge"}, "objective must be one of logistic, softmax"),
        ({"n_negatives": 0}, "n_negatives must be at least 1, got 0"),
        ({"power": -1.0, "class_counts": [1] * N}, "power must be finite and at least 0, got -1"),
        ({"power": math.nan}, "power must be finite and at least 0, got nan"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        NegativeSamplingHead(4, N, **options)
