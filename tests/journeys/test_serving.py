"""`regard serve` with two processes: one that is killed is replaced, and a signal ends all of them."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.journeys.commands import check_refused, run, start

if not Path("/proc/self/task").exists():
    pytest.skip("no /proc on this system", allow_module_level=True)


def workers(process: int) -> set[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    }


def translation(address: str) -> str:
    body = json.dumps({"q": "El gato duerme.", "source": "es", "target": "en"}).encode()
    request = Request(address + "translate", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())["translatedText"]


def test_a_killed_worker_is_replaced_and_a_signal_ends_all():
    process = start("serve", "es-en-tiny", "--port", "0", "--workers", "2")
    try:
        address = re.search(r"http://\S+/", process.stdout.readline().decode())[0]
        assert translation(address) == "The cat sleeps."
        while len(before := workers(process.pid)) < 2:
            time.sleep(0.1)
        os.kill(min(before), signal.SIGKILL)
        assert translation(address) == "The cat sleeps."
        while len(after := workers(process.pid)) < 2 or after == before:
            time.sleep(0.1)
        assert translation(address) == "The cat sleeps."
        with urlopen(address + "metrics", timeout=60) as answer:
            assert "regard_processes 2" in answer.read().decode()
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b"Traceback" not in errors
    assert not any(Path(f"/proc/{worker}").exists() for worker in after)


@pytest.mark.parametrize(
    ("arguments", "named", "code"),
    [
        (["--host", "0.0.0.0"], "--keys", 2),
        (["--host", "999.1.1.1", "--keys", "keys"], "999.1.1.1", 1),
        (["--keys", "nowhere"], "nowhere", 1),
        (["--keys", "short"], "key 1", 2),
        (["--keys", "empty"], "empty", 2),
        (["--downloads", "nowhere"], "nowhere", 2),
        (["nowhere"], "nowhere", 1),
        (["es-en", "es-en-tiny"], "es-en-tiny: translates es to en", 2),
    ],
    ids=str,
)
def test_a_server_that_cannot_start_says_why(tmp_path, arguments, named, code):
    for name, content in (("keys", "a" * 20), ("short", "abc"), ("empty", "\n")):
        (tmp_path / name).write_text(content)
    places = [
        tmp_path / each if option in ("--keys", "--downloads") else each
        for option, each in zip(["", *arguments], arguments, strict=False)
    ]
    check_refused(run("serve", "--port", "0", *places), named, code=code)
