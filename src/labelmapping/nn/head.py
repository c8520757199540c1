"""The output layer of a code: one small softmax a site, on a trunk's features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_integer, as_integers
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .functional import as_int64, label_mapping_cross_entropy

__all__ = ["HeadOutput", "LabelMappingHead"]


class HeadOutput(NamedTuple):
    """What a head's `forward` returns, after ``nn.AdaptiveLogSoftmaxWithLoss``.

    Attributes
    ----------
    output : Tensor, shape (...)
        Log-probability of each row's target (0 for ignored rows).
    loss : Tensor, scalar
        Mean over the rows kept.
    """

    output: Tensor
    loss: Tensor


class LabelMappingHead(nn.Module):
    """Linear layer (after optional hidden ones, shared by the sites) and a softmax per site.

    Parameters
    ----------
    in_features : int
        d, the width of the trunk's features.
    mapping : LabelMapping
        The code; its size does not depend on N.
    hidden : int or sequence of int, default 0
        Widths of hidden layers, each with layer norm (a row's loss never depends
        on its batch) and ReLU; 0 for none. A code without structure is memorised
        much faster with it (docs/results/demo.md).
    dropout : float, default 0.0
        After each hidden layer.
    bias : bool, default True
    sites : sequence of int, optional
        The sites this head emits: one for a separate learner. Default all (joint).
    ignore_index : int, default -100
        Targets with this value are left out of the loss.

    Examples
    --------
    >>> import torch
    >>> from labelmapping import SimplexMapping
    >>> head = LabelMappingHead(64, SimplexMapping(20901, 4, field_order=181))
    >>> [tuple(p.shape) for p in head.site_log_probs(torch.zeros(2, 64))]
    [(2, 181), (2, 181), (2, 181), (2, 181)]
    """

    def __init__(
        self,
        in_features: int,
        mapping: LabelMapping,
        *,
        hidden: int | Sequence[int] = 0,
        dropout: float = 0.0,
        bias: bool = True,
        sites: Sequence[int] | None = None,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        self.in_features = as_integer("in_features", in_features, 1)
        self.mapping = mapping
        self.sites = tuple(range(mapping.n_sites)) if sites is None else mapping.check_sites(sites)
        self.ignore_index = ignore_index
        if not 0.0 <= dropout < 1.0:
            raise ArgumentError(f"dropout must lie in [0, 1), got {dropout}")
        layers: list[nn.Module] = []
        width = self.in_features
        for size in hidden_widths(hidden):
            layers += [
                nn.Linear(width, size, bias=False),
                nn.LayerNorm(size, bias=bias),
                nn.ReLU(),
            ]
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = size
        self.hidden = nn.Sequential(*layers)
        self.widths = [mapping.alphabet_sizes[site] for site in self.sites]
        self.output = nn.Linear(width, sum(self.widths), bias=bias)

    def site_logits(self, input: Tensor) -> tuple[Tensor, ...]:
        """Unnormalised scores: input (..., d) to one tensor (..., q_i) a site."""
        return self.output(self.hidden(input)).split(self.widths, dim=-1)  # type: ignore[no-any-return]

    def site_log_probs(self, input: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities, normalised per site, in float32 or better; shapes as `site_logits`."""
        return tuple(F.log_softmax(at_least_float32(x), dim=-1) for x in self.site_logits(input))

    def forward(self, input: Tensor, target: Tensor) -> HeadOutput:
        """Score the targets: input (..., d), target int (...); errors of the cross-entropy."""
        losses = label_mapping_cross_entropy(
            self.site_logits(input),
            target,
            self.mapping,
            sites=self.sites,
            ignore_index=self.ignore_index,
            reduction="none",
        )
        return HeadOutput(-losses, losses.sum() / kept_rows(target, self.ignore_index))

    def extra_repr(self) -> str:
        """The mapping and, where they are not all, the sites."""
        return f"mapping={self.mapping!r}, sites={list(self.sites)}"


def hidden_widths(hidden: int | Sequence[int]) -> tuple[int, ...]:
    """The widths of the hidden layers: none for 0, one for an int."""
    if isinstance(hidden, Sequence):
        return as_integers("hidden", hidden, 1) if len(hidden) else ()
    width = as_integer("hidden", hidden, 0)
    return (width,) if width else ()


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision lifted to float32: exponentials and long sums lose the winner in it."""
    return values.float() if values.itemsize < 4 else values


def kept_rows(target: Tensor, ignore_index: int) -> Tensor:
    """How many rows count in a mean, at least 1 so that a mean of none is 0."""
    return (as_int64("target", target) != ignore_index).sum().clamp(min=1)
