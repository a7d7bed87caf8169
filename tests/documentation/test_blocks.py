"""Every block of the documents runs, or says why not: commands in a prepared folder, Python in one namespace a page."""

import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest
from tests.documentation.blocks import DOCUMENTS, ROOT, Block, blocks, complaint, hidden
from tests.documentation.stage import build, shortened
from tests.journeys.commands import run

from regard.cli.commands import explore
from regard.cli.output.progress import Reporter

RULES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
GUIDE = ROOT / "docs" / "guides" / "own-pair.md"


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stage")
    (configuration,) = [
        block.text
        for block in blocks(GUIDE.read_text("utf-8"))
        if block.text.startswith("seed = 1")
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("REGARD_DATA", raising=False)
        patch.setattr(Reporter, "draw_curves", lambda self: None)
        build(folder, configuration)
    return folder


@pytest.fixture
def stage_copy(stage, tmp_path, monkeypatch):
    """A copy of the prepared folder to work in. The explorer's server ends as soon as it listens."""
    folder = Path(shutil.copytree(stage, tmp_path / "here"))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setattr(Reporter, "draw_curves", lambda self: None)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: [s.close() for s in sockets])
    monkeypatch.setattr(explore.typer, "launch", lambda address: None)


def commands(text: str) -> list[str]:
    """The lines of a shell block; a line that ends in a backslash continues."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def run_line(line: str) -> str:
    """Run one command, with `<` and `>`, and return what it printed on the screen."""
    input_path = printed = None
    stdin = b""
    if line.startswith("printf "):
        text, _, line = line.partition(" | ")
        stdin = (
            shlex.split(text)[1]
            .encode("latin-1", "backslashreplace")
            .decode("unicode_escape")
            .encode()
        )
        if not line:  # printf 'TEXT' > FILE
            Path(shlex.split(text)[3]).write_bytes(stdin)
            return ""
    name, *words = shlex.split(line, comments=True)
    assert name == "regard", f"{line}: only `regard` is run here; mark the block"
    if ">" in words:
        *words, _, printed = words
    if "<" in words:
        *words, _, input_path = words
    _make_room(words)
    result = run(*shortened(words), stdin=Path(input_path).read_bytes() if input_path else stdin)
    assert result.code == 0, f"{line}\n{result.err}"
    if printed:
        Path(printed).write_text(result.out, encoding="utf-8")
    return result.err + ("" if printed else result.out)


def _make_room(words: list[str]) -> None:
    """Remove what an earlier line made: the lines of a page are often choices, of which a person takes one."""
    if words[0] == "train" and "--resume" not in words:
        at = words.index("--run") + 1 if "--run" in words else 0
        shutil.rmtree(words[at] if at else Path("runs") / Path(words[1]).stem, ignore_errors=True)
    if words[:2] == ["data", "split"]:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
    if words[:2] == ["data", "back-translate"]:
        Path(words[words.index("--out") + 1]).unlink(missing_ok=True)


def run_shell(block: Block, namespace: dict) -> None:
    for line in commands(block.text):
        run_line(line)


def run_console(block: Block, namespace: dict) -> None:
    """Run the lines after `$ `; each must print what the block shows below it, `...` for any text."""
    typed_lines = ("\n" + block.text.replace("\\\n", " ")).split("\n$ ")[1:]
    assert typed_lines, f"line {block.line}: no line begins with `$ `"
    for typed in typed_lines:
        line, _, expected = typed.partition("\n")
        actual = run_line(line)
        assert agree(expected, actual), f"$ {line}\n{actual}"


def agree(expected: str, actual: str) -> bool:
    """Whether outputs are equal, up to space, `...` and the digits that differ between processors."""
    texts = [
        re.sub(r"\d+\.\d{4,}", lambda m: f"{float(m[0]):.3f}", text) for text in (expected, actual)
    ]
    return doctest.OutputChecker().check_output(*(text + "\n" for text in texts), RULES)


def run_python(block: Block, namespace: dict) -> None:
    if ">>>" not in block.text:
        exec(compile(block.text, f"line {block.line}", "exec"), namespace)  # noqa: S102 - our own pages
        return
    typed = doctest.DocTestParser().get_doctest(block.text, namespace, "", "", block.line)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=RULES, verbose=False)
    runner.run(typed, out=report.append, clear_globs=False)
    namespace.update(typed.globs)
    assert not runner.failures, "".join(report)


RUNNERS = {"python": run_python, "bash": run_shell, "console": run_console}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_the_blocks_of_a_page_run_in_their_order(document, stage_copy):
    namespace: dict = {}
    for block in blocks(document.read_text(encoding="utf-8")):
        if block.runs:
            RUNNERS[block.language](block, namespace)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_block_runs_or_says_why_not(document):
    text = document.read_text(encoding="utf-8")
    actual_blocks = blocks(text)
    assert hidden(text) == []
    assert [f"line {b.line}: {complaint(b)}" for b in actual_blocks if complaint(b)] == []


@pytest.mark.parametrize(
    "text",
    [
        "```\nregard models\n```\n",
        "```sh\nregard models\n```\n",
        "<!-- not run: it is long -->\n```bash\nregard models\n```\n",
        "<!-- costly -->\n```bash\nregard models\n```\n",
    ],
)
def test_a_block_without_a_language_or_a_reason_is_found(text):
    (block,) = blocks(text)
    assert complaint(block) is not None


@pytest.mark.parametrize(
    "text", ["- list\n\n  ```bash\n  regard models\n  ```\n", "~~~bash\nregard models\n~~~\n"]
)
def test_a_block_that_would_be_overlooked_is_found(text):
    assert hidden(text) != []


def test_a_marked_block_is_not_run_and_others_are():
    marked, run_here = blocks(
        "<!-- not run: costly, an hour -->\n```bash\nregard train\n```\n\n```bash\nregard models\n```\n"
    )
    assert (marked.runs, run_here.runs) == (False, True)
    assert complaint(marked) is None


@pytest.mark.parametrize(
    ("display", "printed", "same"),
    [
        ("a ... d", "a b c d", True),
        ("score -0.3665773", "score -0.3665766", True),
        ("score -0.366", "score -0.367", False),
        ("0-0 1-2", "0-0 1-1", False),
        ("", "note: something", False),
    ],
)
def test_outputs_are_compared(display, printed, same):
    assert agree(display, printed) is same


def test_a_wrong_output_or_an_unknown_command_fails(stage_copy):
    (block,) = blocks("```console\n$ regard --version\nregard 9.9\n```\n")
    with pytest.raises(AssertionError, match="regard --version"):
        run_console(block, {})
    with pytest.raises(AssertionError, match="mark the block"):
        run_line("rm -r runs")
