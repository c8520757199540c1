"""`LabelMappingHead`: what it builds, answers, saves and refuses."""

import copy
import math
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import LabelMapping, MixedMapping, SimplexMapping
from labelmapping.nn import HeadOutput, LabelMappingHead, label_mapping_cross_entropy

CODE = MixedMapping(1000, [7, 11, 13])
HUGE = MixedMapping(10**8, [463, 467, 479])


def new_head(seed: int = 0, mapping: LabelMapping = CODE, **options: Any) -> LabelMappingHead:
    torch.manual_seed(seed)
    return LabelMappingHead(5, mapping, **options)


def draw_batch(
    shape: Sequence[int] = (6,), dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(*shape, 5, generator=generator, dtype=dtype)
    return features, torch.randint(1000, tuple(shape), generator=generator)


@pytest.mark.parametrize(
    ("hidden", "widths"),
    [(0, []), ([], []), (4, [4]), ([4], [4]), ((4, 3), [4, 3]), ([4, 4, 2], [4, 4, 2])],
    ids=str,
)
def test_hidden_layers_are_linear_with_norm_and_relu_and_shared(
    hidden: int | Sequence[int], widths: list[int]
) -> None:
    head = new_head(hidden=hidden)
    linears = [m for m in head.modules() if isinstance(m, nn.Linear)]
    assert [m.out_features for m in linears] == [*widths, 7 + 11 + 13]
    features, _ = draw_batch()
    values = features
    for layer in linears[:-1]:
        assert "bias" not in dict(layer.named_parameters())
        values = F.layer_norm(F.linear(values, layer.weight), layer.weight.shape[:1]).clamp(min=0)
    values = F.linear(values, linears[-1].weight, linears[-1].bias)
    logits = head.site_logits(features)
    assert torch.equal(torch.cat(logits, dim=-1), values)
    assert [x.shape for x in logits] == [(6, 7), (6, 11), (6, 13)]


def test_dropout_follows_each_hidden_layer_in_training_only() -> None:
    head = new_head(hidden=[64, 32], dropout=0.5)
    assert [m.p for m in head.modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    features, _ = draw_batch()
    first, second = head.site_logits(features)[0], head.site_logits(features)[0]
    assert not torch.equal(first, second)
    head.eval()
    plain = new_head(hidden=[64, 32])
    for ours, expected in zip(head.site_logits(features), plain.site_logits(features), strict=True):
        assert torch.equal(ours, expected)
    assert not [m for m in new_head(dropout=0.5).modules() if isinstance(m, nn.Dropout)]


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 1.5, math.nan])
def test_dropout_outside_its_range_is_refused(dropout: float) -> None:
    with pytest.raises(ArgumentError, match=r"dropout must lie in \[0, 1\), got"):
        new_head(hidden=4, dropout=dropout)


def test_without_bias_there_is_none_anywhere() -> None:
    head = new_head(hidden=[4, 3], bias=False)
    assert [name for name, _ in head.named_parameters()] == [
        "hidden.0.weight",
        "hidden.1.weight",
        "hidden.3.weight",
        "hidden.4.weight",
        "output.weight",
    ]
    zeros = torch.zeros(1, 5)
    assert all(not logits.any() for logits in head.site_logits(zeros))


@pytest.mark.parametrize("shape", [(), (1,), (6,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("sites", [None, [1], [2, 0]], ids=str)
def test_forward_agrees_with_the_log_probs_and_the_loss(
    shape: tuple[int, ...], sites: list[int] | None
) -> None:
    head = new_head(hidden=4, sites=sites).double()
    features, target = draw_batch(shape, torch.float64)
    result = head(features, target)
    assert isinstance(result, HeadOutput)
    chosen = [0, 1, 2] if sites is None else sites
    log_probs = head.site_log_probs(features)
    assert [x.shape for x in log_probs] == [(*shape, CODE.alphabet_sizes[s]) for s in chosen]
    expected = torch.zeros(shape, dtype=torch.float64)
    for values, site in zip(log_probs, chosen, strict=True):
        symbols = torch.from_numpy(CODE.encode(target.numpy())[..., site])
        expected = expected + values.gather(-1, symbols.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(result.output, expected)
    mean = -expected.mean() if expected.numel() else torch.zeros((), dtype=torch.float64)
    torch.testing.assert_close(result.loss, mean)
    loss = label_mapping_cross_entropy(head.site_logits(features), target, CODE, sites=sites)
    torch.testing.assert_close(result.loss, loss)


@pytest.mark.parametrize("ignore_index", [-100, 3, -1])
def test_ignored_rows_have_no_output_and_leave_the_mean(ignore_index: int) -> None:
    head = new_head(ignore_index=ignore_index)
    features, _ = draw_batch((4,))
    target = torch.tensor([10, ignore_index, 999, ignore_index])
    output, loss = head(features, target)
    kept_output, kept_loss = head(features[[0, 2]], target[[0, 2]])
    assert output[[1, 3]].tolist() == [0.0, 0.0]
    torch.testing.assert_close(output[[0, 2]], kept_output)
    torch.testing.assert_close(loss, kept_loss)


def test_class_156_in_uint8_is_kept_in_output_and_mean() -> None:
    head = new_head()
    features, _ = draw_batch((2,))
    wide = head(features, torch.tensor([156, 3]))
    narrow = head(features, torch.tensor([156, 3], dtype=torch.uint8))
    assert torch.equal(wide.output, narrow.output)
    assert torch.equal(wide.loss, narrow.loss)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_log_probs_are_normalised_at_each_site(scale: float) -> None:
    features, _ = draw_batch()
    for log_probs in new_head().site_log_probs(features * scale):
        assert bool(torch.isfinite(log_probs).all())
        assert bool((log_probs <= 0).all())
        torch.testing.assert_close(log_probs.exp().sum(dim=-1), torch.ones(6))


def test_only_weights_are_saved_and_they_load_elsewhere() -> None:
    head = new_head(hidden=4)
    state = head.state_dict()
    assert list(state) == [
        "hidden.0.weight",
        "hidden.1.weight",
        "hidden.1.bias",
        "output.weight",
        "output.bias",
    ]
    assert not list(head.buffers())
    other = new_head(seed=1, hidden=4)
    features, target = draw_batch()
    assert not torch.equal(other(features, target).output, head(features, target).output)
    other.load_state_dict(state)
    assert torch.equal(other(features, target).output, head(features, target).output)


def test_copies_and_pickles_answer_alike() -> None:
    head = new_head(hidden=4, sites=[2, 0])
    features, target = draw_batch()
    expected = head(features, target).output
    for twin in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert torch.equal(twin(features, target).output, expected)
        assert twin.mapping == CODE


def test_the_seed_decides_the_weights() -> None:
    def weights(seed: int) -> Tensor:
        return torch.cat([p.flatten() for p in new_head(seed, hidden=4).parameters()])

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))


def test_every_parameter_gets_a_gradient_that_is_not_zero() -> None:
    head = new_head(hidden=[16, 16])
    features, target = draw_batch((32,))
    features.requires_grad_()
    head(features, target).loss.backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name
    assert features.grad is not None
    assert bool(features.grad.any())


def test_bfloat16_autocast_gives_a_float32_loss_close_to_float32() -> None:
    head = new_head(hidden=16)
    features, target = draw_batch((32,))
    expected = head(features, target).loss
    with torch.autocast("cpu", torch.bfloat16):
        assert head.site_logits(features)[0].dtype == torch.bfloat16
        output, loss = head(features, target)
        log_probs = head.site_log_probs(features)
    assert {output.dtype, loss.dtype, *(x.dtype for x in log_probs)} == {torch.float32}
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=0)
    loss.backward()
    for parameter in head.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert bool(torch.isfinite(parameter.grad).all())


def test_a_head_for_10_to_the_8_classes_has_the_symbols_weights_only() -> None:
    head = LabelMappingHead(16, HUGE)
    n_symbols = 463 + 467 + 479
    assert [p.shape for p in head.parameters()] == [(n_symbols, 16), (n_symbols,)]
    with torch.device("meta"):
        unmade = LabelMappingHead(16, HUGE)
    assert all(p.is_meta for p in unmade.parameters())
    unmade.to_empty(device="cpu").load_state_dict(head.state_dict())
    features, target = torch.ones(2, 16), torch.tensor([0, 10**8 - 1])
    assert torch.equal(unmade(features, target).output, head(features, target).output)


def test_symbols_of_a_simplex_code_train_the_right_rows() -> None:
    mapping = SimplexMapping(100, 3, field_order=11)
    head = new_head(mapping=mapping)
    for x in (0, 37, 99):
        head.zero_grad()
        head(torch.ones(1, 5), torch.tensor([x])).loss.backward()
        gradient = head.output.bias.grad
        assert gradient is not None
        # The only negative gradients are those of the target's symbols.
        codeword = [(x % 11 + x // 11 * i) % 11 for i in (1, 2, 3)]
        rows = [11 * site + symbol for site, symbol in enumerate(codeword)]
        assert torch.nonzero(gradient < 0).flatten().tolist() == rows


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0, CODE), {}, ArgumentError, "in_features must be at least 1"),
        ((2.0, CODE), {}, ArgumentTypeError, "in_features must be an integer"),
        ((5, CODE), {"hidden": -1}, ArgumentError, "hidden must be at least 0, got -1"),
        ((5, CODE), {"hidden": 2.0}, ArgumentTypeError, "hidden must be an integer"),
        ((5, CODE), {"hidden": [4, 0]}, ArgumentError, r"hidden\[1\] must be at least 1"),
        ((5, CODE), {"hidden": "12"}, ArgumentTypeError, "hidden must be a sequence"),
        ((5, CODE), {"sites": [3]}, ArgumentError, r"sites must lie in 0\.\.2, got 3"),
        ((5, CODE), {"sites": [1, 1]}, ArgumentError, "sites must be different"),
        ((5, CODE), {"sites": []}, ArgumentError, "sites must not be empty"),
    ],
)
def test_bad_arguments_are_refused_at_construction(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        LabelMappingHead(*arguments, **options)


def test_a_target_of_another_shape_than_the_features_is_refused() -> None:
    features, _ = draw_batch((2, 3))
    with pytest.raises(ArgumentError, match=r"must have shape \(3, 2, 7\), got \(2, 3, 7\)"):
        new_head()(features, torch.zeros(3, 2, dtype=torch.int64))


def test_its_repr_shows_code_and_sites() -> None:
    text = repr(new_head(sites=[2, 0]))
    assert repr(CODE) in text
    assert "sites=[2, 0]" in text
