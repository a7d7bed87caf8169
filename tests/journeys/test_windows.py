"""Training and translating where POSIX is not: see `windows.py` for what is hidden and what stays untested."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("windows.py")
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="open files are found in /proc"
)


def on_windows(*commands: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run commands in a process of their own, which has sets in another order as well."""
    actual_folder = folder / "commands.json"
    actual_folder.write_text(json.dumps(commands), encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(actual_folder)],
        cwd=folder,
        env=os.environ | {"PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_module_is_imported_and_a_model_trained_and_used(trained, corpus, tmp_path):
    """The model has the bits of the one trained here: neither Windows nor the order of hashes changes one."""
    run, text = str(tmp_path / "run"), str(corpus / "train.en")
    shutil.copytree(trained, tmp_path / "resumed")
    table = "".join(f"El gato {i}\tThe cat {i}\n" for i in range(50))
    (tmp_path / "pairs.tsv").write_text(table, encoding="utf-8")
    completed = on_windows(
        ["train", str(corpus / "tiny.toml"), "--run", run],
        ["train", "resumed", "--resume", "--data", str(corpus), "--set", "training.max_steps=14"],
        ["translate", "--model", run, "El gato"],
        ["look", "El gato", "--model", run, "--out", "look.png"],
        ["look", "El gato", "--model", run, "--out", "look.html"],
        ["data", "back-translate", text, "--model", run, "--out", "made.tsv", "--ratio", "1000"],
        ["data", "split", "pairs.tsv", "--out", "parts", "--valid", "5", "--test", "5"],
        folder=tmp_path,
    )
    assert completed.returncode == 0, completed.stderr
    for name in ("model.safetensors", "tokenizer.model", "checksums.json"):
        assert (tmp_path / "run" / name).read_bytes() == (trained / name).read_bytes()
    assert (tmp_path / "resumed" / "checkpoints" / "step-14").is_dir()
    for name in ("look.png", "look.html", "made.tsv", "parts/train.tsv"):
        assert (tmp_path / name).stat().st_size, completed.stderr
    remaining_names = [
        p.name
        for p in tmp_path.rglob("*")
        if ".tmp" in p.name or ".part" in p.name or ".lock" in p.name
    ]
    assert remaining_names == []


@pytest.mark.parametrize(
    "program",
    [
        "import fcntl",
        "import signal; signal.SIGHUP",
        "import os; os.open('.', os.O_RDONLY)",
        "import os; file = open('one', 'w'); os.replace('one', 'two')",
        "import os; open('one', 'w').close(); os.fsync(os.open('one', os.O_RDONLY))",
    ],
)
def test_the_stand_in_refuses_what_windows_refuses(program, tmp_path):
    script = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import windows; "
    for hidden, code in (("", 0), ("windows.restrict(); windows.hide(); ", 1)):
        command = [sys.executable, "-c", script + hidden + program]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert ended.returncode == code, ended.stderr
