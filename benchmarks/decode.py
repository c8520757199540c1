"""Exact top-k among N classes: the search beside a scan, a gather with a table, a dense product.

One row at a time on one thread (median and 99th percentile), and batches on all cores. The
peers answer the same question in the same process; ratios are what to read.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numba import config
from numpy.typing import NDArray

from labelmapping import MixedMapping, decode_topk
from labelmapping.decoding import search
from labelmapping.experiments.tables import machine, markdown_table
from labelmapping.learners import Ensemble, RunFolder

Arrays = list[NDArray[np.float32]]
HEADER = [
    "N", "sites", "log-probs", "top", "search ms", "p99 ms", "scan ms", "gather ms", "dense ms",
    "scan / search", "classes scored %", "by bound", "extra MiB", "all cores, ms a row",
]  # fmt: skip
# Above these a peer's table does not fit beside the rest: N x n int32, N x 512 float32.
LARGEST_TABLE, LARGEST_DENSE, WIDTH = 3_000_000, 1_000_000, 512
BUDGET_S = 1.5


def run(*, full: bool, csv_path: Path | None, demo_run: Path | None) -> None:
    """Print a Markdown table; with `csv_path`, write it as CSV too."""
    sizes = (10**4, 10**6, 2_200_000, 10**8) if full else (10**4, 10**6, 10**8)
    sites = (3, 4, 6, 8) if full else (3, 4, 8)
    answers = (1, 10, 100) if full else (1, 10)
    print(f"{machine()}; numba threads {config.NUMBA_NUM_THREADS}\n")  # noqa: T201
    lines = []
    for n_classes in sizes:
        for n_sites in sites:
            mapping = MixedMapping(n_classes, n_sites=n_sites)
            for style in ("peaked", "flat"):
                arrays = draw(mapping, 24, style)
                lines += [measure(mapping, arrays, style, k) for k in answers]
                print(" ".join(lines[-1]), flush=True)  # noqa: T201
    if demo_run is not None:
        mapping, arrays = trained(demo_run)
        lines += [measure(mapping, arrays, "trained CJK", k) for k in answers]
    print("\n" + markdown_table((HEADER, lines)))  # noqa: T201
    if csv_path is not None:
        csv_path.parent.mkdir(parents=True, exist_ok=True)
        with csv_path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *lines])


def draw(mapping: MixedMapping, n_rows: int, style: str) -> Arrays:
    """Log-softmax of normal noise; "peaked" with 8 added to the symbols of one class a row."""
    rng = np.random.default_rng([mapping.n_classes, mapping.n_sites])
    words = mapping.encode(rng.integers(0, mapping.n_classes, n_rows))
    arrays = []
    for site, size in enumerate(mapping.alphabet_sizes):
        values = rng.normal(size=(n_rows, size))
        if style == "peaked":
            values[np.arange(n_rows), words[:, site]] += 8
        values -= np.log(np.exp(values).sum(axis=1, keepdims=True))
        arrays.append(values.astype(np.float32))
    return arrays


def trained(demo_run: Path) -> tuple[MixedMapping, Arrays]:
    """The mixed code of a demo run and what its network says of the held-out characters."""
    from labelmapping.datasets.cjk import CLASS_SETS, load_cjk

    run_folder = RunFolder.load(demo_run / "mixed")
    labels = "".join(run_folder.labels)
    class_set = next(name for name, characters in CLASS_SETS.items() if characters == labels)
    ensemble = Ensemble.load(run_folder.path)
    images = torch.from_numpy(load_cjk(class_set).test_images[:24])
    assert isinstance(ensemble.mapping, MixedMapping)
    return ensemble.mapping, ensemble.site_log_probs(images)


def measure(mapping: MixedMapping, arrays: Arrays, style: str, k: int) -> list[str]:
    """One line of the table."""
    n_rows = len(arrays[0])
    rows = [[array[r : r + 1] for array in arrays] for r in range(n_rows)]
    threads, config.NUMBA_NUM_THREADS = config.NUMBA_NUM_THREADS, 1
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        decode_topk(mapping, rows[0], k)  # compiled and warm
        extra = extra_memory(lambda: decode_topk(mapping, rows[0], k))
        searched = timings(lambda r: decode_topk(mapping, rows[r], k), n_rows)
        scan = timings(lambda r: scan_row(mapping, rows[r], k), n_rows)
        gather = gather_peer(mapping, rows, k)
        dense = dense_peer(mapping.n_classes, n_rows, k)
    finally:
        config.NUMBA_NUM_THREADS = threads
        torch.set_num_threads(torch_threads)
    answer = decode_topk(mapping, arrays, k)
    started = time.perf_counter()
    decode_topk(mapping, arrays, k)
    batch = (time.perf_counter() - started) / n_rows
    return [
        f"{mapping.n_classes:,}",
        str(mapping.n_sites),
        style,
        str(k),
        f"{1e3 * np.median(searched):.3f}",
        f"{1e3 * np.percentile(searched, 99):.3f}",
        f"{1e3 * np.median(scan):.3f}",
        "-" if gather is None else f"{1e3 * np.median(gather):.3f}",
        "-" if dense is None else f"{1e3 * np.median(dense):.3f}",
        f"{np.median(scan) / np.median(searched):.1f}",
        f"{100 * np.median(answer.n_scored) / mapping.n_classes:.4f}",
        f"{np.mean(answer.certified_by == 'bound'):.2f}",
        f"{extra:.1f}",
        f"{1e3 * batch:.3f}",
    ]


def timings(call: Callable[[int], object], n_rows: int) -> list[float]:
    """Seconds of each row, until the budget is spent; at least three rows."""
    found: list[float] = []
    while len(found) < 3 or (len(found) < n_rows and sum(found) < BUDGET_S):
        started = time.perf_counter()
        call(len(found))
        found.append(time.perf_counter() - started)
    return found


def scan_row(mapping: MixedMapping, row: Arrays, k: int) -> object:
    """The streaming scan through the same call: every class, in blocks, no table."""
    few, search.FEW_CLASSES = search.FEW_CLASSES, mapping.n_classes
    try:
        return decode_topk(mapping, row, k)
    finally:
        search.FEW_CLASSES = few


def gather_peer(mapping: MixedMapping, rows: list[Arrays], k: int) -> list[float] | None:
    """What MACH-like decoders do: a class table, a gather a site, a sum, torch's topk."""
    if mapping.n_classes > LARGEST_TABLE:
        return None
    table = torch.from_numpy(mapping.encode(np.arange(mapping.n_classes)).T.astype(np.int32)).long()

    def call(r: int) -> object:
        scores = torch.zeros(mapping.n_classes)
        for site, column in enumerate(table):
            scores += torch.from_numpy(rows[r][site][0])[column]
        return scores.topk(k)

    call(0)
    return timings(call, len(rows))


def dense_peer(n_classes: int, n_rows: int, k: int) -> list[float] | None:
    """One-hot: features of width 512 times all class vectors, torch's topk."""
    if n_classes > LARGEST_DENSE:
        return None
    weight, features = torch.randn(n_classes, WIDTH), torch.randn(n_rows, WIDTH)

    def call(r: int) -> object:
        return (weight @ features[r]).topk(k)

    call(0)
    return timings(call, n_rows)


def extra_memory(call: Callable[[], object]) -> float:
    """How far the process's memory rises during a call, in MiB (Linux; else nan)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the peak
        before = _memory("VmRSS")
        call()
        return (_memory("VmHWM") - before) / 1024
    except OSError:
        return float("nan")


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
