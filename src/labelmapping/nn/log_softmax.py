"""Log-softmax over as many entries as there are classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .functional import at_least_float32

__all__ = ["log_softmax"]

# Up to here torch's own sums to one within about 5e-7 on the CPU.
LONG = 4096


def log_softmax(logits: Tensor) -> Tensor:
    """Over the last dimension, in float32 or better.

    On the CPU a row's probabilities sum to 1 +- 1e-6. torch's own adds up a row there in few
    running sums of float32, and its probabilities sum to 1 +- 1e-5 at 10^5 entries, 1 +- 1e-3
    at 5 * 10^6. On other devices, and in exported graphs, this is torch's.

    Parameters
    ----------
    logits : float Tensor (..., C)
    """
    values = at_least_float32(logits)
    short = values.shape[-1] <= LONG or values.dtype != torch.float32
    if short or values.device.type != "cpu" or torch.compiler.is_exporting():
        return values.log_softmax(dim=-1)
    if torch.compiler.is_compiling():  # one fused pass, in which float64 costs no memory
        rest = values - values.detach().amax(dim=-1, keepdim=True)
        total = rest.exp().sum(dim=-1, keepdim=True, dtype=torch.float64).log()
        return rest - total.to(rest.dtype)
    return _LongLogSoftmax.apply(values)  # type: ignore[no-any-return]


class _LongLogSoftmax(torch.autograd.Function):
    """With ``Tensor.sum``, which adds up by pairs; beside its result it takes no memory."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor) -> Tensor:
        # What is largest goes first: the logarithm of the rest is small, and so its rounding.
        largest = logits.amax(dim=-1, keepdim=True)
        total = (logits - largest).exp_().sum(dim=-1, keepdim=True).log_()
        return (logits - largest).sub_(total)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (log_probs,) = ctx.saved_tensors
        (grad,) = grads
        return torch.addcmul(grad, log_probs.exp(), grad.sum(dim=-1, keepdim=True), value=-1)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        (log_probs,) = ctx.saved_tensors
        (tangent,) = tangents
        mean = (log_probs.exp() * tangent).sum(dim=-1, keepdim=True)
        return torch.sub(tangent, mean)
