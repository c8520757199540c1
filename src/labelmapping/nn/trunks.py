"""The networks of the experiments below their heads: inputs to features.

Each has `out_features`; a head of any kind goes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_integer, as_integers
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .augmentation import RandomShift
from .embedding import LabelMappingEmbedding
from .targets import as_int64

__all__ = ["Mlp", "NextItemAttention", "NextWordLstm", "SmallCnn", "ThreeConvCnn"]


class SmallCnn(nn.Module):
    """A CNN for CPUs: 3x3 convolutions with 2x2 max pooling, then a dense layer, all batch-normed.

    Parameters
    ----------
    side : int, default 24
        Height and width of the images, in pixels.
    widths : sequence of int, default (24, 48, 96)
        Channels of the convolutions.
    out_features : int, default 128
    in_channels : int, default 1
        Of the images: 1 for grey, 3 for RGB.
    shift : int, default 0
        In training each image is moved by up to so many pixels each way (`RandomShift`).
    """

    def __init__(
        self,
        side: int = 24,
        widths: Sequence[int] = (24, 48, 96),
        out_features: int = 128,
        in_channels: int = 1,
        shift: int = 0,
    ) -> None:
        super().__init__()
        self.shift = RandomShift(as_integer("shift", shift, 0))
        self.side = as_integer("side", side, 1)
        self.out_features = as_integer("out_features", out_features, 1)
        if self.side < 2 ** len(widths):
            raise ArgumentError(
                f"side must be at least {2 ** len(widths)} for {len(widths)} poolings, got {side}"
            )
        layers: list[nn.Module] = []
        channels = as_integer("in_channels", in_channels, 1)
        for width in widths:
            layers += [
                nn.Conv2d(channels, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
            channels = width
        self.convolutions = nn.Sequential(*layers).to(memory_format=torch.channels_last)
        self.dense = nn.Linear(channels * (side // 2 ** len(widths)) ** 2, out_features)
        self.norm = nn.BatchNorm1d(out_features)

    def forward(self, images: Tensor) -> Tensor:
        """Images, uint8 (B, in_channels, side, side), grey also (B, side, side), to features.

        Returns
        -------
        Tensor, shape (B, out_features)
        """
        pixels = self.shift(images).to(self.dense.weight.dtype).div(255)
        if pixels.ndim == 3:
            pixels = pixels.unsqueeze(1)
        # Twice as fast on CPUs as the default layout.
        maps = self.convolutions(pixels.contiguous(memory_format=torch.channels_last))
        return torch.relu(self.norm(self.dense(maps.flatten(1))))


class ThreeConvCnn(nn.Module):
    """The paper's "simple CNN" for CIFAR-100: 158,688 parameters below the output layer.

    Three 3x3 convolutions without padding or bias, 32, 64 and 128 wide, each with
    ReLU and 2x2 average pooling; dropout, a dense layer of 128 with ReLU, dropout.
    """

    def __init__(self, dropout: float = 0.25) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in (32, 64, 128):
            layers += [nn.Conv2d(channels, width, 3, bias=False), nn.ReLU(), nn.AvgPool2d(2)]
            channels = width
        self.out_features = 128
        self.layers = nn.Sequential(
            *layers,
            nn.Dropout(dropout),
            nn.Flatten(),
            nn.Linear(512, 128),
            nn.ReLU(),
            nn.Dropout(dropout),
        ).to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """RGB images (B, 3, 32, 32), uint8 in 0..255 or float in 0..1, to features (B, 128)."""
        if images.dtype == torch.uint8:
            images = images.to(next(self.parameters()).dtype).div(255)
        # A quarter faster on CPUs than the default layout.
        images = images.contiguous(memory_format=torch.channels_last)
        return self.layers(images)  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """Dense layers with ReLU, for rows of numbers.

    Parameters
    ----------
    in_features : int
        Columns of the rows.
    widths : sequence of int, default (256,)
        Of the layers, at least one; the last is `out_features`.
    dropout : float in [0, 1), default 0.0
        After each layer.
    """

    def __init__(
        self, in_features: int, widths: Sequence[int] = (256,), dropout: float = 0.0
    ) -> None:
        super().__init__()
        sizes = [as_integer("in_features", in_features, 1), *as_integers("widths", widths, 1)]
        if not 0 <= dropout < 1:
            raise ArgumentError(f"dropout must lie in [0, 1), got {dropout}")
        layers: list[nn.Module] = []
        for i, width in enumerate(sizes[1:]):
            layers += [nn.Linear(sizes[i], width), nn.ReLU(), nn.Dropout(dropout)]
        self.out_features = sizes[-1]
        self.layers = nn.Sequential(*layers)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (B, in_features), of any dtype of numbers, to features (B, out_features)."""
        return self.layers(rows.to(self.layers[0].weight.dtype))  # type: ignore[no-any-return, arg-type]


class NextWordLstm(nn.Module):
    """The paper's LSTM for "Republic": n-hot words, embedded, two LSTM layers, a dense layer.

    One bias vector a gate, as the paper's parameter counts have it: torch's second
    one stays zero and is not trained.

    Parameters
    ----------
    input_mapping : LabelMapping or its recipe
        The code of the input words (``MixedMapping.one_hot`` for one-hot).
    cutoff : bool, default False
        Word ids from the last class of `input_mapping` on share that class.
    embedding_dim : int, default 150
    units : int, default 100
        Of each LSTM layer and of the dense layer.
    """

    def __init__(
        self,
        input_mapping: LabelMapping | Mapping[str, Any],
        *,
        cutoff: bool = False,
        embedding_dim: int = 150,
        units: int = 100,
    ) -> None:
        super().__init__()
        if not isinstance(input_mapping, LabelMapping):
            input_mapping = LabelMapping.from_config(input_mapping)
        self.last_id = input_mapping.n_classes - 1 if cutoff else None
        self.out_features = as_integer("units", units, 1)
        self.embedding = LabelMappingEmbedding(input_mapping, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, units, num_layers=2, batch_first=True)
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(parameter)
                parameter.requires_grad = False
        self.dense = nn.Linear(units, units)

    def forward(self, words: Tensor) -> Tensor:
        """Word ids, int (B, length), to features of the next word (B, units)."""
        if self.last_id is not None:
            words = as_int64("words", words).clamp(max=self.last_id)
        states, _ = self.lstm(self.embedding(words))
        return torch.relu(self.dense(states[:, -1]))


class NextItemAttention(nn.Module):
    """Self-attention over a user's last items: what comes next (SASRec, Kang and McAuley, 2018).

    Item vectors plus those of their places, counted from the end; then blocks of causal
    attention and of two dense layers, the first four times as wide, each after layer norm and
    added to what came in. Only items are computed, not padding, and in the last block only
    the last place.

    Parameters
    ----------
    input_mapping : LabelMapping or its recipe
        The code of the items (``MixedMapping.one_hot`` for one-hot).
    length : int, default 20
        Items of a history, at most.
    width : int, default 64
        Of the vectors and of the features; a multiple of `heads`.
    blocks, heads : int, default 2
    dropout : float, default 0.2
        Of the item vectors, and of what each half of a block adds.
    """

    PADDING = -1

    def __init__(
        self,
        input_mapping: LabelMapping | Mapping[str, Any],
        *,
        length: int = 20,
        width: int = 64,
        blocks: int = 2,
        heads: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        if not isinstance(input_mapping, LabelMapping):
            input_mapping = LabelMapping.from_config(input_mapping)
        self.length = as_integer("length", length, 1)
        self.out_features = as_integer("width", width, 1)
        if width % as_integer("heads", heads, 1):
            raise ArgumentError(f"width must be a multiple of heads, {heads}; got {width}")
        as_integer("blocks", blocks, 1)
        self.embedding = LabelMappingEmbedding(input_mapping, width, padding_idx=self.PADDING)
        self.places = nn.Parameter(torch.empty(length, width))
        for weight in (self.embedding.weight, self.places):
            nn.init.normal_(weight, std=0.1)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_AttentionBlock(width, heads, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)

    def forward(self, items: Tensor) -> Tensor:
        """Histories, int (B, L) with -1 to the left of short ones, to features (B, width).

        L is at most `length`. A history of padding alone is one unknown item.
        """
        items = as_int64("items", items)
        length = items.shape[1]
        if not 1 <= length <= self.length:
            raise ArgumentError(f"items must have 1 to {self.length} columns, got {length}")
        kept = items != self.PADDING
        kept[:, -1] = True
        # The cells of the (B, L) grid with an item, and which of them end a row.
        cells = kept.flatten().nonzero()[:, 0]
        ends = kept.sum(dim=1).cumsum(dim=0) - 1
        itself = torch.eye(length, dtype=torch.bool, device=items.device)
        # Padding looks at itself, so that no softmax is over nothing.
        mask = (itself.cumsum(dim=1).bool().T & kept[:, None]) | itself
        vectors = self.embedding(items.flatten()[cells])
        vectors = self.dropout(vectors + self.places[-length:].index_select(0, cells % length))
        *first, last = self.blocks
        for block in first:
            vectors = block(vectors, cells, mask)
        return self.norm(last(vectors, cells, kept[:, None], ends))  # type: ignore[no-any-return]


class _AttentionBlock(nn.Module):
    """A block of `NextItemAttention`, on vectors of those cells of a grid that have one."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.ReLU(),
            nn.Linear(4 * width, width),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, vectors: Tensor, cells: Tensor, mask: Tensor, ends: Tensor | None = None
    ) -> Tensor:
        """Vectors (T, width) at `cells` of (B, L) to new ones, or to the (B, width) at `ends`.

        `mask`, bool (B, L, L) or (B, 1, L), says which cells of its row each looks at.
        """
        batch, _, length = mask.shape
        normed = self.norm(vectors)
        keys, values = self.key_value(normed).chunk(2, dim=-1)
        keys = self._grid(keys, cells, batch, length)
        values = self._grid(values, cells, batch, length)
        if ends is not None:
            vectors, normed = vectors.index_select(0, ends), normed.index_select(0, ends)
            cells, length = torch.arange(batch, device=ends.device), 1
        queries = self._grid(self.query(normed), cells, batch, length)
        found = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask[:, None])
        found = found.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, cells)
        vectors = vectors + self.dropout(self.output(found))
        return vectors + self.dropout(self.dense(vectors))  # type: ignore[no-any-return]

    def _grid(self, vectors: Tensor, cells: Tensor, batch: int, length: int) -> Tensor:
        """Vectors (T, width) to (B, heads, length, width / heads), zeros where no cell has one."""
        width = vectors.shape[1]
        grid = vectors.new_zeros(batch * length, width).index_copy(0, cells, vectors)
        return grid.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
