"""Plato's "Republic", the next word: table 4. Rows are in ``configs/republic``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..datasets.republic import CONTEXT, Republic, load_republic
from ..learners import LearnerRecipe, LearningData
from ..mappings import HashedMapping, LabelMapping, LearnedMapping, MixedMapping, SimplexMapping
from ..mappings.cooccurrence import cooccurrence_factors
from .rows import Experiment, Figure, Profile, Task

__all__ = [
    "CUTOFF",
    "EXPERIMENT",
    "MIXED",
    "ONE_HOT",
    "REPEATED",
    "SIMPLEX",
    "TO_LEARN",
    "learn_codes",
    "lstm",
]

N_WORDS = 7409
PRIMES = (107, 109, 113, 127, 131, 137)
FIELD_ORDER = 127
# The length of the six-site n-hot code: 107 + 109 + 113 + 127 + 131 + 137.
CUTOFF = sum(PRIMES)
PAPER_EPOCHS = (2, 4, 6, 8, 10)
ONE_HOT = MixedMapping.one_hot(N_WORDS)
MIXED = MixedMapping(N_WORDS, PRIMES)
SIMPLEX = SimplexMapping(N_WORDS, 6, field_order=FIELD_ORDER)
# The id itself at every site, since the alphabets are no smaller than N: one-hot, four times.
REPEATED = MixedMapping(N_WORDS, (7409, 7411, 7417, 7433))
# Stands where `learn_codes` puts a code of its size.
TO_LEARN = HashedMapping(N_WORDS, 6, FIELD_ORDER)


def lstm(
    inputs: LabelMapping,
    outputs: LabelMapping,
    *,
    head: str = "label-mapping",
    head_options: Mapping[str, Any] | None = None,
    joint: bool = False,
    tied: bool = False,
    **trunk_options: Any,
) -> Callable[[Profile], LearnerRecipe]:
    """The recipe of the paper's LSTM with an input code, an output code and a head.

    Adam at a constant 1e-3, its default: the paper names none.
    """

    def recipe(profile: Profile) -> LearnerRecipe:
        return LearnerRecipe(
            mapping=outputs,
            trunk="labelmapping.nn:NextWordLstm",
            trunk_options={"input_mapping": inputs.to_config(), **trunk_options},
            head=head,
            head_options=dict(head_options or {}),
            joint=joint,
            tied=tied,
            epochs=profile.epochs,
            steps_per_epoch=profile.steps,
            batch_size=128,
            learning_rate=profile.learning_rate,
            precision=profile.precision,
            keep_epochs=profile.measured,
        )

    return recipe


def learn_codes(recipe: LearnerRecipe, task: Task, seed: int) -> LearnerRecipe:
    """The recipe with one code for input and output, learnt from which words stand near others.

    From the training part alone. A word that occurs in the tail only gets what is left.
    """
    data = task.data
    # The windows follow each other by one word: the first one and all next words are the text.
    words = torch.cat([data.train_inputs[0], data.train_ids]).numpy()
    factors = cooccurrence_factors([words], data.n_classes)
    mapping = LearnedMapping.fit(
        factors,
        recipe.mapping.n_sites,
        alphabet_size=max(recipe.mapping.alphabet_sizes),
        seed=seed,
    )
    options = {**recipe.trunk_options, "input_mapping": mapping.to_config()}
    return replace(recipe, mapping=mapping, trunk_options=options)


def learning_data(text: Republic) -> LearningData:
    """Windows of 50 words and the next one; the tail's windows are held out."""
    contexts, targets, tail = text.windows()
    rows, words = torch.from_numpy(contexts), torch.from_numpy(targets)
    held_out = torch.from_numpy(tail)
    return LearningData(
        rows[~held_out], words[~held_out], rows[held_out], words[held_out], text.vocabulary
    )


def held_out_share_of_most_frequent(data: LearningData) -> float:
    """Accuracy on held-out rows of always answering the most frequent training word."""
    return float((data.held_out_ids == data.class_counts().argmax()).float().mean())


def _load(profile: Profile, data_dir: Path | None, progress: Any = None) -> Task:
    text = load_republic(data_dir)
    data = learning_data(text)
    facts = {
        "split": f"first {text.n_train_words} of {len(text.ids)} words for training; "
        f"{len(data.held_out_ids)} windows of {CONTEXT} whose next word lies in the tail are "
        "held out",
        "most frequent word": f"{held_out_share_of_most_frequent(data):.4f} of the held-out words",
        "perplexity": "of the held-out windows, one softmax over all words",
    }
    return Task(data, facts)


_PAPER = (
    "one-hot", "negative-sampling", "cut-off", "mixed-6-2", "mixed-6-4", "mixed-6-6",
    "simplex-6-2", "simplex-6-4", "simplex-6-6",
)  # fmt: skip
_OURS = (
    "joint-mixed-6", "joint-simplex-6", "joint-learned-6", "class-mixed-6", "tied-mixed-6",
    "tied-one-hot", "adaptive-softmax", "one-hot-4",
)  # fmt: skip
# The rivals and the smaller rows first: an interrupted run has whole rows.
_ORDER = (
    "one-hot", "mixed-6-2", "simplex-6-2", "cut-off", "negative-sampling", "mixed-6-4",
    "simplex-6-4", *_OURS, "mixed-6-6", "simplex-6-6",
)  # fmt: skip
# The paper's own setting is one for CPUs.
_FULL = Profile(epochs=10, report=PAPER_EPOCHS, rows=_ORDER)

EXPERIMENT = Experiment(
    name="republic",
    title="Next word in Plato's Republic: table 4",
    table=(*_PAPER, *_OURS),
    profiles={
        # A quarter of the training rows an epoch.
        "quick": Profile(
            epochs=2,
            report=(2,),
            keep=(1,),
            rows=("one-hot", "mixed-6-2", "mixed-6-4"),
            steps=200,
        ),
        "cpu": _FULL,
        "paper": _FULL,
    },
    load=_load,
    paper="of epochs over the whole text; which part of it was scored is not said",
    figures=(
        Figure("curves", "Next word in Plato's Republic, table 4", _PAPER),
        Figure(
            "ours",
            "Next word in Plato's Republic: joint and learned codes, and four one-hot networks",
            ("one-hot", "cut-off", "mixed-6-6", "simplex-6-6", *_OURS),
        ),
    ),
    perplexity=True,
    plain_seed_0=True,
)
