"""NEEDS.md: what people's heads and embeddings went wrong on, one test a row."""

import copy
import math
import multiprocessing
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labelmapping.decoding import decode_topk
from labelmapping.errors import ArgumentError
from labelmapping.mappings import (
    EcocMapping,
    HashedMapping,
    LabelMapping,
    MixedMapping,
    RandomMapping,
    SimplexMapping,
)
from labelmapping.nn import (
    HeadOutput,
    LabelMappingEmbedding,
    LabelMappingHead,
    label_mapping_cross_entropy,
)

CODE = MixedMapping(1000, [7, 11, 13])
HUGE = MixedMapping(10**8, [463, 467, 479])
WIDTH = 16


def new_head(mapping: LabelMapping = CODE, **options: Any) -> LabelMappingHead:
    torch.manual_seed(0)
    return LabelMappingHead(WIDTH, mapping, **options)


def draw_features(n_rows: int, width: int = WIDTH) -> Tensor:
    return torch.randn(n_rows, width, generator=torch.Generator().manual_seed(1))


def draw_target(n_rows: int, mapping: LabelMapping = CODE) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(mapping.n_classes, (n_rows,), generator=generator)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter's gradient; fails where one has none."""
    found = {}
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, f"{name} got no gradient"
        found[name] = parameter.grad
    return found


def test_N06_the_first_loss_is_the_sum_of_the_log_alphabets_and_sites_are_seen() -> None:
    torch.manual_seed(0)
    head = LabelMappingHead(512, HUGE)
    features, target = draw_features(64, 512), draw_target(64, HUGE)
    expected = sum(math.log(size) for size in HUGE.alphabet_sizes)
    assert expected == pytest.approx(18.46, abs=0.01)
    loss = head(features, target).loss.item()
    assert loss == pytest.approx(expected, rel=0.05)

    # A head whose site 1 is dead: it always answers symbol 0, and is sure of it.
    with torch.no_grad():
        head.output.weight[463 : 463 + 467] = 0
        head.output.bias[463] = 50
    logits = head.site_logits(features)
    losses = [
        label_mapping_cross_entropy([logits[site]], target, HUGE, sites=[site]).item()
        for site in range(3)
    ]
    assert sum(losses) == pytest.approx(head(features, target).loss.item(), rel=1e-5)
    assert [x > 10 for x in losses] == [False, True, False]
    symbols = [HUGE.symbols_at(target, site) for site in range(3)]
    hits = [
        (values.argmax(dim=-1) == wanted).float().mean().item()
        for values, wanted in zip(head.site_log_probs(features), symbols, strict=True)
    ]
    assert hits[1] == (symbols[1] == 0).float().mean().item()


def test_N13_each_site_has_its_own_softmax() -> None:
    mapping = MixedMapping(77, [7, 11])
    head = new_head(mapping)
    with torch.no_grad():
        head.output.weight.zero_()
        head.output.bias.copy_(torch.tensor([0.0] * 7 + [10.0] * 11))
    probs = head.site_log_probs(draw_features(2))
    torch.testing.assert_close(probs[0].exp(), torch.full((2, 7), 1 / 7))
    torch.testing.assert_close(probs[1].exp(), torch.full((2, 11), 1 / 11))
    answer = decode_topk(mapping, probs, 77)
    assert answer.ids.tolist() == [list(range(77))] * 2
    torch.testing.assert_close(
        torch.from_numpy(answer.scores), torch.full((2, 77), math.log(1 / 7) + math.log(1 / 11))
    )
    # And where the sites do have something to say, a constant at one changes nothing.
    head = new_head(mapping)
    features, target = draw_features(4), draw_target(4, mapping)
    before, loss = head.site_log_probs(features), head(features, target).loss
    with torch.no_grad():
        head.output.bias[7:] += 10
    for old, new in zip(before, head.site_log_probs(features), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head(features, target).loss, loss)


@pytest.mark.parametrize(
    "target",
    [[3], [999], [-100], [-100] * 4, [5, -100, -100], []],
    ids=["one", "one-other", "one-ignored", "all-ignored", "one-kept", "empty"],
)
def test_N18_every_parameter_has_a_gradient_in_every_batch(target: list[int]) -> None:
    network = nn.ModuleDict(
        {
            "embedding": LabelMappingEmbedding(CODE, WIDTH, padding_idx=-1),
            "head": new_head(hidden=[8], dropout=0.25),
        }
    )
    words = torch.tensor([-1] * len(target), dtype=torch.int64)
    ids = torch.tensor(target, dtype=torch.int64)
    network["head"](network["embedding"](words), ids).loss.backward()
    found = gradients(network)
    assert all(bool(torch.isfinite(gradient).all()) for gradient in found.values())
    # Zeros where nothing is kept, and only there.
    assert bool(found["head.output.bias"].any()) == any(x >= 0 for x in target)


# Two processes, three steps: a batch of one beside a full one, an ignored beside a kept one.
DDP_TARGETS = [[[3, 999, 500], [7]], [[-100, -100], [7, 8]], [[-100], [-100]]]


def ddp_batch(step: int, rank: int) -> tuple[Tensor, Tensor]:
    target = torch.tensor(DDP_TARGETS[step][rank])
    return draw_features(8)[rank * 4 : rank * 4 + len(target)] + step, target


def ddp_worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    head = nn.parallel.DistributedDataParallel(new_head(hidden=[8]))
    found = []
    for step in range(len(DDP_TARGETS)):
        head.zero_grad()
        head(*ddp_batch(step, rank)).loss.backward()
        found.append({name: g.clone() for name, g in gradients(head.module).items()})
    torch.save(found, f"{folder}/gradients-{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")
def test_N18_two_data_parallel_processes_need_no_flag_for_unused_parameters(
    tmp_path: Path,
) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(ddp_worker, range(2), [str(tmp_path)] * 2))
    found = [torch.load(tmp_path / f"gradients-{rank}.pt", weights_only=True) for rank in (0, 1)]
    head = new_head(hidden=[8])
    for step in range(len(DDP_TARGETS)):
        head.zero_grad()
        for rank in (0, 1):
            (head(*ddp_batch(step, rank)).loss / 2).backward()
        for name, expected in gradients(head).items():
            torch.testing.assert_close(found[0][step][name], expected)
            assert torch.equal(found[0][step][name], found[1][step][name])


@pytest.mark.parametrize("mode", ["half", "bfloat16", "autocast"])
def test_N20_targets_are_never_cast_with_the_model(mode: str) -> None:
    mapping = MixedMapping(80000, [293, 307, 311])
    head, reference = new_head(mapping), new_head(mapping).double()
    features = draw_features(2)
    target = torch.tensor([79998, 79997])
    expected = reference(features.double(), target)
    if mode == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            output, loss = head(features, target)
    else:
        dtype = torch.float16 if mode == "half" else torch.bfloat16
        output, loss = head.to(dtype)(features.to(dtype), target)
    assert loss.dtype == output.dtype == torch.float32
    # Half precision moves a logit by less than 0.05; a class of its own moves a row by more.
    torch.testing.assert_close(output.double(), expected.output, rtol=0, atol=0.05)
    torch.testing.assert_close(loss.double(), expected.loss, rtol=0, atol=0.05)
    loss.backward()
    assert all(bool(torch.isfinite(g).all()) for g in gradients(head).values())
    assert target.tolist() == [79998, 79997]
    # The rows that are pulled up are those of the exact symbols.
    pulled = torch.nonzero(gradients(head)["output.bias"] < 0).flatten().tolist()
    starts = (0, 293, 293 + 307)
    assert pulled == sorted(
        start + x % size
        for x in (79998, 79997)
        for start, size in zip(starts, mapping.alphabet_sizes, strict=True)
    )


def test_N26_the_loss_of_a_row_does_not_depend_on_its_batch() -> None:
    head = new_head(hidden=[8])
    features, target = draw_features(70), draw_target(70)
    exact = copy.deepcopy(head).double()
    start = 0
    whole, whole_exact = head(features, target).output, exact(features.double(), target).output
    for size in (32, 3, 1, 5, 1, 28):
        rows = slice(start, start + size)
        part = head(features[rows], target[rows]).output
        torch.testing.assert_close(part, whole[rows], rtol=1e-6, atol=1e-6)
        part = exact(features[rows].double(), target[rows]).output
        torch.testing.assert_close(part, whole_exact[rows], rtol=0, atol=1e-12)
        start += size
    assert start == 70
    # From equal logits a row's loss is the same to the last bit.
    logits = [x.detach() for x in head.site_logits(features)]
    losses = label_mapping_cross_entropy(logits, target, CODE, reduction="none")
    for row in (0, 34, 69):
        alone = label_mapping_cross_entropy([x[row] for x in logits], target[row], CODE)
        assert torch.equal(alone, losses[row])


COMPILED: dict[str, tuple[LabelMapping, dict[str, Any]]] = {
    "mixed": (CODE, {"hidden": [8], "weight": [0.5] * 1000}),
    "simplex over a prime power": (
        SimplexMapping(80, 4, field_order=9),
        {"label_smoothing": 0.1},
    ),
    "hashed": (HashedMapping(300, 6, 16), {"reduction": "sum"}),
    "table": (RandomMapping(200, 4, 11), {"normalization": "class", "label_smoothing": 0.1}),
    "ternary": (EcocMapping(6, "one-versus-one"), {"label_smoothing": 0.1}),
    "class softmax": (SimplexMapping(256, 4, field_order=16), {"normalization": "class"}),
}


def assert_compiled_is_eager(mapping: LabelMapping, options: dict[str, Any], **how: Any) -> None:
    """Outputs, losses and gradients of two batch sizes through one compiled head."""
    torch.compiler.reset()
    head = new_head(mapping, **options)
    compiled = torch.compile(head, fullgraph=True, **how)
    for n_rows in (4, 7):
        features, target = draw_features(n_rows), draw_target(n_rows, mapping)
        target[1] = -100
        head.zero_grad()
        expected = head(features, target)
        expected.loss.backward()
        wanted = {name: g.clone() for name, g in gradients(head).items()}
        head.zero_grad()
        output, loss = compiled(features, target)
        loss.backward()
        torch.testing.assert_close(output, expected.output, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(loss, expected.loss, rtol=1e-5, atol=1e-5)
        for name, gradient in gradients(head).items():
            torch.testing.assert_close(gradient, wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mapping", "options"), COMPILED.values(), ids=COMPILED)
def test_N28_the_head_compiles_without_a_graph_break(
    mapping: LabelMapping, options: dict[str, Any]
) -> None:
    assert_compiled_is_eager(mapping, options, backend="aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None, reason="inductor needs a C++ compiler, and there is no g++"
)
# Inductor of torch 2.11 calls what that torch deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", ["mixed", "simplex over a prime power", "hashed", "table"])
def test_N28_the_head_compiles_to_machine_code(kind: str) -> None:
    mapping, options = COMPILED[kind]
    # One graph for all batch sizes: half the time of one for 4 rows and one for any.
    assert_compiled_is_eager(mapping, options, backend="inductor", dynamic=True)


def test_N28_a_compiled_head_sees_that_it_has_grown() -> None:
    torch.compiler.reset()
    head = new_head()
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    features, target = draw_features(4), torch.tensor([3, 5, 7, 1000])
    with pytest.raises(ArgumentError, match=r"0\.\.999 .*; target\[3\] is 1000$"):
        compiled(features, target)
    head.grow(1001)
    assert torch.equal(compiled(features, target).output, head(features, target).output)
    with pytest.raises(ArgumentError, match=r"0\.\.1000 .*; target\[3\] is 1001$"):
        compiled(features, target + 1)


def test_N30_the_boundaries_of_the_size_are_kept_by_head_and_growth() -> None:
    for n_classes in (1, 2, 1000, 1001):
        mapping = MixedMapping(n_classes, [7, 11, 13])
        last = torch.tensor([n_classes - 1])
        assert math.isfinite(new_head(mapping)(draw_features(1), last).loss.item())
        with pytest.raises(ValueError, match=rf"0\.\.{n_classes - 1} .*is {n_classes}$"):
            new_head(mapping)(draw_features(1), last + 1)
    head = new_head()
    for bad, error, message in (
        (1002, ValueError, "capacity of these alphabets, 1001"),
        (0, ValueError, "at least 1"),
        (-3, ValueError, "at least 1"),
        (10.0, TypeError, "must be an integer"),
        ("10", TypeError, "must be an integer"),
    ):
        with pytest.raises(error, match=message):
            head.grow(bad)  # type: ignore[arg-type]  # which is the point
    head.grow(1001)


@pytest.mark.parametrize("normalization", ["site", "class"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_N32_an_ignored_target_is_left_out_and_is_not_class_901(
    reduction: str, normalization: str
) -> None:
    assert [-100 % size for size in CODE.alphabet_sizes] == CODE.encode(901).tolist()
    head = new_head()
    features = draw_features(2).requires_grad_()
    logits = head.site_logits(features)
    target = torch.tensor([1, -100])
    options: dict[str, Any] = {"ignore_index": -100, "normalization": normalization}
    loss = label_mapping_cross_entropy(logits, target, CODE, **options, reduction=reduction)
    alone = label_mapping_cross_entropy([x[:1] for x in logits], target[:1], CODE, **options)
    expected = torch.stack([alone, torch.zeros(())]) if reduction == "none" else alone
    torch.testing.assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss.sum(), features)
    assert bool(gradient[0].any())
    assert not gradient[1].any()


def test_N33_all_targets_ignored_give_a_loss_of_zero_and_zero_gradients() -> None:
    head = new_head(hidden=[8])
    output, loss = head(draw_features(3), torch.tensor([-100, -100, -100]))
    assert loss.item() == 0.0
    assert output.tolist() == [0.0, 0.0, 0.0]
    loss.backward()
    assert all(not gradient.any() for gradient in gradients(head).values())


@pytest.mark.parametrize("normalization", ["site", "class"])
def test_N35_sample_weights_of_0_and_1_are_a_choice_of_rows(normalization: str) -> None:
    features, target = draw_features(6), draw_target(6)
    chosen = torch.tensor([True, False, True, True, False, False])
    head = new_head(hidden=[8], normalization=normalization)
    head(features[chosen], target[chosen]).loss.backward()
    expected = {name: g.clone() for name, g in gradients(head).items()}
    for weights in (chosen, chosen.int(), chosen.double()):
        head.zero_grad()
        features = features.detach().requires_grad_()
        head(features, target, sample_weight=weights).loss.backward()
        for name, gradient in gradients(head).items():
            torch.testing.assert_close(gradient, expected[name])
        assert features.grad is not None
        assert torch.equal(features.grad.any(dim=1), chosen)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(6,\), got \(3,\)"):
        head(features, target, sample_weight=torch.ones(3))
    head.zero_grad()
    loss = head(features, target, sample_weight=torch.zeros(6)).loss
    loss.backward()
    assert loss.item() == 0.0
    assert all(not gradient.any() for gradient in gradients(head).values())


@pytest.mark.parametrize("bad", [1000, 1006, -1])
def test_N38_a_target_out_of_range_is_refused_with_value_row_and_range(bad: int) -> None:
    # Unchecked, 1006 would train class 5.
    assert [1006 % size for size in CODE.alphabet_sizes] == CODE.encode(5).tolist()
    head = new_head()
    with pytest.raises(ValueError, match=rf"0\.\.999 .*; target\[2\] is {bad}$"):
        head(draw_features(4), torch.tensor([5, 999, bad, bad]))
    assert all(parameter.grad is None for parameter in head.parameters())


def test_N38_the_ignored_minus_100_is_not_class_901() -> None:
    head = new_head()
    ignored = head(draw_features(1), torch.tensor([-100]))
    assert ignored.loss.item() == 0.0
    assert head(draw_features(1), torch.tensor([901])).loss.item() > 0
    with pytest.raises(ValueError, match=r"target\[0\] is -100$"):
        new_head(ignore_index=-1)(draw_features(1), torch.tensor([-100]))


BAD_IDS: list[Any] = [[5, 1006], [-1, 3], [[0, 1], [1000, 2]], 1006]


def refusal_of(name: str, call: Callable[[], object]) -> tuple[type[Exception], str]:
    """The exception's class, and its text without the argument's name."""
    with pytest.raises(ArgumentError) as refusal:
        call()
    return type(refusal.value), str(refusal.value).replace(f"{name} must", "* must").replace(
        f"{name}[", "*["
    )


@pytest.mark.parametrize("ids", BAD_IDS, ids=str)
def test_N39_the_same_refusal_in_head_loss_embedding_and_encode(ids: Any) -> None:
    tensor = torch.tensor(ids)
    features = torch.zeros(*tensor.shape, WIDTH)
    head = new_head()
    embedding = LabelMappingEmbedding(CODE, 4)
    logits = head.site_logits(features)
    refusals = {
        refusal_of("ids", lambda: CODE.encode(ids)),
        refusal_of("target", lambda: head(features, tensor)),
        refusal_of("target", lambda: label_mapping_cross_entropy(logits, tensor, CODE)),
        refusal_of("input", lambda: embedding(tensor)),
    }
    assert len(refusals) == 1, refusals
    assert "must lie in 0..999 (ids are 0-based, 1000 in all)" in refusals.pop()[1]


@pytest.mark.parametrize("ids", BAD_IDS, ids=str)
def test_N39_the_same_refusal_from_the_compiled_head(ids: Any) -> None:
    tensor = torch.tensor(ids)
    features = torch.zeros(*tensor.shape, WIDTH)
    head = new_head()
    torch.compiler.reset()
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    good = torch.zeros_like(tensor)
    torch.testing.assert_close(compiled(features, good).output, head(features, good).output)
    assert refusal_of("target", lambda: compiled(features, tensor)) == refusal_of(
        "target", lambda: head(features, tensor)
    )


def modes() -> list[Any]:
    """A device and whether the head is compiled."""
    no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
    return [
        pytest.param("cpu", False, id="cpu"),
        pytest.param("cpu", True, id="cpu-compiled"),
        pytest.param("cuda", False, id="cuda", marks=no_gpu),
        pytest.param("cuda", True, id="cuda-compiled", marks=no_gpu),
    ]


def run_head(target: list[int], device: str, compiled: bool) -> tuple[HeadOutput, Tensor]:
    """Output and loss of rows in a mode, on the CPU, and the gradient of the last layer."""
    head = new_head().to(device)
    torch.compiler.reset()
    run = torch.compile(head, fullgraph=True, backend="aot_eager") if compiled else head
    output, loss = run(draw_features(len(target)).to(device), torch.tensor(target, device=device))
    loss.backward()
    return HeadOutput(output.cpu(), loss.cpu()), gradients(head)["output.bias"].cpu()


@pytest.mark.parametrize(("device", "compiled"), modes())
def test_the_modular_trap_minus_100_is_left_out_and_not_class_901(
    device: str, compiled: bool
) -> None:
    assert [-100 % size for size in CODE.alphabet_sizes] == CODE.encode(901).tolist()
    found, gradient = run_head([7, -100], device, compiled)
    alone, wanted = run_head([7], "cpu", False)
    assert found.output[1].item() == 0.0
    torch.testing.assert_close(found.loss, alone.loss)
    torch.testing.assert_close(gradient, wanted)
    trapped, _ = run_head([7, 901], device, compiled)
    assert abs(trapped.loss - alone.loss) > 1e-3


@pytest.mark.parametrize(("device", "compiled"), modes())
def test_the_modular_trap_minus_1_is_refused_and_not_class_1000(
    device: str, compiled: bool
) -> None:
    wider = MixedMapping(1001, [7, 11, 13])
    assert [-1 % size for size in CODE.alphabet_sizes] == wider.encode(1000).tolist()
    refusal = refusal_of("target", lambda: run_head([5, -1], device, compiled))
    assert refusal == refusal_of("target", lambda: run_head([5, -1], "cpu", False))
    assert refusal == refusal_of("ids", lambda: CODE.encode([5, -1]))


@pytest.mark.parametrize(("device", "compiled"), modes())
def test_the_modular_trap_N_plus_6_is_refused_and_not_class_5(device: str, compiled: bool) -> None:
    assert [1006 % size for size in CODE.alphabet_sizes] == CODE.encode(5).tolist()
    refusal = refusal_of("target", lambda: run_head([5, 1006], device, compiled))
    assert refusal == refusal_of("target", lambda: run_head([5, 1006], "cpu", False))
    assert refusal == refusal_of("ids", lambda: CODE.encode([5, 1006]))


def test_N40_a_target_of_N_is_told_that_ids_are_0_based() -> None:
    mapping = MixedMapping(66908, [257, 263, 269])
    with pytest.raises(ValueError, match=r"0\.\.66907 \(ids are 0-based.*target\[0\] is 66908"):
        new_head(mapping)(draw_features(1), torch.tensor([66908]))
    new_head(mapping)(draw_features(1), torch.tensor([66907]))


class TensorSizes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """The number of elements of every tensor that any operation gives, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.sizes += [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        return result


def test_N54_the_head_of_10_to_the_8_classes_is_as_large_as_that_of_a_thousand() -> None:
    steps = []
    for n_classes in (10**8, 1000):
        mapping = MixedMapping(n_classes, HUGE.alphabet_sizes, dimension=3)
        with TensorSizes() as step:
            head = LabelMappingHead(512, mapping)
            features, target = draw_features(64, 512), draw_target(64, mapping)
            head(features, target).loss.backward()
        steps.append(step.sizes)
    weights = sum(p.numel() * p.element_size() for p in head.parameters())
    assert weights == (463 + 467 + 479) * (512 + 1) * 4  # 2.9 MB
    # Building, forward and backward make the same tensors, none larger than the weights.
    assert steps[0] == steps[1]
    assert len(steps[0]) > 50
    assert max(steps[0]) == (463 + 467 + 479) * 512
    assert set(gradients(head)) == {"output.weight", "output.bias"}


def test_N52_no_matrix_of_rows_and_classes_is_made_of_labels() -> None:
    mapping = MixedMapping(5000, [71, 73])
    logits = torch.zeros(3000, 71 + 73).requires_grad_()
    target = draw_target(3000, mapping)
    with TensorSizes() as step:
        torch.autograd.backward(label_mapping_cross_entropy(logits, target, mapping))
    assert max(step.sizes) == logits.numel()


def test_N60_probabilities_of_81_000_classes_sum_to_one() -> None:
    mapping = MixedMapping(81_000, [283, 293, 307])
    head = new_head(mapping)
    with torch.no_grad():
        head.output.bias[5] = -torch.inf  # symbol 5 of site 0 is impossible
    probs = head.log_prob(draw_features(2) * 10).exp()
    torch.testing.assert_close(probs.double().sum(dim=1), torch.ones(2).double(), rtol=0, atol=1e-6)
    assert bool(((probs >= 0) & (probs <= 1)).all())
    ids = torch.arange(81_000)
    assert not probs[:, ids % 283 == 5].any()
    assert bool((probs > 0).any(dim=1).all())
    with torch.no_grad():  # what is left of site 0 no class has
        head.output.bias[:283] = -torch.inf
    uniform = torch.full((2, 81_000), -math.log(81_000))
    torch.testing.assert_close(head.log_prob(draw_features(2)), uniform)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_N58_half_precision_outputs_are_normalised_in_float32(dtype: torch.dtype) -> None:
    head = new_head(MixedMapping(2, [2])).to(dtype)
    with torch.no_grad():
        head.output.weight.zero_()
        head.output.bias.copy_(torch.tensor([12.0, 3.0]))
    (log_probs,) = head.site_log_probs(torch.zeros(1, WIDTH, dtype=dtype))
    assert log_probs.dtype == torch.float32
    expected = torch.tensor([[1 / (1 + math.exp(-9)), 1 / (1 + math.exp(9))]])
    torch.testing.assert_close(log_probs.exp(), expected)


def test_N58_the_winner_by_a_tenth_is_not_lost_among_40_sites() -> None:
    # At every site two classes have a log-probability of about -20 each, but at site 17
    # the second has -19.9; some third symbol takes the rest.
    mapping = SimplexMapping(1681, 40, field_order=41)
    first, second = 100, 900
    codewords = mapping.encode([first, second])
    torch.manual_seed(0)
    head = LabelMappingHead(1, mapping).half()
    bias = torch.full((40, 41), -30.0)
    for site, pair in enumerate(codewords.T.tolist()):
        bias[site, next(s for s in range(41) if s not in pair)] = 12.0
        bias[site, pair] = -8.0
    bias[17, codewords[1, 17]] = -7.9
    with torch.no_grad():
        head.output.weight.zero_()
        head.output.bias.copy_(bias.flatten())
    probs = head.site_log_probs(torch.zeros(1, 1, dtype=torch.float16))
    answer = decode_topk(mapping, probs, 2, allowed=[first, second])
    assert answer.ids.tolist() == [[second, first]]
    assert answer.scores[0, 0] == pytest.approx(-799.9, abs=0.01)
    assert answer.scores[0, 1] == pytest.approx(-800.0, abs=0.01)
    # Summed in half precision they would tie.
    halves = [F.log_softmax(x, dim=-1) for x in head.site_logits(torch.zeros(1, 1).half())]
    totals = torch.zeros(2, dtype=torch.float16)
    for site, values in enumerate(halves):
        totals += values[0, codewords[:, site].tolist()]
    assert totals[0] == totals[1]


def test_N71_padding_is_no_item_and_bad_ids_are_refused() -> None:
    # Unchecked, the padding id -1 would be the item 1000.
    wider = MixedMapping(1001, [7, 11, 13])
    assert [-1 % size for size in wider.alphabet_sizes] == wider.encode(1000).tolist()
    embedding = LabelMappingEmbedding(wider, 4, padding_idx=-1)
    vectors = embedding(torch.tensor([1, 2, -1]))
    assert vectors.any(dim=-1).tolist() == [True, True, False]
    vectors[2].sum().backward()
    assert not gradients(embedding)["weight"].any()
    assert bool(embedding(torch.tensor([1000])).any())

    plain = LabelMappingEmbedding(CODE, 4)
    with pytest.raises(ValueError, match=r"input\[2\] is -1$"):
        plain(torch.tensor([1, 2, -1]))
    with pytest.raises(ValueError, match=r"input\[0\] is 1000$"):
        plain(torch.tensor([1000]))
