"""The paper's parameter counts, to the unit: networks are built and their weights counted."""

import pytest
import torch
from torch import nn

from labelmapping.mappings import EcocMapping, LabelMapping, MixedMapping, SimplexMapping
from labelmapping.nn import (
    CutoffHead,
    LabelMappingHead,
    NegativeSamplingHead,
    NextWordLstm,
    SmallCnn,
    ThreeConvCnn,
)

N_WORDS = 7409
PRIMES = (107, 109, 113, 127, 131, 137)
ONE_HOT = MixedMapping.one_hot(N_WORDS)
MIXED = MixedMapping(N_WORDS, PRIMES)
SIMPLEX = SimplexMapping(N_WORDS, 6, field_order=127)


def trained_parameters(*modules: nn.Module) -> int:
    return sum(p.numel() for m in modules for p in m.parameters() if p.requires_grad)


def separate_cnns(mapping: LabelMapping) -> list[int]:
    """The counts of one network a site."""
    return [
        trained_parameters(
            trunk := ThreeConvCnn(), LabelMappingHead(trunk.out_features, mapping, sites=[site])
        )
        for site in range(mapping.n_sites)
    ]


@pytest.mark.parametrize(
    ("mapping", "total"),
    [
        (SimplexMapping(100, 3, field_order=11), 480_321),
        (MixedMapping(100, [11, 13, 17]), 481_353),
        (EcocMapping(100), 1_112_622),
    ],
    ids=["simplex", "mixed", "ecoc"],
)
def test_cifar_networks_of_the_paper(mapping: LabelMapping, total: int) -> None:
    counts = separate_cnns(mapping)
    assert counts == [158_688 + 129 * size for size in mapping.alphabet_sizes]
    assert sum(counts) == total


def test_a_joint_cifar_network_has_its_trunk_once() -> None:
    mapping = MixedMapping(100, [11, 13, 17])
    trunk = ThreeConvCnn()
    head = LabelMappingHead(trunk.out_features, mapping)
    assert trained_parameters(trunk) == 158_688
    assert trained_parameters(trunk, head) == 158_688 + 129 * (11 + 13 + 17)


@pytest.mark.parametrize(
    ("mapping", "n_sites", "total"),
    [
        (MIXED, 2, 620_816),
        (MIXED, 4, 1_244_056),
        (MIXED, 6, 1_870_124),
        (SIMPLEX, 2, 636_054),
        (SIMPLEX, 4, 1_272_108),
        (SIMPLEX, 6, 1_908_162),
        # The paper prints 2.9E6: a slip, its own architecture has this many.
        (ONE_HOT, 1, 2_050_559),
    ],
    ids=["mixed-2", "mixed-4", "mixed-6", "simplex-2", "simplex-4", "simplex-6", "one-hot"],
)
def test_republic_networks_of_the_paper(mapping: LabelMapping, n_sites: int, total: int) -> None:
    found = 0
    for site in range(n_sites):
        trunk = NextWordLstm(mapping)
        found += trained_parameters(
            trunk, LabelMappingHead(trunk.out_features, mapping, sites=[site])
        )
    assert found == total


def test_republic_cutoff_and_negative_sampling() -> None:
    trunk = NextWordLstm(MixedMapping.one_hot(724), cutoff=True)
    head = CutoffHead(trunk.out_features, N_WORDS, n_symbols=724, class_counts=[1] * N_WORDS)
    assert trained_parameters(trunk, head) == 372_624
    trunk = NextWordLstm(ONE_HOT)
    sampled = NegativeSamplingHead(trunk.out_features, N_WORDS)
    assert trained_parameters(trunk, sampled) == 2_050_559


def test_the_lstm_has_one_bias_vector_a_gate() -> None:
    trunk = NextWordLstm(MIXED)
    untrained = {name: p.numel() for name, p in trunk.named_parameters() if not p.requires_grad}
    assert untrained == {"lstm.bias_hh_l0": 400, "lstm.bias_hh_l1": 400}
    assert trained_parameters(trunk) == 150 * sum(PRIMES) + 190_900


@pytest.mark.parametrize(
    ("row", "total"),
    [
        ("one-hot", 2_050_559),
        ("negative-sampling", 2_050_559),
        ("cut-off", 372_624),
        ("mixed-6-2", 620_816),
        ("mixed-6-4", 1_244_056),
        ("mixed-6-6", 1_870_124),
        ("simplex-6-2", 636_054),
        ("simplex-6-4", 1_272_108),
        ("simplex-6-6", 1_908_162),
    ],
)
def test_the_experiments_rows_have_the_papers_counts(row: str, total: int) -> None:
    pytest.importorskip("pytorch_lightning", reason="the experiments train with Lightning")
    republic = pytest.importorskip("labelmapping.experiments.republic").EXPERIMENT
    chosen = republic.row(row)
    recipe = chosen.recipe(republic.profiles["paper"])
    counts = torch.ones(recipe.mapping.n_classes)
    learners = [recipe.build(site, counts) for site in range(chosen.n_sites)]
    assert trained_parameters(*learners) == total


def test_gb2312_networks_of_the_cjk_experiment() -> None:
    mapping = SimplexMapping(3755, 4, field_order=67)
    trunk = SmallCnn()
    joint = LabelMappingHead(trunk.out_features, mapping, hidden=512)
    assert trained_parameters(trunk, joint) == 367_412
    one_hot = LabelMappingHead(trunk.out_features, MixedMapping.one_hot(3755))
    assert trained_parameters(trunk, one_hot) == 647_763
