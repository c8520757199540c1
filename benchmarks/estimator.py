"""`LabelMappingClassifier` beside scikit-learn's meta-classifiers, its learners alone, and trees.

Data sets: Omniglot (gradient histograms, their first principal components), next items of the
Beauty log (sparse rows: a user's last items, the nearer the heavier), and the synthetic classes of
`linear` with string labels. Up to 2,000 held-out rows are drawn and answered.

Every row runs in its own process, so its peak of memory is its own, with one thread.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse
from sklearn.datasets import dump_svmlight_file
from sklearn.decomposition import PCA

from labelmapping.datasets.omniglot import load_omniglot
from labelmapping.datasets.sequences import PADDING, load_sequences
from labelmapping.experiments.tables import machine, markdown_table

from . import linear
from .linear import Rival, Row, measured

HERE = Path(__file__).parent
OURS = HERE / "estimator_row.py"
ANSWERED, TOP = 2000, 10
COMPONENTS, HISTORY = 128, 20
# Bits of OutputCodeClassifier beside its default, 1.5 N.
BITS = 200
NAIVE_BAYES = {"alpha": 0.01}
PERCEPTRON = {"hidden": 512, "epochs": 10, "dropout": 0.2}
# The best settings found for `linear`, and the defaults; searched anew for nothing else.
RIVALS = {
    name: Rival(
        linear.RIVALS[name].script,
        {title: {**linear.RIVALS[name].settings[title], "top_k": TOP} for title in titles},
    )
    for name, titles in (
        ("omikuji", ("omikuji", "omikuji, tuned")),
        ("napkinxc", ("napkinXC PLT", "napkinXC, tuned")),
    )
}
HEADER = [
    "data", "classes", "seed", "row", "code", "top-1", "top-10", "fit s", "predict s", "top-10 s",
    "start MiB", "fit MiB", "peak MiB", "limit s",
]  # fmt: skip
RATIOS = ["data", "seed", "row", "top-1", "fit s", "predict s", "MiB above start"]


class Data(NamedTuple):
    """Training and held-out rows, their class ids, and the labels of the classes."""

    rows: Any
    ids: NDArray[np.int64]
    held_out: Any
    held_out_ids: NDArray[np.int64]
    labels: NDArray[Any]


def run(
    *,
    sets: Sequence[str],
    seeds: Sequence[int],
    rows: Sequence[str] | None,
    rivals: Mapping[str, str],
    limit: int,
    data_dir: Path | None,
    csv_path: Path | None,
) -> None:
    """Print tables; with `csv_path`, write the first as CSV too. `rivals` has a Python for each.

    `limit`: CPU seconds that a row may take.
    """
    for name in sets:
        if name not in SETS:
            raise SystemExit(f"--data must be among {', '.join(SETS)}; got {name!r}")
    for name, python in rivals.items():
        if name not in RIVALS or not python:
            raise SystemExit(
                f"--rival must be NAME=PYTHON, NAME of {', '.join(RIVALS)}; got {name!r}"
            )
    print(f"{machine()}; one thread a row; seconds are CPU seconds\n")  # noqa: T201
    for name in RIVALS:
        if name not in rivals:
            print(f"{name} is left out: no --rival {name}=PYTHON")  # noqa: T201
    lines: list[list[str]] = []
    ratios: list[list[str]] = []
    for name in sets:
        for seed in seeds:
            results = {}
            with tempfile.TemporaryDirectory() as folder:
                data = SETS[name].load(data_dir, seed)
                write(Path(folder), data, text="omikuji" in rivals)
                n_classes = len(data.labels)
                del data
                for row in planned(name, seed, rivals):
                    if rows and row.name not in rows:
                        continue
                    result = measured(row, Path(folder), limit)
                    results[row.name] = result
                    lines.append(line(name, n_classes, seed, row, result, limit))
                    print(" | ".join(lines[-1]), flush=True)  # noqa: T201
                    if csv_path is not None:  # at once: a run takes long
                        with csv_path.open("w", encoding="utf-8", newline="") as file:
                            csv.writer(file, lineterminator="\n").writerows([HEADER, *lines])
            ratios += compared(name, seed, results)
    print("\n" + markdown_table((HEADER, lines)))  # noqa: T201
    print("\nEach row's figures over those of the first of its data\n")  # noqa: T201
    print(markdown_table((RATIOS, ratios)))  # noqa: T201


def omniglot(data_dir: Path | None, seed: int) -> Data:
    """1,623 characters, 16 drawings each to train and 4 to test, by other drawers."""
    from .omniglot import gradient_histograms  # torch comes with it

    drawings = load_omniglot(data_dir=data_dir)
    rows = gradient_histograms(drawings.train_images)
    centre, spread = rows.mean(axis=0), rows.std(axis=0) + np.float32(1e-3)
    components = PCA(COMPONENTS, random_state=seed).fit((rows - centre) / spread)
    held_out = gradient_histograms(drawings.held_out_images)
    train, test = (
        components.transform((some - centre) / spread).astype(np.float32)
        for some in (rows, held_out)
    )
    return drawn(
        Data(train, drawings.train_ids, test, drawings.held_out_ids, np.array(drawings.labels)),
        seed,
    )


def beauty(data_dir: Path | None, seed: int) -> Data:
    """The next item after each of a user's, and the last one to test; weights 1/age."""
    log = load_sequences("Beauty", data_dir=data_dir)

    def bags(part: str) -> tuple[csr_matrix, NDArray[np.int64]]:
        histories, following = log.windows(part, HISTORY)
        users, places = np.nonzero(histories != PADDING)
        weights = (1 / (HISTORY - places)).astype(np.float32)
        found = csr_matrix(
            (weights, (users, histories[users, places])), shape=(len(histories), log.n_items)
        )
        return found, following

    rows, ids = bags("train")
    held_out, truth = bags("test")
    labels = np.array([f"item {i:05d}" for i in range(log.n_items)])
    return drawn(Data(rows, ids, held_out, truth, labels), seed)


def synthetic(
    n_classes: int,
    *,
    width: int = linear.WIDTH,
    rows_each: int = linear.ROWS,
    noise: float = linear.NOISE,
) -> Callable[[Path | None, int], Data]:
    """Random unit vectors, as in `linear`, under labels of 14 characters."""

    def load(data_dir: Path | None, seed: int) -> Data:
        del data_dir
        rows, ids, held_out = linear.draw(
            n_classes, seed, width=width, rows_each=rows_each, noise=noise
        )
        labels = np.array([f"class {i:08d}" for i in range(n_classes)])
        return drawn(Data(rows, ids, held_out, np.arange(n_classes), labels), seed)

    return load


def drawn(data: Data, seed: int) -> Data:
    """With `ANSWERED` of the held-out rows at most."""
    count = data.held_out.shape[0]
    if count <= ANSWERED:
        return data
    kept = np.sort(np.random.default_rng(seed).choice(count, ANSWERED, replace=False))
    return data._replace(held_out=data.held_out[kept], held_out_ids=data.held_out_ids[kept])


class DataSet(NamedTuple):
    """How a data set is loaded, and its learners: the first is compared with all peers."""

    load: Callable[[Path | None, int], Data]
    learners: Mapping[str, Mapping[str, Any]]
    codes: Sequence[Mapping[str, Any]]
    peers: Sequence[str]


PEERS: dict[str, dict[str, Any]] = {
    " alone": {"how": "own"},
    f", output code of {BITS} bits": {"how": "output code", "bits": BITS},
    ", output code": {"how": "output code"},
    ", one vs rest": {"how": "one vs rest"},
}
LINEAR_LEARNERS = {"LDA": {}, "perceptron": PERCEPTRON}
CODES = ({"mapping": "auto"}, {"mapping": "simplex"})
SETS = {
    "omniglot": DataSet(omniglot, LINEAR_LEARNERS, CODES, tuple(PEERS)),
    "beauty": DataSet(beauty, {"MultinomialNB": NAIVE_BAYES}, CODES, tuple(PEERS)),
    "2,000": DataSet(synthetic(2000), LINEAR_LEARNERS, CODES, tuple(PEERS)),
    "10,000": DataSet(synthetic(10_000), LINEAR_LEARNERS, CODES, tuple(PEERS)),
    "100,000": DataSet(
        synthetic(100_000), {"LDA": {}}, ({"mapping": "auto", "n_sites": 4},), tuple(PEERS)
    ),
    "1,000,000": DataSet(
        synthetic(1_000_000, width=32, rows_each=1, noise=0.03),
        {"LDA": {}},
        ({"mapping": "simplex"}, {"mapping": "learned", "n_sites": 2}),
        (" alone",),
    ),
}


def planned(name: str, seed: int, rivals: Mapping[str, str]) -> Iterator[Row]:
    """The rows of one data set."""
    chosen = SETS[name]

    def ours(title: str, learner: str, how: str, **settings: Any) -> Row:
        settings |= {"learner": learner, "params": dict(chosen.learners[learner]), "seed": seed}
        return Row(title, sys.executable, OURS, {"how": how, **settings})

    first = next(iter(chosen.learners))
    for learner in chosen.learners:
        for code in chosen.codes:
            yield ours(f"{learner}, {code['mapping']}", learner, "estimator", **code)
        if learner != first:
            yield ours(f"{learner} alone", learner, "own")
    for peer in chosen.peers:
        yield ours(f"{first}{peer}", first, **PEERS[peer])
    for rival, python in rivals.items():
        for title, settings in RIVALS[rival].settings.items():
            yield Row(title, python, RIVALS[rival].script, settings)


def write(folder: Path, data: Data, *, text: bool) -> None:
    """data.npz, and with `text` train.txt and held_out.txt in the format of the XC repository."""
    arrays: dict[str, Any] = {
        "ids": data.ids,
        "held_out_ids": data.held_out_ids,
        "labels": data.labels,
    }
    for name, some in (("rows", data.rows), ("held_out", data.held_out)):
        if issparse(some):
            for part in ("data", "indices", "indptr", "shape"):
                arrays[f"{name}_{part}"] = np.asarray(getattr(some, part))
        else:
            arrays[name] = some
    np.savez(folder / "data.npz", **arrays)
    if not text:
        return
    for name, some, ids in (
        ("train.txt", data.rows, data.ids),
        ("held_out.txt", data.held_out, data.held_out_ids),
    ):
        with (folder / name).open("wb") as file:
            file.write(f"{some.shape[0]} {some.shape[1]} {len(data.labels)}\n".encode())
            dump_svmlight_file(some, ids, file)


def line(
    name: str,
    n_classes: int,
    seed: int,
    row: Row,
    result: Mapping[str, Any] | None,
    limit: int,
) -> list[str]:
    """A line of the table."""
    start = [name, f"{n_classes:,}", str(seed), row.name]
    if result is None or "failed" in result:
        why = "memory" if result else "memory or time"
        return [*start, "-", f"did not finish: {why}", *["-"] * 7, str(limit)]
    code = "-"
    if "code" in result:
        code = f"{result['code']}, {result['sites']} of {result['q']}"
    top = result.get("top_10", result.get("top_k"))
    return [
        *start,
        code,
        f"{100 * result['held_out']:.1f}",
        "-" if top is None else f"{100 * top:.1f}",
        f"{result.get('fit', result.get('train')):.1f}",
        f"{result['predict']:.2f}",
        f"{result['top_s']:.2f}" if "top_s" in result else "-",
        *(f"{result[n]:.0f}" if n in result else "-" for n in ("start_mib", "fit_mib", "peak_mib")),
        str(limit),
    ]


def compared(
    name: str, seed: int, results: Mapping[str, Mapping[str, Any] | None]
) -> list[list[str]]:
    """Each finished row's figures over those of the first."""

    def figures(result: Mapping[str, Any]) -> list[float]:
        return [
            result["held_out"],
            result.get("fit", result.get("train", 0.0)),
            result["predict"],
            result["peak_mib"] - result["start_mib"],
        ]

    done = {
        row: figures(result) for row, result in results.items() if result and "failed" not in result
    }
    if not done:
        return []
    base = next(iter(done.values()))
    return [
        [
            name,
            str(seed),
            row,
            *(f"{a / b:.2f}" if b else "-" for a, b in zip(mine, base, strict=True)),
        ]
        for row, mine in done.items()
    ]
