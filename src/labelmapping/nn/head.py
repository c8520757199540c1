"""The output layer of a code: one small softmax a site, on a trunk's features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from ..mappings import LabelMapping
from .base import ClassHead, one_hot
from .class_softmax import ClassNormalization, all_class_scores
from .codewords import BLOCK, CodewordEncoder, grown_mapping
from .functional import (
    at_least_float32,
    check_normalization,
    check_smoothing,
    target_losses,
)
from .log_softmax import log_softmax
from .targets import Targets

__all__ = ["LabelMappingHead", "MachHead", "OneHotHead"]


class LabelMappingHead(ClassHead):
    """Linear layer (after optional hidden ones, shared by the sites) and a softmax per site.

    The conventions of ``nn.AdaptiveLogSoftmaxWithLoss``: ``head(input, target)`` gives
    ``(output, loss)``. Its size does not depend on N but for the alphabets.

    Parameters
    ----------
    in_features : int
        d, the width of the trunk's features.
    mapping : LabelMapping
        The code. A binary code (`EcocMapping`) makes this the head of ECOC.
    sites : sequence of int, optional
        The sites this head emits: one for a separate learner. Default all (joint).
    normalization : {"site", "class"} or ClassNormalization
        "site": a softmax per site, the paper's. "class": one over the N classes of the
        summed site logits: dearer, and worth it where the sites are hard to learn
        (benchmarks/README.md, "Assignment").
    label_smoothing : float in [0, 1], default 0.0
        See `label_mapping_cross_entropy`.
    hidden, dropout, bias, reduction, ignore_index, weight, check_targets, device, dtype
        As in `ClassHead`. A code without structure is memorised much faster with a
        hidden layer (docs/results/demo.md).

    Examples
    --------
    >>> import torch
    >>> from labelmapping import SimplexMapping
    >>> head = LabelMappingHead(64, SimplexMapping(20901, 4, field_order=181))
    >>> output, loss = head(torch.zeros(2, 64), torch.tensor([5, 20900]))
    >>> [tuple(p.shape) for p in head.site_log_probs(torch.zeros(2, 64))]
    [(2, 181), (2, 181), (2, 181), (2, 181)]
    >>> tuple(head.topk(torch.zeros(2, 64), 10).ids.shape)
    (2, 10)
    """

    def __init__(
        self,
        in_features: int,
        mapping: LabelMapping,
        *,
        sites: Sequence[int] | None = None,
        normalization: str | ClassNormalization = "site",
        label_smoothing: float = 0.0,
        hidden: int | Sequence[int] = 0,
        dropout: float = 0.0,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            in_features,
            mapping,
            hidden=hidden,
            dropout=dropout,
            bias=bias,
            device=device,
            dtype=dtype,
            **options,
        )
        self.normalization = normalization
        self.label_smoothing = check_smoothing(label_smoothing)
        self.encoder = self._new_encoder(mapping, sites, device)
        self.output = nn.Linear(
            self.width, sum(self.encoder.sizes), bias=bias, device=device, dtype=dtype
        )

    def _new_encoder(
        self,
        mapping: LabelMapping,
        sites: Sequence[int] | None,
        device: torch.device | str | None,
    ) -> CodewordEncoder:
        encoder = CodewordEncoder(mapping, sites, device=device)
        if check_normalization(self.normalization, encoder) is not None and self.label_smoothing:
            encoder.symbol_counts()  # kept: a compiled graph cannot count
        return encoder

    @property
    def sites(self) -> tuple[int, ...]:
        """The sites that this head emits."""
        return self.encoder.sites

    def site_logits(self, input: Tensor) -> tuple[Tensor, ...]:
        """Unnormalised scores: input (..., d) to one tensor (..., q_i) a site."""
        self.check_input(input)
        return torch.split(self.output(self.hidden(input)), self.encoder.sizes, dim=-1)

    def site_log_probs(self, input: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities, normalised per site, in float32 or better; shapes as `site_logits`."""
        return tuple(log_softmax(logits) for logits in self.site_logits(input))

    def _target_losses(self, features: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        return target_losses(
            self.output(features), targets, self.encoder, self.normalization, self.label_smoothing
        )

    def _class_log_probs(self, features: Tensor) -> Tensor:
        values = at_least_float32(self.output(features))
        if self.encoder.abstains:
            values = torch.cat(
                [log_softmax(x) for x in torch.split(values, self.encoder.sizes, 1)], 1
            )
        scores = all_class_scores(values, self.encoder, BLOCK)
        impossible = scores.detach().amax(dim=1, keepdim=True) == -torch.inf
        known = scores.device.type == "cpu" and not torch.compiler.is_compiling()
        if not known or bool(impossible.any()):
            scores = scores.masked_fill(impossible, 0)
        return log_softmax(scores)

    def _sites(self) -> tuple[int, ...] | None:
        return None if self.sites == tuple(range(self.mapping.n_sites)) else self.sites

    def grow(self, n_classes: int | LabelMapping) -> None:
        """Take in new classes: no parameter changes, nor any class's symbols.

        Where there are class weights, new classes have the mean one.

        Parameters
        ----------
        n_classes : int or LabelMapping
            From the present number to ``mapping.capacity``; or the grown mapping, where
            that needs more to be known (prototypes, for a learned one).

        Raises
        ------
        ArgumentError
            Above the capacity, with how far it can go; or the mapping given is not this
            one with more classes. The head stays as it was.
        """
        grown = grown_mapping(self.mapping, n_classes)
        self.encoder = self._new_encoder(grown, self.sites, self.encoder.offsets.device)
        if self.weight is not None:  # new classes count as an average one
            new = self.weight.mean().expand(grown.n_classes - self.n_classes)
            self.weight = torch.cat([self.weight, new])
        self.mapping = grown

    def extra_repr(self) -> str:
        """The mapping and, where they are not all, the sites."""
        sites = "" if len(self.sites) == self.mapping.n_sites else f", sites={list(self.sites)}"
        return f"mapping={self.mapping!r}{sites}"


class OneHotHead(LabelMappingHead):
    """The plain softmax over N classes: a code of one site.

    Parameters
    ----------
    in_features : int
    n_classes : int or LabelMapping
        N; of a mapping its number of classes, so that swapping heads is one word.
    **options
        As in `LabelMappingHead`.
    """

    def __init__(self, in_features: int, n_classes: int | LabelMapping, **options: Any) -> None:
        super().__init__(in_features, one_hot(n_classes), **options)


class MachHead(LabelMappingHead):
    """Merged-average classifiers via hashing (Medini et al., 2019): averages, not products.

    Trained as `LabelMappingHead`. Of a class whose symbols have the probabilities p_i in
    alphabets of B, the answer is MACH's unbiased estimate, the mean of
    (B p_i - 1) / (B - 1): what `topk` gives as scores. `log_prob` is the logarithm of the
    estimates above 0, divided by their sum (even, where there is none).

    Parameters
    ----------
    in_features : int
    mapping : LabelMapping
        Of equal alphabets of 2 or more, as `HashedMapping`.
    **options
        As in `LabelMappingHead`.
    """

    def __init__(self, in_features: int, mapping: LabelMapping, **options: Any) -> None:
        if len(set(mapping.alphabet_sizes)) != 1 or mapping.alphabet_sizes[0] < 2:
            raise ArgumentError(
                f"mapping must have equal alphabets of 2 or more, got {mapping.alphabet_sizes}"
            )
        if mapping.has_abstentions:
            raise ArgumentError(
                "mapping must have a symbol for every class at every site, and this one abstains"
            )
        super().__init__(in_features, mapping, **options)

    def _estimates(self, log_probs: Tensor) -> Tensor:
        size = self.encoder.sizes[0]
        return (log_probs.exp() * size - 1) / ((size - 1) * len(self.sites))

    def _site_scores(self, input: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._estimates(values) for values in self.site_log_probs(input))

    def _class_log_probs(self, features: Tensor) -> Tensor:
        parts = torch.split(self.output(features), self.encoder.sizes, dim=-1)
        values = torch.cat([self._estimates(log_softmax(logits)) for logits in parts], dim=1)
        estimates = all_class_scores(values, self.encoder, BLOCK)
        none = (estimates <= 0).all(dim=1, keepdim=True)
        counted = (estimates > 0) | none
        # Inside the logarithm nothing is 0: its gradient would be no number.
        shares = torch.where(counted & ~none, estimates, 1)
        total = (shares * counted).sum(dim=1, keepdim=True)
        return (shares / total).log().masked_fill(~counted, -math.inf)
