"""Hierarchical softmax: the tree is Huffman's, and log-probs are products along its paths."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from labelmapping.errors import ArgumentError
from labelmapping.nn import HuffmanHead, TwoLevelHead
from labelmapping.nn.hierarchical import huffman_tree

D = 5
COUNTS = [(7 * i) % 13 for i in range(13)]


def paths_of(tree: Any) -> dict[int, list[tuple[int, int]]]:
    """The (node, side) from the root to each class."""
    found: dict[int, list[tuple[int, int]]] = {}
    waiting: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]
    while waiting:
        node, path = waiting.pop()
        for side, child in enumerate(tree[node].tolist()):
            below = [*path, (node, side)]
            if child >= 0:
                waiting.append((child, below))
            else:
                assert -child - 1 not in found
                found[-child - 1] = below
    return found


def least_path_length(counts: list[int]) -> int:
    """Of all binary trees, by joining the two lightest again and again."""
    heap, total = sorted(counts), 0
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, joined)
        total += joined
    return total


@given(st.lists(st.integers(0, 3) | st.integers(0, 10**6), min_size=2, max_size=60))
def test_the_tree_is_optimal(counts: list[int]) -> None:
    tree = huffman_tree(np.array(counts, np.float64))
    assert tree.shape == (len(counts) - 1, 2)
    paths = paths_of(tree)
    assert sorted(paths) == list(range(len(counts)))
    assert sum(counts[c] * len(p) for c, p in paths.items()) == least_path_length(counts)
    # Numbered level by level.
    assert tree[tree >= 0].tolist() == list(range(1, len(counts) - 1))


@pytest.mark.parametrize(
    ("counts", "tree"),
    [
        ([1, 1], [[-1, -2]]),
        ([2, 1], [[-2, -1]]),
        ([1, 1, 1], [[-3, 1], [-1, -2]]),
        ([0, 5, 0], [[1, -2], [-1, -3]]),
        ([1, 1, 1, 1], [[1, 2], [-1, -2], [-3, -4]]),
        ([1, 1, 2, 4], [[-4, 1], [-3, 2], [-1, -2]]),
    ],
    ids=str,
)
def test_ties_go_to_the_lower_id_and_to_classes(counts: list[int], tree: list[list[int]]) -> None:
    assert huffman_tree(np.array(counts, np.float64)).tolist() == tree


def by_paths(head: HuffmanHead, features: Tensor) -> Tensor:
    """Each class's probability, as a product of decisions, in float64."""
    logits = features.double() @ head.output.weight.double().t()
    if head.output.bias is not None:
        logits = logits + head.output.bias.double()
    right = torch.sigmoid(-logits)
    found = paths_of(head.tree)
    columns = []
    for class_id in range(head.n_classes):
        steps = [right[:, n] if side else 1 - right[:, n] for n, side in found[class_id]]
        columns.append(torch.stack(steps).prod(dim=0))
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "counts",
    [[1, 0], [5, 2, 9], COUNTS, [0] * 9, [2.0**i for i in range(40)]],
    ids=["two", "three", "mixed", "equal", "chain"],
)
def test_huffman_log_probs_are_products_along_the_paths(counts: list[float], bias: bool) -> None:
    torch.manual_seed(0)
    n_classes = len(counts)
    head = HuffmanHead(D, n_classes, class_counts=counts, bias=bias)
    features = torch.randn(n_classes, D)
    expected = by_paths(head, features)
    torch.testing.assert_close(expected.sum(dim=1), torch.ones(n_classes, dtype=torch.float64))
    torch.testing.assert_close(head.log_prob(features), expected.log().float())
    output, loss = head(features, torch.arange(n_classes))
    torch.testing.assert_close(output, expected.diagonal().log().float())
    torch.testing.assert_close(loss, -output.mean())


def test_a_target_trains_the_nodes_on_its_path_alone() -> None:
    head = HuffmanHead(D, 13, class_counts=COUNTS)
    head(torch.randn(1, D), torch.tensor([4])).loss.backward()
    assert head.output.weight.grad is not None
    moved = head.output.weight.grad.any(dim=1).nonzero()[:, 0]
    assert moved.tolist() == sorted(node for node, _ in paths_of(head.tree)[4])


def test_loaded_weights_bring_their_tree() -> None:
    saved, other = HuffmanHead(D, 13, class_counts=COUNTS), HuffmanHead(D, 13)
    other.load_state_dict(saved.state_dict())
    assert torch.equal(other.tree, saved.tree)
    features = torch.randn(13, D)
    output = other(features, torch.arange(13)).output
    torch.testing.assert_close(output, by_paths(saved, features).diagonal().log().float())


@pytest.mark.parametrize(
    "tree",
    [
        [[1, -2], [1, -3], [-1, -4]],
        [[1, -2], [0, -3], [-1, -4]],
        [[2, -2], [1, -3], [-1, -4]],
        [[1, -2], [2, -3], [-1, -1]],
        [[-1, -2], [1, -3], [2, -4]],
    ],
    ids=["twice", "cycle", "order", "class-twice", "loose"],
)
def test_a_damaged_tree_is_refused(tree: list[list[int]]) -> None:
    head = HuffmanHead(D, 4)
    state = head.state_dict() | {"tree": torch.tensor(tree)}
    with pytest.raises(ArgumentError, match="state_dict has a damaged tree"):
        head.load_state_dict(state)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 16])
@pytest.mark.parametrize("n_clusters", [None, 1, 2, 4, "all"])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_two_levels_are_a_cluster_and_a_class_in_it(
    n_classes: int, n_clusters: Any, counted: bool, bias: bool
) -> None:
    if n_clusters == "all":
        n_clusters = n_classes
    torch.manual_seed(0)
    counts = [(7 * i) % 5 for i in range(n_classes)] if counted else None
    options: dict[str, Any] = {"class_counts": counts, "n_clusters": n_clusters, "bias": bias}
    if n_clusters is not None and n_clusters > n_classes:
        with pytest.raises(ArgumentError, match="n_clusters must be at most n_classes"):
            TwoLevelHead(D, n_classes, **options)
        return
    head = TwoLevelHead(D, n_classes, **options)
    order = sorted(range(n_classes), key=lambda i: -counts[i] if counts else i)
    size = math.ceil(n_classes / (n_clusters or math.isqrt(n_classes)))
    clusters = [order[i : i + size] for i in range(0, n_classes, size)]
    features = torch.randn(n_classes, D)
    first = F.log_softmax(head.clusters(features), dim=1)
    assert first.shape[1] == len(clusters)
    logits = head.output(features)
    expected = torch.empty(n_classes, n_classes)
    for i, members in enumerate(clusters):
        within = F.log_softmax(logits[:, i * size : i * size + len(members)], dim=1)
        expected[:, members] = first[:, i, None] + within
    torch.testing.assert_close(head.log_prob(features), expected)
    output, loss = head(features, torch.arange(n_classes))
    torch.testing.assert_close(output, expected.diagonal())
    assert torch.isfinite(loss)
    grads = torch.autograd.grad(loss, list(head.parameters()))
    assert all(bool(torch.isfinite(grad).all()) for grad in grads)


def test_clusters_are_about_the_root_of_n() -> None:
    head = TwoLevelHead(D, 1000)
    assert (head.n_clusters, head.cluster_size) == (31, 33)


def test_two_levels_made_on_meta_answer_once_loaded() -> None:
    torch.manual_seed(0)
    whole = TwoLevelHead(4, 10)
    late = TwoLevelHead(4, 10, device="meta").to_empty(device="cpu")
    late.load_state_dict(whole.state_dict())
    features = torch.randn(3, 4)
    assert torch.equal(late.log_prob(features), whole.log_prob(features))
