"""Networks as ONNX files that know their code; `labelmapping.onnx_decoder` answers from them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_integer
from ..atomic import replacing
from ..errors import ArgumentError, ArgumentTypeError, MissingExtraError
from ..onnx_decoder import INPUT_TYPES, FileContents, as_labels
from .base import ClassHead
from .codewords import as_tensor

__all__ = ["export_onnx"]

# Torch translates operators into this opset; a later one is a conversion of that.
OPSET = 18
# A graph that ends in answers scores all classes: 16 MB a row and step at this many.
TOP_K_CLASSES = 1_000_000
# Above it torch moves the weights out into a second file; the format itself ends at 2 GB.
FILE_BYTES = 1536 << 20
INT64 = 7  # onnx.TensorProto.INT64
# What torch's exporter warns of and cannot be helped.
KNOWN_WARNINGS = (
    # Recurrent layers of torch itself: the attributes are lists of their parameters.
    (UserWarning, r"The tensor attributes? (\S+\._flat_weights\[\d+\],? )+(was|were) assigned"),
    # Torch 2.14 and 2.11 call what they deprecate.
    (FutureWarning, "_check_is_size will be removed"),
    (FutureWarning, r"`isinstance\(treespec, LeafSpec\)` is deprecated"),
)


def export_onnx(
    network: nn.Module,
    path: str | Path,
    example_input: Tensor,
    *,
    head: ClassHead | None = None,
    labels: Sequence[str] | Sequence[int] | None = None,
    top_k: int | None = None,
    opset: int = OPSET,
) -> None:
    """Write a network as an ONNX file of any batch size, with its recipe and labels inside.

    ``labelmapping.onnx_decoder.OnnxClassifier`` answers from it without torch. The
    outputs are float32 ``site_0`` (B, q_0), ``site_1``, …, what `ClassHead.topk` sums:
    log-probs, or the estimates of a `MachHead`. With `top_k` they are ``scores`` and
    ``ids``, equal to those of ``decode_topk`` on the site log-probs: sums in float64 in
    site order, ties to the lower id.

    Parameters
    ----------
    network : nn.Module
        A head, or what gives features (B, d) for `head`; in float32. Written as it is in
        eval mode, and left in the mode it was in.
    path : str or Path
        The file, which appears whole or not at all.
    example_input : Tensor (B, ...)
        Of float32, integers or bools. Only its dtype, its device and its shape after the
        batch count.
    head : ClassHead, optional
        Left out where `network` is one.
    labels : sequence of str or of int, length N, optional
        All different; a number must fit into int64.
    top_k : int, optional
        End in the best classes, for runtimes that have nothing but the file; for at most
        10^6 classes, each scored for each row, where `OnnxClassifier.topk` on site log-probs
        searches and is faster. The file then holds each class's symbols in the narrowest
        integers, for every code: computed from ids in the graph, runtimes would fold them
        into int64 when they load it.
    opset : int, default 18
        Of the operators; at least 18.

    Raises
    ------
    MissingExtraError
        onnx or onnxscript is not installed.
    ArgumentError, ArgumentTypeError
        An argument is out of range, the network is not in float32 or fixes the batch
        size, or its weights are above 1.5 GiB.

    Examples
    --------
    >>> import tempfile
    >>> from labelmapping import MixedMapping
    >>> from labelmapping.nn import LabelMappingHead
    >>> from labelmapping.onnx_decoder import OnnxClassifier
    >>> trunk = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU())
    >>> head = LabelMappingHead(8, MixedMapping(30, [7, 11]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "network.onnx")
    ...     export_onnx(trunk, path, torch.zeros(1, 3, 4), head=head, labels=range(100, 130))
    ...     found = OnnxClassifier(path).topk(np.zeros((5, 3, 4), np.float32), 2)
    >>> found.labels.shape, bool((found.labels == found.ids + 100).all())
    ((5, 2), True)
    """
    try:
        import onnx
        import onnxscript
    except ImportError as error:
        raise MissingExtraError(
            "export_onnx needs onnx and onnxscript: pip install 'labelmapping[onnx]'"
        ) from error
    if isinstance(network, ClassHead) == (head is not None):
        raise ArgumentError(
            "head must be given unless network is one itself; network is a "
            f"{type(network).__name__}, and head {'missing' if head is None else 'given'}"
        )
    trunk: nn.Module = nn.Identity() if head is None else network
    head = cast(ClassHead, network) if head is None else head
    opset = as_integer("opset", opset, OPSET)
    if opset > onnx.defs.onnx_opset_version():
        raise ArgumentError(
            f"opset must be at most {onnx.defs.onnx_opset_version()}, onnx's own; got {opset}"
        )
    contents = _contents(head, labels, top_k)
    graph = _Graph(trunk, head, contents, example_input.device)
    _check_float32(graph, example_input)
    rows = example_input.new_zeros(2, *example_input.shape[1:])
    with _in_eval_mode(graph), torch.no_grad(), warnings.catch_warnings():
        for kind, message in KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message, kind)
        graph(rows)  # what does not fit says so here, in its own words
        program = torch.onnx.export(
            graph,
            (rows,),
            input_names=["input"],
            output_names=[name for name, _, _ in contents.outputs()],
            opset_version=opset,
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            custom_translation_table=_translations(onnxscript.opset18),
            verbose=False,
        )
    program = cast("torch.onnx.ONNXProgram", program)
    model = program.model
    for output in model.graph.outputs:
        if output.shape is None or isinstance(output.shape[0], int):
            raise ArgumentError(
                "network must take any number of rows: its graph could only be made for "
                f"{rows.shape[0]} (output {output.name} has shape {output.shape})"
            )
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    if size > FILE_BYTES:
        raise ArgumentError(
            f"network must have weights of at most {FILE_BYTES / 2**30} GiB to be one file, "
            f"got {size / 2**30:.2f}"
        )
    for node in model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces, with the paths of this machine
    model.metadata_props.update(contents.to_metadata())
    with replacing(Path(path)) as temporary:
        program.save(temporary)


def _translations(op: Any) -> dict[Callable[..., Any], Callable[..., Any]]:
    """What `LabelMappingEmbedding` is made of, in the words of an ONNX opset."""

    def checked_ids(ids: Any, name: str, n_classes: int) -> Any:
        high = op.GreaterOrEqual(ids, op.Constant(value_int=n_classes))
        outside = op.Or(op.Less(ids, op.Constant(value_int=0)), high)
        # ONNX has no way to refuse but this: to look at the second of one number.
        nothing = op.Gather(op.Constant(value_ints=[0]), op.Cast(outside, to=INT64))
        return op.Add(ids, nothing)

    def bag_sums(
        weight: Any,
        indices: Any,
        offsets: Any,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        sparse: bool = False,
        per_sample_weights: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Any:
        """``F.embedding_bag`` with "sum"; the exporter's own is for a fixed number of bags."""
        if mode or include_last_offset or padding_idx is not None:
            raise ArgumentError(
                'network must call embedding_bag with mode "sum", without include_last_offset '
                "and padding_idx, to be exported"
            )
        zero, one = op.Constant(value_ints=[0]), op.Constant(value_ints=[1])
        # One at each bag's begin (two bags may share it); their running sum is the bag's number.
        begins = op.ScatterND(
            op.Expand(zero, op.Add(op.Shape(indices), one)),
            op.Unsqueeze(offsets, one),
            op.Expand(one, op.Shape(offsets)),
            reduction="add",
        )
        bags = op.Sub(op.CumSum(begins, op.Constant(value_int=0)), one)
        bags = op.Slice(bags, zero, op.Shape(indices))
        vectors = op.Gather(weight, indices)
        if per_sample_weights is not None:
            vectors = op.Mul(vectors, op.Unsqueeze(per_sample_weights, one))
        sums = op.Expand(
            op.Constant(value_float=0.0),
            op.Concat(op.Shape(offsets), op.Shape(weight, start=1), axis=0),
        )
        sums = op.ScatterND(sums, op.Unsqueeze(bags, one), vectors, reduction="add")
        unused = [op.Identity(offsets) for _ in range(3)]  # what torch keeps for the gradient
        return sums, *unused

    return {
        torch.ops.labelmapping.checked_ids.default: checked_ids,
        torch.ops.aten.embedding_bag.padding_idx: bag_sums,
    }


class _Graph(nn.Module):
    """Input to site log-probs, or to the best classes: what is written."""

    def __init__(
        self, trunk: nn.Module, head: ClassHead, contents: FileContents, device: torch.device
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.top_k = contents.top_k
        self.abstains = head.mapping.has_abstentions
        self.symbols: list[str] = []
        if self.top_k is not None:
            ids = np.arange(head.n_classes)
            for site in contents.sites:
                symbols = head.mapping.symbols_at(ids, site)
                if self.abstains:  # symbol -1 looks at one more column
                    symbols = np.where(symbols < 0, head.mapping.alphabet_sizes[site], symbols)
                self.symbols.append(f"symbols_{site}")
                self.register_buffer(self.symbols[-1], as_tensor(symbols, device))

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:
        features = self.trunk(input)
        if not isinstance(features, Tensor) or features.ndim != 2:
            got = tuple(features.shape) if isinstance(features, Tensor) else type(features)
            raise ArgumentError(f"network must give features (B, d) for the head, got {got}")
        values = self.head._site_scores(features)
        if self.top_k is None:
            return values
        total = None
        for name, site_values in zip(self.symbols, values, strict=True):
            wide = site_values.double()
            if self.abstains:
                wide = F.pad(wide, (0, 1), value=math.log(0.5))
            part = wide.index_select(1, cast(Tensor, getattr(self, name)).long())
            total = part if total is None else total + part
        # ONNX's TopK gives ties to the lower index; torch's own promises nothing.
        scores, ids = torch.topk(cast(Tensor, total), self.top_k, dim=1)
        return scores.float(), ids


def _contents(
    head: ClassHead, labels: Sequence[str] | Sequence[int] | None, top_k: int | None
) -> FileContents:
    mapping = head.mapping
    sites = head._sites() or tuple(range(mapping.n_sites))
    if top_k is not None:
        top_k = min(as_integer("top_k", top_k, 1), mapping.n_classes)
        if mapping.n_classes > TOP_K_CLASSES:
            raise ArgumentError(
                f"top_k must be left out above {TOP_K_CLASSES} classes, and the head has "
                f"{mapping.n_classes}: its graph scores every class. The graph without it gives "
                "site log-probs, and OnnxClassifier.topk searches them"
            )
        if len(sites) < mapping.dimension:
            raise ArgumentError(
                f"top_k must be left out where the head has fewer than {mapping.dimension} sites "
                f"(the dimension of the code); it has {len(sites)}"
            )
    return FileContents(
        mapping, sites, None if labels is None else as_labels(labels, mapping.n_classes), top_k
    )


def _check_float32(graph: nn.Module, example_input: Tensor) -> None:
    known = {dtype.name for dtype in INPUT_TYPES.values()}
    if str(example_input.dtype).removeprefix("torch.") not in known:
        raise ArgumentTypeError(
            f"example_input must be one of {', '.join(sorted(known))}, got {example_input.dtype}"
        )
    for name, parameter in graph.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise ArgumentTypeError(
                f"network must be in float32, {name} is in {parameter.dtype}: "
                "export network.float(), and its head's"
            )


@contextmanager
def _in_eval_mode(network: nn.Module) -> Iterator[None]:
    """Every module in eval mode, and afterwards in the mode it was in."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
