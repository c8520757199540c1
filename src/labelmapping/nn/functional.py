"""The loss of a code, and the checks of ids that every module here shares."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import check_choice
from ..errors import ArgumentError, ArgumentTypeError
from ..mappings import LabelMapping

__all__ = ["as_int64", "check_ids", "label_mapping_cross_entropy"]


def as_int64(name: str, ids: Tensor) -> Tensor:
    """Integers of any width as int64, before anything is compared with them.

    Torch wraps the other side of a comparison into a narrow type: to a uint8
    tensor -100 is 156.

    Raises
    ------
    ArgumentTypeError
        `ids` is a float, complex or bool tensor.
    """
    if ids.dtype.is_floating_point or ids.dtype.is_complex or ids.dtype == torch.bool:
        raise ArgumentTypeError(f"{name} must be integers, got {ids.dtype}")
    return ids.long()


def check_ids(name: str, ids: Tensor, n_classes: int) -> None:
    """Refuse ids that are no integers or lie outside 0..n_classes-1, before any kernel sees them.

    An unchecked id has a legal residue at every site: it would train, or embed,
    some other class without a word.

    Raises
    ------
    ArgumentTypeError
        `ids` is a float, complex or bool tensor.
    ArgumentError
        With the first bad value, its place and the range.
    """
    ids = as_int64(name, ids)
    if ids.numel() == 0:
        return
    low, high = torch.aminmax(ids)
    if int(low) >= 0 and int(high) < n_classes:
        return
    place = torch.nonzero((ids < 0) | (ids >= n_classes))[0]
    where = ", ".join(str(int(i)) for i in place)
    found = f"{name}[{where}] is" if where else "got"
    raise ArgumentError(
        f"{name} must lie in 0..{n_classes - 1} (ids are 0-based, {n_classes} in all); "
        f"{found} {int(ids[tuple(place)])}"
    )


def label_mapping_cross_entropy(
    site_logits: Sequence[Tensor],
    target: Tensor,
    mapping: LabelMapping,
    *,
    sites: Sequence[int] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The sum over sites of the cross-entropy of a softmax per site.

    With `codewords` from ``mapping.encode(target)``, and nothing ignored, equal to
    ``sum(F.cross_entropy(site_logits[i], codewords[..., i]) for i in range(n_sites))``.
    No tensor of N columns is built; symbols are computed from ids on the device. A site
    that abstains on a class (ternary codes) adds nothing.

    Parameters
    ----------
    site_logits : sequence of tensors, shapes (..., q_i)
        One a site, of any float type; the loss is computed in float32 or better.
    target : int tensor, shape (...)
        Class ids; rows equal to `ignore_index` are left out, before encoding.
    mapping : LabelMapping
    sites : sequence of int, optional
        The sites that `site_logits` belong to. Default all.
    ignore_index : int, default -100
    reduction : {"mean", "sum", "none"}
        "mean" divides by the number of rows kept (0.0 where none is).

    Returns
    -------
    Tensor
        A scalar, or shape (...) with "none", where ignored rows have 0.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A target is out of range or no integer, or the number or a shape of the
        logits does not fit.
    """
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    chosen = tuple(range(mapping.n_sites)) if sites is None else mapping.check_sites(sites)
    if len(site_logits) != len(chosen):
        raise ArgumentError(
            f"site_logits must have one tensor for each of {len(chosen)} sites, "
            f"got {len(site_logits)}"
        )
    for logits, site in zip(site_logits, chosen, strict=True):
        shape = (*target.shape, mapping.alphabet_sizes[site])
        if logits.shape != shape:
            raise ArgumentError(
                f"site_logits of site {site} must have shape {shape}, got {tuple(logits.shape)}"
            )
    target = as_int64("target", target)
    kept = target != ignore_index
    ids = torch.where(kept, target, 0)
    check_ids("target", ids, mapping.n_classes)
    left_out = ~kept.reshape(-1, 1)
    loss = torch.zeros((), device=target.device)
    for logits, site in zip(site_logits, chosen, strict=True):
        symbols = torch.where(kept, mapping.symbols_at(ids, site), -1).reshape(-1, 1)
        if mapping.has_abstentions:
            left_out = symbols < 0
        # An ignored row's NaN would come back in the gradient, as 0 x NaN.
        rows = logits.reshape(-1, logits.shape[-1]).masked_fill(left_out, 0)
        rows = rows if rows.dtype == torch.float64 else rows.float()
        loss = loss + F.cross_entropy(rows, symbols[:, 0], ignore_index=-1, reduction="none")
    if reduction == "none":
        return loss.reshape(target.shape)
    if reduction == "sum":
        return loss.sum()
    return loss.sum() / kept.sum().clamp(min=1)
