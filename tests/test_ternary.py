"""Codes whose sites abstain on some classes, from the loss to the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from labelmapping import (
    EcocMapping,
    LabelMapping,
    decode_symbols,
    decode_topk,
    log_partition,
)
from labelmapping.decoding import margin_scores
from labelmapping.errors import ArgumentError
from labelmapping.mappings.table import TableMapping
from labelmapping.nn import (
    LabelMappingEmbedding,
    LabelMappingHead,
    label_mapping_cross_entropy,
)

from .test_decoding import Scores, brute_force, random_log_probs, seeds, styles

# Three symbols at a site, and silence at some.
TABLE = TableMapping(
    [[0, 1, -1, 2], [1, -1, 0, 0], [2, 0, 1, -1], [-1, 2, 1, 1], [0, 2, 0, -1], [1, 0, 2, 1]]
)
CODES: list[LabelMapping] = [
    EcocMapping(5, "one-versus-one"),
    EcocMapping(12, "one-versus-one"),
    EcocMapping(9, "sparse-random", n_sites=30, seed=1),
    EcocMapping(40, "sparse-random", seed=2, draws=2),
    TABLE,
]
codes = pytest.mark.parametrize("mapping", CODES, ids=lambda m: f"{m.kind}-{m.n_classes}")


def draw_logits(mapping: LabelMapping, shape: Sequence[int], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (3 * torch.randn(*shape, size, generator=generator, dtype=torch.float64)).requires_grad_()
        for size in mapping.alphabet_sizes
    ]


def plain_loss(logits: Sequence[Tensor], target: Tensor, mapping: LabelMapping, row: int) -> Tensor:
    """Of one row: the sites that have a side for its class, one by one."""
    loss = torch.zeros((), dtype=torch.float64)
    for site, symbol in enumerate(mapping.encode(int(target[row])).tolist()):
        if symbol >= 0:
            loss = loss - F.log_softmax(logits[site][row], dim=-1)[symbol]
    return loss


# --- training


@codes
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_the_loss_is_that_of_the_sites_with_a_side(mapping: LabelMapping, reduction: str) -> None:
    rng = np.random.default_rng(0)
    target = torch.from_numpy(rng.integers(0, mapping.n_classes, 14))
    target[[3, 8]] = -100
    ours, plain = draw_logits(mapping, (14,)), draw_logits(mapping, (14,))
    loss = label_mapping_cross_entropy(ours, target, mapping, reduction=reduction)
    zero = torch.zeros((), dtype=torch.float64)
    losses = torch.stack(
        [zero if target[r] < 0 else plain_loss(plain, target, mapping, r) for r in range(14)]
    )
    expected = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / 12}[reduction]
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    weights = torch.arange(1.0, loss.numel() + 1, dtype=torch.float64).reshape(loss.shape)
    torch.autograd.backward((loss * weights).sum())
    torch.autograd.backward((expected * weights).sum())
    for a, b in zip(ours, plain, strict=True):
        # A site that is silent on the whole batch has zeros where plain torch has nothing.
        gradient = torch.zeros_like(b) if b.grad is None else b.grad
        torch.testing.assert_close(a.grad, gradient, rtol=1e-12, atol=1e-12)


@codes
def test_a_site_that_abstains_on_a_row_gets_exactly_no_gradient_from_it(
    mapping: LabelMapping,
) -> None:
    target = torch.arange(mapping.n_classes)
    logits = draw_logits(mapping, (mapping.n_classes,), seed=1)
    label_mapping_cross_entropy(logits, target, mapping, reduction="sum").backward()  # type: ignore[no-untyped-call]
    codewords = mapping.encode(target.numpy())
    silent = 0
    for site, array in enumerate(logits):
        assert array.grad is not None
        abstains = torch.from_numpy(codewords[:, site] < 0)
        assert (array.grad[abstains] == 0).all()
        assert (array.grad[~abstains] != 0).all()
        silent += int(abstains.sum())
    assert silent > 0


def test_what_a_site_says_where_it_abstains_cannot_matter() -> None:
    mapping = EcocMapping(6, "one-versus-one")
    target = torch.tensor([2, 0, 5, -100])
    codewords = mapping.encode([2, 0, 5, 0])
    clean, dirty = draw_logits(mapping, (4,)), draw_logits(mapping, (4,))
    for site, array in enumerate(dirty):
        silent = np.flatnonzero((codewords[:, site] < 0) | (target.numpy() < 0))
        with torch.no_grad():
            array[silent] = torch.tensor([math.nan, math.inf], dtype=torch.float64)
    losses = [label_mapping_cross_entropy(x, target, mapping) for x in (clean, dirty)]
    assert losses[0].item() == losses[1].item()
    for loss in losses:
        torch.autograd.backward(loss)
    for a, b in zip(clean, dirty, strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert a.grad.tolist() == b.grad.tolist()


def test_any_shape_and_any_sites_are_taken() -> None:
    mapping = CODES[2]
    target = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (2, 3)))
    sites = [7, 0, 29, 3]
    logits = [x for site, x in enumerate(draw_logits(mapping, (2, 3))) if site in (7, 0, 29, 3)]
    by_site = dict(zip(sorted(sites), logits, strict=True))
    given_logits = [by_site[site] for site in sites]
    losses = label_mapping_cross_entropy(
        given_logits, target, mapping, sites=sites, reduction="none"
    )
    codewords = mapping.encode(target.numpy())
    for place in np.ndindex(2, 3):
        expected = 0.0
        for site in sites:
            symbol = codewords[place][site]
            if symbol >= 0:
                expected -= F.log_softmax(by_site[site][place], dim=-1)[symbol].item()
        assert losses[place].item() == pytest.approx(expected, rel=1e-12)


def test_a_batch_on_which_all_sites_abstain_costs_nothing() -> None:
    mapping = EcocMapping(5, "one-versus-one")
    site = mapping.n_sites - 1  # classes 3 and 4
    logits = draw_logits(mapping, (3,))[site : site + 1]
    loss = label_mapping_cross_entropy(logits, torch.tensor([0, 1, 2]), mapping, sites=[site])
    torch.autograd.backward(loss)
    assert loss.item() == 0
    assert logits[0].grad is not None
    assert not logits[0].grad.any()


# --- decoding


def all_scores(
    mapping: LabelMapping,
    log_probs: Sequence[Scores],
    sites: Sequence[int] | None = None,
    prior: Scores | None = None,
) -> Scores:
    """Score of every class; log 1/2 where a site abstains."""
    codewords = mapping.encode(np.arange(mapping.n_classes))
    scores = np.zeros((len(log_probs[0]), mapping.n_classes))
    for site, array in zip(sites or range(mapping.n_sites), log_probs, strict=True):
        for x in range(mapping.n_classes):
            symbol = codewords[x, site]
            scores[:, x] += math.log(0.5) if symbol < 0 else array[:, symbol]
    return scores if prior is None else scores + prior


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.sampled_from(CODES), st.data())
def test_decode_equals_brute_force_with_half_a_chance_for_each_abstention(
    mapping: LabelMapping, data: st.DataObject
) -> None:
    n_classes = mapping.n_classes
    style, seed = data.draw(styles, "style"), data.draw(seeds, "seed")
    rng = np.random.default_rng(seed)
    arrays = random_log_probs(mapping, 2, seed, style)
    k = data.draw(st.sampled_from([1, 2, 5, n_classes, n_classes + 1]), "k")
    sites = None
    if data.draw(st.booleans(), "with sites"):
        order = data.draw(st.permutations(range(mapping.n_sites)), "sites")
        sites = order[: data.draw(st.integers(mapping.dimension, mapping.n_sites), "present")]
        arrays = [arrays[site] for site in sites]
    options: dict[str, Any] = {}
    prior = None
    if data.draw(st.booleans(), "with prior"):
        prior = rng.integers(-3, 3, n_classes).astype(float)
        options["prior"] = prior
    allowed = None
    if data.draw(st.booleans(), "with allowed"):
        allowed = np.flatnonzero(rng.random(n_classes) < 0.5)
        allowed = np.array([0]) if allowed.size == 0 else allowed
        options["allowed"] = allowed
    answer = decode_topk(mapping, arrays, k, sites=sites, **options)
    scores, ids = brute_force(all_scores(mapping, arrays, sites, prior), k, allowed)
    assert answer.ids.tolist() == ids.tolist()
    assert answer.scores.tolist() == scores.tolist()
    assert set(answer.certified_by) == {"scan"}


@codes
def test_the_sum_over_classes_counts_abstentions_too(mapping: LabelMapping) -> None:
    arrays = random_log_probs(mapping, 3, 4, "log-softmax")
    found = log_partition(mapping, arrays)
    expected = np.logaddexp.reduce(all_scores(mapping, arrays), axis=1)
    np.testing.assert_allclose(found.lower, expected, rtol=1e-12)
    assert (found.lower == found.upper).all()


def test_pairwise_votes_win_where_the_pairs_are_sure() -> None:
    """One versus one with sure learners: the class that wins all its pairs is the answer."""
    mapping = EcocMapping(7, "one-versus-one")
    for best in range(7):
        word = mapping.encode(best)
        arrays = []
        for site in range(mapping.n_sites):
            side = word[site] if word[site] >= 0 else site % 2  # the others say anything
            arrays.append(np.log(np.where(np.arange(2) == side, 0.99, 0.01))[None, :])
        assert decode_topk(mapping, arrays, 1).ids.item() == best


LOSSES: dict[str, Callable[[float], float]] = {
    "hinge": lambda z: max(0.0, 1 - z),
    "exponential": lambda z: math.exp(-z),
    "logistic": lambda z: math.log(1 + math.exp(-2 * z)),
}


def loss_based(signs: NDArray[np.int64], margins: Scores, loss: str) -> Scores:
    """Allwein, Schapire and Singer's decoding, written down: the total of L(z f), (B, N).

    Of 0 entries too: they cost L(0). The distance of Dietterich and Bakiri is |z - f| / 2 for
    the sides 1 and -1, and 1/2, that of a margin of 0, where there is none.
    """
    totals = np.zeros((len(margins), len(signs)))
    for row, outputs in enumerate(margins):
        for x, word in enumerate(signs):
            for z, f in zip(word.tolist(), outputs.tolist(), strict=True):
                if loss == "l1":
                    totals[row, x] += abs(z - f) / 2 if z else 0.5
                else:
                    totals[row, x] += LOSSES[loss](z * f)
    return totals


@pytest.mark.parametrize("loss", ["l1", "hinge", "exponential", "logistic"])
@pytest.mark.parametrize(
    "mapping",
    [
        EcocMapping(5, "one-versus-one"),
        EcocMapping(15, "sparse-random", n_sites=45),
        EcocMapping(9, "one-versus-rest"),
        EcocMapping(9, "random", n_sites=20),
        EcocMapping(30, "bch", distance=5),
    ],
    ids=lambda m: m.code,
)
def test_loss_based_decoding_is_that_of_allwein_schapire_and_singer(
    mapping: EcocMapping, loss: str
) -> None:
    rng = np.random.default_rng(5)
    margins = rng.uniform(-1, 1, (6, mapping.n_sites)) * (1 if loss == "l1" else 3)
    words = mapping.encode(np.arange(mapping.n_classes))
    signs = np.where(words < 0, 0, 2 * words - 1)
    totals = loss_based(signs, margins, loss)
    scores = margin_scores(mapping, margins, loss)
    assert [array.shape for array in scores] == [(6, 2)] * mapping.n_sites
    top = decode_topk(mapping, scores, mapping.n_classes)
    assert top.ids.tolist() == np.argsort(totals, axis=1, kind="stable").tolist()
    # Minus the loss, but for what is the same for all classes.
    shift = {"l1": 0.5, "hinge": 1.0, "exponential": 1.0, "logistic": math.log(2)}[loss]
    constant = (shift - math.log(2)) * mapping.n_sites if mapping.has_abstentions else 0.0
    np.testing.assert_allclose(top.scores, constant - np.sort(totals, axis=1), rtol=2e-6, atol=1e-5)


# --- what cannot be done with abstentions


@codes
def test_symbols_cannot_be_compared_where_sites_abstain(mapping: LabelMapping) -> None:
    symbols = np.zeros((1, mapping.n_sites), np.int64)
    with pytest.raises(ArgumentError, match=r"this one abstains; use margin_scores and decode_top"):
        decode_symbols(mapping, symbols)


@codes
def test_an_embedding_refuses_a_code_that_abstains(mapping: LabelMapping) -> None:
    with pytest.raises(ArgumentError, match="a symbol for every class at every site, and this one"):
        LabelMappingEmbedding(mapping, 8)
    assert LabelMappingEmbedding(EcocMapping(5, "one-versus-rest"), 8).weight.shape == (10, 8)


def test_a_code_of_two_classes_has_no_abstentions_to_refuse() -> None:
    mapping = EcocMapping(2, "one-versus-one")
    assert not mapping.has_abstentions
    assert decode_symbols(mapping, [[1], [0]]).ids.tolist() == [[0], [1]]
    assert LabelMappingEmbedding(mapping, 3)(torch.tensor([0, 1])).shape == (2, 3)


# --- a whole task


@pytest.mark.parametrize("code", ["one-versus-one", "sparse-random"])
def test_a_head_over_a_ternary_code_learns_a_toy_problem(code: str) -> None:
    mapping = EcocMapping(6, code)
    generator = torch.Generator().manual_seed(0)
    angles = 2 * math.pi * torch.arange(6) / 6
    centres = torch.stack([angles.cos(), angles.sin()], dim=1)

    def rows(per_class: int) -> tuple[Tensor, Tensor]:
        ids = torch.arange(6).repeat(per_class)
        return centres[ids] + 0.12 * torch.randn(len(ids), 2, generator=generator), ids

    features, target = rows(40)
    torch.manual_seed(1)
    head = LabelMappingHead(2, mapping)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
    history = []
    for _ in range(60):
        optimizer.zero_grad()
        output, loss = head(features, target)
        torch.testing.assert_close(-output.mean(), loss)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    # At first a fair coin at each site with a side.
    sided = float(np.mean((mapping.encode(range(6)) >= 0).sum(axis=1)))
    assert history[0] == pytest.approx(sided * math.log(2), rel=0.6)
    assert history[-1] < 0.25 * history[0]
    unseen, truth = rows(20)
    with torch.no_grad():
        answers = decode_topk(mapping, head.site_log_probs(unseen), 1).ids[:, 0]
    assert (answers == truth.numpy()).mean() > 0.95


def test_every_parameter_of_the_head_has_a_gradient_in_every_batch() -> None:
    mapping = EcocMapping(5, "one-versus-one")
    torch.manual_seed(0)
    head = LabelMappingHead(3, mapping)
    _, loss = head(torch.randn(1, 3), torch.tensor([0]))
    loss.backward()
    for parameter in head.parameters():
        assert parameter.grad is not None
    # Sites without class 0 have rows of zeros, and no others have.
    weight = head.output.weight.grad
    assert weight is not None
    silent = np.repeat(mapping.encode(0) < 0, 2)
    assert (weight.abs().sum(dim=1) == 0).tolist() == silent.tolist()
