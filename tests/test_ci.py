"""The scripts of .ci, with programs that only note how they were called in place of uv, Python and the checks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / ".ci"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts are for bash")
PROGRAMS = ("ruff", "mypy", "lint-imports", "pytest")
SCRIPT_NAMES = ("site", "resolve", "front-end", "release", "manifests")
README = """<!-- command: tests -->
```bash
cp -r programs .venv && .venv/bin/pytest -q
```
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def run(script: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    # A script that waits for what it should have stopped fails by the timeout.
    return subprocess.run(
        [script, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def project(tmp_path):
    """A folder with the scripts and the files that they read, in which nothing is built or installed."""
    made = tmp_path / "project"
    shutil.copytree(SCRIPTS, made / ".ci")
    (made / "pyproject.toml").write_text(
        '[project]\nversion = "1"\ndependencies = []\n[project.optional-dependencies]\n'
        "ctranslate2 = []\ntensorboard = []\nnotebook = []\nformats = []\n"
    )
    (made / "constraints.txt").write_text("other==1\n")
    (made / "CHANGELOG.md").write_text("## [1]\n")
    (made / "README.md").write_text(README)
    return made


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("resolve", ["bin/uv"]),
        ("site", ["bin", "site"]),
        ("lowest", ["bin/uv", "bin/python", "scratch"]),
        ("release", ["bin/uv", "bin/python", "scratch"]),
    ],
)
def test_relative_paths_are_those_of_the_folder_that_a_script_is_called_from(
    project, tmp_path, script, arguments
):
    caller = tmp_path / "caller"
    (caller / "scratch" / "dist").mkdir(parents=True)
    program(caller / "bin" / "uv", "echo numpy==1")
    program(caller / "bin" / "sphinx-build", 'mkdir "${@: -1}"')
    program(caller / "bin" / "python", f'[ "$1" = -m ] || exec "{sys.executable}" "$@"')
    if script == "release":  # as far as the archive, whose own script of the lowest versions fails
        dist = caller / "scratch" / "dist"
        (dist / "regard-1-py3-none-any.whl").touch()
        archived = tmp_path / "regard-1"
        program(archived / ".ci" / "lowest", 'ls "$@" && echo reached && exit 3')
        subprocess.run(
            ["tar", "-czf", dist / "regard-1.tar.gz", "-C", tmp_path, "regard-1"], check=True
        )
    done = run(project / ".ci" / script, *arguments, folder=caller)
    if script == "release":
        assert "reached" in done.stdout, done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_the_lowest_versions_are_tested_with_the_source_beside_the_script(project, tmp_path):
    """The archive's tests would else import the package that the environment has."""
    (project / "src" / "regard").mkdir(parents=True)
    (project / "src" / "regard" / "__init__.py").write_text("print('of this archive')")
    program(tmp_path / "uv", "echo numpy==1")
    program(
        tmp_path / "python",
        f'[ "$1" = -m ] && set -- -c "import regard"\nexec "{sys.executable}" "$@"',
    )
    done = run(project / ".ci/lowest", "uv", "python", os.fspath(tmp_path), folder=tmp_path)
    assert "of this archive" in done.stdout, done.stderr


@pytest.fixture
def checks(project):
    """The checks of .ci/run: all pass at once."""
    for name in PROGRAMS:
        program(project / "programs" / "bin" / name, f"echo {name} has run")
    for name in SCRIPT_NAMES:
        program(project / ".ci" / name, f"echo {name} has run")
    return project


def test_everything_runs_and_is_printed(checks):
    done = run(checks / ".ci/run", folder=checks)
    assert done.returncode == 0, done.stderr
    for name in PROGRAMS + SCRIPT_NAMES:
        assert f"{name} has run" in done.stdout


def check_half_built(checks: Path) -> None:
    """The run fails, ends the part beside before it is done, and prints what it said."""
    done = run(checks / ".ci/run", folder=checks)
    assert done.returncode == 1
    assert "half built" in done.stdout
    assert "never" not in done.stdout


def test_code_that_fails_stops_the_packaging_and_prints_what_it_said(checks):
    program(checks / ".ci/release", 'touch here; echo "half built"; sleep 600; echo never')
    program(checks / "programs/bin/ruff", "until [ -e here ]; do sleep 0.1; done; exit 1")
    check_half_built(checks)


def test_an_installation_that_fails_stops_the_front_end(checks):
    """Its build would else run on for minutes, in a folder that is gone."""
    program(checks / ".ci/front-end", 'touch here; echo "half built"; sleep 600; echo never')
    waiting = README.replace("cp -r programs", "until [ -e here ]; do sleep 0.1; done; cp -r none")
    (checks / "README.md").write_text(waiting)
    check_half_built(checks)


def test_a_front_end_that_fails_fails_the_run_before_its_checks(checks):
    program(checks / ".ci/front-end", "echo not built; exit 1")
    done = run(checks / ".ci/run", folder=checks)
    assert done.returncode == 1
    assert "not built" in done.stdout
    assert "ruff has run" not in done.stdout


def test_packaging_that_fails_fails_the_run_before_its_tests(checks):
    program(checks / ".ci/release", "echo no wheel; exit 1")
    done = run(checks / ".ci/run", folder=checks)
    assert done.returncode == 1
    assert "no wheel" in done.stdout
    assert (
        done.stdout.count("pytest has run") == 1
    )  # the shapes; all tests come after the packaging


def test_the_longest_tests_are_written_into_the_document(project):
    head, end = "<!-- longest tests: .ci/durations writes them -->", "<!-- end -->"
    document = project / "CONTRIBUTING.md"
    document.write_text(f"before\n{head}\nold\n{end}\nafter\n")
    slow = project / "tests" / "slow.txt"
    slow.parent.mkdir()
    slow.write_text("tests/test_28.py\ntests/test_1.py::gone\n")
    lines = [f"{number}.1\ttests/test_{number}.py::test" for number in range(30)]
    lines += [
        f"0.12\ttests/test_30.py::test_{number}" for number in range(8)
    ]  # six take 0.7 seconds
    for name, part in (("earlier", [*lines, "99\ttests/test_3.py::test"]), ("later", lines[3:4])):
        (project / name).write_text("\n".join(part) + "\n")
    result = run(project / ".ci" / "durations", "earlier", "later", folder=project)
    assert result.returncode == 0, result.stderr
    text = document.read_text()
    assert text.startswith(f"before\n{head}\n\nThe 38 tests measured take 439 seconds")
    assert "| 29.1 | `tests/test_29.py::test` |\n| 28.1 |" in text
    assert text.count("| `tests/") == 25
    assert "99" not in text
    assert text.endswith(f"|\n\n{end}\nafter\n")
    place, *names = slow.read_text().splitlines()
    assert place == "tests/test_28.py"
    slowest = {f"tests/test_{number}.py::test" for number in range(1, 30)}
    slowest |= {"tests/test_30.py::test_6", "tests/test_30.py::test_7"}
    assert names == sorted(slowest - {"tests/test_28.py::test"})
    document.write_text("no table")
    refused = run(project / ".ci" / "durations", "later", folder=project)
    assert (refused.returncode, document.read_text()) == (1, "no table")
    assert "no table of the longest tests" in refused.stderr


def test_the_slow_tests_that_are_listed_exist():
    root = SCRIPTS.parent
    for line in (root / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines():
        path, _, name = line.partition("::")
        assert (root / path).exists(), line
        if name:
            function = name.partition("[")[0].rpartition("::")[2]
            assert f"def {function}(" in (root / path).read_text(encoding="utf-8"), line
