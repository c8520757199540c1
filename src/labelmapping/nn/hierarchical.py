"""Hierarchical softmax: a class is a path of small decisions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ..arguments import as_integer
from ..errors import ArgumentError
from ..mappings import LabelMapping
from .baselines import SingleSiteHead, frequency_ranks
from .functional import at_least_float32
from .log_softmax import log_softmax
from .targets import check_class_numbers

__all__ = ["HuffmanHead", "TwoLevelHead", "huffman_tree"]


class HuffmanHead(SingleSiteHead):
    """Hierarchical softmax over a Huffman tree (Morin and Bengio, 2005; Mikolov et al., 2013).

    A class is a leaf; every inner node has a vector and decides by a logistic function.
    N - 1 vectors: nothing is saved but time, about log2 N of them are used a target.

    Parameters
    ----------
    in_features : int
    n_classes : int or LabelMapping
        N, at least 2; of a mapping its number of classes.
    class_counts : sequence of numbers, length N, optional
        Training frequencies, not negative, that shape the tree. Default equal ones.
    **options
        As in `ClassHead`.
    """

    tree: Tensor
    nodes: Tensor
    signs: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int | LabelMapping,
        *,
        class_counts: Sequence[float] | Tensor | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, n_classes, device=device, dtype=dtype, **options)
        counts = torch.ones(self.n_classes) if class_counts is None else class_counts
        checked = check_class_numbers("class_counts", counts, self.n_classes)
        tree = torch.from_numpy(huffman_tree(checked.numpy()))
        self.output = nn.Linear(
            self.width,
            self.n_classes - 1,
            bias=options.get("bias", True),
            device=device,
            dtype=dtype,
        )
        self.register_buffer("tree", tree.to(device))
        self.register_buffer("nodes", None, persistent=False)
        self.register_buffer("signs", None, persistent=False)
        self._follow_the_tree()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._follow_the_tree()

    def _follow_the_tree(self) -> None:
        """Every class's path, padded with sign 0, and where each level of nodes begins."""
        children = self.tree.cpu().numpy()
        check_tree(children)
        n_inner = len(children)
        ends = [0, 1]
        while ends[-1] < n_inner:
            ends.append(ends[-1] + int((children[ends[-2] : ends[-1]] >= 0).sum()))
        self.levels = list(itertools.pairwise(ends))
        depth = len(self.levels)
        paths = np.zeros((n_inner, depth), np.int32)
        sides = np.zeros((n_inner, depth), np.int8)
        nodes = np.zeros((n_inner + 1, depth), np.int32)
        signs = np.zeros((n_inner + 1, depth), np.int8)
        for level, (start, end) in enumerate(self.levels):
            for side in (0, 1):
                child = children[start:end, side]
                parents = np.arange(start, end)
                for found, places, (to_nodes, to_signs) in (
                    (child >= 0, child, (paths, sides)),
                    (child < 0, -child - 1, (nodes, signs)),
                ):
                    rows, above = places[found], parents[found]
                    to_nodes[rows, :level] = paths[above, :level]
                    to_signs[rows, :level] = sides[above, :level]
                    to_nodes[rows, level] = above
                    to_signs[rows, level] = 1 - 2 * side
        device = self.tree.device
        self.nodes = torch.from_numpy(nodes).to(device)
        self.signs = torch.from_numpy(signs).to(device)

    def _entry_losses(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        nodes, signs = self.nodes[ids].long(), self.signs[ids]
        logits = torch.einsum("bd,bcd->bc", features, self.output.weight[nodes])
        if self.output.bias is not None:
            logits = logits + self.output.bias[nodes]
        log_probs = (F.logsigmoid(at_least_float32(logits) * signs) * (signs != 0)).sum(dim=1)
        return log_probs, -log_probs

    def _class_log_probs(self, features: Tensor) -> Tensor:
        logits = at_least_float32(self.output(features))
        # Either side of every node, and then down the tree a level at a time.
        steps = torch.stack([F.logsigmoid(logits), F.logsigmoid(-logits)], dim=2)
        reached = logits.new_zeros(features.shape[0], 1)
        leaves, leaf_ids = [], []
        for start, end in self.levels:
            below = (reached.unsqueeze(2) + steps[:, start:end]).flatten(1)
            child = self.tree[start:end].reshape(-1)
            is_leaf = child < 0
            leaves.append(below[:, is_leaf])
            leaf_ids.append(-child[is_leaf] - 1)
            reached = below[:, ~is_leaf]
        order = torch.cat(leaf_ids).argsort()
        return torch.cat(leaves, dim=1)[:, order]


def huffman_tree(counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """The two children of every inner node, (N - 1, 2), the root first and then level by level.

    A child of at least 0 is an inner node, one below it the class -(child + 1). Within a
    level the nodes stand in the order of their parents' children. Equal counts: the lower
    id, and classes before inner nodes, are joined first.
    """
    n_classes = len(counts)
    # Two queues: leaves by count, and inner nodes, which are made in ascending order.
    order = np.argsort(counts, kind="stable")
    weights = np.concatenate([counts[order], np.zeros(n_classes - 1)]).tolist()
    left, right = [0] * (n_classes - 1), [0] * (n_classes - 1)
    leaf, inner = 0, n_classes
    for new in range(n_classes - 1):
        pair = []
        for _ in range(2):
            made = n_classes + new
            if leaf < n_classes and (inner >= made or weights[leaf] <= weights[inner]):
                pair.append(leaf)
                leaf += 1
            else:
                pair.append(inner)
                inner += 1
        left[new], right[new] = pair
        weights[n_classes + new] = weights[pair[0]] + weights[pair[1]]
    # Number the inner nodes from the root on, level by level.
    tree = np.empty((n_classes - 1, 2), np.int64)
    level, placed, last = [n_classes - 2], 0, 1
    while level:
        following = []
        for old in level:
            for side, child in enumerate((left[old], right[old])):
                if child < n_classes:
                    tree[placed, side] = -int(order[child]) - 1
                else:
                    tree[placed, side] = last
                    last += 1
                    following.append(child - n_classes)
            placed += 1
        level = following
    return tree


def check_tree(children: NDArray[np.int64]) -> None:
    """Refuse what is not numbered as by `huffman_tree`, or lacks a class: of a damaged file."""
    is_inner = children >= 0
    inner, parents = children[is_inner], np.nonzero(is_inner)[0]
    classes = np.sort(-children[~is_inner] - 1)
    if not (
        np.array_equal(inner, np.arange(1, len(children)))
        and bool((parents < inner).all())
        and np.array_equal(classes, np.arange(len(children) + 1))
    ):
        raise ArgumentError(
            f"state_dict has a damaged tree: no binary tree of {len(children) + 1} classes"
        )


class TwoLevelHead(SingleSiteHead):
    """Hierarchical softmax of two levels (Goodman, 2001): a cluster, then a class in it.

    Clusters of equal size, about √N, of the classes in order of falling frequency. A target
    reads its cluster's vectors: a batch of B takes B √N vectors of memory for a while.

    Parameters
    ----------
    in_features : int
    n_classes : int or LabelMapping
        N, at least 2; of a mapping its number of classes.
    class_counts : sequence of numbers, length N, optional
        Training frequencies, not negative. Default: ids are in order of falling frequency.
    n_clusters : int, optional
        The most there may be; as few as clusters of ⌈N / n_clusters⌉ need. Default √N.
    **options
        As in `ClassHead`.
    """

    places: Tensor

    def __init__(
        self,
        in_features: int,
        n_classes: int | LabelMapping,
        *,
        class_counts: Sequence[float] | Tensor | None = None,
        n_clusters: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, n_classes, device=device, dtype=dtype, **options)
        if n_clusters is None:
            n_clusters = math.isqrt(self.n_classes)
        if as_integer("n_clusters", n_clusters, 1) > self.n_classes:
            raise ArgumentError(
                f"n_clusters must be at most n_classes, {self.n_classes}; got {n_clusters}"
            )
        self.cluster_size = -(-self.n_classes // n_clusters)
        self.n_clusters = -(-self.n_classes // self.cluster_size)
        bias = options.get("bias", True)
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.clusters = nn.Linear(self.width, self.n_clusters, **made)
        self.output = nn.Linear(self.width, self.n_clusters * self.cluster_size, **made)
        self.register_buffer("places", frequency_ranks(class_counts, self.n_classes).to(device))

    def _empty(self, device: torch.device) -> Tensor:
        """Places of the last cluster that no class has, bool (clusters, size)."""
        places = torch.arange(self.n_clusters * self.cluster_size, device=device)
        return (places >= self.n_classes).view(self.n_clusters, -1)

    def _entry_losses(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        places = self.places[ids]
        cluster, within = places // self.cluster_size, places % self.cluster_size
        weight = self.output.weight.view(self.n_clusters, self.cluster_size, self.width)
        logits = torch.einsum("bd,bcd->bc", features, weight[cluster])
        if self.output.bias is not None:
            logits = logits + self.output.bias.view(self.n_clusters, -1)[cluster]
        logits = logits.masked_fill(self._empty(ids.device)[cluster], -math.inf)
        first = log_softmax(self.clusters(features)).gather(1, cluster[:, None])
        second = log_softmax(logits).gather(1, within[:, None])
        log_probs = (first + second).squeeze(1)
        return log_probs, -log_probs

    def _class_log_probs(self, features: Tensor) -> Tensor:
        logits = self.output(features).view(-1, self.n_clusters, self.cluster_size)
        within = log_softmax(logits.masked_fill(self._empty(logits.device), -math.inf))
        log_probs = log_softmax(self.clusters(features)).unsqueeze(2) + within
        return log_probs.flatten(1)[:, self.places]
