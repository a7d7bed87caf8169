"""Ctrl-C while Python starts or ends: no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import regard

START = """\
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with SIGINT ignored
press = lambda *_: os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["regard", "--version"]
"""
AT_THE_END = "atexit.register(press)\n"
WHILE_IMPORTING = """\
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "regard.cli.main":
            press()
sys.meta_path.insert(0, Finder())
"""
SECOND = """\
import regard.cli.main
def run():
    print("half")
    raise KeyboardInterrupt
regard.cli.main.main = run
"""
IGNORED = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + AT_THE_END
RUN = "from regard.__main__ import main\nsys.exit(main())\n"


@pytest.mark.parametrize(
    ("when", "code", "out"),
    [
        (AT_THE_END, -signal.SIGINT, "regard "),
        (WHILE_IMPORTING, -signal.SIGINT, ""),
        (SECOND, 130, "half"),
        (IGNORED, 0, "regard "),
        ("", 0, "regard "),
    ],
    ids=["while ending", "while importing", "while reporting", "ignored", "never"],
)
def test_an_interrupt_outside_the_command_leaves_no_traceback(when, code, out):
    ended = subprocess.run(
        [sys.executable, "-c", START + when + RUN],
        env={"PYTHONPATH": str(Path(regard.__file__).parents[1]), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    assert ended.stdout.startswith(out)
