"""The standalone page: one HTML file that holds the front end and its data, and loads nothing.

Its content security policy allows its own script and style alone, by their hashes. The data is base64 of a bundle;
the front end displays all its text as text, never as markup.
"""

import base64
import hashlib
import html
import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from regard import files
from regard.explorer.contract import Scene, pack

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{meta}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
{head}</head>
<body>
{body}</body>
</html>
"""
_EXPLORER = """<div id="regard-explorer"{data}></div>
<noscript><p>This page draws its pictures with a script, which your browser does not run.</p></noscript>
"""
_STYLE = '<link rel="stylesheet" href="explorer.css">\n'
# The style of the page around the explorer.
AROUND = "html{background:#fcfcfa}body{margin:0}@media(prefers-color-scheme:dark){html{background:#12161c}}"


def write(path: str | os.PathLike[str], scene: Scene) -> Path:
    """Write the page of a scene to a file, atomically; an existing file is replaced.

    Raises:
        OSError: the file cannot be written.
    """
    return files.write(path, render(scene).encode())


def render(scene: Scene) -> str:
    """The page of a scene as one string of HTML."""
    return standalone(pack(scene), scene.title)


def standalone(bundle: bytes, title: str) -> str:
    """The page that shows a packed bundle."""
    style, script = (
        built_file("explorer-style.css").strip() + AROUND,
        built_file("explorer.js").strip(),
    )
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    data = base64.b64encode(bundle).decode("ascii")
    return _PAGE.format(
        meta=f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
        title=html.escape(title.encode("utf-8", "replace").decode()),  # a lone surrogate is "?"
        head=f"<style>{style}</style>\n",
        body=_EXPLORER.format(data="")
        + f'<script type="application/octet-stream" id="regard-bundle">{data}</script>\n'
        f'<script type="module">{script}</script>\n',
    )


def served(
    models: Sequence[str],
    scene: bool = False,
    trains: bool = False,
    pairs: bool = False,
    languages: Sequence[str] = (),
) -> str:
    """The page of a server, which loads its script, its style and, where there is one, its scene from there.

    `trains` says that a model may get checkpoints while the page is open; `pairs`, that it has gold links;
    `languages` are the names of models that read prompts.
    """
    data = (
        f' data-models="{html.escape(json.dumps(list(models)))}"'
        + ' data-scene="api/scene"' * scene
        + ' data-trains="yes"' * trains
        + ' data-pairs="yes"' * pairs
        + f' data-languages="{html.escape(json.dumps(list(languages)))}"' * bool(languages)
    )
    body = _EXPLORER.format(data=data) + '<script type="module" src="explorer.js"></script>\n'
    return _PAGE.format(meta="", title="Regard", head=_STYLE, body=body)


def opening(text: str) -> str:
    """The page of a server that still opens its models. It loads itself anew each second."""
    meta = '<meta http-equiv="refresh" content="1">\n'
    body = f'<main id="regard-opening" class="regard-explorer" role="status">\n<p>{html.escape(text)}</p>\n</main>\n'
    return _PAGE.format(meta=meta, title="Regard: opening", head=_STYLE, body=body)


def built_file(name: str) -> str:
    """A file of the built front end."""
    return resources.files(__package__).joinpath("static", name).read_text("utf-8")


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
