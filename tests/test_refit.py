"""A code learnt anew from the features of the network that is being trained."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from labelmapping import LearnedMapping
from labelmapping.errors import ArgumentError, RunMismatchError
from labelmapping.learners import (
    Ensemble,
    LearningData,
    RunFolder,
    feature_statistics,
    refit,
    train,
    train_with_refit,
)
from labelmapping.learners.site import read_trunk, weights_file

from .test_learners import recipe, weights

JOINT = recipe(joint=True, head_options={"hidden": 64}, epochs=6, keep_epochs=(1, 3, 5))


@pytest.fixture(scope="module")
def refitted(task: LearningData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "refit"
    train_with_refit(JOINT, task, folder, first_epochs=2, alphabet_size=9, seed=3)
    return folder


def test_the_second_phase_answers_with_a_learnt_code(refitted: Path, task: LearningData) -> None:
    second = RunFolder.load(refitted / "second")
    mapping = second.recipe.mapping
    assert isinstance(mapping, LearnedMapping)
    assert mapping.alphabet_sizes == (9, 9, 9)
    assert mapping.min_distance == 2
    # The code is the one that the first phase's features give.
    means, covariance = feature_statistics(RunFolder.load(refitted / "first"), task)
    assert means.shape == (30, 32)
    assert LearnedMapping.fit(means, 3, alphabet_size=9, covariance=covariance, seed=3) == mapping
    ensemble = Ensemble.load(second.path)
    found = ensemble.topk(task.held_out_inputs, 1).ids[:, 0]
    assert (found == task.held_out_ids.numpy()).mean() > 0.9


def test_feature_statistics_are_those_of_the_trunk(refitted: Path, task: LearningData) -> None:
    first = RunFolder.load(refitted / "first")
    trunk = Ensemble.load(first.path).trunk
    with torch.no_grad():
        features = trunk(task.train_inputs).double().numpy()
    ids = task.train_ids.numpy()
    means = np.stack([features[ids == c].mean(axis=0) for c in range(30)])
    found = feature_statistics(first, task)
    np.testing.assert_allclose(found.means, means, rtol=1e-4, atol=1e-5)
    residues = features - means[ids]
    np.testing.assert_allclose(
        found.covariance, residues.T @ residues / len(ids), rtol=1e-3, atol=1e-5
    )


def test_epochs_count_both_phases(refitted: Path) -> None:
    first, second = (RunFolder.load(refitted / name) for name in ("first", "second"))
    assert (first.recipe.epochs, second.recipe.epochs) == (2, 4)
    assert (first.recipe.keep_epochs, second.recipe.keep_epochs) == ((1,), (1, 3))


def test_the_trunk_goes_on_from_the_first_phase(
    refitted: Path, task: LearningData, tmp_path: Path
) -> None:
    first = RunFolder.load(refitted / "first")
    file = weights_file(first.learner_folder("all"))
    second = RunFolder.load(refitted / "second").recipe
    assert second.trunk_sha256 == first.check_weights("all")
    # A training of no consequence leaves the trunk where it was: it started there.
    still = replace(second, learning_rate=1e-30, epochs=1, keep_epochs=(), schedule="constant")
    run = train(still, task, tmp_path / "still", trunk_weights=file)
    state = safetensors.torch.load_file(weights_file(run.learner_folder("all")))
    for name, tensor in read_trunk(file, str(second.trunk_sha256)).items():
        if "running" not in name and "num_batches" not in name:  # batch norm counts on
            assert torch.equal(state[f"trunk.{name}"], tensor)


def test_finished_phases_keep_their_bytes_and_a_lost_one_comes_back(
    refitted: Path, task: LearningData, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(refitted, folder)
    before = weights(folder)
    shutil.rmtree(folder / "second")
    train_with_refit(JOINT, task, folder, first_epochs=2, alphabet_size=9, seed=3)
    assert weights(folder) == before


def test_a_second_phase_that_was_begun_keeps_its_code(
    refitted: Path, task: LearningData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learnt once more, on another machine, it could be another."""
    folder = tmp_path / "copy"
    shutil.copytree(refitted, folder)
    before = weights(folder)
    record = json.loads((folder / "second" / "run.json").read_text("utf-8"))
    record["sites"] = {}
    (folder / "second" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    shutil.rmtree(folder / "second" / "site-all")
    monkeypatch.setattr(refit, "feature_statistics", lambda *_, **__: pytest.fail("learnt again"))
    train_with_refit(JOINT, task, folder, first_epochs=2, alphabet_size=9, seed=3)
    assert weights(folder) == before
    monkeypatch.undo()
    with pytest.raises(RunMismatchError, match="mapping"):
        train_with_refit(JOINT, task, folder, first_epochs=2, alphabet_size=11, seed=3)


def test_a_trunk_of_another_run_is_refused(
    refitted: Path, task: LearningData, tmp_path: Path
) -> None:
    second = RunFolder.load(refitted / "second")
    first_file = weights_file(RunFolder.load(refitted / "first").learner_folder("all"))
    other = weights_file(second.learner_folder("all"))
    with pytest.raises(RunMismatchError, match="it is another file"):
        train(second.recipe, task, tmp_path / "a", trunk_weights=other)
    with pytest.raises(RunMismatchError, match="it is missing"):
        train(second.recipe, task, tmp_path / "a", trunk_weights=tmp_path / "none")
    with pytest.raises(ArgumentError, match="trunk_weights must be given where"):
        train(second.recipe, task, tmp_path / "a")
    with pytest.raises(ArgumentError, match="and only there"):
        train(JOINT, task, tmp_path / "a", trunk_weights=first_file)
    smaller = replace(second.recipe, trunk_options={**JOINT.trunk_options, "out_features": 16})
    with pytest.raises(RunMismatchError, match="do not fit the trunk"):
        train(smaller, task, tmp_path / "b", trunk_weights=first_file)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_recipes_without_a_trunk_are_as_in_earlier_versions() -> None:
    assert "trunk_sha256" not in JOINT.to_config()
    assert replace(JOINT, trunk_sha256="ab").to_config()["trunk_sha256"] == "ab"


def test_what_cannot_be_refitted_is_refused(task: LearningData, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="first_epochs must be below the 6 epochs"):
        train_with_refit(JOINT, task, tmp_path / "a", first_epochs=6)
    with pytest.raises(ArgumentError, match="first_epochs must be at least 1"):
        train_with_refit(JOINT, task, tmp_path / "a", first_epochs=0)
    with pytest.raises(ArgumentError, match="recipe must be joint"):
        train_with_refit(replace(JOINT, joint=False), task, tmp_path / "a", first_epochs=2)
    assert not (tmp_path / "a").exists()
