"""The explorer in a notebook: a widget of anywidget, whose kernel answers as a server does, or the page in a frame."""

import os
import sys
from collections.abc import Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.explorer import prompting
from regard.explorer.contract import Scene, pack
from regard.explorer.page import built_file, standalone
from regard.explorer.prompting import LanguageModel

HEIGHT = 720  # pixels of a frame
EXTENSION = Path("share", "jupyter", "labextensions", "anywidget")
MISSING = 'anywidget is not installed here: pip install "regard[notebook]" for the widget'


class Frame:
    """The standalone page of a scene. Its frame runs the page's own script alone, without the notebook's rights.

    `reason` says why it is shown in place of a widget.
    """

    def __init__(self, scene: Scene, reason: str | None = None) -> None:
        self._page, self._title = standalone(pack(scene), scene.title), scene.title
        self.reason = reason

    def _repr_html_(self) -> str:
        line = "" if self.reason is None else f"<p>{escape(self.reason)}</p>"
        return (
            f'{line}<iframe srcdoc="{escape(self._page)}" title="{escape(self._title)}" width="100%" height="{HEIGHT}"'
            ' style="border:0" sandbox="allow-scripts allow-downloads"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Explorer of {self._title}: a notebook displays it"


def display(scene: Scene, frame: bool = False, language: LanguageModel | None = None) -> Any:
    """An object that a notebook displays as the explorer of a scene.

    Args:
        frame: show a frame in any case.
        language: a model that the widget can run; it then shows the prompt of this model.
    """
    if frame:
        return Frame(scene)
    if reason := objection():
        return Frame(scene, reason)
    return _widget(scene, language)


def language(
    scene: Scene, model: nn.Module | None, ids: Tensor | None, tokenizer: Any
) -> LanguageModel | None:
    """The model of a watch as one that reads prompts, at first those of the scene; None if it cannot."""
    if model is None or prompting.objection(model, ids, tokenizer) is not None:
        return None
    crosses = [each for each in scene.attentions if each.kind == "cross"]
    target = scene.sequences[crosses[0].rows].ids if crosses else None
    start = prompting.start_of(ids) or ()
    return LanguageModel(scene.title, model, tokenizer, start, target or ())


def objection() -> str | None:
    """Why no widget can be shown, or None."""
    if find_spec("anywidget") is None:
        return MISSING
    server = server_prefix()
    if server is None or any((folder / EXTENSION).is_dir() for folder in _shared(server)):
        return None
    return (
        f"The notebook's server runs in {server}, another environment than this kernel, and has no anywidget: install"
        " anywidget there and reload the page to see the widget. This frame needs none, and cannot run the model."
    )


def server_prefix() -> Path | None:
    """The environment of the notebook's server where it differs from that of this kernel; None if it is unknown."""
    try:  # the server tells a kernel its process; Linux tells its program
        process = int(os.environ["JPY_PARENT_PID"])
        program = Path("/proc", str(process), "cmdline").read_bytes().split(b"\0")[0].decode()
    except (KeyError, ValueError, OSError):
        return None
    prefix = Path(program).parent.parent
    differs = Path(program).is_absolute() and prefix != Path(sys.prefix)
    return prefix if differs else None


def _shared(server: Path) -> Sequence[Path]:
    """The folders from which a server in this environment loads extensions."""
    return [server, Path.home() / ".local", Path("/usr/local"), Path("/usr")]


def _widget(scene: Scene, language: LanguageModel | None) -> Any:
    """The front end as a widget. The bundle travels as bytes; that of a model comes when the page asks for it."""
    anywidget, traitlets = import_module("anywidget"), import_module("traitlets")

    def synced(kind: str, value: Any) -> Any:
        return getattr(traitlets, kind)(value).tag(sync=True)

    members = {
        "_esm": built_file("explorer.js"),
        "_css": built_file("explorer-style.css"),
        "bundle": synced("Bytes", b"" if language else pack(scene)),
        "runs": synced("Bool", language is not None),
        "languages": synced("List", [language.name] if language else []),
    }
    widget = type("Explorer", (anywidget.AnyWidget,), members)()
    if language is not None:
        kernel = import_module("regard.explorer.server.kernel").Kernel(language, widget.send)
        widget.on_msg(lambda _, content, __: kernel.take(content))
    return widget
