"""The front of the commands: quick help, and what every kind of failure looks like."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tests.journeys.commands import run, run_here

import regard
from regard.cli import shipped
from regard.cli.main import _failed, _take_debug, command_line
from regard.cli.output import streams
from regard.cli.signals import Interrupted, Signals
from regard.errors import ConfigurationError, DataError

COMMANDS = (
    "translate",
    "train",
    "evaluate",
    "align",
    "data",
    "look",
    "explore",
    "export",
    "models",
)


def test_help_names_every_command_and_ends_with_examples():
    for arguments in ([], ["--help"]):
        result = run_here(*arguments)
        assert result.code == 0
        assert all(f"\n  {command} " in result.out for command in COMMANDS)
        assert result.out.rstrip().endswith("regard models")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_that_ends_with_examples(command):
    result = run_here(command, "--help")
    assert result.code == 0
    examples = result.out.partition("Examples:\n")[2].rstrip("\n").split("\n")
    assert len(examples) >= 3
    assert all(re.match("(torchrun .* -- )?regard ", line.strip()) for line in examples)


def every_command(group=None, *path: str) -> list[tuple[str, ...]]:
    group = group or command_line()
    paths = [path]
    for name, command in group.commands.items():
        below = getattr(command, "commands", None)
        paths += every_command(command, *path, name) if below else [(*path, name)]
    return paths


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_h_is_help_everywhere(path):
    short, long = run_here(*path, "-h"), run_here(*path, "--help")
    assert (short.code, short.out) == (0, long.out)
    assert long.out.startswith(f"Usage: {' '.join(('regard', *path))} ")


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_no_help_is_cut_off(path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    output = run_here(*path, "--help").out
    assert not re.search(r"\w\.\.\.|…", output), output
    assert max(map(len, output.partition("Examples:")[0].splitlines())) <= 80


def test_each_command_is_listed_with_its_first_sentence(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = " ".join(run_here("--help").out.split())
    for name, command in command_line().commands.items():
        first_sentence = " ".join(command.help.split()).partition(". ")[0].rstrip(".")
        assert (f" {name} {first_sentence}. " in text) != command.hidden


def test_help_and_lists_import_nothing_heavy():
    program = (
        "import sys; from regard.cli.main import main\n"
        "codes = [main(['--help']), main(['look', '--help']), main(['--version']), main(['models'])]\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'rich', 'sentencepiece', 'sacrebleu'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if any(codes) or heavy & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["train", "dates", "--run", ""], "--run"),
        (["train", "dates", "--run="], "--run"),
        (["train", "dates", "--data", ""], "--data"),
        (["look", "El gato", "--out", ""], "--out"),
        (["data", "split", "a.tsv", "--out", ""], "--out"),
        (["translate", "-m", "", "El gato"], "-m"),
        (["evaluate", "--source", "", "--target", "b"], "--source"),
    ],
)
def test_an_empty_name_is_not_the_working_folder(arguments, option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.code == 2
    assert result.last_line == f"error: {option}: is empty: give the name of a file or folder"
    assert list(tmp_path.iterdir()) == []


def test_an_empty_sentence_or_prefix_is_text():
    assert run("translate", "").out == "\n"
    assert run("translate", "El gato.", "--prefix", "").code == 0
    assert run("translate", "--", "--model", "").code == 0


def test_the_version_is_the_package_s():
    assert run("--version").out == f"regard {regard.__version__}\n"


def test_python_m_regard_is_regard(monkeypatch):
    from regard import __main__

    monkeypatch.setattr("regard.cli.main.main", lambda: 7)
    assert __main__.main() == 7


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["translat"], "'translate'"),
        (["train"], "CONFIG"),
        (["look"], "TEXT"),
        (["translate", "--bem", "4"], "--beam"),
        (["models", "extra"], "extra"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_a_command_that_is_not_understood_is_answered_in_a_line(arguments, named):
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.last_line.startswith("error: ")
    assert named in result.last_line
    assert "--help" in result.err


def failed(fault: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = _failed(fault)
    return code, capsys.readouterr().err


def test_failures_have_their_codes_and_one_line(capsys):
    assert failed(DataError("a.txt:3: bad"), capsys) == (1, "error: a.txt:3: bad\n")
    assert failed(ConfigurationError("one", "two"), capsys) == (2, "error: one\nerror: two\n")
    named = DataError("a\nerror: b\x1b[31m\x9b\u202e: no such file")
    message = "error: a error: b\\u001b[31m\\u009b\\u202e: no such file\n"
    assert failed(named, capsys) == (1, message)
    assert failed(KeyboardInterrupt(), capsys) == (130, "interrupted\n")
    assert failed(Interrupted(signal.SIGHUP), capsys)[0] == 129
    code, line = failed(OSError(28, "No space left on device", "/x/y"), capsys)
    assert (code, line) == (1, "error: /x/y: No space left on device\n")
    assert failed(MemoryError(), capsys)[1].startswith("error: out of memory")
    for fault in (
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        ImportError("_C.so: failed to map segment from shared object"),
    ):
        assert failed(fault, capsys)[1].startswith("error: out of memory")
    assert failed(ImportError("no module named x"), capsys)[1].startswith("unexpected error")


def test_an_error_of_the_system_blames_no_stream_that_did_not_fail(capsys):
    for fault, message in (
        (OSError(28, "No space left on device"), "error: No space left on device (add --debug"),
        (OSError("libx.so: cannot open shared object file"), "error: libx.so: cannot open shared"),
        (OSError(28, "No space left on device", "file"), "error: file: No space left on device\n"),
    ):
        assert _failed(fault) == 1
        assert capsys.readouterr().err.startswith(message)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_stream_that_fails_is_named(size, monkeypatch):
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full))
        streams.write_utf8()
        with pytest.raises(OSError, match=r"No space left on device: 'standard output'"):
            print("x" * size, flush=True)
        sys.stdout.detach()


def test_what_nobody_foresaw_is_one_line_with_advice(capsys):
    code, line = failed(KeyError("a\nb" * 500), capsys)
    assert code == 1
    assert line.startswith("unexpected error: KeyError: ")
    assert line.count("\n") == 1
    assert "--debug" in line
    assert len(line) < 1000


def test_the_traceback_is_for_those_who_ask(tmp_path):
    for arguments in (["--debug", "translate"], ["translate", "--debug"]):
        result = run(*arguments, "--model", tmp_path / "none", "a")
        assert result.code == 1
        assert "Traceback" in result.err
        assert result.last_line.startswith("error: ")
    assert "Traceback" not in run("translate", "--model", tmp_path / "none", "a").err


def test_debug_after_two_dashes_is_text():
    assert _take_debug(["translate", "--debug", "a"]) == (("translate", "a"), True)
    assert _take_debug(["translate", "--", "--debug"]) == (("translate", "--", "--debug"), False)


def test_models_lists_configurations_and_what_cards_say(tmp_path, monkeypatch):
    folder = tmp_path / "xx-yy"
    folder.mkdir()
    (folder / "config.toml").touch()
    card = "# xx-yy\n\nA model of X.\n\nmore\n\nScores: BLEU 12.3\n"
    (folder / "card.md").write_text(card, encoding="utf-8")
    monkeypatch.setattr(shipped, "MODELS", tmp_path)
    result = run("models")
    assert result.code == 0
    assert "  xx-yy\n      A model of X.\n      Scores: BLEU 12.3\n" in result.out
    for name in ("reverse", "dates", "tatoeba-es-en", "tatoeba-es-en-recurrent", "tatoeba-en-fr"):
        assert f"  {name} " in result.out
    monkeypatch.setattr(shipped, "MODELS", tmp_path / "none")
    assert "none is bundled" in run("models").out


def test_a_shell_completes_names(monkeypatch):
    completed = sorted(shipped.complete_configuration("tatoeba-es"))
    assert completed == [
        f"tatoeba-es-en{suffix}" for suffix in ("", "-deep", "-recurrent", "-small", "-tiny")
    ]
    program = (
        "import sys; sys.argv = ['regard']\nfrom regard.cli.main import main\nsys.exit(main())"
    )
    environment = {
        "_REGARD_COMPLETE": "complete_bash",
        "COMP_WORDS": "regard train dat",
        "COMP_CWORD": "2",
        "PYTHONPATH": ":".join(sys.path),
    }
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert printed.stdout.split() == ["dates"]


def parameters() -> Iterator[tuple[str, typer.core.TyperArgument]]:
    """Each command line's parameters, with its name."""

    def below(command, name):
        for parameter in command.params:
            yield f"{name} {parameter.name}", parameter
        for word, subcommand in getattr(command, "commands", {}).items():
            yield from below(subcommand, f"{name} {word}".strip())

    yield from below(command_line(), "")


@pytest.mark.parametrize(
    ("parameter", "incomplete", "completed"),
    [
        ("cost subject", "gpt-2", {"gpt-2", "gpt-2-xl"}),
        ("cost subject", "summed", {"summed-heads"}),
        ("cost subject", "dat", {"dates"}),
        ("cost subject", "es-en-t", {"es-en-tiny"}),
        ("programs run name", "hist", {"histogram"}),
        ("programs compile name", "rev", {"reverse"}),
        ("explore names", "es-en-r", {"es-en-recurrent"}),
        ("evaluate baseline", "en-f", {"en-fr"}),
        ("align reverse_model", "en-", {"en-es", "en-fr"}),
        ("config keys table", "sea", {"search"}),
    ],
)
def test_a_parameter_completes_its_names(parameter, incomplete, completed):
    option = dict(parameters())[parameter]
    context = typer.Context(command_line(), resilient_parsing=True)
    assert {each.value for each in option.shell_complete(context, incomplete)} == completed


def test_every_parameter_that_takes_a_name_of_ours_completes_it():
    # --device names a device, --tag a text of the user's; click completes the choices of --tokenize.
    named = {
        name: one._custom_shell_complete is not None
        for name, one in parameters()
        if re.search("NAME|CONFIG|MODEL|TABLE", one.metavar or "")
        if not name.endswith((" device", " tag", " tokenize"))
    }
    assert len(named) > 10
    assert all(named.values()), [name for name, completes in named.items() if not completes]


def test_chunks_are_bounded_in_lines_and_characters():
    assert list(streams.chunks("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    long = "x" * streams.CHARACTERS
    assert [len(chunk) for chunk in streams.chunks([long, "a", "b", long, "c"])] == [1, 3, 1]
    assert list(streams.chunks([])) == []


def test_lines_before_one_that_cannot_be_read_are_not_lost():
    def lines() -> Iterator[str]:
        yield from "abc"
        raise DataError("standard input:4: byte 1")

    chunks = streams.chunks(lines(), 2)
    assert [next(chunks), next(chunks)] == [["a", "b"], ["c"]]
    with pytest.raises(DataError, match="standard input:4"):
        next(chunks)


def test_arguments_become_text():
    assert streams.argument("niño") == "niño"
    assert "\ufffd" in streams.argument("\udced\udca0\udc80")
    assert streams.argument("a\ud800b") == "a?b"


def test_signals_are_heard_only_in_their_block():
    handler_before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        with signals.saving():
            signal.raise_signal(signal.SIGTERM)
            assert signals.stop()
        assert signals.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == handler_before
    with Signals(), pytest.raises(Interrupted):
        signal.raise_signal(signal.SIGINT)


def test_a_hang_up_that_is_ignored_stays_ignored():
    handler_before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            signal.raise_signal(signal.SIGHUP)
        assert not signals.stop()
    finally:
        signal.signal(signal.SIGHUP, handler_before)
