"""Rivals of a code that rely on classes being of unlike frequency: cut-off, adaptive softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_integer, as_integers
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .base import ClassHead, one_hot
from .functional import at_least_float32
from .log_softmax import log_softmax
from .targets import check_class_numbers

__all__ = ["AdaptiveSoftmaxHead", "CutoffHead", "SingleSiteHead", "frequency_ranks"]


class SingleSiteHead(ClassHead):
    """A head without a code: its answers over N classes are the single site of a one-hot mapping.

    Subclasses give `_entry_losses` and `_class_log_probs`.

    Parameters
    ----------
    in_features : int
    n_classes : int or LabelMapping
        N, at least 2; of a mapping its number of classes.
    **options
        As in `ClassHead`.
    """

    def __init__(self, in_features: int, n_classes: int | LabelMapping, **options: Any) -> None:
        super().__init__(in_features, one_hot(n_classes), **options)
        as_integer("n_classes", self.n_classes, 2)

    def site_log_probs(self, input: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities over all classes: input (..., d) to a single tensor (..., N)."""
        self.check_input(input)
        flat = self._class_log_probs(self.hidden(input).reshape(-1, self.width))
        return (flat.reshape(*input.shape[:-1], self.n_classes),)


def frequency_ranks(class_counts: Sequence[float] | Tensor | None, n_classes: int) -> Tensor:
    """Each class's place in the order of falling counts, int64 (N,); ties in the order of ids.

    Without counts the ids themselves.
    """
    ranks = torch.arange(n_classes)
    if class_counts is not None:
        counts = check_class_numbers("class_counts", class_counts, n_classes)
        ranks[counts.argsort(descending=True, stable=True)] = torch.arange(n_classes)
    return ranks


class CutoffHead(SingleSiteHead):
    """The `n_symbols` - 1 first classes have a symbol each, all the others share the last.

    Class ids must be in order of falling frequency. When answering, the last
    symbol's probability is spread over its classes by their share of
    `class_counts`: the best that can be said of them.

    Parameters
    ----------
    in_features : int
    n_classes : int or LabelMapping
        N, at least 2; of a mapping its number of classes.
    n_symbols : int
        2 <= n_symbols <= n_classes.
    class_counts : sequence of numbers, length N
        Training frequencies, not negative.
    **options
        As in `ClassHead`.
    """

    log_share: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int | LabelMapping,
        *,
        n_symbols: int,
        class_counts: Sequence[float] | Tensor,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, n_classes, device=device, dtype=dtype, **options)
        self.n_symbols = as_integer("n_symbols", n_symbols, 2)
        if self.n_symbols > self.n_classes:
            raise ArgumentError(
                f"n_symbols must be at most n_classes, {self.n_classes}; got {n_symbols}"
            )
        self.output = nn.Linear(
            self.width, self.n_symbols, bias=options.get("bias", True), device=device, dtype=dtype
        )
        counts = check_class_numbers("class_counts", class_counts, self.n_classes)
        # One more each: a class never seen in training keeps a share.
        rest = counts[self.n_symbols - 1 :] + 1
        self.register_buffer("log_share", (rest / rest.sum()).log().float().to(device))

    def _entry_losses(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """`output` is the log-probability of the target's symbol."""
        symbols = ids.clamp(max=self.n_symbols - 1)
        losses = F.cross_entropy(at_least_float32(self.output(features)), symbols, reduction="none")
        return -losses, losses

    def _class_log_probs(self, features: Tensor) -> Tensor:
        log_probs = log_softmax(self.output(features))
        frequent, rest = log_probs[..., :-1], log_probs[..., -1:]
        return torch.cat([frequent, rest + self.log_share], dim=-1)


class AdaptiveSoftmaxHead(SingleSiteHead):
    """``nn.AdaptiveLogSoftmaxWithLoss`` (Grave et al., 2017) with the interface of all heads.

    Class ids must be in order of falling frequency, unless `class_counts` give the order.

    Parameters
    ----------
    in_features : int
    n_classes : int or LabelMapping
        N, at least 2; of a mapping its number of classes.
    cutoffs : sequence of int, optional
        Ascending, in 1..N-1: where clusters of rarer classes begin. Default N/20 and N/4, as
        far as these differ and are at least 1.
    div_value : float, default 4.0
        How much narrower each further cluster's features are.
    class_counts : sequence of numbers, length N, optional
        Training frequencies, not negative.
    **options
        As in `ClassHead`; `bias` is that of the first cluster alone, as in torch.
    """

    ranks: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int | LabelMapping,
        *,
        cutoffs: Sequence[int] | None = None,
        div_value: float = 4.0,
        class_counts: Sequence[float] | Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, n_classes, device=device, dtype=dtype, **options)
        if cutoffs is None:
            cutoffs = sorted({max(1, self.n_classes // 20), max(1, self.n_classes // 4)})
        chosen = as_integers("cutoffs", cutoffs, 1)
        if list(chosen) != sorted(set(chosen)) or not chosen or chosen[-1] >= self.n_classes:
            raise ArgumentError(
                f"cutoffs must ascend and lie in 1..{self.n_classes - 1}, got {list(cutoffs)}"
            )
        if not div_value > 0:
            raise ArgumentError(f"div_value must be positive, got {div_value}")
        if self.width < div_value ** len(chosen):
            raise ArgumentError(
                f"div_value must be at most {self.width ** (1 / len(chosen)):.4g}, so that the "
                f"last of {len(chosen)} clusters keeps one of {self.width} features; got "
                f"{div_value}"
            )
        self.output = nn.AdaptiveLogSoftmaxWithLoss(
            self.width,
            self.n_classes,
            list(chosen),
            div_value=div_value,
            head_bias=options.get("bias", True),
            device=device,
            dtype=dtype,
        )
        self.register_buffer("ranks", frequency_ranks(class_counts, self.n_classes).to(device))

    def _entry_losses(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        # Not by torch's own forward: that has no gradient for clusters without a target,
        # fails under autocast, and rounds the sums of two log-probs in half precision.
        ranks = self.ranks[ids]
        *cutoffs, _ = self.output.cutoffs
        frequent = self.output.shortlist_size
        clusters = sum(((ranks >= cutoff).long() for cutoff in cutoffs), torch.zeros_like(ranks))
        columns = torch.where(clusters == 0, ranks, frequent - 1 + clusters)
        log_probs = log_softmax(self.output.head(features)).gather(1, columns[:, None])[:, 0]
        for i, (tail, cutoff) in enumerate(zip(self.output.tail, cutoffs, strict=True), start=1):
            rows = (clusters == i).nonzero()[:, 0]
            places = (ranks[rows] - cutoff)[:, None]
            within = log_softmax(tail(features[rows])).gather(1, places)[:, 0]
            log_probs = log_probs.index_add(0, rows, within)
        return log_probs, -log_probs

    def _class_log_probs(self, features: Tensor) -> Tensor:
        head = log_softmax(self.output.head(features))
        frequent = self.output.shortlist_size
        parts = [head[:, :frequent]]
        for i, tail in enumerate(self.output.tail):
            parts.append(head[:, frequent + i, None] + log_softmax(tail(features)))
        return torch.cat(parts, dim=1)[:, self.ranks]
