"""CJK characters: tables 1 to 3. Rows are in ``configs/cjk``.

Images are drawn once and kept as bytes; a batch is gathered on the CPU and turned into
floats by the trunk, where that lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from ..datasets.cjk import characters as characters_of
from ..datasets.cjk import load_cjk
from ..errors import MissingExtraError
from ..learners import LearnerRecipe
from ..mappings import (
    EcocMapping,
    HashedMapping,
    LabelMapping,
    LearnedMapping,
    MixedMapping,
    SimplexMapping,
    class_statistics,
)
from .demo import learning_data
from .rows import Experiment, Figure, Profile, Task

__all__ = [
    "EXPERIMENT",
    "ecoc",
    "hashed",
    "learn_code",
    "mixed",
    "network",
    "one_hot",
    "simplex",
]

PRIMES = (149, 151, 157, 163, 167, 173, 179)
FIELD_ORDER = 181
JOINT_SITES = 4
ROWS = 4096
# Prototypes are means of images of this side at most.
PROTOTYPE_SIDE = 24

Code = Callable[[int], LabelMapping]


def simplex(n_sites: int) -> Code:
    """The simplex code of N classes: p = 181 for the paper's N, else the smallest prime."""
    return lambda n: SimplexMapping(n, n_sites, field_order=FIELD_ORDER if _is_paper(n) else None)


def mixed(n: int) -> LabelMapping:
    """The mixed code of N classes, 7 sites: the paper's primes for its N, else the smallest."""
    return MixedMapping(n, PRIMES) if _is_paper(n) else MixedMapping(n, n_sites=len(PRIMES))


def ecoc(n: int) -> LabelMapping:
    """The binary representation of N class ids: 15 bits for the paper's N."""
    return EcocMapping(n, "binary")


def hashed(n: int) -> LabelMapping:
    """Four hashes of N classes into as many symbols as the simplex code has."""
    return HashedMapping(n, JOINT_SITES, simplex(JOINT_SITES)(n).alphabet_sizes[0])


def one_hot(n: int) -> LabelMapping:
    """One site of N symbols."""
    return MixedMapping.one_hot(n)


def _is_paper(n_classes: int) -> bool:
    return n_classes == len(characters_of("uro-paper"))


def network(
    code: Code,
    *,
    head: str = "label-mapping",
    options: Mapping[str, Any] | None = None,
    joint: bool = False,
) -> Callable[[Profile], LearnerRecipe]:
    """The recipe of a code, or of a rival over one-hot, on the profile's trunk.

    A code's head has a hidden layer of 1,024 on the small CNN: with 128 features and none,
    arbitrary symbols are learnt slowly (docs/results/demo.md). On Inception, which has 2,048
    features, separate learners have none, as in the paper.
    """

    def recipe(profile: Profile) -> LearnerRecipe:
        small = profile.options["trunk"] == "SmallCnn"
        hidden = head == "label-mapping" and (small or joint)
        return LearnerRecipe(
            mapping=code(len(characters_of(profile.options["class_set"]))),
            trunk=f"labelmapping.nn:{profile.options['trunk']}",
            head=head,
            head_options={"hidden": 1024} if hidden else dict(options or {}),
            joint=joint,
            epochs=profile.epochs,
            steps_per_epoch=profile.steps,
            batch_size=128,
            learning_rate=profile.learning_rate,
            precision=profile.precision,
            schedule="one-cycle",
            keep_epochs=profile.measured,
        )

    return recipe


def learn_code(recipe: LearnerRecipe, task: Task, seed: int) -> LearnerRecipe:
    """The recipe with a code learnt from class means of the training images, as large as its own.

    Images are averaged down to 24 pixels and blurred by one; distances are in units of how
    the faces scatter.
    """
    images, ids = task.data.train_inputs, task.data.train_ids

    def batches() -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        for start in range(0, len(ids), ROWS):
            rows = slice(start, start + ROWS)
            yield _blurred(images[rows]), ids[rows].numpy()

    seen = class_statistics(batches(), task.data.n_classes)
    mapping = LearnedMapping.fit(
        seen.means,
        recipe.mapping.n_sites,
        alphabet_size=max(recipe.mapping.alphabet_sizes),
        covariance=seen.covariance,
        seed=seed,
    )
    return replace(recipe, mapping=mapping)


def _blurred(images: torch.Tensor) -> NDArray[np.float32]:
    try:
        from scipy.ndimage import gaussian_filter
    except ImportError as error:
        raise MissingExtraError(
            "a code learnt from images needs scipy: pip install 'labelmapping[sklearn]'"
        ) from error
    pixels = images.float().div(255)
    if images.shape[-1] > PROTOTYPE_SIDE:
        pixels = F.adaptive_avg_pool2d(pixels.unsqueeze(1), PROTOTYPE_SIDE).squeeze(1)
    blurred: NDArray[np.float32] = gaussian_filter(pixels.numpy(), (0, 1, 1))
    return blurred


def _load(
    profile: Profile,
    data_dir: Path | None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Task:
    characters = load_cjk(
        profile.options["class_set"], side=profile.options["side"], progress=progress
    )
    facts = {
        "classes": f"{len(characters.labels)} characters ({characters.class_set}), "
        f"{profile.options['side']} pixels",
        "training faces": ", ".join(characters.train_faces),
        "held-out face": characters.test_face,
    }
    return Task(learning_data(characters), facts, f"held out ({characters.test_face})")


_SIMPLEX_ROWS = tuple(f"simplex-{n}" for n in range(2, 7))
_MIXED_ROWS = tuple(f"mixed-{n}" for n in range(2, 8))
_RIVALS = ("one-hot", "negative-sampling", "ecoc-15")
_OURS = (
    "joint-simplex-4", "learned-4", "hashed-4", "adaptive-softmax", "huffman-softmax",
    "two-level-softmax",
)  # fmt: skip
_TABLE = (*_SIMPLEX_ROWS, *_MIXED_ROWS, *_RIVALS, *_OURS)
# The rows that the paper's claims rest on come first.
_ORDER = (
    "simplex-2", "simplex-3", "one-hot", "joint-simplex-4", "learned-4", "hashed-4",
    "adaptive-softmax", "huffman-softmax", "two-level-softmax", "negative-sampling",
    "simplex-4", "simplex-5", "simplex-6", *_MIXED_ROWS, "ecoc-15",
)  # fmt: skip
_REPORT = (20, 40, 60, 80)

EXPERIMENT = Experiment(
    name="cjk",
    title="CJK characters: tables 1 to 3",
    table=_TABLE,
    profiles={
        "quick": Profile(
            epochs=10,
            report=(5, 10),
            rows=("one-hot", "simplex-3", "joint-simplex-4"),
            steps=100,
            learning_rate=3e-3,
            options={"trunk": "SmallCnn", "class_set": "gb2312-1", "side": 24},
        ),
        "cpu": Profile(
            epochs=80,
            report=_REPORT,
            rows=_ORDER,
            steps=100,
            learning_rate=3e-3,
            options={"trunk": "SmallCnn", "class_set": "uro-paper", "side": 24},
        ),
        # A peak that large networks stand; the paper names no rate.
        "paper": Profile(
            epochs=80,
            report=_REPORT,
            rows=_ORDER,
            steps=100,
            learning_rate=1e-3,
            options={"trunk": "InceptionV3", "class_set": "uro-paper", "side": 139},
        ),
    },
    load=_load,
    paper="of Inception V3, 139 pixels, 20,901 characters, 100 steps of 128 an epoch",
    figures=(
        Figure("simplex", "CJK characters, table 1: simplex codes", (*_SIMPLEX_ROWS, "one-hot")),
        Figure("mixed", "CJK characters, table 2: mixed codes", (*_MIXED_ROWS, "one-hot")),
        Figure(
            "codes",
            "CJK characters, table 3: codes against ECOC",
            ("simplex-2", "mixed-2", "ecoc-15"),
        ),
        Figure(
            "ours",
            "CJK characters: joint and learned codes, and one-hot's rivals",
            ("one-hot", "negative-sampling", "simplex-4", *_OURS),
        ),
    ),
    train_rows=ROWS,
)
