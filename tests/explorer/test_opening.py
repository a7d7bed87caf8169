"""The page opens at once, and says which model it waits for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from starlette.testclient import TestClient
from tests.explorer.languages import language

from regard.cli.main import main
from regard.explorer.server import Explorer, Models, application
from regard.explorer.server.opening import Opened, Opening

HOST = "127.0.0.1:8000"


def test_the_page_says_what_it_waits_for_and_then_shows_it():
    opened, ended = Event(), Event()

    def open_model(name):
        assert opened.wait(60)
        return Opened(language(name))

    def end(models):
        for model in models:
            explorer.add(model)

    opening = Opening(["<b>:call"], open_model, end)
    explorer = Explorer(Models({}), opening=opening)
    with TestClient(application(explorer, [HOST]), base_url=f"http://{HOST}") as client:
        opening.begin(ended.set)
        page = client.get("/").text
        assert "Regard opens &lt;b&gt;:call (model 1 of 1, 0 s so far)" in page
        assert 'http-equiv="refresh"' in page
        assert "script" not in page
        opened.set()
        while not opening.done:
            ended.wait(0.01)
        assert "data-languages" in client.get("/").text
        answer = client.post("/api/prompt", json={"model": "<b>:call", "text": "Mary"})
        assert answer.status_code == 200
    assert opening.fault is None


def test_a_model_that_cannot_be_opened_ends_the_server_with_its_error(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "broken_model.py").write_text("def example():\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # A browser of other tests keeps a loop running in this thread.
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(main, ["explore", "broken_model:example"]).result() == 1
    output = capsys.readouterr()
    assert "open http://127.0.0.1:" in output.out
    assert "broken_model:example: returned int" in output.err
