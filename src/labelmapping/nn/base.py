"""What every output layer here offers, a code's and its rivals': loss, log-probs, answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..arguments import as_integer, as_integers
from ..decoding import decode_topk
from ..decoding.problem import ClassPrior
from ..errors import ArgumentError
from ..mappings import LabelMapping, MixedMapping
from .functional import at_least_float32
from .recipe_state import RecipeState
from .targets import Targets, check_class_numbers, check_reduction

__all__ = ["ClassHead", "HeadOutput", "TopClasses", "one_hot"]

# Bytes that `log_prob` may give: 2^28 numbers of float32.
DENSE_LIMIT = 1 << 30


class HeadOutput(NamedTuple):
    """What a head's `forward` returns, after ``nn.AdaptiveLogSoftmaxWithLoss``.

    Attributes
    ----------
    output : Tensor, shape of the target
        Log-probability of each target, without weights or smoothing (0 where ignored).
    loss : Tensor
        A scalar; one number a row with ``reduction="none"``.
    """

    output: Tensor
    loss: Tensor


class TopClasses(NamedTuple):
    """The best classes of each row, best first, ties to the lower id.

    Attributes
    ----------
    scores : float32 Tensor (..., min(k, classes))
    ids : int64 Tensor, the same shape
    """

    scores: Tensor
    ids: Tensor


class ClassHead(RecipeState, ABC):
    """Optional hidden layers, and on them an output over N classes.

    Subclasses give `_target_losses` or `_entry_losses`, and `site_log_probs`.

    Parameters
    ----------
    in_features : int
        d, the width of the trunk's features.
    mapping : LabelMapping
        What `site_log_probs` are decoded with; one-hot for heads without a code.
    hidden : int or sequence of int, default 0
        Widths of hidden layers, each with layer norm (a row's loss never depends
        on its batch) and ReLU; 0 for none.
    dropout : float in [0, 1), default 0.0
        After each hidden layer.
    bias : bool, default True
    reduction : {"mean", "sum", "none"}
        "mean" divides by the sum of the weights (0.0 where that is 0).
    ignore_index : int, default -100
        Targets with this value are left out of the loss, before they are encoded.
    weight : sequence of numbers, length N, optional
        Class weights, not negative, as in ``nn.CrossEntropyLoss``.
    check_targets : bool, default True
        Whether targets out of range are refused, for which a GPU is waited for.
        Unchecked they train other classes without a word.
    device, dtype : optional
        Of the parameters.
    """

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        mapping: LabelMapping,
        *,
        hidden: int | Sequence[int] = 0,
        dropout: float = 0.0,
        bias: bool = True,
        reduction: str = "mean",
        ignore_index: int = -100,
        weight: Sequence[float] | Tensor | None = None,
        check_targets: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = as_integer("in_features", in_features, 1)
        self.mapping = mapping
        self.reduction = check_reduction(reduction)
        self.ignore_index = as_integer("ignore_index", ignore_index)
        self.check_targets = check_targets
        if not 0.0 <= dropout < 1.0:
            raise ArgumentError(f"dropout must lie in [0, 1), got {dropout}")
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        layers: list[nn.Module] = []
        width = self.in_features
        for size in hidden_widths(hidden):
            layers += [
                nn.Linear(width, size, bias=False, **made),
                nn.LayerNorm(size, bias=bias, **made),
                nn.ReLU(),
            ]
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = size
        self.hidden = nn.Sequential(*layers)
        self.width = width
        if weight is not None:
            weight = check_class_numbers("weight", weight, mapping.n_classes).to(
                device=device, dtype=dtype or torch.get_default_dtype()
            )
            if weight.is_meta:
                raise ArgumentError("weight must lie on a real device, its values are lost on meta")
        self.register_buffer("weight", weight, persistent=False)

    @property
    def n_classes(self) -> int:
        """N, the number of classes."""
        return self.mapping.n_classes

    @abstractmethod
    def site_log_probs(self, input: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities (..., q_i), one tensor a site of `mapping`, in float32 or better."""

    def forward(
        self, input: Tensor, target: Tensor, *, sample_weight: Tensor | None = None
    ) -> HeadOutput:
        """Score the targets.

        Parameters
        ----------
        input : float Tensor (..., d)
        target : int Tensor (...) or (..., T)
            Class ids, or several true classes a row, filled up with `ignore_index`: the
            row's loss is the mean over them.
        sample_weight : float Tensor (...), optional
            Weights of the rows, not negative.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            A shape does not fit, or a target is out of range or no integer.
        """
        self.check_input(input)
        targets = Targets.of(
            target,
            tuple(input.shape[:-1]),
            self.n_classes,
            torch.promote_types(input.dtype, torch.float32),
            ignore_index=self.ignore_index,
            weight=self.weight,
            sample_weight=sample_weight,
            check=self.check_targets,
        )
        rows = targets.counted(input.reshape(len(targets.ids), self.in_features))
        log_probs, losses = self._target_losses(self.hidden(rows), targets)
        return HeadOutput(log_probs.reshape(targets.shape), targets.reduce(losses, self.reduction))

    def _target_losses(self, features: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """Log-probabilities and losses, both (R, T), of features (R, width)."""
        n_rows, n_entries = targets.ids.shape
        if n_entries != 1:
            features = features.repeat_interleave(n_entries, dim=0)
        log_probs, losses = self._entry_losses(features, targets.ids.reshape(-1))
        log_probs = log_probs.reshape(n_rows, n_entries).masked_fill(~targets.kept, 0)
        return log_probs, losses.reshape(n_rows, n_entries)

    def _entry_losses(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and losses, both (M,), of a class for each row of features."""
        raise NotImplementedError

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: (..., d) to (..., N), each row sums to one.

        Where no class of a row is possible, all are equally likely.

        Raises
        ------
        ArgumentError
            The result would take more than 1 GiB (to compute it, a code takes about two and a
            half times that, and four times with gradients); `topk` has no such limit.
        """
        self.check_input(input)
        n_rows = input.shape[:-1].numel()
        size = n_rows * self.n_classes * max(4, input.itemsize)
        if size > DENSE_LIMIT:
            raise ArgumentError(
                f"input must have at most {DENSE_LIMIT // (size // n_rows)} rows for log_prob over "
                f"{self.n_classes} classes, got {n_rows}: they would take {size / 2**30:.1f} GiB, "
                "and the most is 1; topk needs no such table"
            )
        features = self.hidden(input).reshape(n_rows, self.width)
        return self._class_log_probs(features).reshape(*input.shape[:-1], self.n_classes)

    @abstractmethod
    def _class_log_probs(self, features: Tensor) -> Tensor:
        """Log-probabilities (R, N) from the hidden layers' features (R, width)."""

    @torch.no_grad()
    def topk(
        self,
        input: Tensor,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        prior: ArrayLike | ClassPrior | None = None,
    ) -> TopClasses:
        """The k best classes of each row, exactly, by ``decode_topk`` on the CPU.

        Parameters
        ----------
        input : float Tensor (..., d)
        k : int
            At least 1; more than there are classes gives all of them.
        allowed, prior
            As in ``decode_topk``.

        Returns
        -------
        TopClasses
            On the device of `input`. Scores are sums of the sites' log-probs, and the prior.

        Raises
        ------
        ArgumentError, ArgumentTypeError
            An argument is out of range, or the network gave NaN.
        """
        self.check_input(input)
        rows = input.shape[:-1]
        answers = [
            np.asarray(values.reshape(rows.numel(), values.shape[-1]).cpu())
            for values in self._site_scores(input)
        ]
        found = decode_topk(
            self.mapping,
            answers,
            k,
            sites=self._sites(),
            allowed=_on_cpu(allowed),
            prior=_on_cpu(prior),
        )
        return TopClasses(
            torch.from_numpy(found.scores).to(input.device).reshape(*rows, found.ids.shape[1]),
            torch.from_numpy(found.ids).to(input.device).reshape(*rows, found.ids.shape[1]),
        )

    def predict(self, input: Tensor) -> Tensor:
        """The best class of each row: (..., d) to int64 (...)."""
        return self.topk(input, 1).ids[..., 0]

    def _site_scores(self, input: Tensor) -> tuple[Tensor, ...]:
        """What `topk` sums over the sites."""
        return self.site_log_probs(input)

    def reset_parameters(self) -> None:
        """Draw all parameters anew, each layer as torch does."""
        for module in self.modules():
            if module is not self and callable(reset := getattr(module, "reset_parameters", None)):
                reset()

    def check_input(self, input: Tensor) -> None:
        """Refuse features of another width."""
        if input.ndim == 0 or input.shape[-1] != self.in_features:
            raise ArgumentError(
                f"input must have shape (..., {self.in_features}), got {tuple(input.shape)}"
            )


def hidden_widths(hidden: int | Sequence[int]) -> tuple[int, ...]:
    """The widths of the hidden layers: none for 0, one for an int."""
    if isinstance(hidden, Sequence):
        return as_integers("hidden", hidden, 1) if len(hidden) else ()
    width = as_integer("hidden", hidden, 0)
    return (width,) if width else ()


def one_hot(n_classes: int | LabelMapping) -> MixedMapping:
    """The mapping of a head without a code, for as many classes as a given number or code has."""
    if isinstance(n_classes, LabelMapping):
        n_classes = n_classes.n_classes
    return MixedMapping.one_hot(n_classes)


def _on_cpu(values: Any) -> Any:
    if not isinstance(values, Tensor):
        return values
    values = values.cpu()
    return (at_least_float32(values) if values.is_floating_point() else values).numpy()
