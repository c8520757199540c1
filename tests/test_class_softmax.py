"""One softmax over the classes against the dense scores that it never makes."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labelmapping.errors import ArgumentError, ArgumentTypeError
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
from labelmapping.nn import ClassNormalization, LabelMappingHead, label_mapping_cross_entropy

CODE = MixedMapping(1000, [7, 11, 13])
MAPPINGS = {
    "mixed": CODE,
    "one-hot": MixedMapping.one_hot(50),
    "simplex": SimplexMapping(100, 4, field_order=11),
    "simplex-9": SimplexMapping(80, 4, field_order=9),
    "polynomial": PolynomialMapping(100, 3, field_order=2, degree=4),
    "hashed": HashedMapping(300, 6, 16),
    "binary": EcocMapping(100),
    "table": TableMapping(RandomMapping(300, 3, 11).codewords),
}
SAMPLED = ClassNormalization(exact_classes=0, n_hardest=8, n_sampled=64)


def draw_logits(mapping: LabelMapping, n_rows: int, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    size = (n_rows, sum(mapping.alphabet_sizes))
    logits = torch.randn(size, generator=generator, dtype=torch.float64) * scale
    return logits.requires_grad_()


def draw_target(mapping: LabelMapping, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(mapping.n_classes, shape, generator=generator)


def dense_scores(logits: Tensor, mapping: LabelMapping) -> Tensor:
    """Scores (R, N), as the docstring has them."""
    codewords = torch.from_numpy(mapping.encode(range(mapping.n_classes)))
    parts = torch.split(logits, list(mapping.alphabet_sizes), dim=-1)
    return sum((part[..., codewords[:, i]] for i, part in enumerate(parts)), torch.zeros(()))


def loss_of(logits: Tensor, target: Tensor, mapping: LabelMapping, **options: Any) -> Tensor:
    options.setdefault("normalization", "class")
    return label_mapping_cross_entropy(logits, target, mapping, **options)


def assert_equal_with_gradients(ours: Tensor, expected: Tensor, logits: Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    wanted = torch.autograd.grad(expected, logits)[0]
    torch.testing.assert_close(torch.autograd.grad(ours, logits)[0], wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.2], ids=str)
@pytest.mark.parametrize("blocks", ["one", "several"])
@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
def test_it_is_cross_entropy_of_the_dense_scores(
    mapping: LabelMapping, blocks: str, smoothing: float
) -> None:
    logits, target = draw_logits(mapping, 6), draw_target(mapping, 6)
    how = ClassNormalization(block_bytes=1 << 21 if blocks == "one" else 1)
    ours = loss_of(logits, target, mapping, normalization=how, label_smoothing=smoothing)
    scores = dense_scores(logits, mapping)
    expected = F.cross_entropy(scores, target, label_smoothing=smoothing)
    assert_equal_with_gradients(ours, expected, logits)


@pytest.mark.parametrize("block_bytes", [1, 1 << 21])
def test_gradients_by_finite_differences(block_bytes: int) -> None:
    mapping = SimplexMapping(25, 2, field_order=5)
    how = ClassNormalization(block_bytes=block_bytes)
    target = torch.tensor([[7, 24], [3, -100], [-100, -100]])
    assert torch.autograd.gradcheck(
        lambda x: loss_of(x, target, mapping, normalization=how, label_smoothing=0.1),
        draw_logits(mapping, 3),
    )


def test_lists_of_sites_weights_several_targets_and_ignored_rows() -> None:
    logits, target = draw_logits(CODE, 4), draw_target(CODE, 4, 3)
    target[0, 1], target[2] = -100, -100
    class_weight = torch.rand(1000, generator=torch.Generator().manual_seed(2))
    sample_weight = torch.tensor([1.0, 0.0, 2.0, 3.0])
    parts = torch.split(logits, list(CODE.alphabet_sizes), dim=-1)
    options = {"weight": class_weight, "sample_weight": sample_weight}
    ours = loss_of(parts, target, CODE, reduction="none", **options)  # type: ignore[arg-type]
    log_probs = dense_scores(logits, CODE).log_softmax(dim=-1)
    expected = torch.zeros(4, dtype=torch.float64)
    for row in range(4):
        kept = target[row][target[row] != -100]
        if len(kept):
            losses = -log_probs[row, kept] * class_weight[kept]
            expected[row] = sample_weight[row] * losses.mean()
    assert_equal_with_gradients(ours.sum(), expected.sum(), logits)
    torch.testing.assert_close(ours, expected)
    with torch.no_grad():
        logits[2] = torch.nan
    (gradient,) = torch.autograd.grad(loss_of(logits, target, CODE, **options), logits)
    assert torch.isfinite(gradient).all()
    assert not gradient[[1, 2]].any()


@pytest.mark.parametrize("how", [ClassNormalization(), ClassNormalization(block_bytes=1), SAMPLED])
def test_empty_and_ignored_batches(how: ClassNormalization) -> None:
    for n_rows in (0, 2):
        logits = draw_logits(CODE, n_rows)
        loss = loss_of(logits, torch.full((n_rows,), -100), CODE, normalization=how)
        assert loss.item() == 0
        (gradient,) = torch.autograd.grad(loss, logits)
        assert gradient.shape == logits.shape
        assert not gradient.any()


def test_some_sites_suffice_where_they_determine_the_class() -> None:
    mapping = MAPPINGS["simplex"]
    logits, target = draw_logits(mapping, 5)[:, :22], draw_target(mapping, 5)
    ours = loss_of(logits, target, mapping, sites=[3, 1])
    codewords = torch.from_numpy(mapping.encode(range(100)))
    scores = logits[:, codewords[:, 3]] + logits[:, 11 + codewords[:, 1]]
    torch.testing.assert_close(ours, F.cross_entropy(scores, target))
    with pytest.raises(ArgumentError, match=r'"class" needs 2 sites at least .*, got 1'):
        loss_of(logits[:, :11], target, mapping, sites=[3])
    with pytest.raises(ArgumentError, match=r'"class" needs 2 sites at least .*, got 1'):
        LabelMappingHead(5, mapping, sites=[3], normalization="class")


def test_codes_that_abstain_are_refused() -> None:
    mapping = EcocMapping(6, "one-versus-one")
    with pytest.raises(ArgumentError, match='must be "site" for a code whose sites abstain'):
        LabelMappingHead(5, mapping, normalization="class")
    with pytest.raises(ArgumentError, match='must be "site" for a code whose sites abstain'):
        loss_of(draw_logits(mapping, 1), torch.tensor([1]), mapping)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"exact_classes": -1}, ArgumentError, "exact_classes must be at least 0"),
        ({"block_bytes": 0}, ArgumentError, "block_bytes must be at least 1"),
        ({"n_hardest": -1}, ArgumentError, "n_hardest must be at least 0"),
        ({"n_sampled": 0}, ArgumentError, "n_sampled must be at least 1"),
        ({"n_sampled": 2.0}, ArgumentTypeError, "n_sampled must be an integer"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ClassNormalization(**options)
    with pytest.raises(ArgumentError, match="normalization must be one of site, class; got 'all'"):
        LabelMappingHead(5, CODE, normalization="all")


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
def test_with_all_classes_among_the_hardest_the_sampled_sum_is_exact(mapping: LabelMapping) -> None:
    logits, target = draw_logits(mapping, 4), draw_target(mapping, 4, 3)
    target[0, 1], target[1] = -100, target[1, 0]
    sampled = ClassNormalization(exact_classes=0, n_hardest=mapping.n_classes, n_sampled=50)
    ours, expected = (
        loss_of(logits, target, mapping, normalization=how, label_smoothing=0.1)
        for how in (sampled, "class")
    )
    assert_equal_with_gradients(ours, expected, logits)


@pytest.mark.parametrize("n_hardest", [0, 20])
def test_the_sampled_sum_is_unbiased(n_hardest: int) -> None:
    # Rows: a target far below, a target among the hardest, one that is named three times,
    # two of which one is hardest.
    logits = draw_logits(CODE, 4, scale=1.0).detach()
    scores = dense_scores(logits, CODE)
    best, worst = scores.argmax(dim=1), scores.argmin(dim=1)
    target = torch.stack([worst, worst, worst], dim=1)
    target[0, 1:] = -100
    target[1] = torch.tensor([int(best[1]), -100, -100])
    target[3] = torch.tensor([int(best[3]), int(worst[3]), -100])
    how = ClassNormalization(exact_classes=0, n_hardest=n_hardest, n_sampled=100)
    torch.manual_seed(0)
    draws = []
    for _ in range(500):
        losses = loss_of(logits, target, CODE, normalization=how, reduction="none")
        own = scores.gather(1, target.clamp(min=0)).masked_fill(target < 0, 0).sum(dim=1)
        totals = losses + own / (target >= 0).sum(dim=1)  # log of the estimated sum
        draws.append((totals - scores.logsumexp(dim=1)).exp())
    ratios = torch.stack(draws)
    error = ratios.std(dim=0) / len(draws) ** 0.5
    assert bool((error < 0.02).all())
    assert bool(((ratios.mean(dim=0) - 1).abs() < 4 * error).all())
    assert bool((ratios.std(dim=0) > 1e-3).all())  # it is an estimate


def test_a_class_that_is_drawn_and_a_target_counts_once() -> None:
    # Two classes, of which many draws see both: every count is exact but for repetition.
    mapping = MixedMapping.one_hot(2)
    logits = draw_logits(mapping, 3)
    how = ClassNormalization(exact_classes=0, n_hardest=2, n_sampled=30)
    target = torch.tensor([[0, 0], [0, 1], [1, -100]])
    ours = loss_of(logits, target, mapping, normalization=how)
    assert_equal_with_gradients(ours, loss_of(logits, target, mapping), logits)
    alone = ClassNormalization(exact_classes=0, n_hardest=0, n_sampled=30)
    both = loss_of(logits[:2], target[1:2].expand(2, 2), mapping, normalization=alone)
    assert_equal_with_gradients(
        both, loss_of(logits[:2], target[1:2].expand(2, 2), mapping), logits
    )


def test_the_sampled_gradient_reaches_what_was_scored_only() -> None:
    mapping = SimplexMapping(10**6, 2, field_order=1009)
    logits, target = draw_logits(mapping, 2), torch.tensor([999_999, 5])
    how = ClassNormalization(n_hardest=4, n_sampled=8)
    torch.manual_seed(0)
    torch.autograd.backward(loss_of(logits, target, mapping, normalization=how))
    assert logits.grad is not None
    assert 2 * 2 <= int((logits.grad != 0).sum()) <= 2 * 2 * (1 + 4 + 8)
    assert bool(torch.isfinite(logits.grad).all())


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """The number of elements of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.size = max([self.size, *sizes])
        return result


@pytest.mark.parametrize(
    ("how", "most"),
    [
        (ClassNormalization(block_bytes=1), 32 * 304),  # the logits themselves
        (ClassNormalization(exact_classes=0, n_hardest=4, n_sampled=256), 32 * 304),
        (ClassNormalization(), 32 * 5000),
    ],
    ids=["blocks", "sampled", "one block"],
)
def test_scores_of_all_rows_and_classes_are_made_in_one_block_only(
    how: ClassNormalization, most: int
) -> None:
    mapping = MixedMapping(5000, [97, 101, 106])
    logits, target = draw_logits(mapping, 32).float(), draw_target(mapping, 32)
    with LargestTensor() as largest:
        torch.autograd.backward(loss_of(logits, target, mapping, normalization=how))
    assert largest.size == most


def test_autocast_changes_nothing() -> None:
    logits, target = draw_logits(CODE, 6).float(), draw_target(CODE, 6)
    expected = loss_of(logits, target, CODE, label_smoothing=0.3)
    with torch.autocast("cpu", torch.bfloat16):
        ours = loss_of(logits, target, CODE, label_smoothing=0.3)
    assert ours.dtype == torch.float32
    assert torch.equal(ours, expected)
    half = loss_of(logits.bfloat16(), target, CODE)
    torch.testing.assert_close(half, loss_of(logits.bfloat16().float(), target, CODE))
