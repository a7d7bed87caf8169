"""What the documents show is run, and what they point to is there."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(regard.__path__, "regard.")
    if not module.name.endswith("__main__")
)
RULES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=RULES)
    assert found.failed == 0


def test_the_rooms_were_found_and_hold_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        test
        for name in ("regard.attention.memory.memory", "regard.translation.text.generated")
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(examples) >= 2


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_with_a_prompt_in_documents_runs(document, capsys):
    text = "\n".join(
        b for b in blocks(document.read_text(encoding="utf-8"), "python") if ">>>" in b
    )
    typed = doctest.DocTestParser().get_doctest(text, {}, document.name, str(document), 0)
    failed = doctest.DocTestRunner(optionflags=RULES).run(typed).failed
    assert failed == 0, capsys.readouterr().out


def test_python_blocks_without_a_prompt_are_python_that_compiles():
    for block in blocks(README, "python"):
        if ">>>" not in block:
            compile(block, "README.md", "exec")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_repository_lead_somewhere(document):
    links = re.findall(r"\]\(([^)\s#]+)", document.read_text(encoding="utf-8"))
    here = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in here if not (document.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("marker", "end"),
    [
        ("translate", '.venv/bin/regard translate "El gato negro duerme." --look'),
        ("tests", ".venv/bin/pytest"),
    ],
)
def test_the_two_commands_install_into_a_fresh_environment(marker, end):
    """The continuous check takes the second one out of the README by its marker."""
    (command,) = re.findall(
        rf"^<!-- command: {marker} -->\n```bash\n(.*)\n```$", README, re.MULTILINE
    )
    fresh, torch, package, used = command.split(" && ")
    assert fresh == "python3 -m venv .venv"
    assert torch == ".venv/bin/pip install -c constraints.txt torch"
    assert package.startswith(".venv/bin/pip install -c constraints.txt ")
    assert used == end
    assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0
