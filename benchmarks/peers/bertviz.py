"""The explorer's file beside bertviz' model view: the same weights of 12 layers and 12 heads, in the same browser.

python benchmarks/peers/bertviz.py --bertviz PYTHON --scripts FOLDER [--tokens 64 128 ...] [--out FILE]

The weights are those of a causal attention of random vectors. bertviz gets them as float32 tensors
and writes its model view; Regard writes the file of the explorer, which above 2,097,152 weights holds
a picture of each head and the 8 largest weights of each row. "regard, every weight" is the same file
with every weight in float16, whatever their number. A page is ready when it has drawn all 144 heads
and the browser has painted them. Requests are those that leave the machine.

--bertviz is the Python of an environment with `pip install bertviz==1.4.1 ipython requests tqdm regex
boto3 sentencepiece torch`. Its pages load three scripts from cdnjs.cloudflare.com; the browser has no
network here and gets them from --scripts, the node_modules of `npm install requirejs@2.3.6 d3@5.7.0
jquery@2.1.0` (npm has no jquery 2.0.0, which bertviz asks for).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from playwright.sync_api import Browser, Error, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _measure import machine

import regard
from regard.explorer import Attention, Scene, Sequence, pack
from regard.explorer.page import standalone

LAYERS = HEADS = 12
SECONDS = 120
BYTES = 1 << 30  # of a page
MEMORY = 8 << 30  # of one process of the browser
SCRIPTS = {
    "require.min.js": "requirejs/require.js",
    "d3.min.js": "d3/dist/d3.min.js",
    "jquery.min.js": "jquery/dist/jquery.min.js",
}
THEIRS = """
import sys, numpy, torch
from bertviz import model_view
weights = torch.from_numpy(numpy.load(sys.argv[1]))
tokens = [f"t{i}" for i in range(weights.shape[-1])]
page = model_view(list(weights.unsqueeze(1)), tokens, html_action="return")
open(sys.argv[2], "w").write(page.data)
"""
READY = {
    "bertviz": """() => document.querySelectorAll("rect.attn_background").length === 144""",
    "regard": """() => {
        const drawn = document.querySelectorAll("ul.grid canvas");
        return drawn.length === 144 && [...drawn].every((one) => one.width === SIDE);
    }""",
}
# Two frames after the condition holds, the picture is on the screen.
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def scene(tokens: int) -> Scene:
    generator = torch.Generator().manual_seed(tokens)
    attentions = []
    for layer in range(LAYERS):
        query, key = (torch.randn(HEADS, tokens, 16, generator=generator) for _ in range(2))
        look = regard.look(query * 2, key, mask=regard.masks.causal(align="end"))
        attentions.append(Attention(f"layer.{layer}.self", "causal", look, 0, 0))
    return Scene("a model", [Sequence("tokens", [f"t{i}" for i in range(tokens)])], attentions)


def ours(page_scene: Scene, path: Path, **how: int) -> None:
    path.write_text(standalone(pack(page_scene, **how), page_scene.title))


def theirs(python: str, page_scene: Scene, path: Path) -> None:
    weights = path.with_suffix(".npy")
    np.save(weights, torch.stack([one.look.weights() for one in page_scene.attentions]).numpy())
    subprocess.run([python, "-c", THEIRS, weights, path], check=True)
    weights.unlink()


def open_page(browser: Browser, path: Path, ready: str, scripts: Path) -> dict[str, Any]:
    """Seconds until a page is ready, its nodes, and the requests that leave the machine."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    outside: list[str] = []
    crashed: list[object] = []
    errors: list[str] = []
    page.on("crash", lambda has_crashed: crashed.append(has_crashed))
    page.on("pageerror", lambda fault: errors.append(str(fault)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on(
        "request",
        lambda asked: outside.append(asked.url) if asked.url.startswith("http") else None,
    )
    page.route(
        re.compile("^https?:"),
        lambda route: route.fulfill(path=scripts / SCRIPTS[route.request.url.rsplit("/", 1)[1]]),
    )
    page.set_default_timeout(SECONDS * 1000)
    start = time.perf_counter()
    try:
        page.goto(path.as_uri() + "#view=heads", wait_until="commit", timeout=SECONDS * 1000)
        page.wait_for_function(ready, timeout=SECONDS * 1000)
        page.evaluate(PAINTED)
        seconds = time.perf_counter() - start
        nodes = page.evaluate("document.querySelectorAll('*').length")
        return {"seconds": round(seconds, 2), "nodes": nodes, "requests": len(outside)}
    except Error as fault:
        has_crashed = crashed or "crash" in str(fault).lower() or "closed" in str(fault).lower()
        why = "the browser's process ended" if has_crashed else f"not ready after {SECONDS} s"
        return {"failed": why, "requests": len(outside), "errors": errors[:3]}


def measured(path: Path, ready: str, scripts: Path) -> dict[str, Any]:
    """A page in a browser of its own, which is ended by force where it takes too much."""
    size = path.stat().st_size
    if size > BYTES:
        return {"bytes": size, "failed": f"the page is larger than {BYTES >> 30} GB"}
    with sync_playwright() as running:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        done, ended = threading.Event(), list[str]()
        guard = threading.Thread(target=_limit, args=(done, ended), daemon=True)
        guard.start()
        try:
            figures = open_page(browser, path, ready, scripts)
            version = browser.version
        finally:
            done.set()
            guard.join()
        if "failed" in figures:
            _end()  # a page that still computes does not close by itself
            figures["failed"] = (ended or [figures["failed"]])[0]
        browser.close()
    return {"bytes": size, **figures, "chromium": version}


def _limit(done: threading.Event, ended: list[str]) -> None:
    """End the processes that run pages when one takes too much memory, or when the time is over."""
    end = time.monotonic() + 1.5 * SECONDS
    while not done.wait(0.5):
        if any(memory > MEMORY for _, memory in _renderers()):
            ended.append(f"not ready with {MEMORY >> 30} GB of memory")
            _end()
        elif time.monotonic() > end:
            _end()


def _end() -> None:
    for process, _ in _renderers():
        os.kill(process, signal.SIGKILL)


def _renderers() -> list[tuple[int, int]]:
    """The browser's processes that run pages, below this one, and their memory in bytes."""
    parents, processes = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(folder.name)] = int(words[1])
        if b"--type=renderer" in command:
            processes.append((int(folder.name), int(words[21]) * os.sysconf("SC_PAGE_SIZE")))

    def below(process: int) -> bool:
        while process > 1:
            process = parents.get(process, 0)
            if process == os.getpid():
                return True
        return False

    return [one for one in processes if below(one[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bertviz", required=True, help="the Python it is installed for")
    parser.add_argument("--scripts", type=Path, required=True, help="a node_modules folder")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 128, 256, 384, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    version = "from importlib.metadata import version; print(version('bertviz'))"
    results: dict[str, Any] = {
        "machine": machine(),
        "versions": {
            "bertviz": subprocess.check_output([options.bertviz, "-c", version], text=True).strip(),
        },
        "note": options.note,
        "limits": {"seconds": SECONDS, "bytes": BYTES, "memory": MEMORY},
        "pages": {},
    }
    for tokens in options.tokens:
        page_scene = scene(tokens)
        pages = {
            "regard": lambda path, page_scene=page_scene: ours(page_scene, path),
            "regard, every weight": lambda path, page_scene=page_scene: ours(
                page_scene, path, whole=1 << 40
            ),
            "bertviz": lambda path, page_scene=page_scene: theirs(
                options.bertviz, page_scene, path
            ),
        }
        for name, write in pages.items():
            with TemporaryDirectory() as folder:
                path = Path(folder) / "page.html"
                write(path)
                whole = name != "regard" or LAYERS * HEADS * tokens**2 <= 1 << 21
                ready = READY[name.split(",")[0]].replace(
                    "SIDE", str(tokens if whole else min(tokens, 128))
                )
                rounds = []
                for _ in range(options.rounds):
                    rounds.append(measured(path, ready, options.scripts))
                    if "failed" in rounds[-1]:
                        break
            best = min(rounds, key=lambda one: one.get("seconds", 0.0))
            results["versions"]["chromium"] = best.pop("chromium", None) or results["versions"].get(
                "chromium"
            )
            results["pages"].setdefault(name, {})[str(tokens)] = best
            print(tokens, name, json.dumps(best), flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
