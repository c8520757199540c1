"""One softmax over the N classes of a code, from the sums of their sites' logits.

No tensor of N columns lives: classes go by in blocks, forwards and again backwards;
beyond a number of classes most of them are sampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import as_integer
from ..decoding import decode_topk
from .codewords import CodewordEncoder
from .targets import Targets

__all__ = ["ClassNormalization", "all_class_scores", "class_log_probs"]


@dataclass(frozen=True)
class ClassNormalization:
    """How ``normalization="class"`` sums over the classes.

    Up to `exact_classes` exactly. Beyond, over the row's targets, the `n_hardest` other
    classes that `decode_topk` finds to score highest, each exactly, and `n_sampled` classes
    drawn uniformly with replacement (the same for all rows), each standing for N / n_sampled;
    those of them that are targets or hardest count as they are, once. The sum is unbiased;
    its logarithm is a little low.

    Attributes
    ----------
    exact_classes : int, default 2**18
    block_bytes : int, default 2**21
        What the scores of one block of classes may take: about what a cache holds. At least
        what the logits themselves take; in a compiled graph all classes are one block.
    n_hardest : int, default 32
        0 for none. Searched on the CPU, which breaks a compiled graph.
    n_sampled : int, default 2048
    """

    exact_classes: int = 1 << 18
    block_bytes: int = 1 << 21
    n_hardest: int = 32
    n_sampled: int = 2048

    def __post_init__(self) -> None:
        as_integer("exact_classes", self.exact_classes, 0)
        as_integer("block_bytes", self.block_bytes, 1)
        as_integer("n_hardest", self.n_hardest, 0)
        as_integer("n_sampled", self.n_sampled, 1)


def class_log_probs(
    logits: Tensor,
    targets: Targets,
    symbols: Tensor,
    encoder: CodewordEncoder,
    how: ClassNormalization,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets, and the logarithm of what they are divided by.

    Parameters
    ----------
    logits : float Tensor (R, sum of q_i)
        Sites side by side.
    symbols : int64 Tensor (R, T, n)
        Of the targets.

    Returns
    -------
    tuple of Tensor
        Shapes (R, T), 0 for entries that are left out, and (R, 1).
    """
    scores = scores_of(logits, symbols, encoder)
    if encoder.mapping.n_classes <= how.exact_classes:
        total = log_partition(logits, encoder, how.block_bytes)
    else:
        total = _sampled_log_partition(logits, scores, targets, encoder, how)
    total = total.unsqueeze(1)
    return (scores - total).masked_fill(~targets.kept, 0), total


def scores_of(logits: Tensor, symbols: Tensor, encoder: CodewordEncoder) -> Tensor:
    """Each row's own classes' scores: logits (R, sum of q_i), symbols (R, T, n), to (R, T)."""
    columns = (symbols + encoder.offsets).flatten(1)
    return logits.gather(1, columns).reshape(symbols.shape).sum(dim=-1)


def by_symbol(logits: Tensor, encoder: CodewordEncoder) -> Tensor:
    """What `class_scores` adds up: logits (R, sum of q_i) as rows (sum of q_i, R).

    For sites that abstain a row of log 1/2 follows, as in ``decode_topk``.
    """
    if encoder.abstains:
        logits = F.pad(logits, (0, 1), value=math.log(0.5))
    return logits.t().contiguous()


def class_scores(table: Tensor, symbols: Tensor, encoder: CodewordEncoder) -> Tensor:
    """All rows' scores of the same classes: from `by_symbol` and symbols (C, n), to (C, R)."""
    if table.shape[1] == 0:
        return table.new_zeros(len(symbols), 0)
    rows = symbols + encoder.offsets
    if encoder.abstains:
        rows = rows.masked_fill(symbols < 0, len(table) - 1)
    return F.embedding_bag(rows, table, mode="sum")


def all_class_scores(logits: Tensor, encoder: CodewordEncoder, block: int) -> Tensor:
    """All classes' scores (R, N): of logits (R, sum of q_i).

    Beside the result it takes memory for one block of classes; for the gradient each block's
    symbols are computed again, but in a compiled graph.
    """
    table = by_symbol(logits, encoder)
    if block >= encoder.mapping.n_classes or torch.compiler.is_compiling():
        blocks = class_blocks(encoder, block, logits.device)
        return torch.cat([class_scores(table, symbols, encoder) for symbols in blocks]).t()
    return _AllClassScores.apply(table, encoder, block)  # type: ignore[no-any-return]


class _AllClassScores(torch.autograd.Function):
    """`all_class_scores` in blocks of classes, forwards and backwards."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, encoder: CodewordEncoder, block: int) -> Tensor:
        ctx.encoder, ctx.block = encoder, block
        ctx.save_for_backward(table)
        scores = table.new_empty(table.shape[1], encoder.mapping.n_classes)
        blocks = class_blocks(encoder, block, table.device)
        for part, symbols in zip(torch.split(scores, block, 1), blocks, strict=True):
            part.copy_(class_scores(table, symbols, encoder).t())
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (table,) = ctx.saved_tensors
        gradient = torch.zeros_like(table)
        blocks = class_blocks(ctx.encoder, ctx.block, table.device)
        for part, symbols in zip(torch.split(grads[0], ctx.block, 1), blocks, strict=True):
            with torch.enable_grad():
                leaf = table.detach().requires_grad_()
                scores = class_scores(leaf, symbols, ctx.encoder)
            gradient += torch.autograd.grad(scores, leaf, part.t())[0]
        return gradient, None, None


def log_partition(logits: Tensor, encoder: CodewordEncoder, block_bytes: int) -> Tensor:
    """The logarithm of the sum over all classes of exp(score): (R,) from (R, sum of q_i).

    In blocks of classes whose scores take at most `block_bytes`, or as much as the logits,
    computed again for the gradient; where one block holds all of them, its scores are kept
    instead.
    """
    table = by_symbol(logits, encoder)
    n_classes = encoder.mapping.n_classes
    row_bytes = len(logits) * logits.element_size()
    block = max(len(table), block_bytes // row_bytes) if row_bytes else n_classes
    if block >= n_classes or torch.compiler.is_compiling():
        ids = torch.arange(n_classes, device=logits.device)
        return class_scores(table, encoder(ids), encoder).logsumexp(dim=0)
    return _LogPartition.apply(table, encoder, block)  # type: ignore[no-any-return]


class _LogPartition(torch.autograd.Function):
    """`log_partition` in blocks: memory for one block of classes, forwards and backwards."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, encoder: CodewordEncoder, block: int) -> Tensor:
        ctx.encoder, ctx.block = encoder, block
        total = table.new_full(table.shape[1:], -math.inf)
        for symbols in class_blocks(encoder, block, table.device):
            total = torch.logaddexp(total, class_scores(table, symbols, encoder).logsumexp(dim=0))
        ctx.save_for_backward(table, total)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        table, total = ctx.saved_tensors
        gradient = torch.zeros_like(table)
        for symbols in class_blocks(ctx.encoder, ctx.block, table.device):
            with torch.enable_grad():
                leaf = table.detach().requires_grad_()
                scores = class_scores(leaf, symbols, ctx.encoder)
            shares = (scores.detach() - total).exp() * grads[0]
            gradient += torch.autograd.grad(scores, leaf, shares)[0]
        return gradient, None, None


def class_blocks(encoder: CodewordEncoder, block: int, device: torch.device) -> Iterator[Tensor]:
    """Symbols of all classes in order, at most `block` classes at a time: (C, n)."""
    n_classes = encoder.mapping.n_classes
    for start in range(0, n_classes, block):
        yield encoder(torch.arange(start, min(start + block, n_classes), device=device))


def _sampled_log_partition(
    logits: Tensor,
    scores: Tensor,
    targets: Targets,
    encoder: CodewordEncoder,
    how: ClassNormalization,
) -> Tensor:
    """`log_partition` from the targets, the hardest other classes and a sample: (R,)."""
    mapping = encoder.mapping
    ids, there = targets.ids, targets.kept
    if ids.shape[1] > 1:  # a class that a row names twice counts once
        equal = (ids.unsqueeze(2) == ids.unsqueeze(1)) & there.unsqueeze(1)
        there = there & ~equal.tril(-1).any(dim=2)
    if how.n_hardest and len(ids):
        hardest = _hardest(logits, encoder, how.n_hardest)
        new = ~((hardest.unsqueeze(2) == ids.unsqueeze(1)) & there.unsqueeze(1)).any(dim=2)
        scores = torch.cat([scores, scores_of(logits, encoder(hardest), encoder)], dim=1)
        ids, there = torch.cat([ids, hardest], dim=1), torch.cat([there, new], dim=1)
    drawn = torch.randint(mapping.n_classes, (how.n_sampled,), device=logits.device)
    counted = torch.zeros(len(ids), how.n_sampled, dtype=torch.bool, device=logits.device)
    for column in range(ids.shape[1]):
        counted |= (ids[:, column, None] == drawn) & there[:, column, None]
    sampled = class_scores(by_symbol(logits, encoder), encoder(drawn), encoder).t()
    sampled = sampled + math.log(mapping.n_classes / how.n_sampled)
    everything = torch.cat(
        [scores.masked_fill(~there, -math.inf), sampled.masked_fill(counted, -math.inf)], dim=1
    )
    return everything.logsumexp(dim=1)


def _hardest(logits: Tensor, encoder: CodewordEncoder, count: int) -> Tensor:
    """The classes of the largest scores, int64 (R, count)."""
    parts = torch.split(logits.detach().cpu(), encoder.sizes, dim=-1)
    ids = decode_topk(encoder.mapping, parts, count, sites=encoder.sites).ids
    return torch.from_numpy(ids).to(logits.device)
