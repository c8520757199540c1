"""Swap the last layer of a torchvision network: 1,000 classes for a sixth of its parameters.

The images are made here, a random pattern a class under noise, and the network starts from
random weights, so nothing is downloaded.
"""

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from labelmapping import LearnedMapping
from labelmapping.nn import LabelMappingHead

N_CLASSES, STEPS = 1000, 60
torch.manual_seed(0)
patterns = torch.rand(N_CLASSES, 3, 4, 4)


def images_of(ids: Tensor) -> Tensor:
    """Noisy images (B, 3, 16, 16), new ones at every call."""
    images = F.interpolate(patterns[ids], scale_factor=4)
    return (images + 0.2 * torch.randn_like(images) - 0.5) / 0.3


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


# Likenesses of the classes, the mean of four images each, make a code that is easier to learn.
classes = torch.arange(N_CLASSES)
means = torch.stack([images_of(classes) for _ in range(4)]).mean(dim=0)
mapping = LearnedMapping.fit(means.flatten(1).numpy(), n_sites=4)

network = torchvision.models.resnet18(weights=None)
before = network.fc
network.fc = nn.Identity()
head = LabelMappingHead(before.in_features, mapping)
print(f"last layer: {count(before):,} parameters before, {count(head):,} after")

optimizer = torch.optim.AdamW([*network.parameters(), *head.parameters()])
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
losses = []
for _ in range(STEPS):
    ids = torch.randint(N_CLASSES, (64,))
    output, loss = head(network(images_of(ids)), ids)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    losses.append(loss.item())
print(f"loss: {sum(losses[:5]) / 5:.2f} in the first steps, {sum(losses[-5:]) / 5:.2f} in the last")

network.eval()
with torch.no_grad():
    right = head.predict(network(images_of(classes))) == classes
print(f"new images: {right.float().mean().item():.1%} right, by chance {1 / N_CLASSES:.1%}")
