"""What several test files share: the data folder, and a small task that trains in seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from labelmapping.learners import LearningData

# Files that start Ray clusters: one of them at a time, since each wants the whole machine.
WITH_RAY = {"test_ray", "test_needs_training", "test_storage"}
ROOT = str(Path(__file__).parents[1])
# Processes that tests start find their classes, whichever process runs the tests.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes run the tests, one of them runs a file."""
    for item in items:
        name = "ray" if item.path.stem in WITH_RAY else str(item.path)
        item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors train faster on one thread, and to the same bits everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data; a test that needs it is skipped where there is none."""
    named = os.environ.get("LABELMAPPING_DATA")
    folder = Path(named) if named else SHARED_DATA
    if not folder.is_dir():
        pytest.skip(f"no data: LABELMAPPING_DATA is not set and there is no {SHARED_DATA.name}")
    return folder


def make_task(n_classes: int = 30, seed: int = 0) -> LearningData:
    """Noisy 8x8 pictures of random prototypes: 12 training rows a class and 4 held out."""
    generator = torch.Generator().manual_seed(seed)
    prototypes = torch.randint(0, 200, (n_classes, 8, 8), generator=generator)

    def rows(per_class: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.arange(n_classes).repeat(per_class)
        noise = torch.randint(0, 56, (len(ids), 8, 8), generator=generator)
        return (prototypes[ids] + noise).to(torch.uint8), ids

    return LearningData(*rows(12), *rows(4), [chr(0x7532 + i) for i in range(n_classes)])


@pytest.fixture(scope="session")
def task() -> LearningData:
    """The small task with 30 classes, labelled by CJK characters."""
    return make_task()
