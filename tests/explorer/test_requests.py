"""Each field of each request, with values of other types and ranges: a refusal that names it, never a failure."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from regard.explorer.server import Explorer, Models, application
from regard.translation.evaluation.gold import Gold

HOST = "127.0.0.1:8000"
DIGITS = [
    "",
    "-",
    "--5",
    "-2",
    "1e9",
    "1.5",
    "999",
    "9" * 30,
    "nan",
    "x",
    "\0",
    "é",
    "٣",
    "²",
    " 1",
    "1_0",
]
VALUES = [None, True, "4", "--5", -1, 1.5, 1e9, 1e400, 10**30, [], {}, [1], "²"]


@pytest.fixture(scope="module")
def client():
    app = application(Explorer(Models({"es-en": "es-en-tiny"})), [HOST])
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        yield client


def post(client, path, fields):
    headers = {"Content-Type": "application/json"}
    return client.post(path, content=json.dumps(fields), headers=headers)


def header(content: bytes):
    length = int.from_bytes(content[8:12], "little")
    return json.loads(content[12 : 12 + length])


@pytest.fixture(scope="module")
def run(client):
    answer = post(client, "/api/translate", {"model": "es-en", "text": "El gato negro duerme."})
    return header(answer.content)["run"]


NAME = "decoder.1.cross"
CELL = {"head": 0, "query": 0, "key": 0}
QUERIES = {
    "numbers": CELL,
    "row": {"head": 0, "query": 0},
    "received": {"head": 0, "from": 0, "to": 1},
    "levels": {"head": 0},
    "tile": {"head": 0, "level": 0, "row": 0, "column": 0},
}


@pytest.mark.parametrize("route", QUERIES)
def test_queries(client, run, route):
    right = {"run": run, "attention": NAME, **QUERIES[route]}
    assert client.get(f"/api/{route}", params=right).status_code == 200
    for field in right:
        missing = {name: each for name, each in right.items() if name != field}
        for wrong in (missing, *({**right, field: each} for each in DIGITS)):
            answer = client.get(f"/api/{route}", params=wrong)
            assert 400 <= answer.status_code < 500, (field, wrong)
            assert answer.json()["error"].startswith((field, "this run is no longer")), wrong
    answer = client.get(f"/api/{route}", params={**right, "colour": 1})
    assert (answer.status_code, answer.json()["error"][:22]) == (400, "unknown field 'colour'")
    answer = client.get(f"/api/{route}", params=[*right.items(), ("head", 1)])
    assert (answer.status_code, answer.json()["error"]) == (400, "head occurs twice")


@pytest.mark.parametrize("route", ["models", "scene", "pairs"])
def test_queries_without_fields(client, route):
    answer = client.get(f"/api/{route}", params={"run": 1})
    assert answer.status_code == 400
    assert answer.json()["error"] == "unknown field 'run': this request takes no fields"


def test_a_translation_with_gold_links_is_asked_for_by_its_number(client):
    gold = Gold([{(1, 0)}], [set()], [(["¿", "Dónde", "?"], ["Where", "?"])])
    explorer = Explorer(Models({"es-en": "es-en-tiny"}), gold=gold)
    with TestClient(application(explorer, [HOST]), base_url=f"http://{HOST}") as test_client:
        assert test_client.get("/api/pairs").json() == {"pairs": [["¿ Dónde ?", "Where ?"]]}
        right = {"model": "es-en", "pair": 0}
        answer = post(test_client, "/api/pair", right)
        assert header(answer.content)["translation"]["translation"] == "Where?"
        for wrong in [*VALUES, 1]:
            answer = post(test_client, "/api/pair", {**right, "pair": wrong})
            assert answer.status_code == 400, wrong
            assert answer.json()["error"].startswith(("pair:", "the request is not")), wrong
    assert client.get("/api/pairs").json() == {"pairs": []}
    answer = post(client, "/api/pair", right)
    assert (answer.status_code, answer.json()["error"]) == (
        404,
        "this server was started without gold links",
    )


def test_a_typed_sentence_takes_gold_links(client):
    right = {"model": "es-en", "text": "El gato duerme.", "links": "0-0 1-1"}
    new_header = header(post(client, "/api/translate", right).content)
    assert new_header["links"]["sure"] == [[0, 0], [1, 1]]
    cross = [one for one in new_header["attentions"] if one["kind"] == "cross"]
    assert all(0 <= x <= 1 for one in cross for x in one["measures"]["agreement"])
    for links, status in (("0-9", 400), ("9-0", 400), ("0", 422), (4, 400), ("0-0\0", 400)):
        answer = post(client, "/api/translate", {**right, "links": links})
        assert (answer.status_code, "link" in answer.json()["error"]) == (status, True), links


EDITS = [
    {"kind": "scale", "factor": 0.5},
    {"kind": "scale", "factor": -1.0},
    {"kind": "temperature", "temperature": 2.0},
    {"kind": "hard"},
    {"kind": "cell", "query": 0, "key": 0, "weight": 0.5},
]


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_edits(client, run, edit):
    right = {"attention": NAME, "head": 0, **edit}
    assert post(client, "/api/change", {"run": run, "edits": [right]}).status_code == 200
    wrong = [{**right, "other": 1}]
    for field in right:
        wrong += [{name: each for name, each in right.items() if name != field}] * (field != "head")
        wrong += [{**right, field: each} for each in VALUES if not isinstance(each, float)]
        if field == "head":
            wrong.remove({**right, field: None})  # all heads
    for request in wrong:
        if request.get("factor") == -1 or request.get("temperature") == 4:
            continue
        answer = post(client, "/api/change", {"run": run, "edits": [request]})
        assert 400 <= answer.status_code < 500, request
        assert answer.json()["error"], request


@pytest.mark.parametrize("edits", [None, 4, "x", {}, [4], [None], [[]], [{}] * 101])
def test_lists_of_edits(client, run, edits):
    answer = post(client, "/api/change", {"run": run, "edits": edits})
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]


def test_a_small_attention_has_nothing_to_refine(client, run):
    fields = {"run": run, "attention": NAME, "head": 0, "strip": 0}
    answer = post(client, "/api/refine", fields)
    assert answer.status_code == 400
    assert "small" in answer.json()["error"]


def test_runs_that_are_unknown_or_dropped_are_gone(client):
    query = {"run": "other", "attention": NAME, "head": 0}
    assert client.get("/api/levels", params=query).status_code == 410
    assert client.get("/api/file", params={"run": "other"}).status_code == 410
    assert post(client, "/api/change", {"run": "other", "edits": []}).status_code == 410


LONG = "a" * 4000, "palabra " * 30


@pytest.mark.parametrize("text", ["", "   ", "\u2028", *LONG, "\u202e", "👩\u200d👧"])
def test_any_sentence_is_translated_and_changed(client, text):
    answer = post(client, "/api/translate", {"model": "es-en", "text": text})
    assert answer.status_code == 200
    edits = [{"attention": NAME, **EDITS[0]}]
    fields = {"run": header(answer.content)["run"], "edits": edits, "prefix": "The"}
    answer = post(client, "/api/change", fields)
    assert answer.status_code == 200
    answer = post(client, "/api/change", {**fields, "edits": [], "text": "Hola."})
    assert answer.status_code == 200
    assert "The" in header(answer.content)["translation"]["translation"]


def test_a_prefix_longer_than_the_model_takes_is_refused(client):
    fields = {"model": "es-en", "text": "Hola.", "prefix": "a" * 4000}
    answer = post(client, "/api/translate", fields)
    assert answer.status_code == 422
    assert "at most" in answer.json()["error"]


@pytest.mark.parametrize(
    "lines",
    [None, 4, "x", {}, [4], [None], ["a\0"], ["\ud800"], ["a"] * 10_000, ["a" * 5000]],
)
def test_lines(client, lines):
    answer = post(client, "/api/lines", {"model": "es-en", "lines": lines})
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]


@pytest.mark.parametrize("run", [*DIGITS, None])
def test_files_of_other_runs(client, run):
    answer = client.get("/api/file", params={} if run is None else {"run": run})
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]
