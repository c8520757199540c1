"""What a learner is made of: a recipe of JSON values, and the network it describes."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast

from torch import Tensor, nn

from ..arguments import as_integer, check_choice
from ..errors import ArgumentError
from ..mappings import LabelMapping, MixedMapping
from ..nn import (
    AdaptiveSoftmaxHead,
    ClassHead,
    CutoffHead,
    HeadOutput,
    HuffmanHead,
    LabelMappingEmbedding,
    LabelMappingHead,
    NegativeSamplingHead,
    OneHotHead,
    TwoLevelHead,
)

__all__ = ["LearnerNetwork", "LearnerRecipe", "Site", "count_parameters", "derive_seed"]

Site = int | Literal["all"]
# Those that answer as the single site of a one-hot mapping.
RIVALS: dict[str, Callable[..., ClassHead]] = {
    "one-hot": OneHotHead,
    "negative-sampling": NegativeSamplingHead,
    "hierarchical-huffman": HuffmanHead,
    "hierarchical-two-level": TwoLevelHead,
    "adaptive-softmax": AdaptiveSoftmaxHead,
    "cut-off": CutoffHead,
}
HEADS = ("label-mapping", *RIVALS)
LARGEST_FLOAT32 = 3.4e38
SCHEDULES = ("constant", "one-cycle")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


class LearnerNetwork(nn.Module):
    """A trunk and a head."""

    def __init__(self, trunk: nn.Module, head: ClassHead) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head

    def forward(self, inputs: Tensor, target: Tensor) -> HeadOutput:
        """The head's output and loss."""
        return cast(HeadOutput, self.head(self.trunk(inputs), target))

    def site_log_probs(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities (B, q_i), one tensor for each of the learner's sites."""
        return self.head.site_log_probs(self.trunk(inputs))


@dataclass(frozen=True, kw_only=True)
class LearnerRecipe:
    """Everything that decides a learner's weights, beside the data and the seed.

    Attributes
    ----------
    mapping : LabelMapping
    trunk : str
        ``module:Class`` of a module with `out_features`.
    trunk_options, head_options : dict
        Keyword arguments as JSON values.
    head : {"label-mapping", "one-hot", "negative-sampling", "hierarchical-huffman", \
            "hierarchical-two-level", "adaptive-softmax", "cut-off"}
        All but the first answer as the single site of a one-hot mapping. MACH is no head
        here: it trains as "label-mapping" and differs in how answers are put together, so
        a `MachHead` takes the weights of such a learner.
    joint : bool
        One network for all sites, or one a site.
    epochs, batch_size : int
    steps_per_epoch : int, optional
        Default: just enough for every training row.
    learning_rate : float
        Of Adam; the peak, with "one-cycle".
    schedule : {"constant", "one-cycle"}
    precision : {"32-true", "bf16-mixed", "16-mixed"}
        Lightning's names: of training alone. Mixed keeps weights in float32 and multiplies in
        bfloat16 (CPUs and GPUs that have it), or in float16 with scaled gradients (GPUs). In
        "32-true" torch's own settings hold: by default convolutions on CUDA take TF32 products.
    keep_epochs : tuple of int
        Epochs (from 1) whose weights are kept beside the last.
    tied : bool
        The trunk's ``embedding`` is the head's last layer, one tensor. For a "label-mapping"
        head of all sites over the embedding's mapping and as wide as it.
    trunk_sha256 : str, optional
        The trunk starts from the one in the weights file with this checksum, which
        `train` is given; by default from a random state.
    """

    mapping: LabelMapping
    trunk: str
    trunk_options: Mapping[str, Any] = field(default_factory=dict)
    head: str = "label-mapping"
    head_options: Mapping[str, Any] = field(default_factory=dict)
    joint: bool = False
    epochs: int
    batch_size: int = 128
    steps_per_epoch: int | None = None
    learning_rate: float = 1e-3
    schedule: str = "constant"
    precision: str = "32-true"
    keep_epochs: tuple[int, ...] = ()
    tied: bool = False
    trunk_sha256: str | None = None

    def __post_init__(self) -> None:
        as_integer("epochs", self.epochs, 1)
        as_integer("batch_size", self.batch_size, 2)
        if self.steps_per_epoch is not None:
            as_integer("steps_per_epoch", self.steps_per_epoch, 1)
        if self.head == "mach":
            raise ArgumentError(
                'head must be "label-mapping" for MACH, over a HashedMapping: it trains to the '
                "same weights, which a MachHead can load, and answers by averages, where an "
                "Ensemble adds log-probs"
            )
        check_choice("head", self.head, HEADS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("precision", self.precision, PRECISIONS)
        if not 0 < self.learning_rate < LARGEST_FLOAT32:
            raise ArgumentError(
                f"learning_rate must be positive and finite in float32, got {self.learning_rate}"
            )
        for epoch in self.keep_epochs:
            if not 1 <= epoch <= self.epochs:
                raise ArgumentError(f"keep_epochs must lie in 1..{self.epochs}, got {epoch}")
        if self.head in RIVALS and self.mapping != MixedMapping.one_hot(self.mapping.n_classes):
            raise ArgumentError(
                f"head {self.head!r} needs a mapping of one site (MixedMapping.one_hot), "
                f"got {self.mapping!r}"
            )

    def learners(self) -> tuple[Site, ...]:
        """The names of the recipe's learners: "all", or every site."""
        return ("all",) if self.joint else tuple(range(self.mapping.n_sites))

    def sites_of(self, learner: Site) -> tuple[int, ...]:
        """The sites a learner emits."""
        return tuple(range(self.mapping.n_sites)) if learner == "all" else (learner,)

    def build(
        self,
        learner: Site,
        class_counts: Tensor | Callable[[], Tensor],
        trunk_class: Callable[..., nn.Module] | None = None,
    ) -> LearnerNetwork:
        """A new network of one learner, drawn from torch's global random state.

        Parameters
        ----------
        class_counts : Tensor, shape (N,), or what gives it
            Training frequencies, for the heads that use them.
        trunk_class : callable, optional
            Makes the trunk from `trunk_options`. Default: what `trunk` names.
        """
        make_trunk = load_class(self.trunk) if trunk_class is None else trunk_class
        try:
            trunk = make_trunk(**self.trunk_options)
        except TypeError as error:
            raise ArgumentError(f"trunk_options of {self.trunk}: {error}") from error
        width = getattr(trunk, "out_features", None)
        if not isinstance(width, int):
            raise ArgumentError(
                f"trunk must have out_features, the width of what it gives; {self.trunk} has "
                f"{width!r}"
            )
        options: dict[str, Any] = dict(self.head_options)
        if self._counts_classes() and callable(class_counts):
            class_counts = class_counts()  # whose errors are not the options'
        try:
            head = self._head(learner, width, class_counts, options)
        except TypeError as error:
            raise ArgumentError(f"head_options of {self.head}: {error}") from error
        if self.tied:
            _tie(trunk, head)
        return LearnerNetwork(trunk, head)

    def _counts_classes(self) -> bool:
        """Whether the head asks how often each class occurs."""
        if self.head == "negative-sampling":
            return self.head_options.get("noise", "uniform") in {"frequency", "unigram"}
        return self.head not in {"label-mapping", "one-hot"}

    def _head(
        self,
        learner: Site,
        width: int,
        class_counts: Tensor | Callable[[], Tensor],
        options: dict[str, Any],
    ) -> ClassHead:
        if self.head == "label-mapping":
            return LabelMappingHead(width, self.mapping, sites=self.sites_of(learner), **options)
        if self.head == "negative-sampling" and options.setdefault("noise", "uniform") == "unigram":
            options["noise"] = "frequency"  # its name was another in recipes of earlier versions
        counts = {"class_counts": class_counts} if self._counts_classes() else {}
        return RIVALS[self.head](width, self.mapping, **counts, **options)

    def to_config(self) -> dict[str, Any]:
        """The recipe as JSON values; `from_config` rebuilds it."""
        config = {f.name: getattr(self, f.name) for f in fields(self)}
        # Runs of earlier versions have no such fields.
        for name, default in (("tied", False), ("trunk_sha256", None), ("precision", "32-true")):
            if config[name] == default:
                del config[name]
        return {
            **config,
            "mapping": self.mapping.to_config(),
            "trunk_options": dict(self.trunk_options),
            "head_options": dict(self.head_options),
            "keep_epochs": list(self.keep_epochs),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LearnerRecipe:
        """The recipe that `to_config` wrote."""
        values = dict(config)
        try:
            values["mapping"] = LabelMapping.from_config(values["mapping"])
            values["keep_epochs"] = tuple(values["keep_epochs"])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise ArgumentError(f"recipe of a learner: {error!r}") from error


def _tie(trunk: nn.Module, head: ClassHead) -> None:
    """Make the trunk's embedding the head's last layer."""
    embedding = getattr(trunk, "embedding", None)
    if not isinstance(embedding, LabelMappingEmbedding) or not isinstance(head, LabelMappingHead):
        raise ArgumentError(
            "tied must be False but for a trunk with a LabelMappingEmbedding called embedding and "
            f'a "label-mapping" head; got {type(trunk).__name__} and {type(head).__name__}'
        )
    trunk.embedding = LabelMappingEmbedding(
        embedding.mapping,
        embedding.embedding_dim,
        padding_idx=embedding.padding_idx,
        tied_to=head,
    )


def load_class(path: str, argument: str = "trunk") -> Callable[..., Any]:
    """What ``module:Class`` names; `argument` is who names it, for the error."""
    module, _, name = path.partition(":")
    try:
        return cast(Callable[..., Any], getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(
            f"{argument} must be module:Class that can be imported, got {path!r}: {error}"
        ) from error


def own_class(path: str) -> Callable[..., nn.Module] | None:
    """The module class of this package that ``module:Class`` names, or None.

    For recipes read from disk: nothing outside this package is imported, and what
    is no module class is not called.
    """
    if not path.startswith("labelmapping.nn:"):
        return None
    found = getattr(importlib.import_module("labelmapping.nn"), path.partition(":")[2], None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def count_parameters(module: nn.Module) -> int:
    """The number of trained parameters."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def derive_seed(seed: int, *parts: Site | str) -> int:
    """A seed for a learner, an epoch or a sampler: 63 bits, the same on every machine."""
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
