"""What Regard takes from other projects: it is declared, has a tested version, and its private names are listed."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# The page that lists the private names.
PAGE = ROOT / "docs" / "how-it-works" / "private-names.md"
# Imported only where their own objects are passed in, or where torch brings them.
GUESTS = {"keras", "triton", "transformers"}
MODULES = {"faiss-cpu": "faiss"}  # packages that are imported by another name
# Of the standard library: documented, but with an underscore.
STANDARD = {"_asdict", "_replace", "_exit", "_getframe", "_Hash"}
# Strings that name private functions, modules or attributes.
TEXT = re.compile(r"torch(\.\w+)*\._\w+|transformers(\.\w+)+|_\w+_hooks")


def names(requirements: list[str]) -> set[str]:
    packages = {re.split(r"[>;\[]", each)[0].strip().lower() for each in requirements}
    return {MODULES.get(package, package) for package in packages}


# What code imports, defines and uses is in nodes of these kinds.
KINDS = (
    ast.Import | ast.ImportFrom | ast.alias | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef
    | ast.Name | ast.Attribute | ast.arg | ast.keyword | ast.Call | ast.Constant
)  # fmt: skip


def nodes(code: str) -> list[ast.AST]:
    return [node for node in ast.walk(ast.parse(code)) if isinstance(node, KINDS)]


@pytest.fixture(scope="module")
def sources() -> dict[Path, list[ast.AST]]:
    return {path: nodes(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}


def modules(code: list[ast.AST]) -> set[str]:
    """Every module or name of a module that code imports, at its top or inside a function."""
    names: set[str] = set()
    for node in code:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_every_imported_package_is_declared(sources):
    declared = names(
        [
            *PROJECT["dependencies"],
            *(
                each
                for name in ("ctranslate2", "notebook", "formats", "faiss")
                for each in EXTRAS[name]
            ),
        ]
    )
    imported = {name.partition(".")[0] for code in sources.values() for name in modules(code)}
    assert imported - sys.stdlib_module_names - {"regard"} - GUESTS <= declared


def test_the_metadata_names_licences_and_their_files():
    for pattern in PROJECT["license-files"]:
        assert (ROOT / pattern).is_file(), pattern
    table = (ROOT / "THIRD-PARTY.md").read_text(encoding="utf-8")
    for licence in PROJECT["license"].split(" AND "):
        assert licence == "Apache-2.0" or f"`{licence}`" in table or f"| {licence};" in table


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {
        line.partition("==")[0].lower().replace("_", "-").replace(".", "-")
        for line in lines
        if "==" in line
    }


def test_the_dependencies_of_the_tests_have_tested_versions():
    expected_names = names([*PROJECT["dependencies"], *EXTRAS["docs"], *EXTRAS["dev"]])
    assert expected_names - pinned() == {"triton", "regard"}


def test_constraints_leave_to_torch_what_it_pins_itself():
    """Torch for a GPU pins the versions of Triton and of the CUDA libraries; a second pin contradicts it."""
    for name in pinned():
        assert not re.match("triton|pytorch-triton|nvidia-|cuda-", name), name


def bound(code: list[ast.AST]) -> Iterator[str]:
    """The names that code defines: functions, classes, variables, arguments, attributes of self."""
    for node in code:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def mentioned(node: ast.AST) -> str:
    """The attribute or keyword that a node names, also by getattr and hasattr; otherwise nothing."""
    match node:
        case ast.Attribute(attr=str(name)) | ast.keyword(arg=str(name)):
            return name
        case ast.Call(
            func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]
        ):
            return name
    return ""


def private(code: list[ast.AST], ours: set[str]) -> Iterator[str]:
    """The names with an underscore that code uses and does not define, and modules below numba.core."""
    for name in modules(code):
        if re.match(r"(?!regard\.|__)(\w+\.)+_[a-z]|numba\.core\.", name):
            yield name
    for node in code:
        name = mentioned(node)
        if re.match("_[A-Za-z]", name) and name not in ours and name not in STANDARD:
            yield name
        elif isinstance(node, ast.Constant) and TEXT.fullmatch(str(node.value)):
            yield str(node.value)


def listed() -> set[str]:
    """The names in the first column of the page's tables."""
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_page_lists_every_private_name_of_another_project(sources):
    ours = {name for code in sources.values() for name in bound(code)}
    used = {name: path for path, code in sources.items() for name in private(code, ours)}
    known = listed()
    known |= {part for name in known for part in name.split(".")}
    for name, path in used.items():
        is_listed = name in known or any(each.startswith(f"{name}.") for each in known)
        assert is_listed, f"{path} uses {name}: add it to {PAGE.name}, with what breaks without it"


def test_the_page_lists_no_name_that_is_used_no_more():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    for name in listed():
        assert name.rpartition(".")[2] in text, f"{PAGE.name} lists {name}, which nothing uses"


def test_the_reader_of_private_names_sees_every_kind():
    code = """
from numba.core.typing import templates
import torch.utils._pytree
torch._C._get_tracing_state()
self._ours = self._theirs
getattr(module, "_packed")
njit(_nrt=False)
CALLS = "torch._native", "_forward_hooks"
"""
    assert set(private(nodes(code), {"_ours"})) == {
        "numba.core.typing.templates",
        "torch.utils._pytree",
        "_C",
        "_get_tracing_state",
        "_theirs",
        "_packed",
        "_nrt",
        "torch._native",
        "_forward_hooks",
    }


def test_every_dotted_name_of_the_page_exists_in_the_installed_version():
    dotted = sorted(name for name in listed() if name.startswith(("torch.", "numba.", "uvicorn.")))
    assert len(dotted) > 10
    for name in dotted:
        module, parts = name, []
        while True:
            try:
                found = importlib.import_module(module)
                break
            except ModuleNotFoundError:
                module, _, last = module.rpartition(".")
                parts.insert(0, last)
        for part in parts:
            found = getattr(found, part)
