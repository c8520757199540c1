"""What lost learners cost: separate learners of CJK characters, with fewer and fewer of them.

Each site is a network of its own (small CNN, hidden layer of 512, one face of eight held out).
Every choice of sites is decoded; the table has the mean over the choices and the worst one. A
hashed code of equal heads stands beside the others, decoded like them and by MACH's averages.
Interrupted runs go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelmapping import HashedMapping, LabelMapping, LearnedMapping, SimplexMapping
from labelmapping.datasets.cjk import load_cjk
from labelmapping.experiments.demo import learning_data
from labelmapping.experiments.evaluation import SiteAnswers, answer
from labelmapping.experiments.tables import machine, write_results
from labelmapping.learners import Ensemble, LearnerRecipe, LearningData, train
from labelmapping.mappings import class_means

FIELD, SITES, FEWEST = 67, 8, 2
ROWS = 512  # scored at a time
HEADER = [
    "code", "decoded by", "of sites", "left", "choices", "top-1 mean", "worst", "points lost",
]  # fmt: skip


def _learned(data: LearningData, seed: int) -> LabelMapping:
    rows = [(data.train_inputs.numpy(), data.train_ids.numpy())]
    means = class_means(rows, data.n_classes)
    return LearnedMapping.fit(means, SITES, alphabet_size=FIELD, seed=seed)


CODES: dict[str, Callable[[LearningData, int], LabelMapping]] = {
    "simplex": lambda data, _: SimplexMapping(data.n_classes, SITES, field_order=FIELD),
    "learned": _learned,
    "hashed": lambda data, seed: HashedMapping(data.n_classes, SITES, FIELD, seed=seed),
}


def run(
    *,
    class_set: str,
    steps: int,
    seed: int,
    rows: Sequence[str] | None,
    folder: Path | None,
) -> None:
    """Train what is missing, print a table, and write it into the run folder."""
    for name in rows or ():
        if name not in CODES:
            raise SystemExit(f"--rows must be among {', '.join(CODES)}; got {name!r}")
    folder = folder or Path(f"runs/erasures-{class_set}-{steps}")
    characters = load_cjk(class_set)
    data = learning_data(characters)
    lines: list[list[str]] = []
    for name in rows or CODES:
        mapping = CODES[name](data, seed)
        done = train(recipe(mapping, steps), data, folder / name, seed=seed)
        ensemble = Ensemble.load(done.path)
        answers = answer(ensemble, data.held_out_inputs, data.held_out_ids)
        accuracies = " ".join(f"{100 * a:.0f}" for a in answers.site_accuracies())
        print(f"{name}: {ensemble.parameters:,} parameters, sites {accuracies}")  # noqa: T201
        lines += table(name, answers)
        for line in lines[-len(table_sizes(mapping)) :]:
            print(" | ".join(line), flush=True)  # noqa: T201
    results: dict[str, Any] = {
        "experiment": f"{class_set}: {data.n_classes} classes, held-out face "
        f"{characters.test_face}; {steps} steps a learner, seed {seed}",
        "machine": machine(),
        "rows": lines,
    }
    write_results(folder, results, (HEADER, lines))


def recipe(mapping: LabelMapping, steps: int) -> LearnerRecipe:
    """Separate learners, each a small CNN."""
    return LearnerRecipe(
        mapping=mapping,
        trunk="labelmapping.nn:SmallCnn",
        trunk_options={"side": 24},
        head_options={"hidden": 512},
        epochs=1,
        steps_per_epoch=steps,
        batch_size=128,
        learning_rate=3e-3,
        schedule="one-cycle",
    )


def table_sizes(mapping: LabelMapping) -> list[tuple[int, int, str]]:
    """Lines of a code's table: sites there were, sites left, and how it is decoded."""
    decoders = ["log-probs", "averages"] if mapping.kind == "hashed" else ["log-probs"]
    return [
        (n, left, how)
        for how in decoders
        for n in (SITES, SITES - 2)
        for left in range(n, FEWEST - 1, -1)
    ]


def table(name: str, answers: SiteAnswers) -> list[list[str]]:
    """The lines of one code: every choice of sites among the first `n`, decoded."""
    known: dict[tuple[str, tuple[int, ...]], float] = {}
    codewords = answers.mapping.encode(np.arange(answers.mapping.n_classes))

    def top1(how: str, sites: tuple[int, ...]) -> float:
        if (how, sites) not in known:
            known[how, sites] = share_right(answers, codewords, sites, how == "averages")
        return known[how, sites]

    lines = []
    for n, left, how in table_sizes(answers.mapping):
        found = [100 * top1(how, sites) for sites in combinations(range(n), left)]
        whole = 100 * top1(how, tuple(range(n)))
        lines.append([
            name, how, str(n), str(left), str(len(found)), f"{np.mean(found):.1f}",
            f"{min(found):.1f}", f"{whole - np.mean(found):.1f}",
        ])  # fmt: skip
    return lines


def share_right(
    answers: SiteAnswers, codewords: NDArray[np.int64], sites: tuple[int, ...], averages: bool
) -> float:
    """Top-1 by all classes' scores, sums of log-probs or, MACH's way, of probabilities.

    By a scan, ties to the lower id: `decode_topk` refuses sites that may not tell classes apart,
    and of a hashed code that is any but all.
    """
    right = 0
    for start in range(0, len(answers.ids), ROWS):
        scores = np.zeros((len(answers.ids[start : start + ROWS]), len(codewords)), np.float32)
        for site in sites:
            part = answers.log_probs[site][start : start + ROWS]
            scores += (np.exp(part) if averages else part)[:, codewords[:, site]]
        right += int((scores.argmax(axis=1) == answers.ids[start : start + ROWS]).sum())
    return right / len(answers.ids)
