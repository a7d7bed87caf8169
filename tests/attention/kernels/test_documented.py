"""docs/kernels.md lists the refusals that there are, each in the words that a caller reads."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import regard.attention.kernels as kernels
from regard.attention.kernels.choose import KERNELS

ROOT = Path(kernels.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "kernels.md"
SOURCES = {
    "cpu": ["additive/cpu/kernel.py", "additive/requests.py"],
    "triton": ["additive/triton/kernel.py", "additive/requests.py"],
    "sdpa": ["sdpa.py", "dots.py"],
    "matmul": ["matmul.py", "dots.py"],
    "blocked": ["blocked.py"],
    "reference": ["reference.py"],
}


def said(file: Path) -> set[str]:
    """The sentences that `supports` of a file may give, … for what they name."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        sentence = node.value if isinstance(node, ast.Return) else None
        if isinstance(sentence, ast.Constant) and isinstance(sentence.value, str):
            found.add(sentence.value)
        elif isinstance(sentence, ast.JoinedStr):
            found.add(
                "".join(
                    part.value if isinstance(part, ast.Constant) else "…"
                    for part in sentence.values
                )
            )
    return found


def listed() -> dict[str, set[str]]:
    """The table of refusals: | kernel, kernel | sentence |."""
    section = PAGE.read_text(encoding="utf-8").split("## Refusals", 1)[1].split("\n## ", 1)[0]
    table: dict[str, set[str]] = {name: set() for name in KERNELS}
    for names, sentence in re.findall(r"^\| (`.*?`) \| (.*?) \|$", section, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            table[name].add(sentence)
    return table


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_the_page_lists_the_refusals_there_are(kernel: str) -> None:
    there = set().union(*(said(ROOT / file) for file in SOURCES[kernel]))
    assert listed()[kernel] == there


def test_every_kernel_has_its_sources_named() -> None:
    assert set(SOURCES) == set(KERNELS)
    assert all(said(ROOT / SOURCES[name][0]) for name in ("cpu", "triton", "sdpa"))
