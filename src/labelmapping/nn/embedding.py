"""The input encoding that a code induces: n-hot symbols, embedded (the paper's "Republic")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_integer
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .functional import as_int64, check_ids

__all__ = ["LabelMappingEmbedding"]


class LabelMappingEmbedding(nn.Module):
    """Class ids to vectors: the sum of the rows of the codeword's symbols.

    The same as a linear layer without bias on the n-hot encoding of length
    ``sum(alphabet_sizes)``, with that many rows instead of N.

    Parameters
    ----------
    mapping : LabelMapping
    embedding_dim : int
    padding_idx : int, optional
        Ids with this value (any integer) give a zero vector and no gradient.

    Examples
    --------
    >>> import torch
    >>> from labelmapping import MixedMapping
    >>> embedding = LabelMappingEmbedding(MixedMapping(7409, [107, 109]), 150, padding_idx=-1)
    >>> tuple(embedding(torch.tensor([[0, 7408, -1]])).shape), embedding.weight.shape[0]
    ((1, 3, 150), 216)
    """

    offsets: Tensor

    def __init__(
        self, mapping: LabelMapping, embedding_dim: int, *, padding_idx: int | None = None
    ) -> None:
        super().__init__()
        if mapping.has_abstentions:
            raise ArgumentError(
                "mapping must have a symbol for every class at every site, and this one abstains"
            )
        self.mapping = mapping
        self.embedding_dim = as_integer("embedding_dim", embedding_dim, 1)
        self.padding_idx = padding_idx
        sizes = torch.tensor(mapping.alphabet_sizes)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes, persistent=False)
        self.weight = nn.Parameter(torch.empty(sum(mapping.alphabet_sizes), self.embedding_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal weights such that an id's vector has unit variance, as in ``nn.Embedding``."""
        nn.init.normal_(self.weight, std=self.mapping.n_sites**-0.5)

    def forward(self, input: Tensor) -> Tensor:
        """Embed ids of any shape (...) into (..., embedding_dim).

        Raises
        ------
        ArgumentError, ArgumentTypeError
            An id is outside 0..N-1 and no padding, or is no integer.
        """
        ids = as_int64("input", input)
        pad = None if self.padding_idx is None else ids == self.padding_idx
        ids = ids if pad is None else torch.where(pad, 0, ids)
        check_ids("input", ids, self.mapping.n_classes)
        flat = ids.reshape(-1)
        rows = torch.stack(
            [self.mapping.symbols_at(flat, site) for site in range(self.mapping.n_sites)], dim=-1
        )
        vectors = F.embedding_bag(rows + self.offsets, self.weight, mode="sum")
        vectors = vectors.reshape(*input.shape, self.embedding_dim)
        return vectors if pad is None else vectors.masked_fill(pad.unsqueeze(-1), 0.0)

    def extra_repr(self) -> str:
        """The mapping, the width and the padding id."""
        pad = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"mapping={self.mapping!r}, embedding_dim={self.embedding_dim}{pad}"
