"""The explorer in a notebook: a widget of anywidget where it is installed, else the page in a frame."""

from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from regard.explorer.contract import Scene, pack
from regard.explorer.page import built_file, standalone

HEIGHT = 720  # pixels of a frame


class Frame:
    """The standalone page of a scene. Its frame runs the page's own script alone, without the notebook's rights."""

    def __init__(self, scene: Scene) -> None:
        self._page, self._title = standalone(pack(scene), scene.title), scene.title

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self._page)}" title="{escape(self._title)}" width="100%" height="{HEIGHT}"'
            ' style="border:0" sandbox="allow-scripts allow-downloads"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Explorer of {self._title}: a notebook displays it"


def display(scene: Scene) -> Any:
    """An object that a notebook displays as the explorer of a scene."""
    if find_spec("anywidget") is None:
        return Frame(scene)
    return _widget(pack(scene))


def _widget(bundle: bytes) -> Any:
    """The front end as a widget; the bundle travels as bytes."""
    anywidget, traitlets = import_module("anywidget"), import_module("traitlets")
    trait = traitlets.Bytes(bundle).tag(sync=True)
    members = {
        "_esm": built_file("explorer.js"),
        "_css": built_file("explorer-style.css"),
        "bundle": trait,
    }
    return type("Explorer", (anywidget.AnyWidget,), members)()
