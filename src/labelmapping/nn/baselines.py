"""Rivals of a code, with the interface of `LabelMappingHead`.

Each answers over all N classes, as the single site of ``MixedMapping.one_hot(N)``;
one-hot softmax itself is `LabelMappingHead` over that mapping.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_integer
from ..errors import ArgumentError
from .functional import check_ids
from .head import HeadOutput, at_least_float32

__all__ = ["CutoffHead", "NegativeSamplingHead"]


class NegativeSamplingHead(nn.Module):
    """One-hot output trained on the target and a few sampled classes (Mikolov et al., 2013).

    Each row is `1 + n_negatives` two-class problems: the target against noise.
    All N classes are scored when answering, so nothing is saved there.

    Parameters
    ----------
    in_features, n_classes : int
    n_negatives : int, default 10
        Negatives per row, drawn anew for each from the noise.
    class_counts : sequence of numbers, length N, optional
        The noise is proportional to (count + 1) ** power; default uniform.
    power : float, default 0.75
        As in word2vec.
    log_q_correction : bool, default True
        Train logits less the log of their expected number of draws, every draw
        counted (noise contrastive estimation): at the optimum the logits are
        log-probabilities. Without it they are relative to the noise, and a draw of
        the target does not count, as in word2vec.
    """

    noise: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        n_negatives: int = 10,
        class_counts: Sequence[float] | Tensor | None = None,
        power: float = 0.75,
        log_q_correction: bool = True,
    ) -> None:
        super().__init__()
        self.n_classes = as_integer("n_classes", n_classes, 1)
        self.n_negatives = as_integer("n_negatives", n_negatives, 1)
        self.log_q_correction = log_q_correction
        self.output = nn.Linear(as_integer("in_features", in_features, 1), self.n_classes)
        counts = torch.zeros(self.n_classes) if class_counts is None else class_counts
        weights = (check_counts(counts, self.n_classes) + 1) ** power
        self.register_buffer("noise", (weights / weights.sum()).float())
        if log_q_correction:
            # Start as the noise itself, not N times above it.
            with torch.no_grad():
                self.output.bias.copy_(self.noise.log())

    def forward(self, input: Tensor, target: Tensor) -> HeadOutput:
        """Score the targets against noise: input (B, d), target int (B,).

        `output` is the log-probability of target against noise, not over classes.
        """
        check_ids("target", target, self.n_classes)
        draws = torch.multinomial(self.noise, target.numel() * self.n_negatives, replacement=True)
        classes = torch.cat([target.long()[:, None], draws.view(-1, self.n_negatives)], dim=1)
        logits = torch.einsum("bd,bcd->bc", input, self.output.weight[classes])
        logits = at_least_float32(logits + self.output.bias[classes])
        if self.log_q_correction:
            logits = logits - (self.noise[classes] * self.n_negatives).log()
        output = F.logsigmoid(logits[:, 0])
        noise = F.logsigmoid(-logits[:, 1:])
        if not self.log_q_correction:
            noise = noise * (classes[:, 1:] != target[:, None])
        loss = -output - noise.sum(dim=1)
        return HeadOutput(output, loss.mean())

    def site_log_probs(self, input: Tensor) -> tuple[Tensor, ...]:
        """Log-softmax of all logits: input (B, d) to a single tensor (B, N)."""
        return (F.log_softmax(at_least_float32(self.output(input)), dim=-1),)


class CutoffHead(nn.Module):
    """The `n_symbols` - 1 first classes have a symbol each, all the others share the last.

    Class ids must be in order of falling frequency. When answering, the last
    symbol's probability is spread over its classes by their share of
    `class_counts`: the best that can be said of them.

    Parameters
    ----------
    in_features, n_classes, n_symbols : int
        2 <= n_symbols <= n_classes.
    class_counts : sequence of numbers, length N
        Training frequencies, not negative.
    """

    log_share: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        *,
        n_symbols: int,
        class_counts: Sequence[float] | Tensor,
    ) -> None:
        super().__init__()
        self.n_classes = as_integer("n_classes", n_classes, 2)
        self.n_symbols = as_integer("n_symbols", n_symbols, 2)
        if self.n_symbols > self.n_classes:
            raise ArgumentError(
                f"n_symbols must be at most n_classes, {n_classes}; got {n_symbols}"
            )
        self.output = nn.Linear(as_integer("in_features", in_features, 1), self.n_symbols)
        counts = check_counts(class_counts, self.n_classes)
        # One more each: a class never seen in training keeps a share.
        rest = counts[self.n_symbols - 1 :] + 1
        self.register_buffer("log_share", (rest / rest.sum()).log().float())

    def forward(self, input: Tensor, target: Tensor) -> HeadOutput:
        """Cross-entropy over the symbols: input (B, d), target int (B,)."""
        check_ids("target", target, self.n_classes)
        symbols = target.long().clamp(max=self.n_symbols - 1)
        losses = F.cross_entropy(at_least_float32(self.output(input)), symbols, reduction="none")
        return HeadOutput(-losses, losses.mean())

    def site_log_probs(self, input: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities over all classes: input (B, d) to a single tensor (B, N)."""
        log_probs = F.log_softmax(at_least_float32(self.output(input)), dim=-1)
        frequent, rest = log_probs[..., :-1], log_probs[..., -1:]
        return (torch.cat([frequent, rest + self.log_share], dim=-1),)


def check_counts(class_counts: Sequence[float] | Tensor, n_classes: int) -> Tensor:
    """Class counts as float64 (N,); refused where one is negative, not finite or missing."""
    counts = torch.as_tensor(class_counts, dtype=torch.float64)
    if counts.shape != (n_classes,):
        raise ArgumentError(
            f"class_counts must be {n_classes} numbers, got shape {tuple(counts.shape)}"
        )
    bad = torch.nonzero(~(torch.isfinite(counts) & (counts >= 0)))
    if len(bad):
        place = int(bad[0])
        raise ArgumentError(
            f"class_counts must be finite and at least 0, class_counts[{place}] is "
            f"{counts[place].item()}"
        )
    return counts
