"""One interface for every head: a code's and its rivals' are swapped by one word."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from labelmapping import EcocMapping, HashedMapping, SimplexMapping
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import MixedMapping
from labelmapping.nn import (
    AdaptiveSoftmaxHead,
    ClassHead,
    CutoffHead,
    HuffmanHead,
    LabelMappingHead,
    MachHead,
    NegativeSamplingHead,
    OneHotHead,
    TwoLevelHead,
)

D, N = 16, 30
FALLING = list(range(N, 0, -1))
Make = Callable[..., ClassHead]


def mixed_counts(n_classes: int) -> list[int]:
    return [(7 * i) % n_classes for i in range(n_classes)]


def simplex(**options: Any) -> ClassHead:
    return LabelMappingHead(D, SimplexMapping(N, 3, field_order=7), **options)


def by_class(**options: Any) -> ClassHead:
    mapping = MixedMapping(N, [7, 11, 13])
    return LabelMappingHead(D, mapping, normalization="class", **options)


def ecoc(**options: Any) -> ClassHead:
    return LabelMappingHead(D, EcocMapping(N), **options)


def mach(seed: int = 0, **options: Any) -> ClassHead:
    return MachHead(D, HashedMapping(N, 4, 8, seed=seed), **options)


def one_hot(n_classes: Any = N, **options: Any) -> ClassHead:
    return OneHotHead(D, n_classes, **options)


def logistic(n_classes: Any = N, **options: Any) -> ClassHead:
    return NegativeSamplingHead(D, n_classes, **options)


def sampled_softmax(n_classes: Any = N, **options: Any) -> ClassHead:
    return NegativeSamplingHead(D, n_classes, objective="softmax", **options)


def huffman(n_classes: Any = N, **options: Any) -> ClassHead:
    return HuffmanHead(D, n_classes, **options)


def two_level(n_classes: Any = N, **options: Any) -> ClassHead:
    return TwoLevelHead(D, n_classes, **options)


def adaptive(n_classes: Any = N, **options: Any) -> ClassHead:
    return AdaptiveSoftmaxHead(D, n_classes, **options)


def cutoff(n_classes: Any = N, **options: Any) -> ClassHead:
    counts = FALLING if n_classes != N + 1 else [*FALLING, 0]
    return CutoffHead(D, n_classes, n_symbols=5, class_counts=counts, **options)


CODES: list[Make] = [simplex, by_class, ecoc, mach]
WITHOUT_A_CODE: list[Make] = [
    one_hot,
    logistic,
    sampled_softmax,
    huffman,
    two_level,
    adaptive,
    cutoff,
]
COUNTED: list[Make] = [logistic, sampled_softmax, huffman, two_level, adaptive]


def every(heads: list[Make]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("make", heads, ids=lambda make: make.__name__)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


every_head = every(CODES + WITHOUT_A_CODE)


def score(head: ClassHead, *arguments: Any, **options: Any) -> Any:
    """`forward`, every time with the same draws."""
    torch.manual_seed(5)
    return head(*arguments, **options)


@every_head
@pytest.mark.parametrize("rows", [(), (4,), (2, 3), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize("n_true", [None, 2], ids=["single", "multi"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_shapes(make: Make, rows: tuple[int, ...], n_true: int | None, reduction: str) -> None:
    head = make(reduction=reduction)
    shape = rows if n_true is None else (*rows, n_true)
    target = torch.arange(math.prod(shape)).reshape(shape)
    output, loss = head(torch.randn(*rows, D), target)
    assert output.shape == shape
    assert loss.shape == (rows if reduction == "none" else ())
    assert loss.dtype == torch.float32
    if math.prod(rows):
        assert bool((output < 0).all())
        assert bool((loss > 0).all())
    else:
        assert loss.sum().item() == 0.0


@every_head
@pytest.mark.parametrize(
    "target", [[-100, -100], [], [[-100, -100]], [[], []]], ids=["ignored", "empty", "multi", "no"]
)
def test_where_nothing_counts_the_loss_is_0_and_so_are_all_gradients(
    make: Make, target: list[Any]
) -> None:
    head = make(hidden=D, dropout=0.5)
    # What a left-out row has in it must not matter.
    features = torch.full((len(target), D), math.nan, requires_grad=True)
    _, loss = head(features, torch.tensor(target, dtype=torch.int64))
    assert loss.item() == 0.0
    loss.backward()
    for name, given in (*head.named_parameters(), ("input", features)):
        assert given.grad is not None, name
        assert not given.grad.any(), name


@every_head
def test_rows_of_weight_0_may_be_anything(make: Make) -> None:
    head = make(hidden=D)
    features, target = torch.randn(3, D), torch.tensor([0, 1, 2])
    weights = torch.tensor([1.0, 0.0, 2.0])
    whole = features.clone().requires_grad_()
    torch.manual_seed(0)
    expected = head(whole, target, sample_weight=weights).loss
    expected.backward()
    gradients = {name: p.grad for name, p in head.named_parameters()}
    head.zero_grad()
    features[1, 0], features[1, 1] = math.nan, math.inf
    features.requires_grad_()
    torch.manual_seed(0)
    loss = head(features, target, sample_weight=weights).loss
    torch.testing.assert_close(loss, expected)
    loss.backward()
    for name, parameter in head.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name])
    torch.testing.assert_close(features.grad, whole.grad)


@every_head
def test_every_parameter_has_a_gradient_whatever_the_targets(make: Make) -> None:
    head = make(hidden=D)
    head(torch.randn(2, D), torch.tensor([0, 0])).loss.backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert bool(torch.isfinite(parameter.grad).all()), name


@every_head
def test_ignored_rows_do_not_count(make: Make) -> None:
    head = make(ignore_index=-1)
    features = torch.randn(5, D)
    target = torch.tensor([29, 0, 11])
    output, loss = score(head, features, torch.cat([target, torch.tensor([-1, -1])]))
    expected = score(head, features[:3], target)
    torch.testing.assert_close(output, torch.cat([expected.output, torch.zeros(2)]))
    torch.testing.assert_close(loss, expected.loss)


@every_head
def test_weights_multiply_and_the_mean_divides_by_their_sum(make: Make) -> None:
    features, target = torch.randn(4, D), torch.tensor([3, 29, 0, 3])
    class_weight = torch.linspace(0, 2, N)
    sample_weight = torch.tensor([1.0, 0.5, 2.0, 0.0])
    each = score(make_alike(make, reduction="none"), features, target).loss
    weights = class_weight[target] * sample_weight
    for reduction, expected in (
        ("none", each * weights),
        ("sum", (each * weights).sum()),
        ("mean", (each * weights).sum() / weights.sum()),
    ):
        head = make_alike(make, reduction=reduction, weight=class_weight)
        loss = score(head, features, target, sample_weight=sample_weight).loss
        torch.testing.assert_close(loss, expected)


def make_alike(make: Make, **options: Any) -> ClassHead:
    torch.manual_seed(1)
    return make(**options)


@every_head
def test_several_true_classes_count_as_their_mean(make: Make) -> None:
    head = make(reduction="none")
    features = torch.randn(3, D)
    target = torch.tensor([[3, 29], [0, 1], [7, -100]])
    output, loss = score(head, features, target)
    flat = score(head, features.repeat_interleave(2, dim=0), target.flatten())
    torch.testing.assert_close(output, flat.output.view(3, 2))
    divisor = torch.tensor([2.0, 2.0, 1.0])
    torch.testing.assert_close(loss, flat.loss.view(3, 2).sum(dim=1) / divisor)


@every_head
def test_hidden_layers_and_dropout(make: Make) -> None:
    head = make(hidden=[20, D], dropout=0.5)
    assert [m.out_features for m in head.hidden if isinstance(m, torch.nn.Linear)] == [20, D]
    features, target = torch.randn(2, 3, D), torch.zeros(2, 3, dtype=torch.int64)
    assert not torch.equal(head.log_prob(features), head.log_prob(features))
    head.eval()
    assert torch.equal(head.log_prob(features), head.log_prob(features))
    assert torch.isfinite(head(features, target).loss).item()


@every_head
@pytest.mark.parametrize("rows", [(5,), (2, 3), (0,)], ids=str)
def test_log_probs_are_normalised_per_row_and_per_site(make: Make, rows: tuple[int, ...]) -> None:
    head = make().eval()
    features = 3 * torch.randn(*rows, D)
    log_prob = head.log_prob(features)
    assert log_prob.shape == (*rows, N)
    torch.testing.assert_close(log_prob.exp().sum(dim=-1), torch.ones(rows))
    sites = head.site_log_probs(features)
    assert [s.shape for s in sites] == [(*rows, q) for q in head.mapping.alphabet_sizes]
    for site in sites:
        torch.testing.assert_close(site.exp().sum(dim=-1), torch.ones(rows))
    if make in WITHOUT_A_CODE:
        torch.testing.assert_close(sites[0], log_prob)


def best(log_prob: Tensor) -> list[list[int]]:
    """Each row's classes, best first; those of probability 0 are left out."""
    order = log_prob.sort(dim=-1, descending=True, stable=True).indices
    return [ids[row[ids] > -math.inf].tolist() for row, ids in zip(log_prob, order, strict=True)]


@every_head
@pytest.mark.parametrize("zero", [False, True], ids=["drawn", "zero"])
def test_answers_are_the_most_probable_classes(make: Make, zero: bool) -> None:
    """In the order of `log_prob`; with all parameters 0 that has ties, to the lower id."""
    head = make().eval()
    if zero:
        for parameter in head.parameters():
            torch.nn.init.zeros_(parameter)
    features = torch.randn(6, D)
    log_prob = head.log_prob(features).detach()
    found = head.topk(features, N + 5)
    assert found.ids.shape == found.scores.shape == (6, N)
    for row, (ids, expected) in enumerate(zip(found.ids, best(log_prob), strict=True)):
        assert ids[: len(expected)].tolist() == expected
        assert sorted(ids.tolist()) == list(range(N))
        if make in WITHOUT_A_CODE:
            torch.testing.assert_close(found.scores[row], log_prob[row, ids])
    assert head.predict(features.view(2, 3, D)).tolist() == found.ids[:, 0].view(2, 3).tolist()
    allowed = [4, 9, 17]
    chosen = head.topk(features, 1, allowed=allowed).ids[:, 0]
    for row, class_id in enumerate(chosen.tolist()):
        assert class_id == next(i for i in found.ids[row].tolist() if i in allowed)


@every_head
def test_how_output_and_log_prob_go_together(make: Make) -> None:
    """By design they differ in three kinds of heads, and in these only."""
    head = make()
    features, target = torch.randn(N, D), torch.arange(N)
    output = head(features, target).output
    log_prob = head.log_prob(features).gather(1, target[:, None])[:, 0]
    if make in (logistic, sampled_softmax):
        # Against the draws, not over the classes.
        assert not torch.isclose(output, log_prob).any()
    elif isinstance(head, CutoffHead):
        # The output is of the symbol that rare classes share.
        torch.testing.assert_close(output[:4], log_prob[:4])
        torch.testing.assert_close(output[4:] + head.log_share, log_prob[4:])
    elif make in (simplex, ecoc, mach):
        # A product of sites, which leaks to words without a class.
        sites = head.site_log_probs(features)
        words = torch.from_numpy(head.mapping.encode(range(N)))
        parts = [s.gather(1, words[:, i, None])[:, 0] for i, s in enumerate(sites)]
        torch.testing.assert_close(output, torch.stack(parts).sum(dim=0))
        assert not torch.isclose(output, log_prob).any()
    else:
        torch.testing.assert_close(output, log_prob)


@every_head
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("cast", [False, True], ids=["float32-input", "half-input"])
def test_half_precision_by_autocast(make: Make, dtype: torch.dtype, cast: bool) -> None:
    head = make(hidden=D)
    features, target = torch.randn(64, D), torch.arange(64) % N
    given = features.to(dtype) if cast else features
    with torch.autocast("cpu", dtype):
        output, loss = score(head, given, target)
        log_prob = head.log_prob(given)
    assert output.dtype == loss.dtype == log_prob.dtype == torch.float32
    # Sums are made in float32, so that they stay normalised.
    torch.testing.assert_close(log_prob.exp().sum(dim=1), torch.ones(64))
    torch.testing.assert_close(loss, score(head, features, target).loss, rtol=0.01, atol=0.01)
    loss.backward()
    for parameter in head.parameters():
        assert parameter.grad is not None
        assert bool(torch.isfinite(parameter.grad).all())


@every_head
def test_double_stays_double(make: Make) -> None:
    head = make(dtype=torch.float64)
    output, loss = head(torch.randn(3, D, dtype=torch.float64), torch.tensor([0, 5, 29]))
    assert output.dtype == loss.dtype == torch.float64
    assert head.log_prob(torch.randn(3, D, dtype=torch.float64)).dtype == torch.float64


@every_head
def test_weights_go_through_safetensors_and_copies(make: Make) -> None:
    """Also into a head that was made with other class counts: what they decided is saved."""
    counts = {"class_counts": mixed_counts(N)} if make in COUNTED else {}
    saved, fresh = make(hidden=D, **counts), make(hidden=D)
    features = torch.randn(4, D)
    expected = saved.log_prob(features)
    copies = [copy.deepcopy(saved), pickle.loads(pickle.dumps(saved))]
    fresh.load_state_dict(safetensors.torch.load(safetensors.torch.save(saved.state_dict())))
    target = torch.tensor([0, 7, 28, 29])
    for other in (fresh, *copies):
        assert torch.equal(other.log_prob(features), expected)
        assert torch.equal(score(other, features, target).loss, score(saved, features, target).loss)
    copies[0].load_state_dict(make(hidden=D).state_dict())
    assert torch.equal(saved.log_prob(features), expected)


@every_head
def test_weights_of_another_number_of_classes_or_code_are_refused(make: Make) -> None:
    others: dict[Make, Callable[[], ClassHead]] = {
        simplex: lambda: LabelMappingHead(D, SimplexMapping(N, 3, field_order=11)),
        by_class: lambda: LabelMappingHead(D, MixedMapping(N, [7, 11, 17])),
        ecoc: lambda: LabelMappingHead(D, EcocMapping(N + 30)),
        mach: lambda: mach(seed=1),
    }
    head = make()
    features = torch.randn(2, D)
    before = head.log_prob(features)
    other = others[make]() if make in CODES else make(N + 1)
    with pytest.raises(ArgumentError, match=r"state_dict must .* the recipes differ"):
        head.load_state_dict(other.state_dict())
    assert torch.equal(head.log_prob(features), before)


@every(WITHOUT_A_CODE)
def test_a_mapping_stands_for_its_number_of_classes(make: Make) -> None:
    mapping = SimplexMapping(N, 3, field_order=7)
    torch.manual_seed(0)
    given = make(mapping)
    torch.manual_seed(0)
    plain = make(N)
    assert given.mapping == plain.mapping == MixedMapping.one_hot(N)
    features = torch.randn(3, D)
    assert torch.equal(given.log_prob(features), plain.log_prob(features))


@every_head
@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ([0, N], ArgumentError, r"target must lie in 0\.\.29 .*; target\[1\] is 30"),
        ([-1, 0], ArgumentError, r"target\[0\] is -1"),
        ([1.0, 2.0], ArgumentTypeError, "target must be integers, got torch.float32"),
        ([0, 1, 2], ArgumentError, r"target must have shape \(2,\)"),
    ],
    ids=["N", "-1", "float", "shape"],
)
def test_bad_targets_are_refused(
    make: Make, target: list[float], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()(torch.zeros(2, D), torch.tensor(target))


@every_head
@pytest.mark.parametrize("call", ["site_log_probs", "log_prob", "predict"])
def test_features_of_another_width_are_refused(make: Make, call: str) -> None:
    with pytest.raises(ArgumentError, match=r"input must have shape \(\.\.\., 16\), got \(2, 15\)"):
        getattr(make(), call)(torch.zeros(2, D - 1))


@every([logistic, sampled_softmax, huffman, two_level, adaptive])
def test_one_class_is_too_few(make: Make) -> None:
    with pytest.raises(ArgumentError, match="n_classes must be at least 2, got 1"):
        make(1)


def mach_estimates(head: MachHead, features: Tensor) -> Tensor:
    """(B / (B - 1)) (mean over the sites of p - 1 / B) (Medini et al., 2019)."""
    size = head.mapping.alphabet_sizes[0]
    words = torch.from_numpy(head.mapping.encode(range(head.n_classes)))[:, list(head.sites)]
    probs = [s.exp()[:, words[:, i]] for i, s in enumerate(head.site_log_probs(features))]
    return size / (size - 1) * (torch.stack(probs).mean(dim=0) - 1 / size)


@pytest.mark.parametrize(
    ("mapping", "sites"),
    [(HashedMapping(N, 4, 8), None), (SimplexMapping(N, 4, field_order=7), [1, 3])],
    ids=["hashed", "some-sites"],
)
def test_mach_answers_by_the_mean_of_probabilities(mapping: Any, sites: list[int] | None) -> None:
    head = MachHead(D, mapping, sites=sites)
    features = 3 * torch.randn(5, D)
    expected = mach_estimates(head, features).detach()
    found = head.topk(features, N)
    torch.testing.assert_close(found.scores, expected.gather(1, found.ids))
    torch.testing.assert_close(found.scores, expected.sort(dim=1, descending=True).values)
    positive = expected.clamp(min=0)
    torch.testing.assert_close(
        head.log_prob(features).exp(), positive / positive.sum(dim=1, keepdim=True)
    )
    # Averages and products differ in their order.
    product = LabelMappingHead(D, mapping, sites=sites)
    product.load_state_dict(head.state_dict())
    assert not torch.equal(product.topk(features, N).ids, found.ids)


def test_mach_is_unbiased_over_the_hashes() -> None:
    """A hash puts another class on the target's symbol once in B: on average that goes away."""
    truth = torch.tensor([0.5, 0.3, 0.15, 0.05])
    total, runs = torch.zeros(4), 400
    for seed in range(runs):
        mapping = HashedMapping(4, 6, 5, seed=seed)
        head = MachHead(1, mapping, bias=False)
        words = torch.from_numpy(mapping.encode(range(4)))
        buckets = torch.zeros(6, 5).index_put_(
            (torch.arange(6).expand(4, 6), words), truth[:, None].expand(4, 6), accumulate=True
        )
        with torch.no_grad():
            head.output.weight.copy_(buckets.clamp(min=1e-12).log().view(-1, 1))
        found = head.topk(torch.ones(1, 1), 4)
        total[found.ids[0]] += found.scores[0]
    torch.testing.assert_close(total / runs, truth, atol=0.02, rtol=0)


def test_mach_without_an_estimate_above_0_says_the_same_of_all() -> None:
    mapping = HashedMapping(3, 2, 4)
    head = MachHead(1, mapping, bias=False)
    free = [next(s for s in range(4) if s not in column) for column in mapping.encode(range(3)).T]
    torch.nn.init.normal_(head.output.weight)
    with torch.no_grad():
        for site, symbol in enumerate(free):
            head.output.weight[4 * site + symbol] = 9.0
    features = torch.ones(1, 1, requires_grad=True)
    assert bool((mach_estimates(head, features) < 0).all())
    torch.testing.assert_close(head.log_prob(features), torch.full((1, 3), -math.log(3)))


def test_the_gradient_of_a_mach_log_prob_is_finite_beside_classes_of_probability_0() -> None:
    head = mach()
    log_prob = head.log_prob(3 * torch.randn(20, D))
    assert bool((log_prob == -math.inf).any())
    torch.autograd.backward(log_prob.max(dim=1).values.sum())
    for parameter in head.parameters():
        assert parameter.grad is not None
        assert bool(torch.isfinite(parameter.grad).all())
        assert bool(parameter.grad.any())


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (MixedMapping(N, [7, 11]), r"equal alphabets of 2 or more, got \(7, 11\)"),
        (EcocMapping(8, "one-versus-one"), "this one abstains"),
    ],
    ids=["mixed", "ternary"],
)
def test_what_mach_cannot_average_is_refused(mapping: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        MachHead(D, mapping)
