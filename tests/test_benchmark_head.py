"""The benchmark of output layers runs, at sizes that say nothing about speed."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from benchmarks import head
from torch import nn

from labelmapping.errors import ArgumentError


@pytest.mark.slow
def test_each_row_is_measured_in_a_process_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [head.LINEAR, "mixed n=3 k=2", head.CLASS]
    path = tmp_path / "head.csv"
    # 2,000 classes: one-hot needs 16 MB with Adam, which is more than is given.
    head.run(
        sizes=[200, 2000],
        hidden=[0],
        memory_gib=0.01,
        rows=rows[::-1],
        csv_path=path,
        loss_rounds=6,
    )
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = list(csv.reader(file))
    assert header == head.HEADER
    assert [line[:3] for line in lines] == [[n, row, "0"] for n in ("200", "2,000") for row in rows]
    assert lines[3][4:] == ["-", "-", "needs 0.015 GiB", "-"]
    assert [line[-1] for line in lines] == ["1", *[lines[i][-1] for i in (1, 2)], "-", "-", "-"]
    for line in lines:
        assert int(line[3].replace(",", "")) > 0
        if line is not lines[3]:
            assert float(line[5]) > 0
    assert "| device | sites | q |" in capsys.readouterr().out


def test_an_unknown_row_is_refused_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArgumentError, match=r"rows must be of 'linear .*, got 'no such row'"):
        head.run(sizes=[50], hidden=[0], memory_gib=1, csv_path=None, rows=["no such row"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("row", [*head.PEERS, *head.CODES, head.CLASS])
def test_parameters_are_counted_as_they_are(row: str) -> None:
    for hidden in (0, 32):
        setting = head.Setting(50, row, hidden, "cpu")
        made: nn.Module = (
            head.LinearSoftmax(50, hidden, "cpu") if row == head.LINEAR else head.build(setting)
        )
        assert head.parameters(setting) == sum(p.numel() for p in made.parameters())


def test_every_head_takes_steps_that_change_it() -> None:
    for row in (*head.PEERS, "mixed n=3 k=2"):
        setting = head.Setting(50, row, 0, "cpu")
        torch.manual_seed(0)
        made: nn.Module = (
            head.LinearSoftmax(50, 0, "cpu") if row == head.LINEAR else head.build(setting)
        )
        before = [p.detach().clone() for p in made.parameters()]
        assert len(head._steps(made, 50, 3)) == 3
        assert all(not torch.equal(a, b) for a, b in zip(before, made.parameters(), strict=True)), (
            row
        )
