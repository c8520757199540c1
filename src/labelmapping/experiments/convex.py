"""Section 3 of the paper: when N centres are in convex position, and whether a softmax needs it.

The paper holds that softmax(Ax + b) separates N clusters only if every centre is a vertex of
their convex hull. It does not: with rows a_j = c_j and b_j = -|c_j|²/2 the largest entry at x
is that of the nearest centre, so N distinct centres are separated in any dimension. Convex
position is what a half-space of one's own needs: one class against all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from ..arguments import as_integer, check_choice
from ..datasets.cjk import load_cjk
from ..learners import Ensemble, LearnerRecipe, LearningData, RunFolder, feature_statistics, train
from ..mappings import MixedMapping
from .demo import learning_data
from .evaluation import accuracy, sample_rows
from .hull_pictures import save_clusters, save_layers, save_positions
from .hulls import (
    are_vertices,
    convex_position_bound,
    convex_position_doubt,
    in_convex_position,
    wilson_interval,
)
from .tables import Table, machine, write_results

__all__ = ["LAWS", "PROFILES", "ConvexProfile", "convex_tables", "reproduce_convex"]

Points = NDArray[np.float64]

LAWS = ("gaussian", "ball", "sphere")
# Classes in a step of a layer's training, all where there are no more; also scored at a time.
ROWS = 1024
# Centres of a softmax layer or a network that are looked at one by one.
CHECKED = 200
# Peaks of Adam's one-cycle schedule, the best of 0.03, 0.1, 0.3, 1 at N = 1,000 and d = 2 by loss.
LAYER_RATE = 1.0
CENTRES_RATE = 0.3
# The paper's one-hot networks: how wide the layer before the last is, and how many classes.
PAPER_NETWORKS = (
    ("CIFAR-100, simple CNN", 128, 100),
    ("CJK, Inception V3", 2048, 20901),
    ("Republic, LSTM", 100, 7409),
)


@dataclass(frozen=True, kw_only=True)
class ConvexProfile:
    """How much to measure.

    Attributes
    ----------
    sizes, dimensions : tuple of int
        N and d of the random centres.
    draws : int
        For each law, N and d.
    checked : int
        Centres of a draw that are looked at one by one.
    layers : dict of int to tuple of int
        N and the dimensions of the softmax layers that are trained.
    layer_steps : int
    computed : dict of int to tuple of int
        N and the dimensions of those that are computed only.
    class_set : str
        Of the CJK networks.
    widths : tuple of int
        d of the CJK networks; none are trained where it is empty.
    network_steps : int
    """

    sizes: tuple[int, ...] = (10, 32, 100, 316, 1000)
    dimensions: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 20, 24, 32)
    draws: int = 200
    checked: int = 50
    layers: Mapping[int, tuple[int, ...]] = field(
        default_factory=lambda: {1000: (2, 3, 4, 8, 16), 10_000: (4, 8)}
    )
    layer_steps: int = 1000
    computed: Mapping[int, tuple[int, ...]] = field(
        default_factory=lambda: {20_901: (2, 3, 4, 8, 16)}
    )
    class_set: str = "gb2312-1"
    widths: tuple[int, ...] = (2, 4, 8, 16, 32, 128)
    network_steps: int = 1000


PROFILES = {
    "quick": ConvexProfile(
        dimensions=(2, 3, 4, 8, 16, 32),
        draws=40,
        layers={1000: (2, 4, 8)},
        layer_steps=500,
        computed={20_901: (2, 4, 8)},
        widths=(),
    ),
    "cpu": ConvexProfile(),
}


def reproduce_convex(
    run_dir: str | Path,
    *,
    profile: str | ConvexProfile = "quick",
    seed: int = 0,
    accelerator: str = "auto",
    callbacks: Callable[[int], Sequence[pl.Callback]] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure how often centres are in convex position, and what softmax layers do with them.

    Parameters
    ----------
    run_dir : path
        ``results.json``, ``.md`` and the tables as ``.csv``; ``clusters``, ``positions`` and
        ``layers`` as ``.png`` and ``.svg``; a run folder ``network-dD`` for each CJK network,
        which goes on where it was stopped.
    profile : {"quick", "cpu"} or ConvexProfile
    accelerator : str
        Of the CJK networks, Lightning's: "auto", "cpu", "gpu". All else is on the CPU.
    callbacks : function of a width, optional
        Lightning callbacks of a CJK network.
    progress : function of str, optional
        Told what was measured, a line at a time.

    Returns
    -------
    dict
        What ``results.json`` holds.
    """
    chosen = (
        PROFILES[check_choice("profile", profile, PROFILES)]
        if isinstance(profile, str)
        else profile
    )
    as_integer("seed", seed, 0)
    run_dir = Path(run_dir)
    data = None
    if chosen.widths:
        data = learning_data(load_cjk(chosen.class_set))
        for width in chosen.widths:
            recipe = network_recipe(data.n_classes, width, chosen.network_steps)
            RunFolder.check(_network_folder(run_dir, width), recipe, seed, data)
    results: dict[str, Any] = {
        "experiment": "convex",
        "title": "Section 3: centres in convex position, and softmax layers",
        "profile": profile if isinstance(profile, str) else "own",
        "seed": seed,
        "draws": chosen.draws,
        "layers": f"{chosen.layer_steps} steps of {ROWS} classes or all, Adam, one-cycle to "
        f"{LAYER_RATE:g} for a layer alone and {CENTRES_RATE:g} for layer and centres",
        "networks": f"small CNN, {chosen.class_set}, {chosen.network_steps} steps of batch 128"
        if chosen.widths
        else "none",
        "machine": machine(),
        "bounds": [
            {"name": name, "d": d, "n": n, "doubt": convex_position_doubt(n, d)}
            for name, d, n in PAPER_NETWORKS
        ],
        "rows": [],
        "softmax": [],
        "cjk": [],
    }
    for law in LAWS:
        for d in chosen.dimensions:
            for n in chosen.sizes:
                results["rows"].append(position_entry(law, d, n, chosen, seed))
            progress(f"{law} centres in {d} dimensions: {_of_sizes(results['rows'], chosen)}")
    _write(run_dir, results)
    for softmax, steps in ((chosen.layers, chosen.layer_steps), (chosen.computed, 0)):
        for n, dimensions in softmax.items():
            for d in dimensions:
                for trained_centres in (False, True) if steps else (False,):
                    entry = layer_entry(n, d, trained_centres, steps, seed)
                    results["softmax"].append(entry)
                    progress(f"{entry['name']}: {_of_layer(entry)}")
            _write(run_dir, results)
    if data is not None:
        for width in chosen.widths:
            run = train(
                network_recipe(data.n_classes, width, chosen.network_steps),
                data,
                _network_folder(run_dir, width),
                seed=seed,
                accelerator=accelerator,
                callbacks=None if callbacks is None else lambda _, d=width: callbacks(d),  # type: ignore[misc]
            )
            results["cjk"].append(network_entry(run, data, width, seed))
            _write(run_dir, results)
    return results


def draw_centres(law: str, n: int, d: int, rng: np.random.Generator) -> Points:
    """N random points in d dimensions: standard Gaussian, uniform in the ball or on the sphere."""
    points = rng.standard_normal((n, d))
    if law == "gaussian":
        return points
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points if law == "sphere" else points * rng.random((n, 1)) ** (1 / d)


def position_entry(law: str, d: int, n: int, profile: ConvexProfile, seed: int) -> dict[str, Any]:
    """How many draws of N centres are in convex position, and what part of them are vertices."""
    convex = undecided = vertices = checked = 0
    for draw in range(profile.draws):
        rng = np.random.default_rng((seed, LAWS.index(law), d, n, draw))
        points = draw_centres(law, n, d, rng)
        answer = in_convex_position(points)
        convex += answer is True
        # As they come: the points are in no order.
        answers: list[bool | None] = [True] * min(n, profile.checked)
        if answer is not True:
            answers = are_vertices(points, range(min(n, profile.checked)))
        undecided += (answer is None) + answers.count(None)
        vertices += answers.count(True)
        checked += len(answers)
    low, high = wilson_interval(convex, profile.draws)
    return {
        "name": f"{law} d={d} N={n}",
        "law": law,
        "d": d,
        "n": n,
        "share": convex / profile.draws,
        "low": low,
        "high": high,
        "bound": {"gaussian": convex_position_bound(n, d), "sphere": 1.0}.get(law),
        "vertices": vertices / checked,
        "undecided": undecided,
    }


def nearest_centre_layer(centres: Points) -> tuple[Points, Points]:
    """Weight (N, d) and bias (N,) whose largest entry at x is that of the nearest centre.

    c_j x - |c_j|²/2 = (|x|² - |x - c_j|²) / 2, and |x|² is the same for all j.

    Examples
    --------
    >>> weight, bias = nearest_centre_layer(np.array([[-1.0], [0.0], [2.0]]))
    >>> (weight @ [[-1.0, 0.0, 2.0]] + bias[:, None]).argmax(axis=0)
    array([0, 1, 2])
    """
    return centres, -(centres**2).sum(axis=1) / 2


def layer_entry(n: int, d: int, trained_centres: bool, steps: int, seed: int) -> dict[str, Any]:
    """A softmax layer on N centres in d dimensions, one point a class: computed, and trained.

    The centres are standard Gaussian, and stay so or are trained with the layer.
    """
    started = time.perf_counter()
    rng = np.random.default_rng((seed, n, d))
    centres = draw_centres("gaussian", n, d, rng)
    right, loss = None, None
    if steps:
        right, loss, centres = _train_layer(centres, trained_centres, steps, seed)
    vertex = are_vertices(centres, range(min(n, CHECKED)))
    inside = [row for row, answer in enumerate(vertex) if answer is False]
    kind = "trained" if trained_centres else "drawn"
    return {
        "name": f"N={n} d={d}, centres {kind}",
        "n": n,
        "d": d,
        "centres": kind,
        "computed": float(_is_right(centres, *nearest_centre_layer(centres)).mean()),
        "trained": None if right is None else float(right.mean()),
        "loss": loss,
        "vertices": vertex.count(True) / len(vertex),
        "checked": len(vertex),
        "inside": len(inside),
        "inside_right": None if right is None or not inside else float(right[inside].mean()),
        "seconds": round(time.perf_counter() - started, 1),
    }


def _train_layer(
    drawn: Points, trained_centres: bool, steps: int, seed: int
) -> tuple[NDArray[np.bool_], float, Points]:
    """Which classes a trained softmax layer gets right, the last loss, and the centres."""
    n, d = drawn.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Linear(d, n)
    centres = torch.tensor(drawn, dtype=torch.float32, requires_grad=trained_centres)
    rate = CENTRES_RATE if trained_centres else LAYER_RATE
    weights = [*layer.parameters(), *([centres] if trained_centres else [])]
    optimizer = torch.optim.Adam(weights, rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    shuffle = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        ids = torch.randperm(n, generator=shuffle)[:ROWS]
        loss = F.cross_entropy(layer(centres[ids]), ids)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    found = centres.detach().numpy().astype(np.float64)
    weight, bias = (part.detach().numpy().astype(np.float64) for part in layer.parameters())
    return _is_right(found, weight, bias), float(loss.detach()), found


def _is_right(centres: Points, weight: Points, bias: Points) -> NDArray[np.bool_]:
    """For each class, whether its entry is the largest at its centre."""
    return np.concatenate(
        [
            (centres[start : start + ROWS] @ weight.T + bias).argmax(axis=1)
            == np.arange(start, min(start + ROWS, len(centres)))
            for start in range(0, len(centres), ROWS)
        ]
    )


def network_recipe(n_classes: int, width: int, steps: int) -> LearnerRecipe:
    """One-hot on the small CNN with a feature layer of some width."""
    return LearnerRecipe(
        mapping=MixedMapping.one_hot(n_classes),
        trunk="labelmapping.nn:SmallCnn",
        trunk_options={"out_features": width},
        joint=True,
        epochs=1,
        steps_per_epoch=steps,
        batch_size=128,
        learning_rate=3e-3,
        schedule="one-cycle",
    )


def _network_folder(run_dir: Path, width: int) -> Path:
    return run_dir / f"network-d{width}"


def network_entry(run: RunFolder, data: LearningData, width: int, seed: int) -> dict[str, Any]:
    """A trained one-hot network: its accuracies, and whether its centres are vertices.

    A class's centre is the mean of its training rows' features. `inside_right` is the accuracy
    on training rows of classes whose centres are not vertices, among those looked at.
    """
    ensemble = Ensemble.load(run.path)
    centres = np.asarray(feature_statistics(run, data).means, np.float64)
    chosen = np.random.default_rng(seed).permutation(data.n_classes)[:CHECKED]
    vertex = are_vertices(centres, chosen.tolist())
    inside = [int(row) for row, answer in zip(chosen, vertex, strict=True) if answer is False]
    rows = torch.isin(data.train_ids, torch.tensor(inside, dtype=torch.int64))
    sample = sample_rows(len(data.train_ids), len(data.held_out_ids), seed)
    return {
        "name": f"d={width}",
        "n": data.n_classes,
        "d": width,
        "parameters": ensemble.parameters,
        "train_accuracy": accuracy(ensemble, data.train_inputs[sample], data.train_ids[sample]),
        "held_out_accuracy": accuracy(ensemble, data.held_out_inputs, data.held_out_ids),
        "vertices": vertex.count(True) / len(vertex),
        "checked": len(vertex),
        "inside": len(inside),
        "inside_right": accuracy(ensemble, data.train_inputs[rows], data.train_ids[rows])
        if inside
        else None,
        "seconds": round(run.report("all").seconds, 1),
    }


def convex_tables(results: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of ``results.json`` by their titles, shares in percent."""
    positions = (
        ("centres", "d", "N", "in convex position, %", "95 % interval", "at least", "vertices, %"),
        [
            (
                row["law"],
                str(row["d"]),
                f"{row['n']:,}",
                f"{100 * row['share']:.1f}",
                f"{100 * row['low']:.1f} - {100 * row['high']:.1f}",
                "" if row["bound"] is None else f"{100 * row['bound']:.1f}",
                f"{100 * row['vertices']:.1f}",
            )
            for row in results["rows"]
        ],
    )
    bounds = (
        ("the paper's one-hot network", "d", "N", "not in convex position, probability at most"),
        [
            (row["name"], str(row["d"]), f"{row['n']:,}", f"{row['doubt']:.1e}")
            for row in results["bounds"]
        ],
    )
    layers = (
        (
            "centres",
            "N",
            "d",
            "vertices, %",
            "right, layer computed, %",
            "right, layer trained, %",
            "of those inside, %",
            "loss",
            "seconds",
        ),
        [
            (
                row["centres"],
                f"{row['n']:,}",
                str(row["d"]),
                f"{100 * row['vertices']:.0f}",
                f"{100 * row['computed']:.2f}",
                _percent(row["trained"], 2),
                _percent(row["inside_right"], 1),
                "" if row["loss"] is None else f"{row['loss']:.3g}",
                f"{row['seconds']:.0f}",
            )
            for row in results["softmax"]
        ],
    )
    networks = (
        (
            "d",
            "N",
            "parameters",
            "vertices, %",
            "train, %",
            "of those inside, %",
            "held out, %",
            "seconds",
        ),
        [
            (
                str(row["d"]),
                f"{row['n']:,}",
                f"{row['parameters']:,}",
                f"{100 * row['vertices']:.0f}",
                f"{100 * row['train_accuracy']:.1f}",
                _percent(row["inside_right"], 1),
                f"{100 * row['held_out_accuracy']:.1f}",
                f"{row['seconds']:.0f}",
            )
            for row in results["cjk"]
        ],
    )
    tables: dict[str, Table] = {
        "positions": positions,
        "bounds": bounds,
        "softmax": layers,
        "cjk": networks,
    }
    return {name: table for name, table in tables.items() if table[1]}


def _percent(share: Any, digits: int) -> str:
    return "" if share is None else f"{100 * share:.{digits}f}"


def _of_sizes(rows: Sequence[Mapping[str, Any]], profile: ConvexProfile) -> str:
    last = rows[-len(profile.sizes) :]
    return ", ".join(f"{100 * row['share']:.0f} % at N={row['n']}" for row in last)


def _of_layer(entry: Mapping[str, Any]) -> str:
    trained = _percent(entry["trained"], 2)
    computed = f"computed {100 * entry['computed']:.2f} % right"
    return f"trained {trained} % right, {computed}" if trained else computed


def _write(run_dir: Path, results: dict[str, Any]) -> None:
    tables = convex_tables(results)
    first = tables.pop("positions")
    write_results(run_dir, results, first, tables)
    for ending in ("png", "svg"):
        save_clusters(run_dir / f"clusters.{ending}")
        save_positions(run_dir / f"positions.{ending}", results["rows"])
        if results["cjk"] or any(row["trained"] is not None for row in results["softmax"]):
            save_layers(run_dir / f"layers.{ending}", results["softmax"], results["cjk"])
