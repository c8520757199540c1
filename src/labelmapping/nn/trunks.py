"""The networks of the experiments below their heads: inputs to features.

Each has `out_features`; a head of any kind goes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import as_integer
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .embedding import LabelMappingEmbedding
from .functional import as_int64

__all__ = ["NextWordLstm", "SmallCnn", "ThreeConvCnn"]


class SmallCnn(nn.Module):
    """A CNN for CPUs: 3x3 convolutions with 2x2 max pooling, then a dense layer, all batch-normed.

    Parameters
    ----------
    side : int, default 24
        Height and width of the images, in pixels.
    widths : sequence of int, default (24, 48, 96)
        Channels of the convolutions.
    out_features : int, default 128
    """

    def __init__(
        self, side: int = 24, widths: Sequence[int] = (24, 48, 96), out_features: int = 128
    ) -> None:
        super().__init__()
        self.side = as_integer("side", side, 1)
        self.out_features = as_integer("out_features", out_features, 1)
        if self.side < 2 ** len(widths):
            raise ArgumentError(
                f"side must be at least {2 ** len(widths)} for {len(widths)} poolings, got {side}"
            )
        layers: list[nn.Module] = []
        channels = 1
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
        """Grey images, uint8 (B, side, side), to features (B, out_features)."""
        pixels = images.to(self.dense.weight.dtype).div(255).unsqueeze(1)
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
        )

    def forward(self, images: Tensor) -> Tensor:
        """RGB images, float (B, 3, 32, 32), to features (B, 128)."""
        return self.layers(images)  # type: ignore[no-any-return]


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
