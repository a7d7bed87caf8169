"""Who knows what: the parts of the layout that the import contracts cannot say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"
SCREENS = {"matplotlib", "rich", "typer", "starlette", "uvicorn"}
TEXT = {"sentencepiece", "sacrebleu", "pydantic"}


def imported(code: str) -> set[str]:
    """Every module that code imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def files(room: str) -> list[Path]:
    found = sorted((SOURCE / room).rglob("*.py"))
    assert found, room
    return found


def test_the_reader_of_imports_sees_every_kind():
    code = "import a.b\ndef f():\n    from c import d\nfrom torch import nn"
    assert imported(code) == {"a.b", "c", "c.d", "torch", "torch.nn"}


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        ("attention", SCREENS | TEXT),
        ("translation/text", SCREENS | {"torch.nn"}),
        ("translation/models", SCREENS | TEXT - {"pydantic"}),
        ("translation/decoding", SCREENS | TEXT),
    ],
)
def test_a_room_knows_nothing_of_other_matters(room, forbidden):
    for path in files(room):
        for name in imported(path.read_text(encoding="utf-8")):
            assert not any(f"{name}.".startswith(f"{each}.") for each in forbidden), (path, name)


def test_nothing_is_unpickled_evaluated_or_given_to_a_shell():
    for path in sorted(SOURCE.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        names = {name.partition(".")[0] for name in imported(code)}
        assert not names & {"pickle", "cPickle", "dill", "shelve", "marshal"}, path
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, path
            if isinstance(node, ast.keyword) and node.arg in {"shell", "weights_only"}:
                assert ast.unparse(node.value) == str(node.arg == "weights_only"), path


def test_importing_regard_loads_nothing_heavier_than_torch():
    program = (
        "import sys, regard; regard.attend;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "torch" in printed
    heavy = SCREENS | TEXT | {"numba", "scipy", "transformers"}
    assert heavy.isdisjoint(printed)


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {
        line.partition("==")[0].lower().replace("_", "-").replace(".", "-")
        for line in lines
        if "==" in line
    }


def test_the_dependencies_of_the_tests_have_tested_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["docs"], *extras["dev"]]
    names = {re.split("[>;]", each)[0].lower() for each in wanted}
    assert names - pinned() == {"triton", "regard[docs]"}


def test_constraints_leave_to_torch_what_it_pins_itself():
    """Torch for a GPU pins the versions of Triton and of the CUDA libraries; a second pin contradicts it."""
    for name in pinned():
        assert not re.match("triton|pytorch-triton|nvidia-|cuda-", name), name
