"""Targets of a loss: which entries count and how much, and what is refused."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from labelmapping.errors import ArgumentError, ArgumentTypeError
from labelmapping.nn.targets import Targets, check_class_numbers


def read(
    target: Any, rows: tuple[int, ...], dtype: torch.dtype = torch.float64, **options: Any
) -> Targets:
    return Targets.of(torch.as_tensor(target), rows, 10, dtype, **options)


def test_several_true_classes_share_the_weight_of_their_row() -> None:
    targets = read([[3, -100, 5], [-100, -100, -100], [7, 7, 7]], (3,))
    assert targets.kept.tolist() == [[True, False, True], [False] * 3, [True] * 3]
    assert targets.ids.tolist() == [[3, 0, 5], [0, 0, 0], [7, 7, 7]]
    expected = torch.tensor([[1 / 2, 0, 1 / 2], [0, 0, 0], [1 / 3] * 3], dtype=torch.float64)
    assert torch.equal(targets.weights, expected)  # thirds to the last bit of float64
    rows = torch.tensor([[1.0, torch.nan], [2.0, torch.inf], [3.0, 4.0]])
    assert targets.counted(rows)[1:].tolist() == [[0, 0], [3, 4]]
    assert targets.counted(rows)[0, 1].isnan()
    assert read([3, 4], (2,)).counted(rows) is rows


def test_class_and_sample_weights_multiply() -> None:
    class_weight = torch.arange(10, dtype=torch.float32)
    sample_weight = torch.tensor([[2, 1], [0, 3]])
    targets = read(
        [[4, -1], [9, 2]], (2, 2), weight=class_weight, sample_weight=sample_weight, ignore_index=-1
    )
    assert targets.weights.flatten().tolist() == [8, 0, 0, 6]
    assert targets.weights.dtype == torch.float64
    several = read([[1, 3], [5, -100]], (2,), weight=class_weight, sample_weight=torch.ones(2))
    assert several.weights.tolist() == [[0.5, 1.5], [5, 0]]


def test_the_reductions_are_weighted_and_what_does_not_count_may_be_infinite() -> None:
    targets = read([[1, 2], [3, -100], [-100, -100]], (3,), sample_weight=torch.tensor([4, 1, 1]))
    losses = torch.tensor([[1, 3], [5, torch.inf], [torch.nan, 0]], dtype=torch.float64)
    assert targets.reduce(losses, "none").tolist() == [8, 5, 0]
    assert targets.reduce(losses, "sum").item() == 13
    assert targets.reduce(losses, "mean").item() == 13 / 5
    nothing = read([[-100, -100]], (1,))
    assert nothing.reduce(losses[2:], "mean").item() == 0


@pytest.mark.parametrize("rows", [(), (4,), (2, 3), (0,), (2, 0)], ids=str)
def test_any_leading_shape_with_and_without_several_classes(rows: tuple[int, ...]) -> None:
    n_rows = torch.Size(rows).numel()
    for entries in ((), (1,), (3,), (0,)):
        targets = read(torch.full((*rows, *entries), 5), rows)
        assert targets.ids.shape == (n_rows, *(entries or (1,)))
        assert targets.ids.shape == targets.kept.shape == targets.weights.shape
        losses = torch.ones(targets.ids.shape, dtype=torch.float64)
        assert targets.reduce(losses, "none").shape == rows
        expected = 0 if entries == (0,) else n_rows
        assert targets.reduce(losses, "sum").item() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8], ids=str)
def test_narrow_targets_are_compared_as_int64(dtype: torch.dtype) -> None:
    target = torch.tensor([5, 6], dtype=dtype)
    assert read(target, (2,)).kept.all()
    assert read(target, (2,), ignore_index=5 - 256).kept.all()
    assert read(target, (2,), ignore_index=5).kept.flatten().tolist() == [False, True]


@pytest.mark.parametrize(
    ("target", "rows", "options", "message"),
    [
        ([1, 2], (3,), {}, r"target must have shape \(3,\) or, with T true .* \(3, T\); got \(2,"),
        ([[1, 2]], (2,), {}, r"got \(1, 2\)"),
        (1, (2,), {}, r"got \(\)"),
        ([1, 2], (2,), {"sample_weight": torch.ones(2, 1)}, r"sample_weight must have shape \(2,"),
        ([1, 2], (2,), {"weight": torch.ones(9)}, r"weight must have shape \(10,\), got \(9,\)"),
        ([1, 2], (2,), {"weight": torch.ones(10, 1)}, r"got \(10, 1\)"),
        ([1, 10], (2,), {}, r"0\.\.9 .* target\[1\] is 10$"),
        ([[1, -1]], (1,), {}, r"target\[0, 1\] is -1$"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(
    target: Any, rows: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        read(target, rows, **options)


@pytest.mark.parametrize("ignore_index", [-1.0, None, "x", True])
def test_an_ignored_value_that_is_no_integer_is_refused(ignore_index: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="ignore_index must be an integer"):
        read([1], (1,), ignore_index=ignore_index)


def test_unchecked_ids_pass() -> None:
    assert read([10, -1], (2,), check=False).ids.tolist() == [[10], [-1]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], r"x must be 3 numbers, got shape \(2,\)"),
        (torch.ones(3, 1), r"got shape \(3, 1\)"),
        ([1, -0.5, 2], r"finite and at least 0, x\[1\] is -0\.5"),
        ([1, 2, float("nan")], r"x\[2\] is nan"),
        ([float("inf"), 2, 1], r"x\[0\] is inf"),
    ],
    ids=str,
)
def test_numbers_of_classes_are_checked(values: Sequence[float] | Tensor, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        check_class_numbers("x", values, 3)
    assert check_class_numbers("x", [0, 1, 2], 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["weight", "sample_weight"])
@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_weights_below_0_or_not_finite_are_refused(name: str, bad: float) -> None:
    weights = {name: torch.tensor([1.0, bad, 1.0])}
    target = torch.tensor([0, 1, 2])
    with pytest.raises(ArgumentError, match=f"{name} must be finite and at least 0"):
        Targets.of(target, (3,), 3, torch.float32, **weights)  # type: ignore[arg-type]
    Targets.of(target, (3,), 3, torch.float32, check=False, **weights)  # type: ignore[arg-type]
