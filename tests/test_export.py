"""`export_onnx` and `OnnxClassifier`: a file that answers as the network did, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from labelmapping import (
    EcocMapping,
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    SimplexMapping,
    TableMapping,
    decode_topk,
)
from labelmapping.errors import (
    ArgumentError,
    ArgumentTypeError,
    DataNotFoundError,
    MissingExtraError,
)
from labelmapping.nn import (
    AdaptiveSoftmaxHead,
    ClassHead,
    CutoffHead,
    HuffmanHead,
    LabelMappingEmbedding,
    LabelMappingHead,
    MachHead,
    NegativeSamplingHead,
    NextWordLstm,
    TwoLevelHead,
    export_onnx,
)
from labelmapping.onnx_decoder import FileContents, OnnxClassifier, as_labels

CODE = MixedMapping(60, [7, 11, 13])
COUNTS = [*range(30, 60), *range(30)]
PROTOTYPES = np.random.default_rng(0).normal(size=(60, 8))
HEADS: dict[str, Callable[[], ClassHead]] = {
    "hidden": lambda: LabelMappingHead(
        16, SimplexMapping(1000, 4, field_order=37), hidden=[12, 10], dropout=0.5
    ),
    "sites": lambda: LabelMappingHead(16, CODE, sites=[2, 0]),
    "prime power": lambda: LabelMappingHead(16, SimplexMapping(60, 3, field_order=8)),
    "hashed": lambda: LabelMappingHead(16, HashedMapping(300, 6, 8, seed=3)),
    "learned": lambda: LabelMappingHead(
        16, LearnedMapping.fit(PROTOTYPES, n_sites=3, alphabet_size=11)
    ),
    "ternary": lambda: LabelMappingHead(16, EcocMapping(6, "one-versus-one")),
    "MACH": lambda: MachHead(16, HashedMapping(60, 6, 16)),
    "negative sampling": lambda: NegativeSamplingHead(16, CODE, class_counts=COUNTS),
    "cut-off": lambda: CutoffHead(16, CODE, n_symbols=9, class_counts=COUNTS),
    "adaptive": lambda: AdaptiveSoftmaxHead(16, CODE, cutoffs=[20, 40], class_counts=COUNTS),
    "Huffman": lambda: HuffmanHead(16, CODE, class_counts=COUNTS),
    "two levels": lambda: TwoLevelHead(16, CODE, class_counts=COUNTS),
}


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exported(path: Path, *args: Any, **options: Any) -> OnnxClassifier:
    export_onnx(args[0], path, *args[1:], **options)
    return OnnxClassifier(path)


def seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return make()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same head as a graph of site log-probs, with labels, and as one of the 5 best."""
    folder = tmp_path_factory.mktemp("onnx")
    head = seeded(lambda: LabelMappingHead(4, CODE))
    labels = [f"甲{i}" for i in range(60)]
    export_onnx(head, folder / "sites.onnx", torch.zeros(1, 4), labels=labels)
    export_onnx(head, folder / "best.onnx", torch.zeros(1, 4), top_k=5)
    return folder / "sites.onnx", folder / "best.onnx"


@pytest.mark.parametrize("name", HEADS)
def test_codes_and_rivals_keep_their_answers(name: str, tmp_path: Path) -> None:
    head = seeded(HEADS[name]).eval()
    inputs = draw(7, 16)
    expected = head.topk(inputs, 4)
    top_k = None if name == "sites" else 4
    best = exported(tmp_path / "best.onnx", head, inputs, top_k=top_k)
    assert best.mapping == head.mapping
    n_sites = head.mapping.n_sites
    assert best.contents.sites == ((2, 0) if name == "sites" else tuple(range(n_sites)))
    found = best.topk(inputs.numpy(), 4)
    np.testing.assert_array_equal(found.ids, expected.ids.numpy())
    np.testing.assert_allclose(found.scores, expected.scores.numpy(), rtol=0, atol=1e-5)


def test_a_trunk_with_its_head_takes_any_batch_and_keeps_its_modes(tmp_path: Path) -> None:
    trunk = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
    )
    head = LabelMappingHead(16, CODE, hidden=8, dropout=0.5)
    trunk(draw(8, 1, 9, 9))  # running statistics of batch norm
    trunk[1].eval()
    modes = [m.training for m in (*trunk.modules(), *head.modules())]
    classifier = exported(tmp_path / "a.onnx", trunk, draw(1, 1, 9, 9), head=head)
    assert [m.training for m in (*trunk.modules(), *head.modules())] == modes
    trunk.eval()
    head.eval()
    for n_rows in (0, 1, 2, 7):
        inputs = draw(n_rows, 1, 9, 9)
        log_probs = classifier.site_log_probs(inputs.numpy())
        for ours, theirs in zip(log_probs, head.site_log_probs(trunk(inputs)), strict=True):
            assert ours.dtype == np.float32
            np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=1e-5)
        found = classifier.topk(inputs.numpy(), 3)
        np.testing.assert_array_equal(found.ids, head.topk(trunk(inputs), 3).ids.numpy())


class Bag(nn.Module):
    """The mean of coded items, padding left out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = LabelMappingEmbedding(CODE, 8, mode="mean", padding_idx=-1)

    def forward(self, items: Tensor) -> Tensor:
        out: Tensor = self.embedding(items)
        return out


@pytest.mark.parametrize(
    ("make", "padding"),
    [(Bag, -1), (lambda: NextWordLstm(CODE, embedding_dim=6, units=8), 3)],
    ids=["bag", "lstm"],
)
def test_coded_inputs_are_embedded_and_checked_in_the_file(
    make: Callable[[], nn.Module], padding: int, tmp_path: Path
) -> None:
    network, head = seeded(make), LabelMappingHead(8, CODE)
    items = torch.tensor([[3, padding, 59], [0, 1, 2], [padding, padding, padding]])
    classifier = exported(tmp_path / "a.onnx", network, items, head=head)
    found = classifier.topk(items.numpy(), 4)
    np.testing.assert_array_equal(found.ids, head.topk(network(items), 4).ids.numpy())
    # 60 and -2 have legal residues: they would be some other item.
    for bad in (60, -2):
        items[1, 1] = bad
        with pytest.raises(ArgumentError, match="inputs must be what the network takes, ids"):
            classifier.topk(items.numpy(), 4)


def few_valued_head(mapping: LabelMapping) -> tuple[LabelMappingHead, NDArray[np.float32]]:
    """A head of logits 0 and 1, so that most scores are shared by many classes, and inputs."""
    head = LabelMappingHead(3, mapping, bias=False)
    generator = torch.Generator().manual_seed(2)
    weight = torch.randint(0, 2, head.output.weight.shape, generator=generator)
    with torch.no_grad():
        head.output.weight.copy_(weight)
    return head, np.eye(3, dtype=np.float32)


@pytest.mark.parametrize("n_classes", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_classes_end_in_the_ids_and_scores_of_decode_topk(
    n_classes: int, tmp_path: Path
) -> None:
    mapping = MixedMapping(n_classes, n_sites=4)
    head, inputs = few_valued_head(mapping)
    log_probs = exported(tmp_path / "sites.onnx", head, torch.zeros(1, 3)).site_log_probs(inputs)
    expected = decode_topk(mapping, log_probs, 100)
    best = exported(tmp_path / "best.onnx", head, torch.zeros(1, 3), top_k=100)
    found = best.topk(inputs, 100)
    assert len(np.unique(expected.scores)) < 20  # ties, as wanted
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)
    # Symbols take two bytes a class and site at most.
    assert (tmp_path / "best.onnx").stat().st_size < 4 * 2 * n_classes + 200_000


def test_sums_are_taken_in_float64(tmp_path: Path) -> None:
    """Beside log-probs of -30, -0.69314713 and -0.69314723 are the same to float32."""
    mapping = TableMapping([[0, 0], [1, 0]], [2, 2])
    head = LabelMappingHead(1, mapping)
    with torch.no_grad():
        head.output.weight.zero_()
        head.output.bias.copy_(torch.tensor([0.0, 2e-7, 0.0, 30.0]))
    first, second = (p.detach()[0] for p in head.site_log_probs(torch.zeros(1, 1)))
    assert first[0] < first[1]
    assert first[0] + second[0] == first[1] + second[0]
    best = exported(tmp_path / "a.onnx", head, torch.zeros(1, 1), top_k=9)
    assert best.contents.top_k == 2
    assert best.topk(np.zeros((1, 1), np.float32), 9).ids.tolist() == [[1, 0]]


def test_labels_are_answered(tmp_path: Path) -> None:
    labels = np.arange(60)[::-1] - 2**62
    head = LabelMappingHead(4, CODE)
    classifier = exported(tmp_path / "a.onnx", head, torch.zeros(1, 4), labels=labels)
    assert classifier.labels is not None
    np.testing.assert_array_equal(classifier.labels, labels)
    inputs = draw(3, 4).numpy()
    found = classifier.topk(inputs, 9)
    assert found.labels.dtype == np.int64
    np.testing.assert_array_equal(found.labels, labels[found.ids])
    np.testing.assert_array_equal(classifier.predict(inputs), found.labels[:, 0])


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (["b", "", "\ud800", "甲"], object),
        (np.array(["b", "a", "d", "c"]), object),
        ([7, -(2**63), np.int32(5), 2**63 - 1], np.int64),
        (np.array([4, 3, 2, 1], np.uint8), np.int64),
        (range(10, 14), np.int64),
    ],
)
def test_labels_come_back(labels: Sequence[Any], dtype: type) -> None:
    contents = FileContents(MixedMapping(4, [3, 5]), (0, 1), as_labels(labels, 4), None)
    found = FileContents.from_metadata(contents.to_metadata()).labels
    assert found is not None
    assert found.dtype == dtype
    assert found.tolist() == list(labels)


@given(
    st.lists(st.text('a"\\\n\0é甲\ud800😀'), min_size=1, max_size=9, unique=True),
    st.none() | st.integers(1, 9),
)
def test_contents_come_back_from_metadata(labels: list[str], top_k: int | None) -> None:
    mapping = MixedMapping(len(labels), [7, 11, 13])
    contents = FileContents(mapping, (2, 0), np.array(labels, dtype=object), top_k)
    metadata = contents.to_metadata()
    assert all(value.isascii() for value in metadata.values())
    found = FileContents.from_metadata({**metadata, "another key": "kept"})
    assert (found.mapping, found.sites, found.top_k) == (mapping, (2, 0), top_k)
    assert found.labels is not None
    assert found.labels.tolist() == labels


def test_the_file_says_what_it_is_and_nothing_of_this_machine(files: tuple[Path, Path]) -> None:
    sites, best = files
    session = onnxruntime.InferenceSession(sites, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["labelmapping.format"] == "1"
    assert json.loads(metadata["labelmapping.mapping"]) == CODE.to_config()
    assert json.loads(metadata["labelmapping.labels"])[59] == "甲59"
    assert json.loads(metadata["labelmapping.graph"]) == "site_log_probs"
    assert [(o.name, o.type) for o in session.get_outputs()] == [
        (f"site_{i}", "tensor(float)") for i in range(3)
    ]
    assert OnnxClassifier(best).contents.top_k == 5
    for path in files:
        assert b"site-packages" not in path.read_bytes()
        assert Path(__file__).parent.parent.as_posix().encode() not in path.read_bytes()


def test_answering_loads_neither_torch_nor_onnx(files: tuple[Path, Path]) -> None:
    code = f"""
import sys
import numpy as np
from labelmapping.onnx_decoder import OnnxClassifier
classifier = OnnxClassifier({str(files[0])!r})
print(ascii(classifier.predict(np.zeros((1, 4), np.float32))[0]))
print(sorted({{"torch", "onnx", "onnxscript", "sklearn"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, modules = done.stdout.splitlines()
    assert first.startswith(r"'\u7532")
    assert modules == "[]"


def test_allowed_and_prior_are_those_of_decode_topk(files: tuple[Path, Path]) -> None:
    inputs = draw(3, 4).numpy()
    classifier = OnnxClassifier(files[0])
    prior = np.random.default_rng(0).normal(size=60)
    found = classifier.topk(inputs, 2, allowed=[4, 8, 15], prior=prior)
    expected = decode_topk(
        CODE, classifier.site_log_probs(inputs), 2, allowed=[4, 8, 15], prior=prior
    )
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_a_graph_of_answers_gives_as_many_as_it_has(files: tuple[Path, Path]) -> None:
    inputs = draw(3, 4).numpy()
    sites, best = map(OnnxClassifier, files)
    found = best.topk(inputs, 2)
    np.testing.assert_array_equal(found.ids, sites.topk(inputs, 2).ids)
    np.testing.assert_array_equal(found.labels, found.ids)  # it has no labels
    for asked, what in (
        (lambda: best.topk(inputs, 6), "k of 6"),
        (lambda: best.topk(inputs, 5, allowed=[1]), "allowed"),
        (lambda: best.topk(inputs, 5, prior=np.zeros(60)), "prior"),
        (lambda: best.site_log_probs(inputs), "site_log_probs"),
    ):
        with pytest.raises(ArgumentError, match=f"^{what} must not .* 5 best .* without top_k"):
            asked()
    inputs[1, 2] = np.nan
    with pytest.raises(ArgumentError, match="inputs must not give NaN, row 1 does"):
        best.topk(inputs, 1)
    with pytest.raises(ArgumentError, match="site_log_probs must not be NaN"):
        sites.topk(inputs, 1)


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        (np.zeros((2, 4)), ArgumentTypeError, "inputs must be float32, got float64"),
        (np.zeros((2, 4), np.float16), ArgumentTypeError, "float32, got float16"),
        (np.zeros((2, 5), np.float32), ArgumentError, r"shape \(B, 4\), got \(2, 5\)"),
        (np.zeros((0, 5), np.float32), ArgumentError, r"shape \(B, 4\), got \(0, 5\)"),
        (np.zeros(4, np.float32), ArgumentError, r"shape \(B, 4\), got \(4,\)"),
        (np.float32(0), ArgumentError, r"shape \(B, 4\), got \(\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    inputs: Any, kind: type[Exception], message: str, files: tuple[Path, Path]
) -> None:
    with pytest.raises(kind, match=message):
        OnnxClassifier(files[0]).predict(inputs)


@pytest.mark.parametrize("k", [0, 2.0, True])
def test_k_is_checked_for_both_graphs(k: Any, files: tuple[Path, Path]) -> None:
    for path in files:
        with pytest.raises(ArgumentError, match="k must be"):
            OnnxClassifier(path).topk(np.zeros((1, 4), np.float32), k)


def with_metadata(path: Path, to: Path, **changes: str | None) -> Path:
    """A copy of a file with other metadata; None takes a key away."""
    model = onnx.load(path)
    values = {p.key: p.value for p in model.metadata_props}
    for key, value in changes.items():
        values[f"labelmapping.{key}"] = value or ""
        if value is None:
            del values[f"labelmapping.{key}"]
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, values)
    onnx.save(model, to)
    return to


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": None}, "no metadata of labelmapping"),
        ({"format": "2"}, "format must be at most 1, got 2: .* newer labelmapping, "),
        ({"format": "one"}, "metadata say what this version cannot read"),
        ({"mapping": None}, "metadata lack 'mapping'"),
        ({"mapping": "{"}, "metadata say what this version cannot read"),
        ({"mapping": '{"format": 1, "kind": "mixed"}'}, "recipe of a mixed mapping"),
        ({"mapping": json.dumps(MixedMapping(60, [7, 11, 17]).to_config())}, "outputs must be"),
        ({"sites": "[0, 1]"}, "outputs must be"),
        ({"sites": "[0, 1, 3]"}, r"sites must lie in 0\.\.2"),
        ({"labels": '["a"]'}, "labels must be one for each of 60 classes, got 1"),
        ({"graph": '"other"'}, "graph must be one of site_log_probs, topk"),
        ({"graph": '"topk"', "top_k": "5"}, "outputs must be"),
    ],
)
def test_a_file_that_does_not_fit_its_metadata_is_refused(
    changes: dict[str, str | None], message: str, files: tuple[Path, Path], tmp_path: Path
) -> None:
    path = with_metadata(files[0], tmp_path / "changed.onnx", **changes)
    with pytest.raises(ArgumentError, match=f"path must be a file .*changed.onnx: .*{message}"):
        OnnxClassifier(path)


@pytest.mark.parametrize("content", [b"", b"no ONNX at all", b"\x80\x04K\x01.", None])
def test_what_is_no_onnx_file_is_refused(
    content: bytes | None, files: tuple[Path, Path], tmp_path: Path
) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(files[0].read_bytes()[:900] if content is None else content)
    with pytest.raises(ArgumentError, match="path must be an ONNX file that onnxruntime can load"):
        OnnxClassifier(path)
    with pytest.raises(DataNotFoundError, match="where there is none"):
        OnnxClassifier(tmp_path / "b.onnx")


class FixedBatch(nn.Module):
    """A trunk whose graph holds for one batch size alone."""

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.pad(input, (0, 1), value=input.shape[0])


HEAD = LabelMappingHead(4, CODE)


@pytest.mark.parametrize(
    ("network", "example", "options", "kind", "message"),
    [
        (nn.Linear(4, 4), draw(1, 4), {}, ArgumentError, "head must be given .* Linear"),
        (HEAD, draw(1, 4), {"head": HEAD}, ArgumentError, "head must be given unless"),
        (HEAD, draw(1, 5), {}, ArgumentError, r"input must have shape \(\.\.\., 4\)"),
        (HEAD, draw(1, 2, 4), {}, ArgumentError, r"features \(B, d\) .* got \(2, 2, 4\)"),
        (nn.LSTM(4, 4), draw(1, 4), {"head": HEAD}, ArgumentError, r"features \(B, d\).*tuple"),
        (FixedBatch(), draw(1, 3), {"head": HEAD}, ArgumentError, "any number of rows"),
        (HEAD, draw(1, 4).double(), {}, ArgumentTypeError, "example_input must be one of"),
        (HEAD, draw(1, 4).bfloat16(), {}, ArgumentTypeError, "got torch.bfloat16"),
        (nn.Linear(4, 4).half(), draw(1, 4), {"head": HEAD}, ArgumentTypeError,
         r"float32, trunk.weight is in torch.float16: .*\.float\(\)"),
        (LabelMappingHead(4, CODE, dtype=torch.bfloat16), draw(1, 4), {}, ArgumentTypeError,
         "head.output.weight is in torch.bfloat16"),
        (HEAD, draw(1, 4), {"top_k": 0}, ArgumentError, "top_k must be at least 1"),
        (HEAD, draw(1, 4), {"opset": 17}, ArgumentError, "opset must be at least 18"),
        (HEAD, draw(1, 4), {"opset": 99}, ArgumentError, "opset must be at most"),
        (LabelMappingHead(4, MixedMapping(10**6 + 1, n_sites=3)), draw(1, 4), {"top_k": 1},
         ArgumentError, "top_k must be left out above 1000000 .*has 1000001"),
        (LabelMappingHead(4, CODE, sites=[1]), draw(1, 4), {"top_k": 1},
         ArgumentError, "fewer than 2 sites .* has 1"),
        (HEAD, draw(1, 4), {"labels": ["a"]}, ArgumentError, "labels must be one for each of 60"),
        (HEAD, draw(1, 4), {"labels": "a" * 60}, ArgumentTypeError, "labels must be a sequence"),
        (HEAD, draw(1, 4), {"labels": ["a"] * 60}, ArgumentError, "classes 0 and 1 are both 'a'"),
        (HEAD, draw(1, 4), {"labels": ["a", *range(59)]}, ArgumentTypeError, r"labels\[1\] is 0"),
        (HEAD, draw(1, 4), {"labels": [*range(59), 0.5]}, ArgumentTypeError, r"labels\[59\]"),
        (HEAD, draw(1, 4), {"labels": range(2**63, 2**63 + 60)}, ArgumentError, "int64"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_refused_and_no_file_is_left(
    network: nn.Module, example: Tensor, options: dict[str, Any], kind: type[Exception],
    message: str, tmp_path: Path,
) -> None:  # fmt: skip
    with pytest.raises(kind, match=message):
        export_onnx(network, tmp_path / "a.onnx", example, **options)
    assert list(tmp_path.iterdir()) == []
    assert network.training


def test_weights_too_large_for_one_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labelmapping.nn.export.FILE_BYTES", 100)
    with pytest.raises(ArgumentError, match="network must have weights of at most"):
        export_onnx(HEAD, tmp_path / "a.onnx", draw(1, 4))


def test_a_write_that_fails_leaves_the_old_file(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"old")

    def fail(self: Any, destination: Path) -> None:
        Path(destination).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        export_onnx(HEAD, path, draw(1, 4))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_its_packages_the_extra_is_named(
    package: str, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    answers = package == "onnxruntime"
    with pytest.raises(MissingExtraError, match=r"labelmapping\[onnx\]"):
        OnnxClassifier(files[0]) if answers else export_onnx(HEAD, tmp_path / "a", draw(1, 4))
