"""Inception V3 (Szegedy et al., 2016) below its output layer, from torchvision, for grey images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..arguments import as_integer
from ..errors import ArgumentError, MissingExtraError
from .augmentation import RandomShift

__all__ = ["InceptionV3"]

SMALLEST_SIDE = 75


class InceptionV3(nn.Module):
    """The paper's network for CJK characters: 2,048 features of an image with one grey channel.

    torchvision's, drawn as torchvision draws it, without the auxiliary head and without dropout.
    21,784,992 parameters are trained. The paper's count, 21,802,208, is that of Keras's
    variant, whose batch norm has no scale and whose moving means and variances are counted:
    one more for each of the 17,216 channels.

    Parameters
    ----------
    shift : int, default 0
        In training each image is moved by up to so many pixels each way (`RandomShift`).
    """

    def __init__(self, shift: int = 0) -> None:
        super().__init__()
        self.shift = RandomShift(as_integer("shift", shift, 0))
        try:
            from torchvision.models.inception import (  # type: ignore[import-untyped]
                BasicConv2d,
                Inception3,
            )
        except ImportError as error:
            raise MissingExtraError(
                "InceptionV3 needs torchvision: pip install 'labelmapping[experiments]'"
            ) from error
        body = Inception3(aux_logits=False, init_weights=True, dropout=0.0)
        first = BasicConv2d(1, 32, kernel_size=3, stride=2)
        nn.init.trunc_normal_(first.conv.weight, std=0.1, a=-2, b=2)
        body.Conv2d_1a_3x3 = first
        body.fc = nn.Identity()
        self.out_features = 2048
        self.body = body.to(memory_format=torch.channels_last)

    def forward(self, images: Tensor) -> Tensor:
        """Grey images, uint8 (B, side, side) of 75 pixels or more, to features (B, 2048)."""
        if images.ndim != 3 or min(images.shape[1:]) < SMALLEST_SIDE:
            raise ArgumentError(
                f"images must have shape (B, side, side) with sides of at least {SMALLEST_SIDE}, "
                f"got {tuple(images.shape)}"
            )
        images = self.shift(images)
        pixels = images.to(next(self.parameters()).dtype).div(127.5).sub(1).unsqueeze(1)
        return self.body(pixels.contiguous(memory_format=torch.channels_last))  # type: ignore[no-any-return]
