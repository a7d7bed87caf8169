"""The explorer in a notebook: a widget, and a frame where there is no anywidget."""

from __future__ import annotations

import base64
import json
import re
from html import unescape
from queue import Queue

import pytest
import torch
from tests.explorer.bundles import Bundle
from tests.explorer.languages import language
from tests.watching.cases import Fused

import regard
from regard.explorer import notebook
from regard.explorer.contract import pack
from regard.explorer.server.kernel import Kernel
from regard.translation.results import Translation
from regard.translation.translator import Translator

EVIL = '"></iframe><script>alert(1)</script>'


@pytest.fixture
def seen():
    query, model = torch.randn(1, 2, 4, 8), Fused()
    with regard.watch(model) as seen:
        model(query, query, is_causal=True)
    return seen


def test_a_widget_has_the_front_end_and_the_bundle(seen):
    pytest.importorskip("anywidget")
    widget = seen.explore(tokens=list("abcd"), title=EVIL)
    page = Bundle(widget.bundle)
    assert page.header["title"] == EVIL
    assert page.labels("self") == (list("abcd"), list("abcd"))
    state = widget.get_state()
    assert state["bundle"] == pack(seen.scene(tokens=list("abcd"), title=EVIL))
    assert "render" in state["_esm"]
    assert ".regard" in state["_css"]


def test_without_anywidget_there_is_a_frame_that_runs_scripts_alone(seen, monkeypatch):
    monkeypatch.setattr(notebook, "find_spec", lambda name: None)
    html = seen.explore(title=EVIL)._repr_html_()
    assert html.count("<") == 4  # a line, <iframe> and their ends
    assert 'sandbox="allow-scripts allow-downloads"' in html
    page = unescape(re.search(r'srcdoc="([^"]*)"', html)[1])
    data = re.search(r'id="regard-bundle">([^<]*)<', page)[1]

    assert Bundle(base64.b64decode(data)).names == ["self"]


def test_a_look_has_its_words_and_the_numbers_of_its_heads(seen, monkeypatch):
    monkeypatch.setattr(notebook, "display", lambda scene, frame: scene)
    scene = seen["self"].explore(queries="wxyz", keys="abcd", entry=0)
    (one,) = scene.attentions
    assert one.shape == (2, 4, 4)
    assert [side.tokens for side in scene.sequences] == [list("wxyz"), list("abcd")]
    assert scene.title == one.name == "Fused: self"
    (one,) = seen["self"][0, 1:].explore().attentions
    assert list(one.heads) == [1]
    (one,) = regard.look(torch.zeros(3, 4), torch.zeros(5, 4)).explore().attentions
    assert one.shape == (1, 3, 5)
    with pytest.raises(regard.ShapeError, match="3 words for 4: pass one for each key"):
        seen["self"].explore(keys="abc")
    with pytest.raises(regard.ShapeError, match="no weight"):
        regard.look(torch.zeros(0, 4), torch.zeros(5, 4)).explore()


def test_a_translation_shows_its_looks(monkeypatch):
    monkeypatch.setattr(notebook, "display", lambda scene, frame: scene)
    translator = Translator.open("es-en-tiny")
    (made,) = translator.translate(["El gato negro duerme."], looks=True)
    scene = made.explore()
    assert scene.translation["translation"] == made.text
    assert {one.name for one in scene.attentions} == set(made.looks)
    with pytest.raises(ValueError, match="looks=True"):
        Translation("hola", "hello").explore()


def test_a_frame_is_shown_on_request(seen):
    frame = seen.explore(frame=True)
    assert isinstance(frame, notebook.Frame)
    assert frame.reason is None
    assert seen["self"].explore(frame=True).reason is None


def test_a_server_of_another_environment_without_anywidget_gets_a_frame_that_says_so(
    seen, monkeypatch, tmp_path
):
    pytest.importorskip("anywidget")
    monkeypatch.setattr(notebook, "server_prefix", lambda: tmp_path)
    monkeypatch.setattr(notebook, "_shared", lambda server: [server])
    html = seen.explore()._repr_html_()
    assert html.startswith(f"<p>The notebook&#x27;s server runs in {tmp_path}, another environment")
    assert "<iframe" in html
    (tmp_path / notebook.EXTENSION).mkdir(parents=True)
    assert not isinstance(seen.explore(), notebook.Frame)


def test_a_widget_of_a_language_model_runs_it_in_the_kernel(monkeypatch):
    pytest.importorskip("anywidget")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    tiny = language()
    with torch.no_grad(), regard.watch(tiny.model) as seen:
        tiny.run(tiny.start)
    widget = seen.explore(tokenizer=tiny.tokenizer)
    assert (widget.runs, widget.languages) == (True, ["LlamaForCausalLM"])
    answers: Queue = Queue()
    kernel = Kernel(tiny, lambda content, buffers: answers.put((content, buffers)))
    body = json.dumps({"model": "tiny", "text": ""})
    kernel.take({"id": 7, "path": "api/prompt", "method": "POST", "body": body})
    content, (data,) = answers.get(timeout=60)
    assert content == {"id": 7, "status": 200}
    header = Bundle(data).header
    assert header["prompt"]["text"] == "Mary saw"
    kernel.take({"id": 8, "path": f"api/file?run={header['run']}", "method": "GET", "body": ""})
    content, (data,) = answers.get(timeout=60)
    assert content == {"id": 8, "status": 200}
    assert data.startswith(b"<!doctype html>")
    kernel.take({"id": 9, "path": "api/nowhere", "method": "GET", "body": ""})
    assert answers.get(timeout=60)[0] == {"id": 9, "status": 404}
