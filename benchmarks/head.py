"""One training step of output layers by N: time, memory, parameters.

Forward, backward (to the features too) and an Adam step on 256 random rows of 512 features.
Every row of the table has a process of its own, whose largest memory counts. Peers: a linear
layer with cross-entropy, torch's adaptive softmax, sampled softmax. A second table has the loss
alone beside the plain sum of a cross-entropy per site.
"""

from __future__ import annotations

import csv
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelmapping import MixedMapping, SimplexMapping
from labelmapping.errors import ArgumentError
from labelmapping.nn import (
    AdaptiveSoftmaxHead,
    ClassHead,
    CodewordEncoder,
    LabelMappingHead,
    NegativeSamplingHead,
    label_mapping_cross_entropy,
)

from .usage import peak_mib

WIDTH, ROWS, NEGATIVES = 512, 256, 1024
WARM_UP, STEPS, PATIENCE = 2, 15, 30.0  # PATIENCE: seconds after which a row stops, at 3 steps
# Weights, gradients and Adam's two moments.
COPIES = 4
CODES = {
    "mixed n=3 k=2": (3, 2),
    "mixed n=4 k=2": (4, 2),
    "mixed n=3 k=3": (3, 3),
    "mixed n=4 k=3": (4, 3),
}
CLASS = "mixed n=4 k=2, class softmax"
LINEAR, ADAPTIVE, SAMPLED = "linear + cross-entropy", "adaptive softmax", "sampled softmax"
PEERS = (LINEAR, ADAPTIVE, SAMPLED)
HEADER = [
    "classes", "head", "hidden", "parameters", "build s", "step ms", "peak MiB", "x linear",
]  # fmt: skip


class Setting(NamedTuple):
    """What one process measures."""

    n_classes: int
    row: str
    hidden: int
    device: str


def run(
    *,
    sizes: Sequence[int],
    hidden: Sequence[int],
    memory_gib: float,
    csv_path: Path | None,
    only: str | None = None,
    rows: Sequence[str] | None = None,
    loss_rounds: int = 60,
) -> None:
    """Print the tables, of all devices or one; with `csv_path`, write the first as CSV too.

    The loss alone is timed for so many rounds, of which a sixth is warming up.
    """
    from labelmapping.experiments.tables import machine, markdown_table

    known = (*PEERS, *CODES, CLASS)
    if unknown := [row for row in rows or () if row not in known]:
        raise ArgumentError(f"rows must be of {', '.join(map(repr, known))}, got {unknown[0]!r}")
    chosen = [row for row in known if rows is None or row in rows]
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if only is not None:
        devices = [only]
    lines = []
    for device in devices:
        card = f", {torch.cuda.get_device_name()}" if device == "cuda" else ""
        print(f"{machine()}; {device}{card}\n")  # noqa: T201
        for n_classes in sizes:
            for width in hidden:
                found = _measured(n_classes, width, device, memory_gib, chosen)
                lines += found
                for line in found:
                    print(" | ".join(line), flush=True)  # noqa: T201
    print("\n" + markdown_table((HEADER, lines)))  # noqa: T201
    for device in devices:
        print("\n" + markdown_table(loss_table(device, loss_rounds)))  # noqa: T201
    if csv_path is not None:
        with csv_path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *lines])


def _measured(
    n_classes: int, hidden: int, device: str, memory_gib: float, rows: Sequence[str]
) -> list[list[str]]:
    """The lines of one N and hidden width; what would not fit says how much it needs."""
    lines, linear = [], None
    for row in rows:
        setting = Setting(n_classes, row, hidden, device)
        least = parameters(setting) * 4 * COPIES / 2**30
        if least > memory_gib:
            needs = f"needs {least:,.2g} GiB" if least < 1 else f"needs {least:,.0f} GiB"
            lines.append(
                [f"{n_classes:,}", row, str(hidden), f"{parameters(setting):,}", *needs_of(needs)]
            )
            continue
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.head", json.dumps(setting._asdict())],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        if row == LINEAR:
            linear = found["step"]
        lines.append([
            f"{n_classes:,}", row, str(hidden), f"{found['parameters']:,}", f"{found['build']:.2f}",
            f"{1000 * found['step']:.1f}", f"{found['peak']:,.0f}",
            "-" if linear is None else f"{found['step'] / linear:.3g}",
        ])  # fmt: skip
    return lines


def needs_of(text: str) -> list[str]:
    """The cells of a row that does not fit."""
    return ["-", "-", text, "-"]


def parameters(setting: Setting) -> int:
    """How many numbers the row's output and hidden layer have; of adaptive softmax about."""
    width = setting.hidden or WIDTH
    below = WIDTH * setting.hidden + 2 * setting.hidden
    if setting.row in (LINEAR, SAMPLED):
        return below + (width + 1) * setting.n_classes
    if setting.row == ADAPTIVE:
        with torch.device("meta"):
            head = AdaptiveSoftmaxHead(WIDTH, setting.n_classes, hidden=setting.hidden)
        return sum(p.numel() for p in head.parameters())
    return below + (width + 1) * sum(code_of(setting).alphabet_sizes)


def code_of(setting: Setting) -> MixedMapping:
    """The code of a row."""
    n_sites, dimension = CODES[setting.row.partition(",")[0]]
    return MixedMapping(setting.n_classes, n_sites=n_sites, dimension=dimension)


def build(setting: Setting) -> ClassHead:
    """The row's head, with weights from torch's global random state."""
    options: dict[str, Any] = {"hidden": setting.hidden, "device": setting.device}
    if setting.row == ADAPTIVE:
        return AdaptiveSoftmaxHead(WIDTH, setting.n_classes, **options)
    if setting.row == SAMPLED:
        return NegativeSamplingHead(
            WIDTH,
            setting.n_classes,
            n_negatives=NEGATIVES,
            noise="log-uniform",
            objective="softmax",
            **options,
        )
    if setting.row == CLASS:
        options["normalization"] = "class"
    return LabelMappingHead(WIDTH, code_of(setting), **options)


class LinearSoftmax(nn.Module):
    """What people write: a linear layer and ``F.cross_entropy``."""

    def __init__(self, n_classes: int, hidden: int, device: str) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if hidden:
            layers = [nn.Linear(WIDTH, hidden, bias=False), nn.LayerNorm(hidden), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden or WIDTH, n_classes))
        self.to(device)

    def forward(self, features: Tensor, target: Tensor) -> Tensor:
        """The mean loss."""
        return F.cross_entropy(self.layers(features), target)


def measure(setting: Setting) -> dict[str, float]:
    """One row: parameters, seconds to build and of a step (median), MiB above the start."""
    torch.manual_seed(0)
    device = torch.device(setting.device)
    _steps(LabelMappingHead(WIDTH, MixedMapping(100, n_sites=3), device=device), 100, 1)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    before, started = peak_mib(), _now(device)
    head: nn.Module
    if setting.row == LINEAR:
        head = LinearSoftmax(setting.n_classes, setting.hidden, setting.device)
    else:
        head = build(setting)
    built = _now(device) - started
    times = _steps(head, setting.n_classes, WARM_UP + STEPS)[WARM_UP:]
    peak = (
        (torch.cuda.max_memory_allocated() - held) / 2**20
        if device.type == "cuda"
        else peak_mib() - before
    )
    return {
        "parameters": sum(p.numel() for p in head.parameters()),
        "build": built,
        "step": statistics.median(times),
        "peak": peak,
    }


def _steps(head: nn.Module, n_classes: int, count: int) -> list[float]:
    """Seconds of steps on random rows; stops early, with WARM_UP + 3 of them, when time is up."""
    device = next(head.parameters()).device
    optimizer = torch.optim.Adam(head.parameters())
    features = torch.randn(ROWS, WIDTH, device=device, requires_grad=True)
    times: list[float] = []
    while len(times) < count and (sum(times) < PATIENCE or len(times) < WARM_UP + 3):
        target = torch.randint(n_classes, (ROWS,), device=device)
        started = _now(device)
        found = head(features, target)
        (found if isinstance(found, Tensor) else found.loss).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(_now(device) - started)
    return times


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def loss_table(device: str, rounds: int) -> tuple[list[str], list[list[str]]]:
    """The loss alone, forward and backward: one fused pass, and a cross-entropy per site."""
    header = ["device", "sites", "q", "rows", "plain ms", "ours ms", "ours / plain"]
    lines = []
    for n_sites, order, n_rows in [(4, 181, 256), (4, 1009, 256), (8, 257, 256), (4, 1009, 4096)]:
        mapping = SimplexMapping(order * order, n_sites, field_order=order)
        encoder = CodewordEncoder(mapping, device=device)
        torch.manual_seed(0)
        logits = torch.randn(n_rows, n_sites * order, device=device, requires_grad=True)
        target = torch.randint(mapping.n_classes, (n_rows,), device=device)

        def plain(
            logits: Tensor = logits, target: Tensor = target, encoder: CodewordEncoder = encoder
        ) -> Tensor:
            symbols = encoder(target)
            parts = torch.split(logits, encoder.sizes, dim=1)
            return torch.stack(
                [F.cross_entropy(p, symbols[:, i]) for i, p in enumerate(parts)]
            ).sum()

        def ours(
            logits: Tensor = logits, target: Tensor = target, encoder: CodewordEncoder = encoder
        ) -> Tensor:
            return label_mapping_cross_entropy(logits, target, encoder)

        seconds: dict[str, list[float]] = {"plain": [], "ours": []}
        calls: list[tuple[str, Callable[[], Tensor]]] = [("plain", plain), ("ours", ours)]
        for _ in range(rounds):  # in turns, so that other work on the machine meets both
            for name, call in calls:
                started = _now(logits.device)
                torch.autograd.grad(call(), logits)
                seconds[name].append(_now(logits.device) - started)
        a, b = (
            1000 * statistics.median(seconds[name][rounds // 6 :]) for name in ("plain", "ours")
        )
        lines.append([
            device, str(n_sites), str(order), f"{n_rows:,}", f"{a:.2f}", f"{b:.2f}", f"{b / a:.2f}",
        ])  # fmt: skip
    return header, lines


if __name__ == "__main__":
    print(json.dumps(measure(Setting(**json.loads(sys.argv[1])))))  # noqa: T201
