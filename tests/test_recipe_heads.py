"""Every head a recipe can name: made, trained, answered from a folder, kept from older recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelmapping import HashedMapping, MixedMapping, SimplexMapping
from labelmapping.errors import ArgumentError
from labelmapping.learners import Ensemble, LearnerRecipe, LearningData, train
from labelmapping.nn import (
    AdaptiveSoftmaxHead,
    HuffmanHead,
    LabelMappingHead,
    MachHead,
    NegativeSamplingHead,
    OneHotHead,
    TwoLevelHead,
)

ONE_HOT = MixedMapping.one_hot(30)
# Not in the order of ids, as the counts of a learner's data are.
COUNTS = torch.tensor([(7 * i) % 30 for i in range(30)])


def recipe(head: str, options: dict[str, Any] | None = None, **changes: Any) -> LearnerRecipe:
    fields: dict[str, Any] = {
        "mapping": ONE_HOT,
        "trunk": "labelmapping.nn:SmallCnn",
        "trunk_options": {"side": 8, "widths": [8, 16], "out_features": 32},
        "head": head,
        "head_options": options or {},
        "epochs": 8,
        "batch_size": 32,
        "learning_rate": 1e-2,
        "schedule": "one-cycle",
    }
    return LearnerRecipe(**(fields | changes))


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("one-hot", {"hidden": 32}),
        ("hierarchical-huffman", {}),
        ("hierarchical-two-level", {"n_clusters": 4}),
        ("adaptive-softmax", {"cutoffs": [6, 15], "div_value": 2.0}),
        ("negative-sampling", {"objective": "softmax", "noise": "frequency"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rivals_train_and_come_back(
    head: str, options: dict[str, Any], task: LearningData, tmp_path: Path
) -> None:
    run = train(recipe(head, options), task, tmp_path)
    assert LearnerRecipe.from_config(run.recipe.to_config()) == run.recipe
    ensemble = Ensemble.load(tmp_path)
    (log_probs,) = ensemble.site_log_probs(task.held_out_inputs)
    assert log_probs.shape == (len(task.held_out_ids), 30)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, atol=1e-4)
    found = ensemble.topk(task.held_out_inputs, 1).ids[:, 0]
    assert (found == task.held_out_ids.numpy()).mean() > 0.8


def build(head: str, options: dict[str, Any] | None = None, **changes: Any) -> Any:
    torch.manual_seed(0)
    return recipe(head, options, **changes).build(0, COUNTS).head


def test_heads_that_use_class_counts_get_them() -> None:
    direct = {
        "hierarchical-huffman": HuffmanHead(32, 30, class_counts=COUNTS).tree,
        "hierarchical-two-level": TwoLevelHead(32, 30, class_counts=COUNTS).places,
        "adaptive-softmax": AdaptiveSoftmaxHead(32, 30, class_counts=COUNTS).ranks,
    }
    assert torch.equal(build("hierarchical-huffman").tree, direct["hierarchical-huffman"])
    assert torch.equal(build("hierarchical-two-level").places, direct["hierarchical-two-level"])
    assert torch.equal(build("adaptive-softmax").ranks, direct["adaptive-softmax"])
    assert isinstance(build("one-hot"), OneHotHead)


def test_the_noise_of_negative_sampling_keeps_the_names_of_earlier_recipes() -> None:
    by_frequency = NegativeSamplingHead(32, 30, class_counts=COUNTS).noise
    uniform = NegativeSamplingHead(32, 30).noise
    log_uniform = NegativeSamplingHead(32, 30, noise="log-uniform").noise
    for options, expected in (
        ({}, uniform),
        ({"noise": "uniform"}, uniform),
        ({"noise": "unigram", "n_negatives": 5}, by_frequency),
        ({"noise": "frequency"}, by_frequency),
        ({"noise": "log-uniform"}, log_uniform),
    ):
        assert torch.equal(build("negative-sampling", options).noise, expected)


def test_recipes_of_earlier_versions_are_read() -> None:
    """As their run.json has them, to the last field."""
    old: dict[str, Any] = {
        "trunk": "labelmapping.nn:SmallCnn",
        "trunk_options": {"side": 8, "widths": [8, 16], "out_features": 32},
        "epochs": 6,
        "batch_size": 32,
        "steps_per_epoch": None,
        "learning_rate": 0.01,
        "schedule": "one-cycle",
        "keep_epochs": [3],
        "joint": False,
    }
    simplex = SimplexMapping(30, 3, field_order=7)
    for head, options, mapping, n_parameters in (
        ("label-mapping", {"hidden": 64, "dropout": 0.1}, simplex, 32 * 64 + 2 * 64 + 65 * 7),
        ("label-mapping", {}, ONE_HOT, 33 * 30),
        ("negative-sampling", {"n_negatives": 5, "noise": "unigram"}, ONE_HOT, 33 * 30),
        ("cut-off", {"n_symbols": 20}, ONE_HOT, 33 * 20),
    ):
        config = {**old, "mapping": mapping.to_config(), "head": head, "head_options": options}
        made = LearnerRecipe.from_config(config)
        assert made.to_config() == config
        network = made.build(0, torch.arange(30, 0, -1))
        assert sum(p.numel() for p in network.head.parameters()) == n_parameters


@pytest.mark.parametrize(
    ("head", "changes", "message"),
    [
        ("one-hot", {"mapping": SimplexMapping(30, 3, field_order=7)}, "a mapping of one site"),
        # Of one site, but with other symbols than a rival answers with.
        ("hierarchical-huffman", {"mapping": MixedMapping(30, [37])}, "a mapping of one site"),
        ("mach", {"mapping": HashedMapping(30, 4, 8)}, 'head must be "label-mapping" for MACH'),
        ("tree", {}, "head must be one of label-mapping, one-hot"),
    ],
    ids=str,
)
def test_recipes_that_cannot_answer_are_refused(
    head: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        recipe(head, **changes)


@pytest.mark.parametrize(
    ("head", "options"),
    [("one-hot", {"class_counts": [1] * 30}), ("adaptive-softmax", {"clusters": 3})],
    ids=str,
)
def test_options_a_head_does_not_have_are_refused(head: str, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"head_options of {head}"):
        build(head, options)


def test_mach_takes_the_weights_of_a_learner_over_a_hashed_code() -> None:
    """Why a recipe needs no head of its own for it: the losses are one and the same."""
    mapping = HashedMapping(30, 4, 8)
    torch.manual_seed(0)
    trained = recipe("label-mapping", mapping=mapping, joint=True).build("all", COUNTS).head
    assert isinstance(trained, LabelMappingHead)
    mach = MachHead(32, mapping)
    mach.load_state_dict(trained.state_dict())
    features, target = torch.randn(4, 32), torch.tensor([0, 3, 17, 29])
    assert torch.equal(mach(features, target).loss, trained(features, target).loss)
    (first, *_), (same, *_) = mach.site_log_probs(features), trained.site_log_probs(features)
    assert torch.equal(first, same)
