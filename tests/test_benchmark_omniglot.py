"""The Omniglot benchmark runs, at a size that says nothing about accuracy."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import omniglot as benchmark
from numpy.typing import NDArray
from torch import Tensor

from labelmapping import MixedMapping, SimplexMapping
from labelmapping.datasets import omniglot
from labelmapping.datasets.omniglot import load_omniglot
from labelmapping.experiments.evaluation import SiteAnswers, answer
from labelmapping.learners import Ensemble
from labelmapping.mappings import ClassStatistics

CLASSES = 40


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 40 classes: a square of noise each, 20 times with other noise around it."""
    rng = np.random.default_rng(0)
    squares = 255 * rng.integers(0, 2, size=(CLASSES, 1, 16, 16), dtype=np.uint8)
    images = 255 * (rng.random((CLASSES, 20, 28, 28)) < 0.1).astype(np.uint8)
    images[:, :, 6:22, 6:22] = squares
    folder = tmp_path_factory.mktemp("drawings")
    np.savez_compressed(
        folder / "omniglot28.npz",
        x=images.reshape(-1, 28, 28),
        y=np.repeat(np.arange(CLASSES), 20),
        drawer=np.tile(np.arange(1, 21), CLASSES),
        name=np.array([f"Noise/character{i:02d}" for i in range(CLASSES)]),
    )
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few classes, and half the epochs."""
    monkeypatch.setattr(omniglot, "N_CLASSES", CLASSES)
    monkeypatch.setattr(benchmark, "EPOCHS", 4)


def run(drawings: Path, folder: Path, **options: Any) -> list[dict[str, Any]]:
    settings: dict[str, Any] = {"steps": 16, "seeds": [0], "rows": None} | options
    benchmark.run(folder=folder, data_dir=drawings, **settings)
    rows: list[dict[str, Any]] = json.loads((folder / "results.json").read_text("utf-8"))["rows"]
    return rows


def test_networks_and_linear_learners_are_compared(
    drawings: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[Tensor] = []

    def recorded(ensemble: Ensemble, inputs: Tensor, ids: Tensor) -> SiteAnswers:
        measured.append(ids)
        return answer(ensemble, inputs, ids)

    monkeypatch.setattr(benchmark, "answer", recorded)
    names = ["one-hot", "learned wide, refit", "linear one-hot", "linear learned, 8 sites"]
    rows = run(drawings, tmp_path, rows=names, seeds=[0, 1])
    assert [(row["code"], row["seed"]) for row in rows] == [(n, s) for s in (0, 1) for n in names]
    assert [row["learner"] for row in rows[:4]] == ["network", "network", "linear", "linear"]
    assert [len(row["site_accuracies"]) for row in rows[:4]] == [1, 4, 1, 8]
    for first, second in zip(rows[:4], rows[4:], strict=True):
        tried = first["validation_top1"]
        assert list(tried) == ["0.0", "0.2"]
        assert tried[str(first["dropout"])] == max(tried.values())
        # Other seeds take the dropout that the first one chose.
        assert list(second["validation_top1"]) == [str(first["dropout"])]
    held_out = load_omniglot(data_dir=drawings).held_out_ids
    assert all(np.array_equal(ids.numpy(), held_out) for ids in measured)
    assert (tmp_path / "learned-wide-refit-seed0-dropout0.2" / "second" / "run.json").is_file()
    assert rows[2]["parameters"] == (392 + 1) * CLASSES
    assert rows[2]["top1"] > 0.9  # as easy as it is meant to be
    assert rows[2]["top10"] >= rows[2]["top1"]
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        header, *lines = list(csv.reader(file))
    assert header == benchmark.HEADER
    assert [line[1] for line in lines] == [row["code"] for row in rows]
    assert "| network | one-hot | 0 |" in (tmp_path / "results.md").read_text("utf-8")
    assert capsys.readouterr().out.count("learned wide, refit") == 2
    # What is finished is not trained again.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert run(drawings, tmp_path, rows=names[:2])[1]["top1"] == rows[1]["top1"]
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}


def test_every_code_can_be_made() -> None:
    means = np.random.default_rng(1).normal(size=(400, 16)).astype(np.float32)
    seen = ClassStatistics(means, np.eye(16))
    for row in benchmark.CODES.values():
        mapping = benchmark.make_mapping(row.code, row.n_sites, seen, 0)
        assert mapping.n_classes == 400
        assert mapping.n_sites == row.n_sites
        if row.code not in ("one-hot", "mixed"):
            assert set(mapping.alphabet_sizes) == {58 if "wide" in row.code else 29}
        if isinstance(mapping, SimplexMapping):
            natural = row.code == "natural"
            assert mapping.points[:3] == (("infinity", 0, 1) if natural else (1, 2, 3))
            assert (mapping.order is not None) == natural
    assert benchmark.make_mapping("mixed", 4, seen, 0).alphabet_sizes == (19, 23, 29, 31)


def test_held_out_and_validation_drawings_train_nothing(drawings: Path) -> None:
    data = load_omniglot(data_dir=drawings)
    tasks = benchmark.make_tasks(data)
    training = ~np.isin(data.train_drawers, [14, 15])
    images = tasks["network"].data
    assert np.array_equal(images.train_inputs.numpy(), data.train_images[training])
    assert np.array_equal(images.held_out_inputs.numpy(), data.train_images[~training])
    assert torch.equal(tasks["linear"].data.train_ids, images.train_ids)
    features = tasks["linear"].data.train_inputs.numpy()
    np.testing.assert_allclose(features.mean(axis=0), 0.0, atol=1e-4)
    spread = features.std(axis=0)
    np.testing.assert_allclose(spread[spread > 0], 1.0, atol=0.1)
    # Codes know the mean of a class's 14 training drawings.
    rows = features[images.train_ids.numpy() == 3]
    assert len(rows) == 14
    np.testing.assert_allclose(tasks["linear"].seen.means[3], rows.mean(axis=0), atol=1e-5)
    drawn = benchmark.blurred(data.train_images[training & (data.train_ids == 3)], 1.0)
    assert 0 <= drawn.min() <= drawn.max() <= 1
    means = tasks["network"].seen.means[3].reshape(28, 28)
    np.testing.assert_allclose(means, drawn.mean(axis=0), atol=1e-5)


def test_heads_of_codes_have_about_equal_parameters() -> None:
    seen = ClassStatistics(np.zeros((1623, 2), np.float32), np.eye(2))
    sizes = []
    for row in benchmark.NETWORKS.values():
        if row.code in ("simplex", "mixed", "random"):
            mapping = benchmark.make_mapping(row.code, 4, seen, 0)
            recipe = benchmark.make_recipe("network", mapping, 0.2, 16, 28)
            network = recipe.build("all", torch.ones(1623))
            sizes.append(sum(p.numel() for p in network.parameters()))
    wide = benchmark.make_recipe("network", SimplexMapping(1623, 4, field_order=107), 0.2, 16, 28)
    sizes.append(sum(p.numel() for p in wide.build("all", torch.ones(1623)).parameters()))
    assert max(sizes) < 1.005 * min(sizes)
    assert sizes[0] == 163_368 + 130 * 512 + 513 * 4 * 53


@pytest.mark.parametrize("code", ["one-hot", "simplex"])
@pytest.mark.parametrize("learner", ["network", "linear"])
def test_dropout_comes_before_the_output_layer(learner: str, code: str) -> None:
    mapping = MixedMapping.one_hot(50) if code == "one-hot" else SimplexMapping(50, 4)
    recipe = benchmark.make_recipe(learner, mapping, 0.5, 16, 28)
    network = recipe.build("all", torch.ones(50)).train()
    inputs = torch.rand(8, 28) if learner == "linear" else torch.randint(0, 256, (8, 28, 28))
    seen: list[Tensor] = []
    network.head.output.register_forward_pre_hook(  # type: ignore[union-attr]
        lambda _, arguments: seen.append(arguments[0])
    )
    torch.manual_seed(0)
    network.site_log_probs(inputs)
    network.eval().site_log_probs(inputs)
    dropped, whole = ((rows == 0).float().mean().item() for rows in seen)
    assert 0.4 < (dropped - whole) / (1 - whole) < 0.6


def test_gradient_histograms_tell_directions() -> None:
    def histograms(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        return benchmark.gradient_histograms(images).reshape(-1, 7, 7, 8)

    slope = np.add.outer(np.arange(28), np.arange(28))
    strokes = np.zeros((4, 28, 28), np.uint8)
    strokes[0, :, 13:15] = 255  # upright
    strokes[1, abs(slope - 27) < 2] = 255  # rising
    strokes[2, 13:15] = 255  # lying
    strokes[3, 20:, 8:12] = 255  # any
    found = histograms(strokes)
    assert found.dtype == np.float32
    assert (found >= 0).all()
    # Ink changes across a stroke: to the right, to the lower right, downwards.
    assert found[:3].sum(axis=(1, 2)).argmax(axis=-1).tolist() == [0, 2, 4]
    assert np.flatnonzero(found[0].sum(axis=(0, 1))).tolist() == [0]
    # Where there is nothing but paper, nothing changes.
    assert not found[3, :4].any()
    # Ink and paper exchanged: the same directions.
    np.testing.assert_allclose(histograms(255 - strokes), found, atol=1e-3)
    # Turned by a quarter: cells turn, and directions move on by four.
    turned = histograms(np.rot90(strokes, axes=(1, 2)).copy())
    np.testing.assert_allclose(turned, np.roll(np.rot90(found, axes=(1, 2)), 4, axis=-1), atol=1e-3)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--rows must be among 'one-hot', .*; got 'no code'"):
        benchmark.run(steps=16, seeds=[0], rows=["no code"], folder=tmp_path)
    with pytest.raises(SystemExit, match="--steps must be a multiple of 4, got 14"):
        benchmark.run(steps=14, seeds=[0], rows=None, folder=tmp_path)
