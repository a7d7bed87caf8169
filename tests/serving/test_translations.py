"""The API: what each route answers, and how bad requests are refused."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from regard.serving.metrics import Metrics
from regard.serving.translations import BODY, CHARACTERS, Settings, application
from regard.translation.translator import Translator

HOST = "127.0.0.1:5000"
KEY = "a-key-of-this-server"
RIGHT = {"q": "El gato duerme.", "source": "es", "target": "en"}
CAT = "The cat sleeps."


def ask(client, **fields):
    return client.post("/translate", json={**RIGHT, **fields})


def test_one_text(client):
    assert ask(client).json() == {"translatedText": CAT}


def test_many_texts(client):
    answer = ask(client, q=[RIGHT["q"], "", "  Sí.\n"]).json()["translatedText"]
    assert answer[:2] == [CAT, ""]
    assert (answer[2][:2], answer[2][-1]) == ("  ", "\n")
    assert ask(client, q=[]).json() == {"translatedText": []}


def test_what_is_between_sentences_stays(client):
    text = "\n- El gato duerme.\n- El gato duerme.  El gato duerme.\n\n  El gato duerme.\n"
    expected = text.replace(RIGHT["q"], CAT)
    assert ask(client, q=text).json()["translatedText"] == expected


def test_the_language_is_detected(client):
    answer = ask(client, source="auto").json()
    assert answer["translatedText"] == CAT
    assert answer["detectedLanguage"]["language"] == "es"
    assert answer["detectedLanguage"]["confidence"] > 90
    (best, *_) = client.post("/detect", json={"q": "Where is the house?"}).json()
    assert best["language"] == "en"
    assert client.post("/detect", json={"q": "12"}).json()[0]["confidence"] == 0


def test_a_text_in_the_target_language_stays(client):
    assert ask(client, q="The cat.", source="en").json() == {"translatedText": "The cat."}
    assert ask(client, q="Where is the house?", source="auto").json()["translatedText"] == (
        "Where is the house?"
    )


def test_alternatives(client):
    answer = ask(client, alternatives=2).json()
    best = Translator.open("es-en-tiny")
    search = best.search.changed(nbest=3)
    candidates = best.translate([RIGHT["q"]], search=search)[0].alternatives
    texts = [candidate.text for candidate in candidates]
    assert [answer["translatedText"], *answer["alternatives"]] == texts
    assert len(ask(client, q=[RIGHT["q"]] * 2, alternatives=1).json()["alternatives"]) == 2


def test_html(client):
    page = '<p class="green">El gato duerme.</p><script>let gato = "<b>";</script><!-- gato -->'
    answer = ask(client, q=page, format="html").json()["translatedText"]
    assert answer == page.replace(RIGHT["q"], CAT)
    (answer,) = ask(client, q=page, format="html", alternatives=1).json()["alternatives"]
    assert answer.startswith('<p class="green">')
    assert ask(client, q="<b>", format="html").json() == {"translatedText": "<b>"}


def test_details_of_sentences(client):
    fields = {"confidence": True, "alignments": True, "attention": True}
    answer = ask(client, q="El gato duerme. Adiós.", **fields).json()
    sentence, _ = answer["sentences"]
    assert (sentence["source"], sentence["translation"]) == (RIGHT["q"], CAT)
    assert 0.3 < sentence["confidence"] <= 1
    assert [word for word, _ in sentence["words"]] == CAT.split()
    assert [1, 1] in sentence["alignments"]
    weights = sentence["attention"]["weights"]
    assert len(weights) == len(sentence["attention"]["target"])
    for row in weights:
        assert len(row) == len(sentence["attention"]["source"])
        assert sum(row) == pytest.approx(1, abs=0.01)
    assert "attention" not in ask(client, confidence=True).json()["sentences"][0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("film.srt", "1\n00:00:01,000 --> 00:00:02,000\nEl gato duerme.\n"),
        ("note.txt", "El gato duerme.\n\nEl gato duerme.\r\n"),
        ("page.html", "<title>El gato duerme.</title>"),
    ],
)
def test_files(client, name, content):
    pytest.importorskip("python_multipart")
    files = {"file": (name, content.encode())}
    answer = client.post("/translate_file", data={"source": "es", "target": "en"}, files=files)
    address = answer.json()["translatedFileUrl"]
    assert address.startswith(f"http://{HOST}/download_file/")
    fetched = client.get(address)
    assert fetched.content.decode() == content.replace(RIGHT["q"], CAT)
    assert fetched.headers["content-disposition"] == "attachment"


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("film.exe", b"MZ", "film.exe"),
        ("film.srt", b"El gato", "film.srt:1"),
        ("film.srt", b"\xff", "film.srt"),
        ("../../etc/passwd", b"", "passwd"),
    ],
)
def test_bad_files(client, name, content, named):
    pytest.importorskip("python_multipart")
    data = {"source": "es", "target": "en"}
    answer = client.post("/translate_file", data=data, files={"file": (name, content)})
    assert 400 <= answer.status_code < 500
    assert named in answer.json()["error"]


def test_a_file_may_be_missing(client):
    answer = client.post("/translate_file", json={"source": "es", "target": "en"})
    assert (answer.status_code, answer.json()["error"][:4]) == (400, "file")


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "x.txt", "%00", "a/b", "." * 5000])
def test_no_other_file_is_fetched(client, name):
    answer = client.get(f"/download_file/{name}")
    assert answer.status_code in (404, 414)
    assert "root:" not in answer.text


BAD = [
    (b"{", 400, "JSON"),
    (b"[]", 400, "object"),
    (b"null", 400, "object"),
    (b'{"q": NaN}', 400, "JSON"),
    (b'{"q": "\\ud800"}', 400, "JSON"),
    (b'{"q": "a", "q": "b"}', 400, "once"),
    (b"[" * 100_000, 400, "nested"),
    (b"\xff", 400, "UTF-8"),
    (b"{}", 400, "q is missing"),
    (b'{"q": 4, "source": "es", "target": "en"}', 400, "q: "),
    (b'{"q": [4], "source": "es", "target": "en"}', 400, "q: "),
    (b'{"q": {}, "source": "es", "target": "en"}', 400, "q: "),
    (b'{"q": "a"}', 400, "source"),
    (b'{"q": "a", "source": "es"}', 400, "target"),
    (b'{"q": "a", "source": "xx", "target": "en"}', 400, "xx to en"),
    (b'{"q": "a", "source": "es", "target": "../.."}', 400, "es to ../.."),
    (b'{"q": "a", "source": "auto", "target": "fr"}', 400, "to fr"),
    (b'{"q": "a\\u0000", "source": "es", "target": "en"}', 400, "NUL"),
]
FIELDS = [
    ({"format": "pdf"}, 400, "format"),
    ({"format": 4}, 400, "format"),
    ({"alternatives": -1}, 400, "alternatives"),
    ({"alternatives": 1e9}, 400, "alternatives"),
    ({"alternatives": "many"}, 400, "alternatives"),
    ({"confidence": "yes"}, 400, "confidence"),
    ({"q": "a" * (CHARACTERS + 1)}, 413, "q has"),
    ({"q": ["a" * CHARACTERS, "a"]}, 413, "q has"),
    ({"q": ["a"] * 1001}, 400, "at most 1000"),
    ({"q": "<!--" * 1000, "format": "html"}, 422, "never"),
]


@pytest.mark.parametrize(("body", "status", "named"), BAD)
def test_bad_json_is_refused_in_a_sentence(client, body, status, named):
    headers = {"Content-Type": "application/json"}
    answer = client.post("/translate", content=body, headers=headers)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert named in answer.json()["error"]


@pytest.mark.parametrize(("fields", "status", "named"), FIELDS, ids=lambda each: str(each)[:30])
def test_bad_fields_are_refused_in_a_sentence(client, fields, status, named):
    answer = ask(client, **fields)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert named in answer.json()["error"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"q=a&q=b&source=es&target=en", "twice"),
        (b"q=%ff&source=es&target=en", "UTF-8"),
        (b"q=\xff&source=es&target=en", "UTF-8"),
        (b"&".join(b"x%d=1" % number for number in range(100)), "20 fields"),
        (b"q=a&source=es&target=en&alternatives=x", "alternatives"),
        (b"q=a&source=es&target=en&confidence=maybe", "confidence"),
    ],
)
def test_bad_forms_are_refused_in_a_sentence(client, content, named):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post("/translate", content=content, headers=headers)
    assert answer.status_code == 400
    assert named in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/translate", 405),
        ("PUT", "/translate", 405),
        ("DELETE", "/languages", 405),
        ("POST", "/health", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/translate.js/../app.py", 404),
        ("GET", "/" + "a" * 30_000, 414),
        ("POST", "/suggest", 403),
    ],
)
def test_methods_and_paths(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_other_types_and_long_bodies_are_refused(client):
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/xml"}):
        answer = client.post("/translate", content=b"{}", headers=headers)
        assert (answer.status_code, "error" in answer.json()) == (415, True)
    headers = {"Content-Type": "application/json"}
    answer = client.post("/translate", content=b" " * (BODY + 1), headers=headers)
    assert (answer.status_code, "error" in answer.json()) == (413, True)


def test_broken_parts_are_refused(client):
    pytest.importorskip("python_multipart")
    for content in (b"", b"--x", b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na'):
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = client.post("/translate_file", content=content, headers=headers)
        assert (answer.status_code, "error" in answer.json()) == (400, True)
    headers = {"Content-Type": "multipart/form-data"}
    assert client.post("/translate_file", content=b"x", headers=headers).status_code == 400


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.com"}, {"Origin": "http://evil.com"}, {"Origin": "null"}], ids=str
)
@pytest.mark.parametrize("path", ["/", "/languages", "/metrics"])
def test_other_sites_get_nothing(client, path, headers):
    answer = client.get(path, headers=headers)
    assert answer.status_code in (403, 421)
    assert "access-control-allow-origin" not in answer.headers


def test_the_page_has_no_inline_script(client):
    answer = client.get("/")
    assert "unsafe-inline" not in answer.headers["content-security-policy"]
    assert "<script>" not in answer.text
    for path in ("/translate.js", "/translate.css"):
        assert client.get(path).status_code == 200


def test_pages_know_the_settings(client):
    settings = client.get("/frontend/settings").json()
    assert settings["keyRequired"] is False
    assert ".srt" in settings["supportedFilesFormat"]
    assert client.get("/health").json() == {"status": "ok"}
    assert [each["code"] for each in client.get("/languages").json()] == ["en", "es"]


def test_metrics_count(client):
    before = client.get("/metrics").text
    ask(client)
    after = client.get("/metrics").text
    name = "regard_sentences_total "

    def value(text: str) -> int:
        return int(text.split(f"\n{name}")[1].split()[0])

    assert value(after) == value(before) + 1


def test_keys():
    settings = Settings(["es-en-tiny"], hosts=None, keys=[KEY, KEY + "2"])
    app = application(settings)
    with TestClient(app, base_url="http://translations.example") as client:
        assert client.get("/health").status_code == 200
        assert client.get("/languages").status_code == 200
        assert client.get("/frontend/settings").json()["keyRequired"] is True
        assert ask(client).status_code == 403
        for key in ("wrong", "", 4, None, "é", KEY[:-1]):
            answer = ask(client, api_key=key)
            assert (answer.status_code, list(answer.json())) == (403, ["error"])
        assert client.get("/metrics").status_code == 403
        assert ask(client, api_key=KEY + "2").json()["translatedText"] == CAT
        headers = {"Authorization": f"Bearer {KEY}"}
        assert client.get("/metrics", headers=headers).status_code == 200
        assert client.post("/detect", json={"q": "a"}).status_code == 403


def test_a_fault_of_the_server_is_a_sentence_too(client, monkeypatch, capsys):
    from regard.serving import translations

    def broken(*arguments):
        raise RuntimeError("a path: /etc/secret")

    monkeypatch.setattr(translations, "details", broken)
    answer = ask(client, confidence=True)
    assert answer.status_code == 500
    assert "secret" not in json.dumps(answer.json())
    capsys.readouterr()


def test_metrics_of_several_processes_are_summed():
    numbers = [0.0] * (2 * len(Metrics()._numbers))
    for process in range(2):
        metrics = Metrics(numbers, process)
        metrics.add("sentences", 2)
        metrics.add_request(200, 0.3)
        metrics.add_request(999, 100)
    assert metrics["sentences"] == 4
    page = str(metrics)
    assert 'regard_requests_total{status="other"} 2' in page
    assert 'regard_request_seconds_bucket{le="0.25"} 0' in page
    assert 'regard_request_seconds_bucket{le="0.5"} 2' in page
    assert 'regard_request_seconds_bucket{le="+Inf"} 4' in page
    assert page.endswith("regard_processes 2\n")


def test_terms_of_a_glossary_come_out_as_listed(client):
    text = "El gato duerme. Uso Regard."
    glossary = {"gato*": "feline", "Regard": "="}
    answer = ask(client, q=[text, "Los gatos duermen."], glossary=glossary, confidence=True).json()
    two_terms, several = answer["translatedText"]
    assert "feline" in two_terms
    assert "Regard" in two_terms
    assert "feline" in several
    assert answer["sentences"][0][0]["terms"] == {"gato": "feline"}
    form = {**RIGHT, "glossary": "gato*\tfeline\n"}
    assert "feline" in client.post("/translate", data=form).json()["translatedText"]
    assert ask(client).json()["translatedText"] == CAT  # the next request has no terms


def test_terms_come_out_in_files(client):
    files = {"file": ("a.txt", b"El gato duerme.\n")}
    data = {"source": "es", "target": "en", "glossary": "gato\tpanther"}
    address = client.post("/translate_file", data=data, files=files).json()["translatedFileUrl"]
    assert client.get(address.partition(HOST)[2]).text.endswith("panther sleeps.\n")


@pytest.mark.parametrize(
    ("glossary", "status", "reason"),
    [
        (3, 400, "glossary"),
        ({"gato": 3}, 400, "gato"),
        ({"gato": ""}, 422, "glossary:1: the target is empty"),
        ("gato", 422, "glossary:1: 1 columns"),
        ("gato\ta\ngato\tb", 422, "delete one of them"),
        ({str(number): "a" for number in range(1001)}, 413, "1000 terms"),
    ],
)
def test_bad_glossaries_are_refused(client, glossary, status, reason):
    answer = ask(client, glossary=glossary)
    assert answer.status_code == status
    assert reason in answer.json()["error"]
