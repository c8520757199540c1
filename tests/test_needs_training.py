"""Training, saving and resuming as reported failures demand it; ids are rows of NEEDS.

N15 and N62 on Ray are in ``test_ray.py``, one and three processes in ``test_executors.py``, N18 in
``test_strategies.py``; more of N57, N67, N68 and N70 in ``test_learners.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labelmapping import MixedMapping, SimplexMapping
from labelmapping.errors import DivergedError, RunMismatchError
from labelmapping.learners import (
    Ensemble,
    LearnerRecipe,
    LearningData,
    ProcessExecutor,
    RunFolder,
    SerialExecutor,
    train,
)
from labelmapping.learners.data import LearningSource
from labelmapping.learners.executors import LearnerTask, Outcome

from .conftest import make_task
from .golden.make_golden_run import KEPT, write_weights
from .test_executors import RECIPE, weights

ROOT = Path(__file__).parents[1]
FOUR_SITES = replace(RECIPE, mapping=SimplexMapping(30, 4, field_order=7))


def run_python(code: str, *arguments: object) -> str:
    """What Python code in a new process prints."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_N62_equal_seeds_give_the_same_weights_in_one_process_and_in_four(
    task: LearningData, tmp_path: Path
) -> None:
    train(FOUR_SITES, task, tmp_path / "serial", seed=3)
    serial = weights(tmp_path / "serial")
    train(FOUR_SITES, task, tmp_path / "again", seed=3)  # twice in one process
    assert weights(tmp_path / "again") == serial
    train(FOUR_SITES, task, tmp_path / "four", seed=3, executor=ProcessExecutor(4))
    assert weights(tmp_path / "four") == serial
    train(FOUR_SITES, task, tmp_path / "other", seed=4, learners=[2])
    assert not weights(tmp_path / "other").items() <= serial.items()


def test_N57_one_learner_of_eight_diverges_and_seven_stay(
    task: LearningData, tmp_path: Path
) -> None:
    """Site 2 gets a learning rate of 10^4 and more; the others that of the recipe."""

    class Wild:
        def run(self, tasks: Sequence[LearnerTask], data: LearningSource) -> Iterator[Outcome]:
            for one in tasks:
                wild = replace(one.recipe, learning_rate=1e30)
                mine = replace(one, recipe=wild) if one.learner == 2 else one
                yield from SerialExecutor().run([mine], data)

    eight = replace(
        RECIPE, mapping=SimplexMapping(30, 8, field_order=7), schedule="constant", epochs=1
    )
    with pytest.raises(DivergedError, match=r"^learner site-02: .* step \d+"):
        train(eight, task, tmp_path, executor=Wild())
    run = RunFolder.load(tmp_path)
    assert run.finished() == [0, 1, 3, 4, 5, 6, 7]
    ensemble = Ensemble.load(tmp_path)
    assert ensemble.sites == (0, 1, 3, 4, 5, 6, 7)
    assert all(np.isfinite(p).all() for p in ensemble.site_log_probs(task.held_out_inputs))


class TensorSizes(TorchDispatchMode):
    """Notes the elements of every tensor that an operator gives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.largest = max([self.largest, *sizes])
        return result


def test_N52_learners_make_no_matrix_of_rows_and_classes(tmp_path: Path) -> None:
    n_classes, n = 5000, 20_000
    ids = torch.arange(n) % n_classes
    rows = torch.zeros(n, 2)
    data = LearningData(rows, ids, rows[:64], ids[:64], [str(x) for x in range(n_classes)])
    recipe = LearnerRecipe(
        mapping=MixedMapping(n_classes, [71, 73]),
        trunk="torch.nn:Linear",
        trunk_options={"in_features": 2, "out_features": 2},
        epochs=1,
        batch_size=64,
        steps_per_epoch=3,
    )
    with TensorSizes() as sizes:
        train(recipe, data, tmp_path, accelerator="cpu")
    # The bytes of the ids, for their checksum; targets are coded a batch at a time.
    assert sizes.largest <= 8 * n < 64 * n_classes


SAVING = """
import resource, sys
from pathlib import Path
import numpy as np
import torch
from labelmapping import SimplexMapping
from labelmapping.learners import LearnerRecipe
from labelmapping.learners.site import save_weights

def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def now():
    with open("/proc/self/status") as lines:
        return 1024 * int(next(line for line in lines if "VmRSS" in line).split()[1])

def network(width):
    mapping = SimplexMapping(30, 3, field_order=7)
    options = {"side": 8, "widths": [8], "out_features": width}
    head = {"hidden": width}
    recipe = LearnerRecipe(mapping=mapping, trunk="labelmapping.nn:SmallCnn",
        trunk_options=options, head_options=head, epochs=1, batch_size=2)
    return recipe.build(0, torch.ones(30))

path = Path(sys.argv[1])
save_weights(path, network(4))
large = network(5000)
weights = sum(p.nbytes for p in large.parameters())
ballast = np.ones(max(0, peak() - now()) // 8)  # so that the memory in use is at its peak
before = peak()
save_weights(path, large)
print(weights, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read as on Linux")
def test_N55_saving_a_learner_takes_little_memory_and_the_file_is_as_large_as_its_weights(
    tmp_path: Path,
) -> None:
    path = tmp_path / "weights.safetensors"
    size, extra = map(int, run_python(SAVING, path).split())
    assert size > 95e6
    assert extra < 0.5 * size
    assert size < path.stat().st_size < 1.02 * size


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A run folder as the first format has it."""
    files = json.loads(KEPT.read_text(encoding="utf-8"))["files"]
    for name, text in files.items():
        path = tmp_path / "golden" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    write_weights(tmp_path / "golden")
    return tmp_path / "golden"


def test_N68_a_run_of_the_first_format_is_read_and_answers_as_it_did(golden: Path) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    rows = torch.tensor(kept["rows"], dtype=torch.uint8)
    ensemble = Ensemble.load(golden)
    assert ensemble.predict(rows) == kept["predictions"]
    for found, expected in zip(ensemble.site_log_probs(rows), kept["site_log_probs"], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-3)
    assert Ensemble.load(golden, epoch=1).sites == (0, 1, 2)
    assert RunFolder.load(golden).report(0).epochs == 3


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (2, "format 2.*written by a newer"),
        ("1", r"run\.json is no record of a run"),
        (None, r"run\.json is no record of a run"),
        (0, r"run\.json is no record of a run"),
        (1.5, r"run\.json is no record of a run"),
    ],
)
def test_N68_a_format_that_is_not_known_is_refused_by_name(
    golden: Path, number: Any, message: str
) -> None:
    content = json.loads((golden / "run.json").read_text(encoding="utf-8"))
    (golden / "run.json").write_text(json.dumps(content | {"format": number}), encoding="utf-8")
    for read in (RunFolder.load, Ensemble.load):
        with pytest.raises(RunMismatchError, match=message):
            read(golden)


LABELS = """
import json, sys
import torch
from labelmapping.learners import Ensemble
kept = json.load(open(sys.argv[2], encoding="utf-8"))
rows = torch.tensor(kept["rows"], dtype=torch.uint8)
print(ascii(Ensemble.load(sys.argv[1]).predict(rows)))
"""


@pytest.mark.slow
def test_N70_labels_come_back_in_a_new_process(golden: Path) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    found = run_python(LABELS, golden, KEPT)
    assert found.strip() == ascii(kept["predictions"])
    assert len(set(kept["predictions"]) & {"甲", "乙", "丙", "01", "1 ", "é"}) >= 4


WITHOUT_GPU = """
import os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import torch
from labelmapping.learners import Ensemble
from tests.conftest import make_task
assert not torch.cuda.is_available()
answers = Ensemble.load(sys.argv[1]).site_log_probs(make_task().held_out_inputs)
np.save(sys.argv[2], np.stack(answers))
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("executor", [None, ProcessExecutor(1)], ids=["serial", "process"])
def test_N16_learners_of_a_gpu_answer_where_there_is_none(
    tmp_path: Path, executor: ProcessExecutor | None
) -> None:
    task = make_task()
    train(RECIPE, task, tmp_path / "run", accelerator="gpu", executor=executor)
    on_gpu = Ensemble.load(tmp_path / "run", device="cuda").site_log_probs(task.held_out_inputs)
    run_python(WITHOUT_GPU, tmp_path / "run", tmp_path / "answers.npy")
    np.testing.assert_allclose(np.load(tmp_path / "answers.npy"), np.stack(on_gpu), atol=1e-4)
