"""The input encoding that a code induces: n-hot symbols, embedded (the paper's "Republic")."""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_integer, check_choice
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .codewords import CodewordEncoder, grown_mapping
from .head import LabelMappingHead
from .recipe_state import RecipeState
from .targets import as_int64, checked_ids

__all__ = ["LabelMappingEmbedding"]

MODES = ("sum", "mean", "max")


class LabelMappingEmbedding(RecipeState):
    """Class ids to vectors: the sum of the rows of the codeword's symbols.

    The same as a linear layer without bias on the n-hot encoding of length
    ``sum(alphabet_sizes)``, with that many rows instead of N. The conventions of
    ``nn.Embedding`` and, with a mode, of ``nn.EmbeddingBag``: ids become vectors first, and
    the vectors are pooled.

    Parameters
    ----------
    mapping : LabelMapping
    embedding_dim : int
    padding_idx : int, optional
        Ids with this value (any integer; -1 is no name for the last class) give a zero
        vector and no gradient; in a bag they do not count.
    mode : {"sum", "mean", "max"}, optional
        Pool bags of ids. Default: none, every id has its vector.
    sparse : bool, default False
        Sparse gradients of the weight, of the rows of ids that are no padding; to leave
        padding out, a GPU is waited for.
    tied_to : LabelMappingHead, optional
        Share this head's last layer: same mapping, all sites, and as wide as `embedding_dim`.
        `weight` is then the head's parameter, as it was drawn there, where it lies. As with any
        parameter of two names in torch, what replaces parameters one by one unties them:
        ``load_state_dict(assign=True)``, ``to_empty`` from the meta device.
    check_ids : bool, default True
        Whether ids and offsets out of range are refused, for which a GPU is waited for.
        Unchecked ids embed other classes without a word.
    device, dtype : optional
        Of the weight, where it is not tied.

    Examples
    --------
    >>> import torch
    >>> from labelmapping import MixedMapping
    >>> embedding = LabelMappingEmbedding(MixedMapping(7409, [107, 109]), 150, padding_idx=-1)
    >>> tuple(embedding(torch.tensor([[0, 7408, -1]])).shape), embedding.weight.shape[0]
    ((1, 3, 150), 216)
    >>> bag = LabelMappingEmbedding(MixedMapping(7409, [107, 109]), 150, mode="mean")
    >>> tuple(bag(torch.tensor([[0, 7408], [3, 4]])).shape)
    (2, 150)
    """

    def __init__(
        self,
        mapping: LabelMapping,
        embedding_dim: int,
        *,
        padding_idx: int | None = None,
        mode: str | None = None,
        sparse: bool = False,
        tied_to: LabelMappingHead | None = None,
        check_ids: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if mapping.has_abstentions:
            raise ArgumentError(
                "mapping must have a symbol for every class at every site, and this one abstains"
            )
        self.mapping = mapping
        self.embedding_dim = as_integer("embedding_dim", embedding_dim, 1)
        self.padding_idx = None if padding_idx is None else as_integer("padding_idx", padding_idx)
        self.mode = None if mode is None else check_choice("mode", mode, MODES)
        self.sparse = sparse
        self.check_ids = check_ids
        if tied_to is None:
            size = (sum(mapping.alphabet_sizes), self.embedding_dim)
            self.weight = nn.Parameter(torch.empty(size, device=device, dtype=dtype))
            self.reset_parameters()
        elif device is None and dtype is None:
            self.weight = _last_layer(tied_to, mapping, self.embedding_dim)
        else:
            raise ArgumentError(
                "device and dtype must be left out with tied_to: the weight is the head's, "
                f"{tied_to.output.weight.dtype} on {tied_to.output.weight.device}"
            )
        self.encoder = CodewordEncoder(mapping, device=self.weight.device)

    def reset_parameters(self) -> None:
        """Normal weights such that an id's vector has unit variance, as in ``nn.Embedding``."""
        nn.init.normal_(self.weight, std=self.mapping.n_sites**-0.5)

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Embed ids, and pool them where there is a mode.

        Parameters
        ----------
        input : int Tensor
            Without a mode (...), to (..., embedding_dim). With one bags (..., L), to
            (..., embedding_dim), or one row of ids (M,) with `offsets`.
        offsets : int Tensor (B,), optional
            Where each bag begins in a row of ids, ascending from 0; the result is
            (B, embedding_dim). Empty bags, and those of padding alone, give zeros.
        per_sample_weights : float Tensor, shape of `input`, optional
            Factors of the ids' vectors, with "sum".

        Raises
        ------
        ArgumentError, ArgumentTypeError
            An id is outside 0..N-1 and no padding, or is no integer; or `offsets` or
            `per_sample_weights` do not fit.
        """
        ids = as_int64("input", input)
        self._check_shapes(ids, offsets, per_sample_weights)
        kept = None if self.padding_idx is None else ids != self.padding_idx
        if kept is not None:
            ids = torch.where(kept, ids, 0)
        if self.check_ids:
            ids = checked_ids("input", ids, self.mapping.n_classes)
        n_ids = ids.numel()
        if offsets is not None:
            starts = as_int64("offsets", offsets)
            shape = starts.shape
            if self.check_ids:
                starts = checked_offsets(starts, n_ids)
        else:
            shape = ids.shape if self.mode is None else ids.shape[:-1]
            length = 1 if self.mode is None else ids.shape[-1]
            starts = torch.arange(math.prod(shape), device=ids.device) * length
        vectors = self._pooled(
            ids.reshape(n_ids),
            starts,
            None if kept is None else kept.reshape(n_ids),
            None if per_sample_weights is None else per_sample_weights.reshape(n_ids),
        )
        return vectors.reshape(*shape, self.embedding_dim)

    def _pooled(
        self, ids: Tensor, starts: Tensor, kept: Tensor | None, factors: Tensor | None
    ) -> Tensor:
        """Bags (B, dim) that begin at `starts` of ids (M,); without a mode each id is one."""
        counts = None
        if kept is not None or self.mode in ("mean", "max"):
            counted = torch.ones_like(ids) if kept is None else kept
            before = F.pad(counted.cumsum(0), (1, 0))
            end = starts.new_full((1,), ids.shape[0])
            counts = before[torch.cat([starts, end])].diff().unsqueeze(1)
            if kept is not None and self.sparse:
                # A gradient that lists a row, be it of zeros, lets SparseAdam move it.
                factors = None if factors is None else factors[kept]
                ids, starts, kept = ids[kept], before[starts], None
        if self.mode == "max":
            vectors = self._bag_sums(ids, torch.arange(len(ids), device=ids.device))
            if kept is not None:
                vectors = vectors.masked_fill(~kept.unsqueeze(1), -torch.inf)
            bags = torch.searchsorted(starts, torch.arange(len(ids), device=ids.device), right=True)
            pooled = vectors.new_zeros(len(starts), self.embedding_dim).scatter_reduce(
                0, (bags - 1).unsqueeze(1).expand_as(vectors), vectors, "amax", include_self=False
            )
        else:
            if kept is not None and self.mode is not None:
                factors = kept if factors is None else factors.masked_fill(~kept, 0.0)
            pooled = self._bag_sums(ids, starts, factors)
        if self.mode == "mean":
            pooled = pooled / cast(Tensor, counts).clamp(min=1)
        # Zeros, whatever lies at padding, and no gradient from above, be it NaN.
        return pooled if counts is None else pooled.masked_fill(counts == 0, 0.0)

    def _bag_sums(self, ids: Tensor, starts: Tensor, factors: Tensor | None = None) -> Tensor:
        """Sums (B, dim) of ids' vectors: all symbols of a bag are added at once."""
        symbols = self.encoder(ids) + self.encoder.offsets
        if factors is not None:
            factors = factors.to(self.weight.dtype).unsqueeze(1).expand_as(symbols).flatten()
        return F.embedding_bag(
            symbols.flatten(),
            self.weight,
            starts * symbols.shape[1],
            mode="sum",
            sparse=self.sparse,
            per_sample_weights=factors,
        )

    def _check_shapes(
        self, ids: Tensor, offsets: Tensor | None, per_sample_weights: Tensor | None
    ) -> None:
        if self.mode is None and offsets is not None:
            raise ArgumentError("offsets must be given with a mode only, and mode is None")
        if self.mode is not None and offsets is None and ids.ndim == 0:
            raise ArgumentError("input must have shape (..., L) with a mode, got ()")
        if offsets is not None and (ids.ndim != 1 or offsets.ndim != 1):
            raise ArgumentError(
                f"input and offsets must have one dimension each, got shapes {tuple(ids.shape)} "
                f"and {tuple(offsets.shape)}"
            )
        if per_sample_weights is None:
            return
        if self.mode != "sum":
            raise ArgumentError(
                f'per_sample_weights must be given with mode "sum" only, got mode {self.mode!r}'
            )
        if per_sample_weights.shape != ids.shape:
            raise ArgumentError(
                f"per_sample_weights must have shape {tuple(ids.shape)}, got "
                f"{tuple(per_sample_weights.shape)}"
            )

    def grow(self, n_classes: int | LabelMapping) -> None:
        """Take in new classes, as a head does: no parameter changes, nor any class's vector.

        Parameters
        ----------
        n_classes : int or LabelMapping
            From the present number to ``mapping.capacity``; or the grown mapping. An
            embedding and the head that it is tied to are grown each.

        Raises
        ------
        ArgumentError
            Above the capacity, or another code. The embedding stays as it was.
        """
        mapping = grown_mapping(self.mapping, n_classes)
        self.encoder = CodewordEncoder(mapping, device=self.weight.device)
        self.mapping = mapping

    def extra_repr(self) -> str:
        """The mapping, the width, and what differs from the defaults."""
        pad = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        mode = "" if self.mode is None else f", mode={self.mode!r}"
        sparse = ", sparse=True" if self.sparse else ""
        return f"mapping={self.mapping!r}, embedding_dim={self.embedding_dim}{pad}{mode}{sparse}"

    def __repr__(self) -> str:
        """One line, as ``nn.Embedding``: the encoder says no more than the mapping."""
        return f"{type(self).__name__}({self.extra_repr()})"


def check_offsets(offsets: Tensor, n_ids: int) -> None:
    """Refuse offsets that do not ascend from 0 to the number of ids at most."""
    ends = F.pad(offsets, (1, 1))
    ends[-1] = n_ids
    starts_late = len(offsets) > 0 and int(offsets[0]) != 0
    if starts_late or bool((ends.diff() < 0).any()) or (n_ids and not len(offsets)):
        raise ArgumentError(
            f"offsets must ascend from 0 to {n_ids} at most, got {offsets.tolist()}"
        )


@torch.library.custom_op("labelmapping::checked_offsets", mutates_args=())
def _checked(offsets: Tensor, n_ids: int) -> Tensor:
    check_offsets(offsets, n_ids)
    return offsets.clone()  # an operator may not give back what it was given


@_checked.register_fake
def _(offsets: Tensor, n_ids: int) -> Tensor:
    return torch.empty_like(offsets)


def checked_offsets(offsets: Tensor, n_ids: int) -> Tensor:
    """The offsets, once `check_offsets` has seen them; one operator in a compiled graph."""
    if torch.compiler.is_compiling():
        return cast(Tensor, _checked(offsets, n_ids))
    check_offsets(offsets, n_ids)
    return offsets


def _last_layer(head: LabelMappingHead, mapping: LabelMapping, embedding_dim: int) -> nn.Parameter:
    """The weight of a head's last layer, where it can embed the same symbols."""
    if head.mapping != mapping or head.sites != tuple(range(mapping.n_sites)):
        raise ArgumentError(
            "tied_to must be a head of all sites over the same mapping, got one of sites "
            f"{list(head.sites)} over {head.mapping!r}"
        )
    if head.width != embedding_dim:
        raise ArgumentError(
            f"embedding_dim must be the width of the head's last layer, {head.width}, to be tied "
            f"to it; got {embedding_dim}"
        )
    return cast(nn.Parameter, head.output.weight)
