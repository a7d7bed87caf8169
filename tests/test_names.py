"""Names say the thing: few are pronouns, participles or fillers, such as `found`, `own` or `given`.

Parameters, assigned names and functions are counted, but for the variables of comprehensions and the
operands of operators, which Python calls `other`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

SOURCE, TESTS = Path(regard.__file__).parent, Path(__file__).parent
VAGUE = frozenset(
    """after again any asked asks before begun both changed chosen done drawn each every few first found
    given gone got held here how it its joined kept known last least left listed made many most much now
    one opened other others own part parts rest said seen several shown shut so some taken tells that
    them there these they this those told wanted what whole written""".split()
)
# The largest share of vague names, in percent.
LIMITS = {
    "attention": 1.0,
    "memory": 1.0,
    "cli": 1.0,
    "costs": 1.0,
    "explorer": 1.0,
    "interop": 1.0,
    "loops": 1.0,
    "programs": 1.0,
    "serving": 1.0,
    "translation": 1.0,
    "viewing": 1.0,
    "watching": 1.0,
    "": 1.5,  # the modules beside the packages
}


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each name that a module gives to a parameter, a value or a function, and its line."""
    nodes = [*ast.walk(tree)]
    skipped = {
        name
        for node in nodes
        if isinstance(node, ast.comprehension)
        for name in ast.walk(node.target)
    }
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name.strip("_"), node.lineno
            arguments = node.args
            parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            operator = node.name.startswith("__") and node.name != "__init__"
            yield from ((each.arg, each.lineno) for each in parameters if not operator)
        elif isinstance(node, ast.Lambda):
            yield from ((each.arg.strip("_"), each.lineno) for each in node.args.args)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in skipped:
            yield node.id.strip("_"), node.lineno


def vague(paths: list[Path]) -> tuple[list[str], int]:
    """The vague names with their files and lines, and the number of all names."""
    places, total = [], 0
    for path in paths:
        for name, line in names(ast.parse(path.read_text(encoding="utf-8"))):
            total += 1
            if name in VAGUE:
                places.append(f"{path}:{line}: {name}")
    return places, total


def modules(package: str) -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py") if package else SOURCE.glob("*.py"))


@pytest.mark.parametrize("package", LIMITS)
def test_few_names_of_a_package_are_vague(package: str) -> None:
    places, total = vague(modules(package))
    share = 100 * len(places) / total
    assert share <= LIMITS[package], f"{share:.1f} %:\n" + "\n".join(places)


@pytest.mark.parametrize("folder", [TESTS, TESTS.parent / "benchmarks"], ids=lambda path: path.name)
def test_few_names_of_tests_and_benchmarks_are_vague(folder: Path) -> None:
    places, total = vague(sorted(folder.rglob("*.py")))
    share = 100 * len(places) / total
    assert share <= 1.0, f"{share:.1f} %:\n" + "\n".join(places)


def test_every_package_has_a_limit() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= LIMITS.keys()


def test_vague_names_are_counted_and_comprehensions_are_not(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "def found(given, options):\n"
        "    own, rows = options\n"
        "    return [each for each in map(lambda one: one, rows)]\n"
        "class Size:\n"
        "    def __eq__(self, other): return True\n"
    )
    places, total = vague([path])
    assert [place.rpartition(" ")[2] for place in places] == ["found", "given", "own", "one"]
    assert total == 7
