"""The parts by themselves, in a training loop of one's own: 2,000 classes, then 100 more.

The classes are clouds of points in space; every fourth is rare.
"""

import numpy as np
import torch
from torch import Tensor, nn

from labelmapping import SimplexMapping, decode_topk
from labelmapping.nn import LabelMappingHead

N_CLASSES, N_NEW, WIDTH = 2000, 100, 32
torch.manual_seed(0)
centres = torch.randn(N_CLASSES + N_NEW, WIDTH)
frequency = torch.where(torch.arange(N_CLASSES) % 4 == 0, 0.1, 1.0)


def points_of(ids: Tensor) -> Tensor:
    return centres[ids] + 0.6 * torch.randn(len(ids), WIDTH)


# A rare class counts more in the loss.
mapping = SimplexMapping(N_CLASSES, 4, field_order=47)  # up to 47^2 = 2,209 classes
trunk = nn.Sequential(nn.Linear(WIDTH, 256), nn.LayerNorm(256), nn.ReLU())
head = LabelMappingHead(256, mapping, hidden=256, weight=frequency.rsqrt())
parameters = [*trunk.parameters(), *head.parameters()]


def train(steps: int, sampling: Tensor) -> float:
    """The last loss; the classes are drawn by their share in `sampling`."""
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        ids = torch.multinomial(sampling, 256, replacement=True)
        loss = head(trunk(points_of(ids)), ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return loss.item()


def share_right(found: np.ndarray, ids: Tensor) -> str:
    return f"{np.mean(found[:, 0] == ids.numpy()):.1%}"


print(f"loss: {train(1, frequency):.2f} in the first step, {train(600, frequency):.2f} in the last")

ids = torch.multinomial(frequency, 5000, replacement=True)
points = points_of(ids)
with torch.no_grad():
    log_probs = head.site_log_probs(trunk(points))
print("all sites:", share_right(decode_topk(mapping, log_probs, 1).ids, ids))
three = decode_topk(mapping, log_probs[:3], 1, sites=[0, 1, 2])
print("one site missing:", share_right(three.ids, ids))
# What the class weights took from the common classes, a prior gives back.
prior = frequency.log().numpy() / 2
print("with a prior:", share_right(decode_topk(mapping, log_probs, 1, prior=prior).ids, ids))
some = torch.arange(1, N_CLASSES, 20)
asked = some.repeat(5)
with torch.no_grad():
    log_probs = head.site_log_probs(trunk(points_of(asked)))
anything = share_right(decode_topk(mapping, log_probs, 1).ids, asked)
allowed = share_right(decode_topk(mapping, log_probs, 1, allowed=some.numpy()).ids, asked)
print(f"a hundred classes: {anything} among all, {allowed} among themselves")

head.grow(N_CLASSES + N_NEW)
asked = torch.arange(N_CLASSES, N_CLASSES + N_NEW).repeat(5)
points = points_of(asked)
with torch.no_grad():
    before = head.topk(trunk(points), 1).ids.numpy()
train(300, torch.cat([frequency, torch.full((N_NEW,), 2.0)]))
with torch.no_grad():
    after = head.topk(trunk(points), 1).ids.numpy()
print(f"new classes: {share_right(before, asked)} before, {share_right(after, asked)} after")
