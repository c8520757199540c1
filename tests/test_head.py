"""`LabelMappingHead`: what it builds, answers, saves and refuses."""

import copy
import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from labelmapping.decoding import decode_topk
from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.mappings import (
    EcocMapping,
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
    TableMapping,
)
from labelmapping.nn import (
    HeadOutput,
    LabelMappingHead,
    label_mapping_cross_entropy,
    read_mapping,
)

CODE = MixedMapping(1000, [7, 11, 13])
HUGE = MixedMapping(10**8, [463, 467, 479])
TABLE = TableMapping(CODE.encode(range(100)), [7, 11, 13])
# Its classes differ in how many sites abstain on them.
TERNARY = EcocMapping(20, "sparse-random", n_sites=60, seed=0)


def new_head(seed: int = 0, mapping: LabelMapping = CODE, **options: Any) -> LabelMappingHead:
    torch.manual_seed(seed)
    return LabelMappingHead(5, mapping, **options)


def draw_batch(
    shape: Sequence[int] = (6,), dtype: torch.dtype | None = None, high: int = 1000
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(*shape, 5, generator=generator, dtype=dtype)
    return features, torch.randint(high, tuple(shape), generator=generator)


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


@pytest.mark.parametrize("mapping", [CODE, TABLE], ids=lambda m: m.kind)
def test_weights_and_recipe_are_saved_and_load_elsewhere(
    mapping: LabelMapping, tmp_path: Path
) -> None:
    head = new_head(mapping=mapping, hidden=4, weight=torch.rand(mapping.n_classes))
    state = head.state_dict()
    assert list(state) == [
        "_extra_state",
        "hidden.0.weight",
        "hidden.1.weight",
        "hidden.1.bias",
        "output.weight",
        "output.bias",
    ]
    network = nn.Sequential(nn.Identity(), head)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    saved = load_file(tmp_path / "weights.safetensors")
    assert read_mapping(saved, "1.") == mapping
    other = new_head(seed=1, mapping=read_mapping(saved, "1."), hidden=4, weight=head.weight)
    features, target = draw_batch(high=100)
    assert not torch.equal(other(features, target).output, head(features, target).output)
    nn.Sequential(nn.Identity(), other).load_state_dict(saved)
    assert torch.equal(other(features, target).loss, head(features, target).loss)
    with pytest.raises(ArgumentError, match=r"prefix must be .* one of \['1\.'\]; got ''"):
        read_mapping(saved)


def test_weights_without_a_recipe_load_and_a_damaged_recipe_is_refused() -> None:
    head = new_head(hidden=4)
    state = head.state_dict()
    damaged = dict(state, _extra_state=state["_extra_state"][:-2])
    del state["_extra_state"]
    other = new_head(seed=1, hidden=4)
    with pytest.raises(ArgumentError, match="damaged recipe"):
        other.load_state_dict(damaged)
    with pytest.raises(ArgumentError, match="damaged recipe"):
        read_mapping(damaged)
    other.load_state_dict(state)
    features, target = draw_batch()
    assert torch.equal(other(features, target).loss, head(features, target).loss)
    del state["output.bias"]
    with pytest.raises(RuntimeError, match=r"Missing key.*output\.bias"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("mapping", "sites", "message"),
    [
        (
            MixedMapping(1000, [7, 11, 17]),
            None,
            r"alphabet_sizes is \[7, 11, 13\] here and \[7, 11, 17\] there$",
        ),
        (SimplexMapping(100, 4, field_order=11), None, "kind is 'mixed' here and 'simplex' there"),
        (CODE, [2, 1, 0], r"the same sites: all here and \[2, 1, 0\] there"),
        (CODE, [1], r"the same sites: all here and \[1\] there"),
    ],
)
def test_weights_of_another_code_are_refused_and_none_is_loaded(
    mapping: LabelMapping, sites: list[int] | None, message: str
) -> None:
    head = new_head()
    before = head.output.weight.clone()
    with pytest.raises(ArgumentError, match=message):
        head.load_state_dict(new_head(seed=1, mapping=mapping, sites=sites).state_dict())
    assert torch.equal(head.output.weight, before)


def test_weights_of_another_site_of_the_same_alphabet_are_refused() -> None:
    mapping = SimplexMapping(100, 4, field_order=11)
    head = new_head(mapping=mapping, sites=[1])
    head.load_state_dict(new_head(seed=1, mapping=mapping.grow(121), sites=[1]).state_dict())
    with pytest.raises(ArgumentError, match=r"sites: \[1\] here and \[2\] there"):
        head.load_state_dict(new_head(mapping=mapping, sites=[2]).state_dict())


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_gives_a_float32_loss_close_to_float32(dtype: torch.dtype) -> None:
    head = new_head(hidden=16)
    features, target = draw_batch((32,))
    expected = head(features, target).loss
    with torch.autocast("cpu", dtype):
        assert head.site_logits(features)[0].dtype == dtype
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
        ((5, CODE), {"ignore_index": 1.0}, ArgumentTypeError, "ignore_index must be an integer"),
        (
            (5, CODE),
            {"reduction": "max"},
            ArgumentError,
            "reduction must be one of mean, sum, none",
        ),
        ((5, CODE), {"label_smoothing": 2}, ArgumentError, r"label_smoothing must lie in \[0, 1\]"),
        ((5, CODE), {"weight": [1.0] * 999}, ArgumentError, "weight must be 1000 numbers"),
        ((5, CODE), {"weight": [-1.0] * 1000}, ArgumentError, r"weight\[0\] is -1\.0"),
        (
            (5, CODE),
            {"weight": [1.0] * 1000, "device": "meta"},
            ArgumentError,
            "weight must lie on a real device",
        ),
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
    with pytest.raises(ArgumentError, match=r"target must have shape \(2, 3\) or.* got \(3, 2\)"):
        new_head()(features, torch.zeros(3, 2, dtype=torch.int64))
    for input in (torch.zeros(2, 4), torch.tensor(1.0)):
        for call in (new_head().log_prob, new_head().predict, new_head().site_log_probs):
            with pytest.raises(ArgumentError, match=r"input must have shape \(\.\.\., 5\), got"):
                call(input)


def test_its_repr_shows_code_and_sites() -> None:
    text = repr(new_head(sites=[2, 0]))
    assert repr(CODE) in text
    assert "sites=[2, 0]" in text


def brute_force(head: LabelMappingHead, features: Tensor) -> Tensor:
    """Log-probabilities of all classes: sums over the sites, log 1/2 where one abstains."""
    codewords = torch.from_numpy(head.mapping.encode(range(head.n_classes)))
    scores = torch.zeros(*features.shape[:-1], head.n_classes)
    for values, site in zip(head.site_log_probs(features), head.sites, strict=True):
        symbols = codewords[:, site]
        scores = scores + torch.where(symbols < 0, math.log(0.5), values[..., symbols.clamp(min=0)])
    return scores.log_softmax(dim=-1)


@pytest.mark.parametrize(
    ("mapping", "options"),
    [
        (CODE, {"hidden": 4}),
        (CODE, {"sites": [2, 0]}),
        (CODE, {"normalization": "class"}),
        (TABLE, {}),
        (TERNARY, {}),
        (HashedMapping(300, 6, 16), {}),
        (SimplexMapping(80, 4, field_order=9), {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)], ids=str)
def test_log_prob_is_a_distribution_over_the_classes(
    mapping: LabelMapping, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    head = new_head(mapping=mapping, **options)
    features, _ = draw_batch(shape)
    log_probs = head.log_prob(features * 5)
    assert log_probs.shape == (*shape, mapping.n_classes)
    torch.testing.assert_close(log_probs.exp().sum(dim=-1), torch.ones(shape))
    torch.testing.assert_close(log_probs, brute_force(head, features * 5))
    if options.get("normalization") == "class" and features.numel():
        target = torch.full(shape, 7)
        torch.testing.assert_close(head(features * 5, target).output, log_probs[..., 7])


def test_log_prob_gives_gradients_and_is_in_float32_at_least() -> None:
    head = new_head().bfloat16()
    log_probs = head.log_prob(torch.ones(2, 5, dtype=torch.bfloat16))
    assert log_probs.dtype == torch.float32
    torch.autograd.backward(log_probs[:, 3].sum())
    assert all(p.grad is not None and p.grad.any() for p in head.parameters())


@pytest.mark.parametrize("mapping", [CODE, TABLE, TERNARY], ids=lambda m: m.kind)
def test_log_prob_in_blocks_is_that_of_one(
    mapping: LabelMapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, (features, _) = new_head(mapping=mapping), draw_batch((3,))

    def gradients() -> list[torch.Tensor]:
        head.zero_grad()
        torch.autograd.backward(head.log_prob(features)[:, ::7].square().sum())
        return [p.grad for p in head.parameters() if p.grad is not None]

    whole, expected = head.log_prob(features), gradients()
    monkeypatch.setattr("labelmapping.nn.head.BLOCK", mapping.n_classes // 3)
    with torch.no_grad():
        torch.testing.assert_close(head.log_prob(features), whole)
        assert head.log_prob(features[:0]).shape == (0, mapping.n_classes)
    torch.testing.assert_close(head.log_prob(features), whole)
    torch.testing.assert_close(gradients(), expected, rtol=1e-4, atol=1e-4)


def test_log_prob_above_a_gibibyte_is_refused() -> None:
    head = new_head(mapping=HUGE)
    with pytest.raises(
        ArgumentError, match=r"at most 2 rows for log_prob over 100000000 classes, "
    ):
        head.log_prob(torch.zeros(3, 5))
    assert head.topk(torch.zeros(3, 5), 2).ids.shape == (3, 2)


@pytest.mark.parametrize("mapping", [CODE, TABLE, TERNARY], ids=lambda m: m.kind)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4,), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray], ids=["tensors", "arrays"])
def test_topk_and_predict_are_decode_topk(
    mapping: LabelMapping, shape: tuple[int, ...], kind: Any
) -> None:
    head, n_classes = new_head(mapping=mapping), mapping.n_classes
    features, _ = draw_batch(shape)
    allowed, prior = np.arange(0, n_classes, 2), np.linspace(-9, 0, n_classes)
    rows = [x.detach().reshape(-1, x.shape[-1]) for x in head.site_log_probs(features)]
    for ours, theirs in (
        ({}, {}),
        ({"allowed": kind(allowed)}, {"allowed": allowed}),
        ({"allowed": kind(np.arange(n_classes) < 3)}, {"allowed": [0, 1, 2]}),
        ({"prior": kind(prior)}, {"prior": prior}),
        ({"prior": lambda ids: -ids}, {"prior": lambda ids: -ids}),
    ):
        for k in (1, 3, n_classes + 5):
            found, expected = (
                head.topk(features, k, **ours),
                decode_topk(mapping, rows, k, **theirs),
            )
            assert found.ids.shape == (*shape, min(k, expected.ids.shape[1]))
            assert found.ids.flatten().tolist() == expected.ids.flatten().tolist()
            assert found.scores.flatten().tolist() == expected.scores.flatten().tolist()
            assert (found.ids.dtype, found.scores.dtype) == (torch.int64, torch.float32)
    assert torch.equal(head.predict(features), head.topk(features, 1).ids[..., 0])


def test_answers_of_some_sites_and_priors_that_are_being_trained() -> None:
    head = new_head(sites=[2, 0, 1])
    features, _ = draw_batch((3,))
    for dtype in (torch.bfloat16, torch.float64):
        prior = torch.zeros(1000, dtype=dtype).requires_grad_()
        assert torch.equal(head.topk(features, 2, prior=prior).ids, head.topk(features, 2).ids)
    with pytest.raises(ArgumentError, match="at least 3 sites"):
        new_head(sites=[0, 1]).predict(features)
    with pytest.raises(ArgumentError, match="k must be at least 1"):
        head.topk(features, 0)


GROWING: list[tuple[LabelMapping, int]] = [
    (CODE, 1001),
    (SimplexMapping(100, 4, field_order=11), 121),
    (SimplexMapping(80, 4, field_order=9), 81),
    (RandomMapping(50, 4, 11), 60),
    (HashedMapping(300, 6, 16), 350),
]


@pytest.mark.parametrize(("mapping", "n_classes"), GROWING, ids=repr)
@pytest.mark.parametrize("normalization", ["site", "class"])
def test_growing_changes_no_tensor_and_answers_new_classes(
    mapping: LabelMapping, n_classes: int, normalization: str
) -> None:
    weight = torch.rand(mapping.n_classes)
    head = new_head(
        mapping=mapping,
        hidden=4,
        weight=weight,
        normalization=normalization,
        label_smoothing=0.1,
    )
    before = head.state_dict()
    features, target = draw_batch((8,), high=mapping.n_classes)
    codewords = head.encoder(target)
    old = copy.deepcopy(head)
    head.grow(n_classes)
    after = head.state_dict()
    assert list(after) == list(before)
    for name in set(after) - {"_extra_state"}:
        assert after[name].data_ptr() == before[name].data_ptr()
    assert head.n_classes == n_classes
    assert torch.equal(head.encoder(target), codewords)
    assert head.weight is not None
    new = weight.mean().expand(n_classes - len(weight))
    assert torch.equal(head.weight, torch.cat([weight, new]))
    # The new class is trained and answered.
    new = torch.full((8,), n_classes - 1)
    loss = head(features, new).loss
    fresh = new_head(
        mapping=mapping.grow(n_classes),
        hidden=4,
        weight=head.weight,
        normalization=normalization,
        label_smoothing=0.1,
    )
    torch.testing.assert_close(loss, fresh(features, new).loss)
    assert head.topk(features, n_classes).ids.shape == (8, n_classes)
    with pytest.raises(ArgumentError, match=r"target\[0\] is"):
        old(features, new)
    # Saved weights go both ways.
    old.load_state_dict(after)
    fresh.load_state_dict(before)
    assert read_mapping(after).n_classes == n_classes


def test_growing_beyond_what_is_possible_leaves_the_head_as_it_was() -> None:
    head = new_head(weight=torch.ones(1000))
    encoder, weight = head.encoder, head.weight
    for n_classes, message in (
        (1002, "at most the capacity of these alphabets, 1001"),
        (999, "at least the present 1000"),
        (MixedMapping(999, [7, 11, 13]), "at least the present 1000, got 999"),
        (MixedMapping(1001, [7, 11, 13, 17]), r"for the same code: .*\[7, 11, 13, 17\] there"),
        (SimplexMapping(100, 3, field_order=11), "n_classes must be for the same code"),
    ):
        with pytest.raises(ArgumentError, match=message):
            head.grow(n_classes)
    assert head.mapping is CODE
    assert (head.encoder, head.weight) == (encoder, weight)


def test_tables_and_learned_codes_grow_by_the_grown_mapping() -> None:
    features, _ = draw_batch((4,))
    codewords = CODE.encode(range(150))
    head = new_head(mapping=TABLE)
    with pytest.raises(ArgumentError):
        head.grow(150)
    head.grow(TableMapping(codewords, [7, 11, 13]))
    expected = new_head()(features, torch.full((4,), 149))
    assert torch.equal(head(features, torch.full((4,), 149)).output, expected.output)
    # Class 3 has another codeword in this one.
    codewords[[3, 149]] = codewords[[149, 3]]
    with pytest.raises(ArgumentError, match=r"class 3 has \[3, 3, 3\] here and \[2, 6, 6\] there"):
        head.grow(TableMapping(codewords, [7, 11, 13]))
    assert head.encoder(torch.tensor([3])).tolist() == [[3, 3, 3]]

    prototypes = np.random.default_rng(0).normal(size=(40, 6))
    learned = LearnedMapping.fit(prototypes[:30], n_sites=3, alphabet_size=7)
    head = new_head(mapping=learned)
    head.grow(learned.grow(40, prototypes=prototypes[30:]))
    assert head.n_classes == 40
    assert head.predict(features).shape == (4,)


def test_reset_draws_what_a_new_head_has() -> None:
    head = new_head(seed=1, hidden=[4, 3])
    expected = new_head(seed=0, hidden=[4, 3]).state_dict()
    torch.manual_seed(0)
    head.reset_parameters()
    assert all(torch.equal(x, expected[name]) for name, x in head.state_dict().items())


def test_device_and_dtype_are_those_of_the_parameters() -> None:
    head = new_head(hidden=4, dtype=torch.float64, weight=[1.0] * 1000)
    assert {p.dtype for p in head.parameters()} == {torch.float64}
    assert head.weight is not None
    assert head.weight.dtype == torch.float64
    features, target = draw_batch(dtype=torch.float64)
    assert head(features, target).loss.dtype == torch.float64
    for mapping in (CODE, TABLE):
        unmade = new_head(mapping=mapping, device="meta", normalization="class")
        assert {x.device.type for x in (*unmade.parameters(), *unmade.buffers())} == {"meta"}
        made = new_head(mapping=mapping, normalization="class")
        unmade.to_empty(device="cpu").load_state_dict(made.state_dict())
        features, target = draw_batch(high=100)
        assert torch.equal(unmade(features, target).loss, made(features, target).loss)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("normalization", ["site", "class"])
def test_options_reach_the_loss_and_not_the_output(normalization: str, reduction: str) -> None:
    class_weight = torch.rand(1000, generator=torch.Generator().manual_seed(2))
    options: dict[str, Any] = {
        "normalization": normalization,
        "reduction": reduction,
        "label_smoothing": 0.2,
        "ignore_index": -1,
    }
    head = new_head(weight=class_weight, **options)
    features, _ = draw_batch((2, 2))
    target = torch.tensor([[[5, 999], [-1, -1]], [[7, -1], [1, 1]]])
    sample_weight = torch.tensor([[1.0, 1.0], [2.0, 0.0]])
    output, loss = head(features, target, sample_weight=sample_weight)
    expected = label_mapping_cross_entropy(
        head.site_logits(features),
        target,
        CODE,
        weight=class_weight,
        sample_weight=sample_weight,
        **options,
    )
    torch.testing.assert_close(loss, expected)
    plain = new_head(normalization=normalization)
    for row in ((0, 0), (1, 0), (1, 1)):
        kept = target[row][target[row] >= 0]
        alone = plain(features[row].expand(len(kept), -1), kept).output
        torch.testing.assert_close(output[row][target[row] >= 0], alone)
    assert not output[target < 0].any()


@pytest.mark.parametrize("hidden", [0, [4, 3]], ids=str)
@pytest.mark.parametrize("normalization", ["site", "class"])
def test_features_of_ignored_rows_may_be_anything(
    hidden: int | list[int], normalization: str
) -> None:
    head = new_head(hidden=hidden, normalization=normalization)
    features, target = draw_batch((4,))
    target[[1, 2]] = -100
    torch.autograd.backward(head(features[[0, 3]], target[[0, 3]]).loss)
    expected = {name: p.grad for name, p in head.named_parameters()}
    head.zero_grad()
    features[1], features[2, 0] = torch.nan, torch.inf
    features.requires_grad_()
    output, loss = head(features, target)
    assert output[[1, 2]].tolist() == [0.0, 0.0]
    torch.autograd.backward(loss)
    for name, parameter in head.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])
    assert features.grad is not None
    assert features.grad.any(dim=1).tolist() == [True, False, False, True]


def test_unchecked_targets_train_whatever_class_has_their_symbols() -> None:
    features, _ = draw_batch((1,))
    taken = new_head()(features, torch.tensor([5]))
    unchecked = new_head(check_targets=False)(features, torch.tensor([1006]))
    assert torch.equal(taken.loss, unchecked.loss)
