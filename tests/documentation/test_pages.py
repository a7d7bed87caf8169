"""The examples of docstrings run, and what the documents point to is there."""

import doctest
import importlib
import pkgutil
import re
import subprocess

import pytest
from tests.documentation.blocks import DOCUMENTS, ROOT

import regard

README = (ROOT / "README.md").read_text(encoding="utf-8")
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(regard.__path__, "regard.")
    if not module.name.endswith("__main__")
)
RULES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=RULES)
    assert result.failed == 0


def test_the_rooms_were_found_and_hold_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        test
        for name in ("regard.memory.memory", "regard.translation.text.generated")
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(examples) >= 2


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_repository_lead_somewhere(document):
    prose = re.sub(
        r"^```.*?^```|`[^`\n]+`", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    links = re.findall(r"\]\(([^)\s#]+)", prose)
    local_links = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local_links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("marker", "end"),
    [
        ("translate", '.venv/bin/regard translate "El gato negro duerme." --look'),
        ("tests", ".venv/bin/pytest -n auto"),
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
