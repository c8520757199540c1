"""Every Python block of the README and the docs runs; the README opens as promised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
WITH_EXAMPLES = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after the other, in one namespace."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
        if page.name == "README.md" and number == 0:
            assert names["accuracy"] == 1.0  # as its comment says


def test_the_readme_opens_with_a_short_example_and_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = BLOCK.findall(text)[0]
    assert len(first.strip().splitlines()) < 15
    opening = text[: text.index("\n## ", text.index("make test"))]
    assert opening.index("```python") < opening.index("make demo") < opening.index("make test")


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} names {target}"
