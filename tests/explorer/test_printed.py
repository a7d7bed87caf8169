"""The translation that `regard translate` would print, beside the model's own reading of a line."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from regard import Translator
from regard.explorer.server import Explorer, Models, application
from regard.serving.errors import Cancelled
from regard.serving.stopping import stoppable

HOST = "127.0.0.1:8000"
MODEL = "es-en-tiny"
# Two sentences, a tag, an address and an emoji.
TEXT = "El <b>gato</b> duerme ❤️. Está en https://example.org hoy"


@pytest.fixture(scope="module")
def client():
    app = application(Explorer(Models({MODEL: MODEL})), [HOST])
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def translator():
    return Translator.open(MODEL)


def post(client, **fields):
    content = json.dumps({"model": MODEL, **fields})
    return client.post(
        "/api/printed", content=content, headers={"Content-Type": "application/json"}
    )


def test_the_line_is_that_of_regard_translate(client, translator):
    (expected,) = translator.translate([TEXT])
    assert "<b>cat</b>" in expected.text
    answer = post(client, text=TEXT)
    assert answer.json() == {
        "text": expected.text,
        "quality": expected.quality,
        "doubts": expected.doubts,
        "terms": {},
        "overlapping": [],
    }


@pytest.mark.parametrize(
    "glossary",
    [{"gato*": "feline", "gato negro": "panther"}, "gato*\tfeline\n\ngato negro\tpanther\n"],
)
def test_terms_come_out_as_they_are_listed(client, glossary):
    answer = post(client, text="El gato negro duerme.", glossary=glossary).json()
    assert "panther" in answer["text"]
    assert answer["terms"] == {"gato negro": "panther"}
    assert answer["overlapping"] == ["gato*"]
    assert "overlapping terms" in answer["doubts"]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({}, 400, "text: pass a string"),
        ({"text": 4}, 400, "text: pass a string"),
        ({"text": "a" * 4001}, 413, "text has 4001 characters"),
        ({"text": "a\0"}, 400, "NUL"),
        ({"text": "a", "prefix": "b"}, 400, "unknown field 'prefix'"),
        ({"text": "a", "model": "other"}, 404, "model: there is none"),
        ({"text": "a", "glossary": 4}, 400, "glossary: pass a string"),
        ({"text": "a", "glossary": {"a": 4}}, 400, "a: pass a string"),
        ({"text": "a", "glossary": "a\tb\n\na\tc"}, 422, "glossary:3: 'a' is 'c' here and 'b' in glossary:1"),
        ({"text": "a", "glossary": "a\tb\tc"}, 422, "glossary:1: 3 columns, expected 2"),
        ({"text": "a", "glossary": "a"}, 422, "glossary:1: 1 columns, expected 2"),
        ({"text": "a", "glossary": "a*b\tc"}, 422, "glossary:1"),
        ({"text": "a", "glossary": "x" * 20_001}, 413, "glossary has 20001 characters"),
        ({"text": "a", "glossary": {f"a{n}": "b" for n in range(1001)}}, 413, "at most 1000 terms"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_with_its_place(client, fields, status, words):
    answer = post(client, **fields)
    assert answer.status_code == status
    assert words in answer.json()["error"]


@pytest.mark.parametrize("text", ["", " ", "\u2028", "<x1/> </g0>", "<script>alert(1)</script>"])
@pytest.mark.parametrize("glossary", [None, "", "alert\t<img src=x>"])
def test_any_line_is_answered(client, text, glossary):
    assert post(client, text=text, glossary=glossary).status_code == 200


def test_a_search_that_nobody_waits_for_ends(translator):
    steps, engine = [], translator.engine

    def check():
        steps.append(1)
        if len(steps) == 3:
            raise Cancelled

    with pytest.raises(Cancelled), stoppable(translator, check):
        translator.translate(["El gato negro de mi vecina duerme en la casa."])
    assert len(steps) == 3
    assert translator.engine is engine
