"""docs/how-it-works/kernels.md lists the refusals that there are, each in the words that a caller reads."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import regard.attention.kernels as kernels
from regard.attention.kernels.choose import KERNELS

ROOT = Path(kernels.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "how-it-works" / "kernels.md"
SOURCES = {
    "cpu": ["additive/kernels.py:Cpu", "additive/requests.py"],
    "triton": ["triton/kernel.py", "additive/requests.py"],
    "sdpa": ["sdpa.py", "dots.py"],
    "matmul": ["matmul.py", "dots.py"],
    "blocked": ["blocked.py"],
    "reference": ["reference.py"],
}


def names_in(source: str) -> set[str]:
    """The sentences that `supports` of a file, or a class of it, may give, … for what they name."""
    file, _, kind = source.partition(":")
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text())))
    if kind:
        class_node = next(
            node for node in nodes if isinstance(node, ast.ClassDef) and node.name == kind
        )
        nodes = list(ast.walk(class_node))
    names = set()
    for node in nodes:
        sentence = node.value if isinstance(node, ast.Return) else None
        if isinstance(sentence, ast.Constant) and isinstance(sentence.value, str):
            names.add(sentence.value)
        elif isinstance(sentence, ast.JoinedStr):
            names.add(
                "".join(
                    part.value if isinstance(part, ast.Constant) else "…"
                    for part in sentence.values
                )
            )
    return names


def listed_kernels() -> dict[str, set[str]]:
    """The table of refusals: | kernel, kernel | sentence |."""
    section = PAGE.read_text(encoding="utf-8").split("## Refusals", 1)[1].split("\n## ", 1)[0]
    table: dict[str, set[str]] = {name: set() for name in KERNELS}
    for names, sentence in re.findall(r"^\| (`.*?`) \| (.*?) \|$", section, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            table[name].add(sentence)
    return table


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_the_page_lists_the_refusals_there_are(kernel: str) -> None:
    documented = set().union(*(names_in(source) for source in SOURCES[kernel]))
    assert listed_kernels()[kernel] == documented


def test_every_kernel_has_its_sources_named() -> None:
    assert set(SOURCES) == set(KERNELS)
    assert all(names_in(SOURCES[name][0]) for name in ("cpu", "triton", "sdpa"))
