"""The checks of the lessons' exercises, with as few cells of the lesson as they need."""

from __future__ import annotations

import ast
import re
import symtable
from functools import cache
from pathlib import Path
from typing import Any

from tests.documentation.blocks import ROOT

LESSONS = {
    int(path.stem[:2]): path for path in sorted((ROOT / "docs/lessons").glob("[0-9][0-9]-*.md"))
}
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```", re.DOTALL | re.MULTILINE)
OPTIONS = re.compile(r"\A(?:(?::.*\n)+|---\n(?:.*\n)*?---\n)")
DEFINING = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.Import | ast.ImportFrom


def cells(text: str) -> list[ast.Module]:
    """The code of each cell."""
    return [ast.parse(OPTIONS.sub("", code)) for code in CELL.findall(text)]


def bound(cell: ast.Module) -> set[str]:
    """The names that a cell gives a value, outside of its functions."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(cell.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return names


def used(cell: ast.Module) -> set[str]:
    """The names of the lesson that a cell reads, in its functions too."""

    def below(table: symtable.SymbolTable) -> set[str]:
        names = {
            each.get_name()
            for each in table.get_symbols()
            if each.is_referenced() and (each.is_global() or table.get_type() == "module")
        }
        return names.union(*map(below, table.get_children()))

    return below(symtable.symtable(ast.unparse(cell), "lesson", "exec"))


def needed(earlier: list[ast.Module], names: set[str]) -> list[ast.Module]:
    """The cells that give these names their last values, and the cells above that those need."""
    binding = [bound(cell) for cell in earlier]
    waiting, needed_places = [(name, len(earlier)) for name in names], set[int]()
    while waiting:
        name, end = waiting.pop()
        places = [place for place, names in enumerate(binding) if name in names]
        place = max((each for each in places if each < end), default=None)
        if place is not None and place not in needed_places:
            needed_places.add(place)
            waiting += [(each, place + 1) for each in used(earlier[place])]
    return [earlier[place] for place in sorted(needed_places)]


def run(cells: list[ast.Module], namespace: dict[str, Any]) -> None:
    for cell in cells:
        exec(compile(cell, "lesson", "exec"), namespace)  # noqa: S102


def definitions(cell: ast.Module) -> ast.Module:
    """A cell without what it prints and asserts."""
    return ast.Module([each for each in cell.body if isinstance(each, DEFINING)], [])


@cache
def lesson(number: int) -> tuple[list[ast.Module], list[list[ast.Module]]]:
    """The cells before the exercises with those that they share, and the cells of each exercise."""
    text = Path(LESSONS[number]).read_text(encoding="utf-8")
    earlier, *exercises = re.split(r"^### Exercise ", text, flags=re.MULTILINE)
    return cells(earlier), [cells(part) for part in exercises]


@cache
def exercise(number: int, which: int) -> dict[str, Any]:
    """The namespace of an exercise: its check as "check", "solution", "mistake" and RIGHT."""
    earlier, exercises = lesson(number)
    code = [definitions(cell) for cell in exercises[which - 1]]
    namespace: dict[str, Any] = {"__name__": "lesson"}
    run(needed(earlier, {"RIGHT"}.union(*map(used, code))), namespace)
    run(code, namespace)
    checks = [each for cell in code for each in bound(cell) if each.startswith("check_")]
    return {**namespace, "check": namespace[checks[0]]}


def numbers() -> list[tuple[int, int]]:
    """(lesson, exercise) of all exercises."""
    return [(number, which + 1) for number in LESSONS for which in range(len(lesson(number)[1]))]
