"""The loss of a code against its plain-torch equivalent, and what it refuses."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import (
    EcocMapping,
    HashedMapping,
    LabelMapping,
    MixedMapping,
    SimplexMapping,
    TableMapping,
)
from labelmapping.nn import CodewordEncoder, label_mapping_cross_entropy
from labelmapping.nn.targets import check_ids

CODE = MixedMapping(1000, [7, 11, 13])
MAPPINGS = [
    CODE,
    SimplexMapping(100, 4, field_order=11),
    EcocMapping(100),
    MixedMapping.one_hot(50),
]
SHAPES: list[tuple[int, ...]] = [(), (1,), (5,), (2, 3), (2, 1, 3)]


def draw_logits(
    mapping: LabelMapping,
    shape: Sequence[int],
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    sites: Sequence[int] | None = None,
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    chosen = range(mapping.n_sites) if sites is None else sites
    return [
        torch.randn(*shape, mapping.alphabet_sizes[site], generator=generator, dtype=torch.float64)
        .mul(3)
        .to(dtype)
        .requires_grad_()
        for site in chosen
    ]


def draw_target(mapping: LabelMapping, shape: Sequence[int], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(mapping.n_classes, tuple(shape), generator=generator)


def plain_losses(
    logits: Sequence[Tensor],
    target: Tensor,
    mapping: LabelMapping,
    sites: Sequence[int] | None = None,
) -> Tensor:
    """The docstring's equivalent, a row at a time; no row is ignored. Shape (rows,)."""
    chosen = range(mapping.n_sites) if sites is None else sites
    codewords = torch.from_numpy(mapping.encode(target.numpy())).reshape(-1, mapping.n_sites)
    losses = torch.zeros(target.numel(), dtype=logits[0].dtype)
    for site_logits, site in zip(logits, chosen, strict=True):
        rows = site_logits.reshape(-1, site_logits.shape[-1])
        losses = losses + F.cross_entropy(rows, codewords[:, site], reduction="none")
    return losses


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda m: m.kind + str(m.n_sites))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_sum_of_the_sites_cross_entropies(
    mapping: LabelMapping, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    target = draw_target(mapping, shape)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for reduction in ("mean", "sum", "none"):
        ours, plain = draw_logits(mapping, shape, dtype), draw_logits(mapping, shape, dtype)
        loss = label_mapping_cross_entropy(ours, target, mapping, reduction=reduction)
        losses = plain_losses(plain, target, mapping)
        expected = {"mean": losses.mean(), "sum": losses.sum(), "none": losses.reshape(shape)}
        torch.testing.assert_close(loss, expected[reduction], rtol=tolerance, atol=tolerance)
        # Unequal weights, so that rows which change places are seen.
        weights = torch.arange(1.0, loss.numel() + 1, dtype=dtype).reshape(loss.shape)
        torch.autograd.backward((loss * weights).sum())
        torch.autograd.backward((expected[reduction] * weights).sum())
        for a, b in zip(ours, plain, strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=tolerance, atol=tolerance)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    mapping=st.sampled_from(MAPPINGS),
    shape=st.lists(st.integers(0, 4), max_size=3),
    data=st.data(),
    seed=st.integers(0, 2**16),
)
def test_any_shape_sites_and_ignored_rows_equal_the_plain_loss_of_the_kept_rows(
    mapping: LabelMapping, shape: list[int], data: st.DataObject, seed: int
) -> None:
    order = data.draw(st.permutations(range(mapping.n_sites)))
    sites = order[: data.draw(st.integers(1, mapping.n_sites))]
    target = draw_target(mapping, shape, seed)
    n_rows = target.numel()
    flags = data.draw(st.lists(st.booleans(), min_size=n_rows, max_size=n_rows))
    kept = torch.tensor(flags, dtype=torch.bool).reshape(shape)
    masked = torch.where(kept, target, -7)

    ours = draw_logits(mapping, shape, seed=seed, sites=sites)
    options: dict[str, Any] = {"sites": sites, "ignore_index": -7}
    losses = label_mapping_cross_entropy(ours, masked, mapping, **options, reduction="none")
    total = label_mapping_cross_entropy(ours, masked, mapping, **options, reduction="sum")
    mean = label_mapping_cross_entropy(ours, masked, mapping, **options)
    torch.autograd.backward(total)

    plain = draw_logits(mapping, shape, seed=seed, sites=sites)
    expected = plain_losses(plain, target, mapping, sites) * kept.reshape(-1)
    torch.autograd.backward(expected.sum())
    torch.testing.assert_close(losses, expected.reshape(shape))
    torch.testing.assert_close(total, expected.sum())
    torch.testing.assert_close(mean, expected.sum() / max(1, int(kept.sum())))
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients_by_finite_differences(reduction: str) -> None:
    mapping = SimplexMapping(20, 3, field_order=5)
    target = torch.tensor([[7, -100], [19, 0]])

    def loss(*logits: Tensor) -> Tensor:
        return label_mapping_cross_entropy(logits, target, mapping, reduction=reduction)

    assert torch.autograd.gradcheck(loss, draw_logits(mapping, (2, 2)))


def test_an_empty_batch_costs_nothing_and_still_gives_gradients() -> None:
    for reduction, shape in (("mean", ()), ("sum", ()), ("none", (0, 3))):
        logits = draw_logits(CODE, (0, 3))
        target = torch.empty(0, 3, dtype=torch.int64)
        loss = label_mapping_cross_entropy(logits, target, CODE, reduction=reduction)
        assert loss.shape == shape
        assert loss.sum().item() == 0.0
        torch.autograd.backward(loss.sum())
        assert all(x.grad is not None and x.grad.shape == x.shape for x in logits)


def test_the_mean_of_ignored_rows_alone_is_zero() -> None:
    logits = draw_logits(CODE, (2,))
    loss = label_mapping_cross_entropy(logits, torch.tensor([-100, -100]), CODE)
    torch.autograd.backward(loss)
    assert loss.item() == 0.0
    assert all(x.grad is not None and not x.grad.any() for x in logits)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_logits_of_an_ignored_row_may_be_anything(
    bad: float, dtype: torch.dtype, place: int
) -> None:
    target = torch.tensor([5, 999, 42])
    target[place] = -100
    clean, spoilt = draw_logits(CODE, (3,), dtype), draw_logits(CODE, (3,), dtype)
    with torch.no_grad():
        spoilt[0][place] = bad
        spoilt[1][place, 4] = bad
    for reduction in ("mean", "sum", "none"):
        expected = label_mapping_cross_entropy(clean, target, CODE, reduction=reduction)
        loss = label_mapping_cross_entropy(spoilt, target, CODE, reduction=reduction)
        assert torch.equal(loss, expected)
        wanted = torch.autograd.grad(expected.sum(), clean)
        gradients = torch.autograd.grad(loss.sum(), spoilt)
        for gradient, other in zip(gradients, wanted, strict=True):
            assert torch.equal(gradient, other)
            assert not gradient[place].any()


def test_a_bad_logit_of_a_kept_row_is_not_hidden() -> None:
    logits = draw_logits(CODE, (2,))
    with torch.no_grad():
        logits[1][1, 4] = float("nan")
    losses = label_mapping_cross_entropy(logits, torch.tensor([5, 6]), CODE, reduction="none")
    assert torch.isfinite(losses).tolist() == [True, False]


def test_ignore_index_may_be_a_class_and_minus_100_is_one_more_bad_id_then() -> None:
    logits = draw_logits(CODE, (3,))
    losses = label_mapping_cross_entropy(
        logits, torch.tensor([3, 8, 3]), CODE, ignore_index=3, reduction="none"
    )
    assert (losses == 0).tolist() == [True, False, True]
    with pytest.raises(ArgumentError, match=r"target\[1\] is -100"):
        label_mapping_cross_entropy(logits, torch.tensor([3, -100, 3]), CODE, ignore_index=3)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    ],
    ids=str,
)
def test_integers_of_any_width_are_targets(dtype: torch.dtype) -> None:
    target = torch.tensor([0, 127, 5])
    logits = draw_logits(CODE, (3,))
    expected = label_mapping_cross_entropy(logits, target, CODE)
    assert torch.equal(label_mapping_cross_entropy(logits, target.to(dtype), CODE), expected)


def test_class_156_in_uint8_is_not_taken_for_the_ignored_minus_100() -> None:
    logits = draw_logits(CODE, (2,))
    wide, narrow = (
        label_mapping_cross_entropy(
            logits, torch.tensor([156, 3], dtype=dtype), CODE, reduction="none"
        )
        for dtype in (torch.int64, torch.uint8)
    )
    assert torch.equal(wide, narrow)
    assert bool((wide > 0).all())


@pytest.mark.parametrize(
    "target",
    [
        torch.tensor([1.0, 2.0]),
        torch.tensor([1.0, 2.0], dtype=torch.float16),
        torch.tensor([True, False]),
        torch.tensor([1.0 + 0.0j, 2.0]),
    ],
    ids=lambda t: str(t.dtype),
)
def test_targets_that_are_no_integers_are_refused(target: Tensor) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"target must be integers, got {target.dtype}"):
        label_mapping_cross_entropy(draw_logits(CODE, (2,)), target, CODE)


def test_the_first_bad_target_is_named_with_its_place() -> None:
    logits = draw_logits(CODE, (2, 2))
    with pytest.raises(ArgumentError, match=r"0\.\.999 .*0-based.*; target\[1, 0\] is 1000$"):
        label_mapping_cross_entropy(logits, torch.tensor([[0, 999], [1000, -1]]), CODE)
    with pytest.raises(ArgumentError, match=r"; got 1000$"):
        label_mapping_cross_entropy(draw_logits(CODE, ()), torch.tensor(1000), CODE)
    # In int8, 10**8 would wrap to 0 and make the 5 the culprit.
    with pytest.raises(ArgumentError, match=r"x\[1\] is -1$"):
        check_ids("x", torch.tensor([5, -1], dtype=torch.int8), 10**8)


def test_sites_name_which_logits_are_given_and_in_what_order() -> None:
    target = draw_target(CODE, (4,))
    logits = draw_logits(CODE, (4,))
    parts = [
        label_mapping_cross_entropy([logits[site]], target, CODE, sites=[site]) for site in range(3)
    ]
    swapped = label_mapping_cross_entropy([logits[2], logits[0]], target, CODE, sites=[2, 0])
    torch.testing.assert_close(swapped, parts[2] + parts[0])
    whole = label_mapping_cross_entropy(logits, target, CODE)
    torch.testing.assert_close(whole, parts[0] + parts[1] + parts[2])


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ([3], "sites must lie in 0..2, got 3"),
        ([0, 0], "different from each other"),
        ([-1], "at least 0"),
        ([], "must not be empty"),
    ],
    ids=str,
)
def test_sites_that_are_not_there_are_refused(sites: list[int], message: str) -> None:
    logits = draw_logits(CODE, (1,))[: len(sites)]
    with pytest.raises(ArgumentError, match=message):
        label_mapping_cross_entropy(logits, torch.tensor([0]), CODE, sites=sites)


def test_logits_that_do_not_fit_are_refused() -> None:
    target = torch.tensor([[1, 2, 3], [4, 5, 6]])
    logits = draw_logits(CODE, (2, 3))
    with pytest.raises(ArgumentError, match="one tensor for each of 3 sites, got 2"):
        label_mapping_cross_entropy(logits[:2], target, CODE)
    with pytest.raises(ArgumentError, match="one tensor for each of 1 sites, got 3"):
        label_mapping_cross_entropy(logits, target, CODE, sites=[1])
    # As many rows, but in another order: they would be taken for each other.
    for shape in ((3, 2), (6,)):
        with pytest.raises(ArgumentError, match=r"target must have shape .*; got \(2, 3\)"):
            label_mapping_cross_entropy(draw_logits(CODE, shape), target, CODE)
    with pytest.raises(ArgumentError, match=r"site 1 must have shape \(2, 3, 11\), got \(6, 11\)"):
        label_mapping_cross_entropy([logits[0], logits[1].flatten(0, 1), logits[2]], target, CODE)
    # Wider than the alphabet: no kernel would complain.
    with pytest.raises(ArgumentError, match=r"site 0 must have shape \(2, 3, 7\), got"):
        label_mapping_cross_entropy(logits[::-1], target, CODE)
    for joined in (torch.zeros(2, 3, 30), torch.zeros(())):
        with pytest.raises(ArgumentError, match=r"site_logits must have shape \(\.\.\., 31\)"):
            label_mapping_cross_entropy(joined, target, CODE)


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ArgumentError, match="reduction must be one of mean, sum, none; got 'avg'"):
        label_mapping_cross_entropy(
            draw_logits(CODE, (1,)), torch.tensor([1]), CODE, reduction="avg"
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_logits_give_a_float32_loss(dtype: torch.dtype) -> None:
    target = draw_target(CODE, (5,))
    logits = draw_logits(CODE, (5,), dtype)
    lifted = [x.detach().float() for x in logits]
    for reduction in ("mean", "sum", "none"):
        loss = label_mapping_cross_entropy(logits, target, CODE, reduction=reduction)
        assert loss.dtype == torch.float32
        expected = label_mapping_cross_entropy(lifted, target, CODE, reduction=reduction)
        assert torch.equal(loss, expected)
    torch.autograd.backward(loss.sum())
    assert all(x.grad is not None and x.grad.dtype == dtype for x in logits)


def test_ids_near_10_to_the_12_have_exact_symbols() -> None:
    mapping = MixedMapping(10**12, [10007, 10009, 10037])
    ids = [10**12 - 1, 2**24 + 1, 0]
    logits = draw_logits(mapping, (3,), torch.float32)
    losses = label_mapping_cross_entropy(logits, torch.tensor(ids), mapping, reduction="none")
    log_probs = [F.log_softmax(x, dim=-1) for x in logits]
    expected = [
        -sum(log_probs[site][row, i % q].item() for site, q in enumerate(mapping.alphabet_sizes))
        for row, i in enumerate(ids)
    ]
    torch.testing.assert_close(losses, torch.tensor(expected))


TERNARY = EcocMapping(6, "one-versus-one")
ALL_MAPPINGS = [*MAPPINGS, TERNARY, SimplexMapping(80, 4, field_order=9), HashedMapping(300, 6, 16)]


def assert_equal(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def smoothed_losses(
    logits: Sequence[Tensor], target: Tensor, mapping: LabelMapping, smoothing: float
) -> Tensor:
    """Per row, the sum of the sites' own losses; a site that abstains adds nothing. (rows,)."""
    codewords = torch.from_numpy(mapping.encode(target.numpy()))
    losses = torch.zeros(len(target), dtype=logits[0].dtype)
    for i, site in enumerate(logits):
        losses = losses + F.cross_entropy(
            site, codewords[:, i], ignore_index=-1, reduction="none", label_smoothing=smoothing
        )
    return losses


@pytest.mark.parametrize("side_by_side", [True, False], ids=["tensor", "sequence"])
@pytest.mark.parametrize("mapping", ALL_MAPPINGS, ids=lambda m: m.kind + str(m.n_sites))
def test_options_against_plain_loops_over_sites_and_rows(
    mapping: LabelMapping, side_by_side: bool
) -> None:
    generator = torch.Generator().manual_seed(3)
    target = torch.randint(mapping.n_classes, (5, 3), generator=generator)
    target[0, 1], target[3] = -100, -100
    class_weight = torch.rand(mapping.n_classes, generator=generator, dtype=torch.float64)
    sample_weight = torch.tensor([1.0, 0.5, 0.0, 1.0, 3.0])
    for smoothing in (0.0, 0.3):
        parts = draw_logits(mapping, (5,))
        logits = torch.cat(parts, dim=1) if side_by_side else parts
        options: dict[str, Any] = {
            "weight": class_weight,
            "sample_weight": sample_weight,
            "label_smoothing": smoothing,
        }
        losses = label_mapping_cross_entropy(logits, target, mapping, **options, reduction="none")
        total = label_mapping_cross_entropy(logits, target, mapping, **options, reduction="sum")
        mean = label_mapping_cross_entropy(logits, target, mapping, **options)
        expected, weights = torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
        for row in range(5):
            kept = target[row][target[row] != -100]
            if len(kept) == 0:
                continue
            rows = [x[row].expand(len(kept), -1) for x in parts]
            own = smoothed_losses(rows, kept, mapping, smoothing) * class_weight[kept]
            expected[row] = sample_weight[row] * own.mean()
            weights[row] = sample_weight[row] * class_weight[kept].mean()
        assert_equal(losses, expected)
        assert_equal(total, expected.sum())
        assert_equal(mean, expected.sum() / weights.sum())
        wanted = torch.autograd.grad(expected.sum(), parts, retain_graph=True)
        for a, b in zip(torch.autograd.grad(losses.sum(), parts), wanted, strict=True):
            assert_equal(a, b)
            assert not a[2:4].any()  # of weight 0, and ignored


@pytest.mark.parametrize("mapping", MAPPINGS[:2], ids=lambda m: m.kind)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)], ids=str)
def test_side_by_side_logits_are_the_sequence(
    mapping: LabelMapping, shape: tuple[int, ...]
) -> None:
    parts = draw_logits(mapping, shape, torch.float32)
    target = draw_target(mapping, shape)
    joined = torch.cat(parts, dim=-1)
    for reduction in ("none", "mean"):
        ours = label_mapping_cross_entropy(joined, target, mapping, reduction=reduction)
        plain = label_mapping_cross_entropy(parts, target, mapping, reduction=reduction)
        torch.testing.assert_close(ours, plain)


def test_class_weights_of_a_one_hot_code_are_those_of_cross_entropy() -> None:
    mapping = MixedMapping.one_hot(50)
    (logits,) = draw_logits(mapping, (7,))
    target = draw_target(mapping, (7,))
    target[2] = -100
    weight = torch.rand(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        ours = label_mapping_cross_entropy(
            logits, target, mapping, weight=weight, reduction=reduction
        )
        expected = F.cross_entropy(logits, target, weight=weight, reduction=reduction)
        assert_equal(ours, expected)
    nothing = torch.zeros(50)
    assert label_mapping_cross_entropy(logits, target, mapping, weight=nothing).item() == 0.0


@pytest.mark.parametrize("normalization", ["site", "class"])
def test_gradients_of_all_options_by_finite_differences(normalization: str) -> None:
    mapping = SimplexMapping(20, 3, field_order=5)
    target = torch.tensor([[7, -100], [19, 0], [-100, -100]])
    weight = torch.linspace(0, 1, 20, dtype=torch.float64)

    def loss(logits: Tensor, sample_weight: Tensor) -> Tensor:
        return label_mapping_cross_entropy(
            logits,
            target,
            mapping,
            normalization=normalization,
            label_smoothing=0.2,
            weight=weight,
            sample_weight=sample_weight,
        )

    joined = torch.cat([x.detach() for x in draw_logits(mapping, (3,))], dim=1).requires_grad_()
    assert torch.autograd.gradcheck(loss, (joined, torch.rand(3).double().requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_weights_of_another_float_type_do_not_change_the_loss_s(dtype: torch.dtype) -> None:
    logits = draw_logits(CODE, (2,), dtype)
    for weights in (torch.ones(2, dtype=torch.float64), torch.ones(2).half(), torch.ones(2).int()):
        for reduction in ("mean", "sum", "none"):
            loss = label_mapping_cross_entropy(
                logits, torch.tensor([1, 2]), CODE, sample_weight=weights, reduction=reduction
            )
            assert loss.dtype == dtype


@pytest.mark.parametrize("mapping", [CODE, MAPPINGS[1]], ids=lambda m: m.kind)
@pytest.mark.parametrize("normalization", ["site", "class"])
def test_an_ignored_row_side_by_side_may_be_nan(mapping: LabelMapping, normalization: str) -> None:
    logits = torch.cat(draw_logits(mapping, (3,), torch.float16), dim=1).detach()
    logits[1] = torch.nan
    logits.requires_grad_()
    target = torch.tensor([5, -100, 42])
    loss = label_mapping_cross_entropy(logits, target, mapping, normalization=normalization)
    expected = label_mapping_cross_entropy(
        logits[::2], target[::2], mapping, normalization=normalization
    )
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.dtype == torch.float16
    assert bool(torch.isfinite(gradient).all())
    assert gradient.any(dim=1).tolist() == [True, False, True]


def test_unchecked_targets_train_whatever_class_has_their_symbols() -> None:
    logits = draw_logits(CODE, (2,))
    unchecked, taken = (
        label_mapping_cross_entropy(logits, torch.tensor(ids), CODE, check_targets=check)
        for ids, check in (([1006, 3], False), ([5, 3], True))
    )
    assert torch.equal(unchecked, taken)
    ignored = label_mapping_cross_entropy(
        logits, torch.tensor([-100, 3]), CODE, check_targets=False, reduction="none"
    )
    assert ignored[0].item() == 0.0


def test_an_encoder_serves_as_the_mapping() -> None:
    mapping = TableMapping(CODE.encode(range(100)), [7, 11, 13])
    encoder = CodewordEncoder(mapping, [2, 0])
    logits = [draw_logits(CODE, (3,))[site] for site in (2, 0)]
    target = torch.tensor([5, 99, 0])
    ours = label_mapping_cross_entropy(logits, target, encoder)
    assert torch.equal(ours, label_mapping_cross_entropy(logits, target, CODE, sites=[2, 0]))


@pytest.mark.parametrize("smoothing", [-0.1, 1.1, float("nan")])
def test_smoothing_outside_its_range_is_refused(smoothing: float) -> None:
    with pytest.raises(ArgumentError, match=r"label_smoothing must lie in \[0, 1\], got"):
        label_mapping_cross_entropy(
            draw_logits(CODE, (1,)), torch.tensor([1]), CODE, label_smoothing=smoothing
        )
