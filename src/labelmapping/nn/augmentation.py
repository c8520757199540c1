"""Images varied at random on the device where they lie."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..arguments import as_integer

__all__ = ["RandomShift"]


class RandomShift(nn.Module):
    """Moves each image of a batch by whole pixels of its own; in training only.

    What is moved in repeats the image's edge. Pixels are gathered, not computed, so the dtype
    stays: bytes stay bytes.

    Parameters
    ----------
    most : int
        Pixels, 0 or more. Offsets are uniform in -most..most, along both axes.

    Examples
    --------
    >>> shift = RandomShift(2)
    >>> shift(torch.zeros(128, 24, 24, dtype=torch.uint8)).shape
    torch.Size([128, 24, 24])
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = as_integer("most", most, 0)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, H, W) or (B, C, H, W), all channels of one alike; the shape stays."""
        if not self.training or self.most == 0:
            return images
        n_images, (height, width) = len(images), images.shape[-2:]
        places = []
        for size in (height, width):
            offsets = torch.randint(-self.most, self.most + 1, (n_images, 1), device=images.device)
            line = torch.arange(size, device=images.device)
            places.append((line + offsets).clamp_(0, size - 1))
        down, across = places
        pixels = (down.unsqueeze(2) * width + across.unsqueeze(1)).flatten(1)
        channels = images.shape[1:-2]
        pixels = pixels.view(n_images, *(1 for _ in channels), -1).expand(-1, *channels, -1)
        return images.flatten(-2).gather(-1, pixels).view(images.shape)

    def extra_repr(self) -> str:
        return f"most={self.most}"
