"""Show the explorer in a real JupyterLab, driven by Chromium: python docs/images/notebook.py ENVIRONMENT PICTURE

ENVIRONMENT is a virtual environment with JupyterLab; the kernel is this Python. With anywidget in both, the widget
appears, and the kernel runs the model; else a frame, and a line that says why. It needs playwright and the system's
chromium, and writes a picture of the cell.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Page, sync_playwright

PORT = 8899
CODE = """import torch, regard
from tests.explorer.languages import language
tiny = language()
with torch.no_grad(), regard.watch(tiny.model) as seen:
    tiny.run(tiny.start)
seen.explore(tokenizer=tiny.tokenizer)"""
SHOWN = ".regard .head-grid button[data-value], iframe[srcdoc]"
FLAGS = ["--no-browser", "--allow-root", f"--port={PORT}", "--IdentityProvider.token="]


def prepare(folder: Path) -> None:
    """A notebook with one cell, and a kernel of this Python."""
    kernel = folder / "share" / "jupyter" / "kernels" / "this"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification = {"argv": command, "display_name": "this", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(specification))
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None}
    metadata = {"kernelspec": {"name": "this", "display_name": "this", "language": "python"}}
    notebook = {"cells": [{**cell, "source": CODE}], "metadata": metadata}
    (folder / "explore.ipynb").write_text(
        json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5})
    )


def show(page: Page, picture: Path) -> None:
    """Run the cell, open Effects where the widget has it, and print what appeared."""
    page.goto(f"http://127.0.0.1:{PORT}/lab/tree/explore.ipynb", timeout=120_000)
    page.locator(".jp-CodeCell .cm-content").first.click(timeout=120_000)
    page.wait_for_timeout(10_000)  # the kernel starts
    page.keyboard.press("Shift+Enter")
    page.locator(".regard [role=tab], iframe[srcdoc]").first.wait_for(timeout=300_000)
    effects = page.locator(".regard [role=tab]", has_text="Effects")
    if page.locator(".regard").count():
        effects.click(timeout=120_000)
    page.locator(SHOWN).first.wait_for(timeout=300_000)
    page.wait_for_timeout(3000)
    print(page.locator(".jp-OutputArea-output p, .regard [role=tab]").all_inner_texts())
    page.screenshot(path=picture)


def main() -> None:
    environment, picture = Path(sys.argv[1]).absolute(), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        variables = {"JUPYTER_PATH": f"{folder}/share/jupyter", "PYTHONPATH": os.getcwd()}
        program = [f"{environment}/bin/python", f"{environment}/bin/jupyter-lab", *FLAGS]
        server = subprocess.Popen(
            [*program, f"--ServerApp.root_dir={folder}"], env={**os.environ, **variables}
        )
        try:
            for _ in range(240):
                try:
                    urlopen(f"http://127.0.0.1:{PORT}/api", timeout=2).close()
                    break
                except (URLError, OSError):
                    time.sleep(1)
            with sync_playwright() as running:
                flags = ["--no-sandbox"] if os.geteuid() == 0 else []
                browser = running.chromium.launch(
                    executable_path=shutil.which("chromium"), args=flags
                )
                show(browser.new_page(viewport={"width": 1280, "height": 900}), picture)
                browser.close()
        finally:
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
