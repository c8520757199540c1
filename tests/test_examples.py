"""Every script in examples/ runs offline, without a warning, and shows what it says it shows."""

import re
import runpy
import socket
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a script prints; one that asks the network for anything fails."""

    def refuse(*_: Any) -> None:
        raise AssertionError(f"{name} went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def numbers(line: str, text: str) -> list[float]:
    """The numbers of the only line that begins so, as they are printed: 51.6% is 51.6."""
    (found,) = re.findall(rf"^{line}:(.*)$", text, re.MULTILINE)
    return [float(x.replace(",", "")) for x in re.findall(r"\d[\d,]*(?:\.\d+)?", found)]


def test_every_example_is_run_here_and_named_in_the_readme() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert names
    assert names <= tests
    linked = re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(names)


@pytest.mark.slow
def test_torchvision_last_layer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = run("torchvision_last_layer", capsys, monkeypatch)
    before, after = numbers("last layer", text)
    assert before == 1000 * 513
    assert after < before / 6
    first, last = numbers("loss", text)
    assert last < first - 3
    right, chance = numbers("new images", text)
    assert chance == 0.1
    assert right > 100 * chance


@pytest.mark.slow
def test_next_item(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = run("next_item", capsys, monkeypatch)
    both, one_hot = numbers("table of both ends", text)
    assert one_hot == 2000 * 64
    assert both < one_hot / 10
    losses = [numbers(f"epoch {epoch}", text)[0] for epoch in range(1, 9)]
    assert losses == sorted(losses, reverse=True)
    hits, chance = numbers("hit rate at 10", text)[-2:]
    assert chance == 0.5
    assert hits > 50 * chance


@pytest.mark.slow
def test_transformers_classifier(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = run("transformers_classifier", capsys, monkeypatch)
    coded, one_hot = numbers("classifier", text)
    assert one_hot == 20_000 * 65
    assert coded < one_hot / 25
    first, last = numbers("loss", text)
    assert last < first / 2
    assert "refused: state_dict must give every class the codeword it has: class 149" in text
    assert "the loaded model gives the same answers" in text
    assert numbers("new texts", text)[0] > 70


@pytest.mark.slow
def test_plain_loop(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = run("plain_loop", capsys, monkeypatch)
    first, last = numbers("loss", text)
    assert last < first * 0.6
    (all_sites,) = numbers("all sites", text)
    assert all_sites > 60
    assert all_sites - 30 < numbers("one site missing", text)[0] < all_sites
    assert numbers("with a prior", text)[0] > all_sites - 0.5
    anything, allowed = numbers("a hundred classes", text)
    assert allowed > anything + 5
    before, after = numbers("new classes", text)
    assert before == 0
    assert after > 60
