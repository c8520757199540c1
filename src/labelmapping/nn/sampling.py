"""One-hot output trained on the target and a few sampled classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_integer, check_choice
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .baselines import SingleSiteHead
from .functional import at_least_float32
from .log_softmax import log_softmax
from .targets import check_class_numbers

__all__ = ["NegativeSamplingHead"]

NOISES = ("uniform", "log-uniform", "frequency")
OBJECTIVES = ("logistic", "softmax")
LARGEST_MULTINOMIAL = 1 << 24  # categories that torch.multinomial takes


class NegativeSamplingHead(SingleSiteHead):
    """One-hot output trained on the target and a few sampled classes (Mikolov et al., 2013).

    All N classes are scored when answering, so nothing is saved there.

    Parameters
    ----------
    in_features : int
    n_classes : int or LabelMapping
        N, at least 2; of a mapping its number of classes.
    n_negatives : int, default 10
        Negatives per row, drawn from the noise with replacement.
    noise : {"uniform", "log-uniform", "frequency"}, optional
        Default "frequency" where `class_counts` are given, else "uniform". "log-uniform"
        is for class ids in order of falling frequency: log((id + 2) / (id + 1)) / log(N + 1).
    class_counts : sequence of numbers, length N, optional
        The noise "frequency" is proportional to (count + 1) ** power.
    power : float, default 0.75
        At least 0; as in word2vec.
    log_q_correction : bool, default True
        Train logits less the log of their expected number of draws, every draw
        counted (noise contrastive estimation): at the optimum the logits are
        log-probabilities. Without it they are relative to the noise, and a draw of
        the target does not count, as in word2vec.
    objective : {"logistic", "softmax"}
        "logistic": 1 + n_negatives problems of two classes, each row with its own draws.
        "softmax": one softmax over the target and the draws, the same draws for all rows
        (Jean et al., 2015). At its optimum logits are the same up to a constant a row,
        for any number of draws, since with the correction those of the target count
        (Ma and Collins, 2018).
    **options
        As in `ClassHead`.
    """

    noise: Tensor
    noise_ends: Tensor | None

    def __init__(
        self,
        in_features: int,
        n_classes: int | LabelMapping,
        *,
        n_negatives: int = 10,
        noise: str | None = None,
        class_counts: Sequence[float] | Tensor | None = None,
        power: float = 0.75,
        log_q_correction: bool = True,
        objective: str = "logistic",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, n_classes, device=device, dtype=dtype, **options)
        self.n_negatives = as_integer("n_negatives", n_negatives, 1)
        self.log_q_correction = log_q_correction
        self.objective = check_choice("objective", objective, OBJECTIVES)
        if noise is None:
            noise = "uniform" if class_counts is None else "frequency"
        check_choice("noise", noise, NOISES)
        if (class_counts is None) == (noise == "frequency"):
            raise ArgumentError(
                f'class_counts must be given for the noise "frequency" and for no other; noise is '
                f'"{noise}" and class_counts are {"missing" if class_counts is None else "given"}'
            )
        if not 0 <= power < math.inf:
            raise ArgumentError(f"power must be finite and at least 0, got {power}")
        shares = self._shares(noise, class_counts, power)
        self.output = nn.Linear(
            self.width, self.n_classes, bias=options.get("bias", True), device=device, dtype=dtype
        )
        self.register_buffer("noise", shares.float().to(device))
        self.register_buffer("noise_ends", None, persistent=False)
        self._add_up_the_noise()
        self._start_as_the_noise()

    def _add_up_the_noise(self) -> None:
        if self.n_classes > LARGEST_MULTINOMIAL:
            self.noise_ends = self.noise.double().cumsum(0)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._add_up_the_noise()

    def _shares(
        self, noise: str, class_counts: Sequence[float] | Tensor | None, power: float
    ) -> Tensor:
        """The noise's probabilities, float64 (N,)."""
        if noise == "log-uniform":
            ids = torch.arange(self.n_classes, dtype=torch.float64)
            return ((ids + 2) / (ids + 1)).log() / math.log(self.n_classes + 1)
        counts = torch.zeros(self.n_classes) if class_counts is None else class_counts
        weights = (check_class_numbers("class_counts", counts, self.n_classes) + 1) ** power
        return weights / weights.sum()

    @torch.no_grad()
    def _start_as_the_noise(self) -> None:
        """With the correction, start as the noise itself and not N times above it."""
        if self.log_q_correction and self.output.bias is not None:
            self.output.bias.copy_(self.noise.log())

    def reset_parameters(self) -> None:
        """Draw all parameters anew; with the correction the biases are the noise's logarithms."""
        super().reset_parameters()
        self._start_as_the_noise()

    def draw(self, n_rows: int) -> Tensor:
        """Classes from the noise, int64 (n_rows, n_negatives)."""
        size = (n_rows, self.n_negatives)
        if self.noise_ends is None:
            n_draws = n_rows * self.n_negatives  # torch.multinomial takes no 0
            draws = torch.multinomial(self.noise, max(1, n_draws), replacement=True)
            return draws[:n_draws].view(size)
        ends = self.noise_ends
        uniform = torch.rand(size, dtype=ends.dtype, device=ends.device)
        return torch.searchsorted(ends, uniform * ends[-1], right=True).clamp(max=len(ends) - 1)

    def _entry_losses(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """`output` is the log-probability of target against noise, not over the classes."""
        if self.objective == "softmax":
            return self._sampled_softmax(features, ids)
        classes = torch.cat([ids[:, None], self.draw(len(ids))], dim=1)
        logits = torch.einsum("bd,bcd->bc", features, self.output.weight[classes])
        if self.output.bias is not None:
            logits = logits + self.output.bias[classes]
        logits = self._trained_logits(logits, classes)
        log_probs = F.logsigmoid(logits[:, 0])
        noise = F.logsigmoid(-logits[:, 1:])
        if not self.log_q_correction:
            noise = noise * (classes[:, 1:] != ids[:, None])
        return log_probs, -log_probs - noise.sum(dim=1)

    def _sampled_softmax(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        drawn = self.draw(1)[0]
        weight, bias = self.output.weight, self.output.bias
        own = (features * weight[ids]).sum(dim=1)
        others = F.linear(features, weight[drawn], None if bias is None else bias[drawn])
        own = self._trained_logits(own if bias is None else own + bias[ids], ids)
        others = self._trained_logits(others, drawn)
        if not self.log_q_correction:
            others = others.masked_fill(drawn == ids[:, None], -math.inf)
        log_probs = own - torch.cat([own[:, None], others], dim=1).logsumexp(dim=1)
        return log_probs, -log_probs

    def _trained_logits(self, logits: Tensor, classes: Tensor) -> Tensor:
        """With the correction, less the log of how often the classes are drawn."""
        logits = at_least_float32(logits)
        if not self.log_q_correction:
            return logits
        return logits - (self.noise[classes] * self.n_negatives).log()

    def _class_log_probs(self, features: Tensor) -> Tensor:
        return log_softmax(self.output(features))
