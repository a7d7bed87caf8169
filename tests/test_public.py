"""The names that people import: each has the path that the reference shows, for Python and for type checkers."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"
REFERENCE = sorted((ROOT / "docs" / "reference" / "library").glob("*.md"))
OTHERS = """\
[mypy-torch.*,numpy.*,numba.*,llvmlite.*,matplotlib.*,pydantic.*,safetensors.*,rich.*,typer.*,starlette.*,uvicorn.*,\
transformers.*,jaxtyping.*,anyio.*,filelock.*]
"""
MODULES = ["edits", "kernels", "looks", "masks", "metrics", "normalisers", "positions", "scores"]


def documented(text: str) -> list[tuple[str, str]]:
    """The names of a page of the reference, each with the module that it is imported from."""
    pairs = []
    for kind, path in re.findall(r"^\.\. auto(function|class|module):: (\S+)$", text, re.MULTILINE):
        if kind == "module":
            pairs += [(path, name) for name in importlib.import_module(path).__all__]
        else:
            module, _, name = path.rpartition(".")
            pairs.append((module, name))
    return pairs


NAMES = [pair for page in REFERENCE for pair in documented(page.read_text(encoding="utf-8"))]


def test_the_reference_names_what_people_import():
    assert {("regard", "Translator"), ("regard.scores", "Additive")} <= set(NAMES)
    assert {("regard.memory", "HeadMemory"), ("regard.edits", "Scale")} <= set(NAMES)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda each: each)
def test_a_name_of_the_reference_is_imported_by_its_path(module, name):
    assert name in importlib.import_module(module).__all__
    assert hasattr(importlib.import_module(module), name)


def test_every_name_of_regard_exists_and_the_type_checker_sees_the_same_ones():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(checked.test) == "TYPE_CHECKING"
    imported = {}
    for node in checked.body:
        assert isinstance(node, ast.ImportFrom)
        imported |= {alias.name: node.module for alias in node.names}
    assert set(imported) | {"__version__"} == set(regard.__all__)
    for name, module in imported.items():
        if module == "regard":
            assert getattr(regard, name) is importlib.import_module(f"regard.{name}")
        else:
            assert getattr(regard, name) is getattr(importlib.import_module(module), name)
    assert (SOURCE / "py.typed").is_file()


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_exports_what_its_package_exports(name):
    public = importlib.import_module(f"regard.{name}")
    assert public is getattr(regard, name)
    place = "watching" if name in ("edits", "metrics") else "attention"
    package = importlib.import_module(f"regard.{place}.{name}")
    assert public.__all__ == package.__all__
    assert all(getattr(public, each) is getattr(package, each) for each in package.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'nothing'"):
        regard.nothing  # noqa: B018
    with pytest.raises(ImportError):
        from regard.scores import Nothing  # noqa: F401
    with pytest.raises(AttributeError, match=r"regard\.translation.* has no attribute 'nothing'"):
        importlib.import_module("regard.translation").nothing  # noqa: B018


# What people import, in an order in which each loads more than those before it, and what none of it loads.
SCREENS_AND_TEXT = "matplotlib rich typer starlette uvicorn sentencepiece sacrebleu pydantic"
IMPORTS = {
    "import regard": "torch numpy",
    "import regard.translation": "torch",
    "regard.attend; regard.explain": f"numba scipy transformers {SCREENS_AND_TEXT}",
    "from regard.scores import Additive": "numba matplotlib transformers pydantic",
    "from regard import HeadMemory": "numba matplotlib transformers pydantic",
    "import regard.explorer; regard.watch": "torch._dynamo matplotlib transformers",
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """The modules that are there after each of the imports, one after another in one process."""
    program = "import sys, json\nfor line in sys.argv[1:]:\n exec(line)\n print(json.dumps([*sys.modules]))"
    printed = subprocess.run(
        [sys.executable, "-c", program, *IMPORTS], capture_output=True, text=True, check=True
    ).stdout
    return dict(zip(IMPORTS, map(set, map(json.loads, printed.splitlines())), strict=True))


@pytest.mark.parametrize("line", IMPORTS)
def test_an_import_loads_no_more_than_it_needs(loaded, line):
    assert set(IMPORTS[line].split()).isdisjoint(loaded[line])


def test_what_attends_loads_torch(loaded):
    assert "torch" in loaded["regard.attend; regard.explain"]


def test_a_strict_type_checker_sees_every_name(tmp_path):
    pytest.importorskip("mypy")
    names = sorted(set(NAMES))
    lines = [f"from {module} import {name} as _{at}" for at, (module, name) in enumerate(names)]
    lines += ["import regard", *(f"regard.{name}" for name in regard.__all__)]
    lines += ["from regard.scores import Nothing"]
    (tmp_path / "user.py").write_text("\n".join(lines), encoding="utf-8")
    # The types of other libraries and what is in our functions decide nothing, and take most of the time.
    bodies = "[mypy-regard.*]\nignore_errors = True\n"
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nstrict = True\n{bodies}{OTHERS}follow_imports = skip\n"
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache")]
    printed = subprocess.run([*command, "user.py"], cwd=tmp_path, capture_output=True, text=True)
    faults = [line for line in printed.stdout.splitlines() if ": error:" in line]
    assert len(faults) == 1, printed.stdout
    assert f"user.py:{len(lines)}: " in faults[0]
    assert 'has no attribute "Nothing"' in faults[0]
