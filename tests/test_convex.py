"""Convex position with certificates against a linear programme, and the experiment in small."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog
from scipy.stats import binomtest

from labelmapping.cli import main
from labelmapping.datasets.cjk import CLASS_SETS
from labelmapping.datasets.fonts import installed_faces
from labelmapping.errors import ArgumentError, RunMismatchError
from labelmapping.experiments import convex, hulls
from labelmapping.experiments.convex import (
    LAWS,
    ConvexProfile,
    convex_tables,
    draw_centres,
    layer_entry,
    nearest_centre_layer,
    position_entry,
    reproduce_convex,
)
from labelmapping.experiments.hulls import (
    are_vertices,
    convex_position_bound,
    convex_position_doubt,
    in_convex_position,
    wilson_interval,
)

TINY = ConvexProfile(
    sizes=(5, 12),
    dimensions=(2, 3),
    draws=6,
    checked=5,
    layers={30: (2, 4)},
    layer_steps=60,
    computed={200: (2, 4)},
    class_set="small",
    widths=(),
    network_steps=10,
)


def by_linear_programme(points: np.ndarray[Any, Any], row: int) -> bool:
    """The largest lead of a point before all others in a direction within a cube is above 0."""
    offsets = points[row] - np.delete(points, row, axis=0)
    d = points.shape[1]
    best = linprog(
        np.r_[np.zeros(d), -1],
        A_ub=np.c_[-offsets, np.ones(len(offsets))],
        b_ub=np.zeros(len(offsets)),
        bounds=[(-1, 1)] * d + [(None, 1)],
    )
    return bool(-best.fun > 1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(2, 14), st.data())
def test_vertices_are_those_of_a_linear_programme(d: int, n: int, data: st.DataObject) -> None:
    """On a grid, with equal points and points on edges, which are no vertices."""
    points = data.draw(arrays(np.float64, (n, d), elements=st.integers(-3, 3)))
    expected = [by_linear_programme(points, row) for row in range(n)]
    assert are_vertices(points) == expected
    assert in_convex_position(points) is all(expected)
    # Far from the origin and in other units too.
    assert are_vertices(1e-3 * points + 7.5) == expected


@pytest.mark.parametrize("d", [2, 3, 8, 40])
def test_random_vertices_are_those_of_a_linear_programme(d: int) -> None:
    points = np.random.default_rng(d).standard_normal((60, d))
    assert are_vertices(points) == [by_linear_programme(points, row) for row in range(60)]
    assert are_vertices(points, [7, 3]) == [are_vertices(points)[7], are_vertices(points)[3]]


def test_convex_position_is_what_the_paper_says_where_it_is_right() -> None:
    rng = np.random.default_rng(0)
    for d in (2, 3, 7):
        # d >= N - 1 in general position, and any N on a sphere.
        assert in_convex_position(draw_centres("gaussian", d + 1, d, rng))
        sphere = draw_centres("sphere", 300, d, rng)
        assert in_convex_position(sphere)
        assert not in_convex_position(np.vstack([sphere, sphere[:50].mean(axis=0)]))
    square = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    assert in_convex_position(square)
    assert are_vertices(np.vstack([square, [[0.5, 1.0]]])) == [True] * 4 + [False]
    assert are_vertices(np.vstack([square, square[:1]])) == [False, True, True, True, False]
    # The last bit decides: the point is above the edge by 1.2e-10, or on it.
    far = square + 1e6
    assert are_vertices(np.vstack([far, [[1e6 + 0.5, 1e6 + 1 + 1.2e-10]]]))[4] is True
    assert are_vertices(np.vstack([far, [[1e6 + 0.5, 1e6 + 1]]]))[4] is False


def test_what_could_not_be_checked_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.vstack([np.eye(3), np.full((1, 3), 1 / 3)])
    monkeypatch.setattr(hulls, "NEAR", -1.0)
    assert are_vertices(points) == [True, True, True, None]
    assert in_convex_position(points) is None


def test_points_that_are_refused() -> None:
    for points, message in (
        (np.zeros((1, 3)), r"N >= 2, got \(1, 3\)"),
        (np.zeros(4), r"array \(N, d\)"),
        (np.array([[0.0], [np.nan]]), "points must be finite"),
    ):
        with pytest.raises(ArgumentError, match=message):
            are_vertices(points)


@pytest.mark.parametrize(("hits", "trials"), [(0, 40), (7, 40), (40, 40), (199, 200)])
def test_wilson_s_interval_is_scipy_s(hits: int, trials: int) -> None:
    known = binomtest(hits, trials).proportion_ci(method="wilson")
    assert wilson_interval(hits, trials) == pytest.approx((known.low, known.high), abs=1e-12)


def test_the_bound_is_the_pairs_chance_and_below_what_is_measured() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 200_000, 3))
    share = ((first * second).sum(axis=1) >= (first**2).sum(axis=1)).mean()
    assert convex_position_doubt(2, 3) == pytest.approx(2 * share, rel=0.03)
    profile = replace(TINY, draws=60)
    entry = position_entry("gaussian", 20, 20, profile, seed=0)
    assert 0.5 < entry["bound"] == convex_position_bound(20, 20) <= entry["high"]
    assert entry["low"] <= entry["share"] <= entry["high"]


def test_drawn_centres_follow_their_laws() -> None:
    rng = np.random.default_rng(0)
    norms = {law: np.linalg.norm(draw_centres(law, 4000, 3, rng), axis=1) for law in LAWS}
    assert norms["sphere"] == pytest.approx(1)
    assert norms["ball"].max() <= 1
    assert (norms["ball"] < 0.5).mean() == pytest.approx(0.5**3, abs=0.02)
    assert (norms["gaussian"] ** 2).mean() == pytest.approx(3, rel=0.05)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(2, 40), st.integers(0, 10**6))
def test_a_softmax_layer_separates_any_distinct_centres(d: int, n: int, seed: int) -> None:
    """What the paper's section 3 rules out: among them are centres inside the hull."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n, d))
    weight, bias = nearest_centre_layer(centres)
    assert ((centres @ weight.T + bias).argmax(axis=1) == np.arange(n)).all()
    rows = rng.standard_normal((50, d))
    distances = ((rows[:, None] - centres) ** 2).sum(axis=2)
    assert ((rows @ weight.T + bias).argmax(axis=1) == distances.argmin(axis=1)).all()


def test_a_trained_layer_gets_centres_inside_the_hull_right() -> None:
    drawn = layer_entry(60, 3, False, 400, seed=0)
    assert drawn["computed"] == 1
    assert drawn["inside"] > 20
    assert drawn["inside_right"] > 0.95
    assert drawn == layer_entry(60, 3, False, 400, seed=0) | {"seconds": drawn["seconds"]}
    free = layer_entry(60, 3, True, 400, seed=0)
    assert free["trained"] == 1
    assert free["loss"] < drawn["loss"]
    assert layer_entry(60, 3, False, 0, seed=0)["trained"] is None


def test_the_command_in_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(convex.PROFILES, "quick", TINY)
    folder = tmp_path / "run"
    assert main(["reproduce", "convex", "--run-dir", str(folder), "--seed", "3"]) == 0
    said = capsys.readouterr()
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert (results["seed"], results["profile"], results["draws"]) == (3, "quick", 6)
    assert [row["name"] for row in results["rows"][:3]] == [
        "gaussian d=2 N=5",
        "gaussian d=2 N=12",
        "gaussian d=3 N=5",
    ]
    shares = {row["name"]: row["share"] for row in results["rows"]}
    assert shares["gaussian d=2 N=12"] < shares["sphere d=2 N=12"] == 1
    assert all(row["undecided"] == 0 for row in results["rows"])
    assert [(row["n"], row["trained"] is None) for row in results["softmax"]] == [
        *[(30, False)] * 4,
        *[(200, True)] * 2,
    ]
    assert all(row["computed"] == 1 for row in results["softmax"])
    assert {p.name for p in folder.iterdir()} == {
        *("results.json", "results.csv", "results.md", "results-bounds.csv"),
        "results-softmax.csv",
        *(f"{n}.{e}" for n in ("clusters", "positions", "layers") for e in ("png", "svg")),
    }
    tables = convex_tables(results)
    assert list(tables) == ["positions", "bounds", "softmax"]
    with (folder / "results-softmax.csv").open(encoding="utf-8") as file:
        assert list(csv.reader(file))[1:] == [list(line) for line in tables["softmax"][1]]
    text = (folder / "results.md").read_text(encoding="utf-8")
    assert text.count("\n| ---") == 3
    assert "## softmax" in text
    assert "20,901" in said.out
    assert "results.json" in said.err


def test_refusals_come_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, message in (
        (["--profile", "paper"], "profile must be one of quick, cpu; got 'paper'"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
    ):
        assert main(["reproduce", "convex", "--run-dir", str(tmp_path / "run"), *words]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_cjk_networks_by_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if len(installed_faces()) < 2:
        pytest.skip("fewer than two known CJK faces are installed (scripts/install_fonts.sh)")
    monkeypatch.setitem(CLASS_SETS, "small", "".join(CLASS_SETS["gb2312-1"][:200:2]))
    chosen = replace(TINY, widths=(2, 16), network_steps=60)
    results = reproduce_convex(tmp_path, profile=chosen, accelerator="cpu")
    narrow, wide = results["cjk"]
    assert (narrow["d"], wide["d"], wide["n"]) == (2, 16, 100)
    assert wide["train_accuracy"] > narrow["train_accuracy"]
    assert wide["train_accuracy"] > wide["held_out_accuracy"] > 0.3
    assert narrow["inside"] > 50
    assert narrow["vertices"] < wide["vertices"]
    again = reproduce_convex(tmp_path, profile=chosen, accelerator="cpu")
    assert again["cjk"] == results["cjk"]  # with the seconds: nothing was trained
    with pytest.raises(RunMismatchError, match="was made with other settings"):
        reproduce_convex(tmp_path, profile=replace(chosen, network_steps=70))


@pytest.mark.slow
def test_the_quick_profile_with_fewer_draws_and_layers(tmp_path: Path) -> None:
    quick = convex.PROFILES["quick"]
    fewer = replace(quick, draws=4, layers={1000: (4, 8)}, computed={20_901: (4,)})
    results = reproduce_convex(tmp_path, profile=fewer)
    softmax = {row["name"]: row for row in results["softmax"]}
    decisive = softmax["N=1000 d=4, centres trained"]
    # All right, and most of them inside the hull.
    assert decisive["trained"] == decisive["inside_right"] == 1
    assert decisive["inside"] > decisive["checked"] / 2
    assert softmax["N=1000 d=8, centres drawn"]["trained"] > 0.99
