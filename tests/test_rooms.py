"""Who knows what: the parts of the layout that the import contracts cannot say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"
SCREENS = {"matplotlib", "rich", "typer", "starlette", "uvicorn"}
TEXT = {"sentencepiece", "sacrebleu", "pydantic"}


def imported(tree: ast.Module) -> set[str]:
    """Every module that code imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(tree):
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
    assert imported(ast.parse(code)) == {"a.b", "c", "c.d", "torch", "torch.nn"}


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
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            assert not any(f"{name}.".startswith(f"{each}.") for each in forbidden), (path, name)


PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
CODE = {"eval", "exec", "__import__", "builtins.eval", "builtins.exec"} | {"os.system", "os.popen"}
SAFE = {"weights_only": "True", "allow_pickle": "False", "shell": "False"}
SUSPICIOUS = PICKLES | {path.rpartition(".")[2] for path in CODE}
# Code without any of these words has no danger, and need not be parsed.
SIGNS = re.compile("|".join([*SUSPICIOUS, *SAFE, "load"]))


def words(node: ast.AST) -> Iterator[str]:
    """The names that a dotted name is made of."""
    while isinstance(node, ast.Attribute):
        yield node.attr
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def dangers(code: str) -> set[str]:
    """Uses of a pickle, of evaluated code or of a shell: imported, as an attribute, or by its name in a string."""
    if not SIGNS.search(code):
        return set()
    tree = ast.parse(code)
    uses = {name for name in imported(tree) if PICKLES & set(name.split("."))}
    for node in ast.walk(tree):
        match node:
            case ast.Name() | ast.Attribute() if SUSPICIOUS & set(words(node)):
                path = ast.unparse(node)
                if PICKLES & set(path.split(".")) or path in CODE:
                    uses.add(path)
            case ast.Constant(value=str(name)) if name in PICKLES:
                uses.add(name)
            case ast.keyword(arg=str(name)) if name in SAFE:
                if ast.unparse(node.value) != SAFE[name]:
                    uses.add(name)
            case ast.Call(func=ast.Attribute(value=ast.Name("torch"), attr="load")):
                if "weights_only" not in {each.arg for each in node.keywords}:
                    uses.add("torch.load")
    return uses


@pytest.mark.parametrize(
    ("code", "danger"),
    [
        ("import pickle", "pickle"),
        (
            "def f():\n    from numba.core import caching\n    caching.pickle.loads(b)",
            "caching.pickle",
        ),
        ("pickle = numba.pickle", "numba.pickle"),
        ("importlib.import_module('dill')", "dill"),
        ("torch.load(path)", "torch.load"),
        ("torch.load(path, weights_only=False)", "weights_only"),
        ("np.load(path, allow_pickle=True)", "allow_pickle"),
        ("run(line, shell=True)", "shell"),
        ("os.system(line)", "os.system"),
        ("eval(line)", "eval"),
        ("builtins.exec(line)", "builtins.exec"),
    ],
)
def test_the_reader_of_dangers_sees_every_kind(code, danger):
    assert danger in dangers(code)


def test_harmless_code_is_no_danger():
    code = "model.eval()\ntorch.load(path, weights_only=True)\nrun(line, shell=False)\n'a pickle'"
    assert dangers(code) == set()


def test_nothing_is_unpickled_evaluated_or_given_to_a_shell():
    uses = {
        path.relative_to(SOURCE).as_posix(): found
        for path in sorted(SOURCE.rglob("*.py"))
        if (found := dangers(path.read_text(encoding="utf-8")))
    }
    # numba's cache of machine code, in the user's cache folder: how-it-works/architecture.md says so.
    assert uses == {"loops/cache.py": {"caching.pickle", "caching.pickle.loads"}}
