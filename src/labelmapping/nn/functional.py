"""The loss of a code: a softmax per site, or one over the classes of the summed site logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import check_choice
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .class_softmax import ClassNormalization, class_log_probs
from .codewords import CodewordEncoder, codeword_encoder
from .targets import Targets, check_reduction

__all__ = ["label_mapping_cross_entropy"]

SiteLogits = Tensor | Sequence[Tensor]


def label_mapping_cross_entropy(
    site_logits: SiteLogits,
    target: Tensor,
    mapping: LabelMapping | CodewordEncoder,
    *,
    sites: Sequence[int] | None = None,
    normalization: str | ClassNormalization = "site",
    weight: Tensor | None = None,
    sample_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    check_targets: bool = True,
) -> Tensor:
    """The negative log-probability of the targets' codewords, by a softmax per site.

    With `codewords` from ``mapping.encode(target)`` and nothing ignored, equal to
    ``sum(F.cross_entropy(site_logits[i], codewords[..., i]) for i in range(n_sites))``.
    With ``normalization="class"`` equal to
    ``F.cross_entropy(scores, target)``, where `scores` are the N classes'
    ``sum(site_logits[i][..., all_codewords[:, i]] for i in range(n_sites))``.
    No tensor of N columns is built; symbols are computed from ids on the device. A site
    that abstains on a class (ternary codes) adds nothing.

    Parameters
    ----------
    site_logits : Tensor (..., sum of q_i), or sequence of tensors (..., q_i)
        All sites side by side, or one tensor a site; of any float type, the loss is
        computed in float32 or better. Side by side and of equal alphabets, the sites
        are normalised in one pass.
    target : int tensor, shape (...) or (..., T)
        Class ids, or several true classes a row, whose mean is the row's loss; entries
        equal to `ignore_index` are left out, before encoding.
    mapping : LabelMapping or CodewordEncoder
        An encoder keeps what a table code looks up on the device; with the mapping
        itself it is copied there at every call.
    sites : sequence of int, optional
        The sites that `site_logits` belong to. Default all.
    normalization : {"site", "class"} or ClassNormalization
        "class" needs at least `mapping.dimension` sites and a code that does not abstain.
    weight : Tensor (N,), optional
        Class weights, not negative, as in ``F.cross_entropy``; a target's weighs all of its
        loss, smoothed or not.
    sample_weight : Tensor (...), optional
        Weights of the rows, not negative.
    ignore_index : int, default -100
    reduction : {"mean", "sum", "none"}
        "mean" divides by the sum of the weights (0.0 where that is 0).
    label_smoothing : float in [0, 1], default 0.0
        The share of a target's probability that is spread evenly: over each site's
        symbols, or over the N classes with "class".
    check_targets : bool, default True
        Whether ids out of range are refused, for which a GPU is waited for. Unchecked
        they train other classes without a word.

    Returns
    -------
    Tensor
        A scalar, or shape (...) with "none", where ignored rows have 0.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A target is out of range or no integer, an argument is out of range, or the
        number or a shape of the logits does not fit.
    """
    check_reduction(reduction)
    check_smoothing(label_smoothing)
    encoder = codeword_encoder(mapping, sites, target.device)
    rows = leading_shape(site_logits, encoder)
    first = site_logits if isinstance(site_logits, Tensor) else site_logits[0]
    targets = Targets.of(
        target,
        rows,
        encoder.mapping.n_classes,
        torch.promote_types(first.dtype, torch.float32),
        ignore_index=ignore_index,
        weight=weight,
        sample_weight=sample_weight,
        check=check_targets,
    )
    logits = rows_of(site_logits, targets)
    _, losses = target_losses(logits, targets, encoder, normalization, label_smoothing)
    return targets.reduce(losses, reduction)


def rows_of(site_logits: SiteLogits, targets: Targets) -> SiteLogits:
    """The logits as (R, ...), without what does not count."""

    def flat(logits: Tensor) -> Tensor:
        return targets.counted(logits.reshape(len(targets.ids), logits.shape[-1]))

    if isinstance(site_logits, Tensor):
        return flat(site_logits)
    return [flat(logits) for logits in site_logits]


def target_losses(
    site_logits: SiteLogits,
    targets: Targets,
    encoder: CodewordEncoder,
    normalization: str | ClassNormalization,
    label_smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the targets and their losses, both (R, T).

    Logits are (R, sum of q_i), or (R, q_i) a site. Entries that are left out have 0 or what
    carries no gradient.
    """
    symbols = encoder(targets.ids)  # (R, T, n)
    how = check_normalization(normalization, encoder)
    if how is None:
        log_probs, mean = _by_site(site_logits, targets, symbols, encoder, label_smoothing > 0)
    else:
        joined = site_logits if isinstance(site_logits, Tensor) else torch.cat(list(site_logits), 1)
        logits = at_least_float32(joined)
        log_probs, total = class_log_probs(logits, targets, symbols, encoder, how)
        mean = None
        if label_smoothing > 0:
            shares = encoder.symbol_counts() / encoder.mapping.n_classes
            # No matrix product: autocast would round it to half precision.
            mean = (logits * shares.to(logits)).sum(dim=1, keepdim=True) - total
    losses = -log_probs
    if mean is not None:
        losses = (1 - label_smoothing) * losses - label_smoothing * mean
    return log_probs, losses


def _by_site(
    site_logits: SiteLogits, targets: Targets, symbols: Tensor, encoder: CodewordEncoder, mean: bool
) -> tuple[Tensor, Tensor | None]:
    """With a softmax per site: the targets' log-probabilities, and the mean over each alphabet."""
    sizes = encoder.sizes
    means = None
    if isinstance(site_logits, Tensor) and len(set(sizes)) == 1:
        logits = site_logits.reshape(len(targets.ids), len(sizes), sizes[0])
        found, means = _chosen(logits, symbols.transpose(1, 2), mean, encoder.abstains)
        found = found.transpose(1, 2)
    else:
        parts = (
            torch.split(site_logits, sizes, 1) if isinstance(site_logits, Tensor) else site_logits
        )
        sites = [
            _chosen(logits, symbols[..., i], mean, encoder.abstains)
            for i, logits in enumerate(parts)
        ]
        found = torch.stack([chosen for chosen, _ in sites], dim=-1)
        if mean:
            means = torch.stack([average for _, average in sites if average is not None], dim=-1)
    log_probs = found.sum(dim=-1).masked_fill(~targets.kept, 0)
    if means is None:
        return log_probs, None
    means = means.unsqueeze(1)  # (R, 1, n)
    if encoder.abstains:
        means = means.masked_fill(symbols < 0, 0)
    return log_probs, means.sum(dim=-1)


def _chosen(
    logits: Tensor, symbols: Tensor, mean: bool, abstains: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of symbols (..., T), 0 for -1, and the mean over the alphabet (...)."""
    logits = at_least_float32(logits)
    if abstains:  # what a silent site says may be NaN, which would come back as 0 x NaN
        logits = logits.masked_fill((symbols < 0).all(dim=-1, keepdim=True), 0)
    if symbols.shape[-1] == 1 and not mean:  # half the time of a gather, forwards and backwards
        flat, ids = logits.reshape(-1, logits.shape[-1]), symbols.reshape(-1)
        losses = F.cross_entropy(flat, ids, ignore_index=-1, reduction="none")
        return -losses.reshape(symbols.shape), None
    values = logits.log_softmax(dim=-1)
    found = values.gather(-1, symbols.clamp(min=0)).masked_fill(symbols < 0, 0)
    return found, values.mean(dim=-1) if mean else None


def check_normalization(
    normalization: str | ClassNormalization, encoder: CodewordEncoder
) -> ClassNormalization | None:
    """How classes are summed over; None for a softmax per site.

    Raises
    ------
    ArgumentError
        There is no such choice, or the code or its sites allow no softmax over the classes.
    """
    if not isinstance(normalization, ClassNormalization):
        if check_choice("normalization", normalization, ("site", "class")) == "site":
            return None
        normalization = ClassNormalization()
    if encoder.abstains:
        raise ArgumentError(
            'normalization must be "site" for a code whose sites abstain on some classes'
        )
    if len(encoder.sites) < encoder.mapping.dimension:
        raise ArgumentError(
            f'normalization "class" needs {encoder.mapping.dimension} sites at least (the '
            f"dimension), got {len(encoder.sites)}"
        )
    return normalization


def leading_shape(site_logits: SiteLogits, encoder: CodewordEncoder) -> tuple[int, ...]:
    """The shape (...) of the logits before their last dimension, which is checked."""
    sizes = encoder.sizes
    if isinstance(site_logits, Tensor):
        if site_logits.ndim == 0 or site_logits.shape[-1] != sum(sizes):
            raise ArgumentError(
                f"site_logits must have shape (..., {sum(sizes)}), got {tuple(site_logits.shape)}"
            )
        return tuple(site_logits.shape[:-1])
    if len(site_logits) != len(sizes):
        raise ArgumentError(
            f"site_logits must have one tensor for each of {len(sizes)} sites, "
            f"got {len(site_logits)}"
        )
    rows = tuple(site_logits[0].shape[:-1])
    for logits, site, size in zip(site_logits, encoder.sites, sizes, strict=True):
        if logits.ndim == 0 or tuple(logits.shape) != (*rows, size):
            raise ArgumentError(
                f"site_logits of site {site} must have shape {(*rows, size)}, "
                f"got {tuple(logits.shape)}"
            )
    return rows


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision lifted to float32: exponentials and long sums lose the winner in it."""
    return values.float() if values.itemsize < 4 else values


def check_smoothing(label_smoothing: float) -> float:
    """A share in [0, 1]."""
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"label_smoothing must lie in [0, 1], got {label_smoothing}")
    return label_smoothing
