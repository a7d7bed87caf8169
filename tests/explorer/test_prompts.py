"""What the explorer says of a prompt, against the model itself and plain hooks."""

from __future__ import annotations

import pytest
import torch
from starlette.testclient import TestClient
from tests.explorer.bundles import Bundle
from tests.explorer.languages import language

from regard.explorer import contract
from regard.explorer.prompt_runs import read
from regard.explorer.server import Explorer, Models, application

HOST = "127.0.0.1:8000"
TEXT = "Mary saw John"
IDS = list(TEXT.encode())
PLACE = len(IDS) - 1
TOKEN, MINUS = 65, 66
HEAD = {"attention": "layer.1.self", "head": 2}
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


@pytest.fixture(scope="module")
def tiny():
    return language()


@pytest.fixture(scope="module")
def server(tiny):
    explorer = Explorer(Models({}), languages=[tiny, language("other", 1)])
    with TestClient(application(explorer, [HOST]), base_url=f"http://{HOST}") as client:
        yield client


def posted(server, route, **content):
    answer = server.post(f"/api/{route}", json=content)
    assert answer.status_code == 200, answer.text
    return answer


def bundle(server, route, **content):
    return Bundle(posted(server, route, **content).content)


@pytest.fixture(scope="module")
def run(server):
    return bundle(server, "prompt", model="tiny", text=TEXT).header


def scores(language, ids=IDS, hook=None, layer=1):
    """The log-probabilities of the model, with a hook before an output projection."""
    projection = language.model.model.layers[layer].self_attn.o_proj
    handle = projection.register_forward_pre_hook(hook) if hook else None
    with torch.no_grad():
        logits = language.model(torch.tensor([ids])).logits[0]
    if handle:
        handle.remove()
    return logits.log_softmax(-1)


def without(head):
    def hook(_, inputs):
        split = inputs[0].clone().unflatten(-1, (4, 8))
        split[..., head, :] = 0
        return (split.flatten(-2),)

    return hook


def test_next_tokens_have_the_probabilities_of_the_model(tiny, run):
    expected = scores(tiny)
    prompt = run["prompt"]
    assert (prompt["text"], prompt["template"]) == (TEXT, True)
    for place, entries in enumerate(prompt["next"]):
        ids = [each["id"] for each in entries]
        assert ids == expected[place].topk(10).indices.tolist()
        torch.testing.assert_close(
            torch.tensor([each["log_probability"] for each in entries]),
            expected[place, ids],
            **CLOSE,
        )
    of_tokens = expected[range(PLACE), IDS[1:]]
    assert prompt["log_probabilities"] == [None, *map(pytest.approx, of_tokens.tolist())]


def test_a_changed_head_is_as_by_a_hook(tiny, server, run):
    edit = {**HEAD, "kind": "scale", "factor": 0}
    entries = bundle(server, "change", run=run["run"], edits=[edit]).header["prompt"]["next"][-1]
    before, after = scores(tiny)[-1], scores(tiny, hook=without(2))[-1]
    assert {*before.topk(10).indices.tolist(), *after.topk(10).indices.tolist()} == {
        each["id"] for each in entries
    }
    for each in entries:
        assert each["log_probability"] == pytest.approx(float(after[each["id"]]), abs=1e-4)
        assert each["before"] == pytest.approx(float(before[each["id"]]), abs=1e-4)


def test_a_head_from_another_prompt_is_as_by_a_hook(tiny, server, run):
    other = "John saw Mary"
    kept = []
    scores(tiny, list(other.encode()), lambda _, inputs: kept.append(inputs[0]))

    def patch(_, inputs):
        mixed = inputs[0].clone()
        mixed[..., 16:24] = kept[0][..., 16:24]
        return (mixed,)

    expected = scores(tiny, hook=patch)[-1]
    edit = {**HEAD, "kind": "from", "text": other}
    entries = bundle(server, "change", run=run["run"], edits=[edit]).header["prompt"]["next"][-1]
    for each in entries:
        assert each["log_probability"] == pytest.approx(float(expected[each["id"]]), abs=1e-4)
    metric = {"token": TOKEN, "minus": MINUS, "place": PLACE, "text": other}
    answer = posted(server, "effects", run=run["run"], method="run", part=0, **metric).json()
    rows = {(name, head): effect for name, head, effect in answer["rows"]}
    base = scores(tiny)[-1]
    difference = expected[TOKEN] - expected[MINUS] - base[TOKEN] + base[MINUS]
    assert rows["layer.1.self", 2] == pytest.approx(float(difference), abs=1e-4)
    edit = {**HEAD, "kind": "from", "text": "John"}
    answer = server.post("/api/change", json={"run": run["run"], "edits": [edit]})
    assert answer.status_code == 422
    assert "13 queries and the other 4" in answer.json()["error"]


def test_effects_are_those_of_hooks(tiny, server, run):
    options = {"run": run["run"], "token": TOKEN, "place": PLACE}
    answer = posted(server, "effects", method="run", part=0, **options).json()
    assert answer["parts"] == 1
    base = float(scores(tiny)[-1, TOKEN])
    assert answer["base"] == pytest.approx(base, abs=1e-5)
    for name, head, effect in answer["rows"]:
        layer = int(name.split(".")[1])
        changed = float(scores(tiny, hook=without(head), layer=layer)[-1, TOKEN])
        assert effect == pytest.approx(changed - base, abs=1e-4)
    estimated = posted(server, "effects", method="gradient", **options).json()["rows"]
    assert [row[:2] for row in estimated] == [row[:2] for row in answer["rows"]]
    refused = server.post("/api/effects", json={**options, "method": "run", "part": 1})
    assert refused.json() == {"error": "part: there are 1 parts"}


def test_the_parts_of_a_logit_are_those_of_hooks(tiny, server, run):
    answer = posted(server, "direct", run=run["run"], token=TOKEN, place=3).json()
    kept = {}
    layers = tiny.model.model.layers
    handles = [
        module.register_forward_hook(
            lambda _, inputs, output, name=name: kept.update({name: output})
        )
        for name, module in [
            ("embedding", tiny.model.model.embed_tokens),
            *((f"layer.{at}.self", layer.self_attn.o_proj) for at, layer in enumerate(layers)),
            *((f"layer.{at}.mlp", layer.mlp) for at, layer in enumerate(layers)),
        ]
    ]
    readings = []
    scores(tiny, hook=lambda _, inputs: readings.append(inputs[0][0, 3]))
    for handle in handles:
        handle.remove()
    stream = sum(kept.values())[0, 3]
    stream = stream.detach()
    gain = (
        tiny.model.model.norm.weight.detach()
        / (stream.square().mean() + tiny.model.config.rms_norm_eps).sqrt()
    )
    row = tiny.model.lm_head.weight[TOKEN].detach()
    assert dict(answer["parts"]) == pytest.approx(
        {name: float(part[0, 3] * gain @ row) for name, part in kept.items()}, abs=1e-4
    )
    assert sum(part for _, part in answer["parts"]) == pytest.approx(answer["logit"], abs=1e-4)
    weight = layers[1].self_attn.o_proj.weight
    for head in range(4):
        part = slice(8 * head, 8 * head + 8)
        expected = float(weight[:, part] @ readings[0][part] * gain @ row)
        assert answer["heads"]["layer.1.self"][head] == pytest.approx(expected, abs=1e-4)


def test_numbers_have_the_values_and_the_output_of_the_head(tiny, server, run):
    kept = []
    scores(tiny, hook=lambda _, inputs: kept.append(inputs[0][0]))
    numbers = server.get(
        "/api/numbers", params={**HEAD, "run": run["run"], "query": 5, "key": 2}
    ).json()
    reading = kept[0][5, 16:24]
    torch.testing.assert_close(torch.tensor(numbers["stages"]["reading"]), reading, **CLOSE)
    weight = tiny.model.model.layers[1].self_attn.o_proj.weight[:, 16:24]
    torch.testing.assert_close(
        torch.tensor(numbers["stages"]["head output"]), weight @ reading, **CLOSE
    )
    assert numbers["split"] == pytest.approx(numbers["terms"]["score"], abs=1e-4)
    assert {pair["query"] for pair in numbers["pairs"]} >= {"embedding", "layer.0.mlp"}
    cells = posted(server, "cell", run=run["run"], query=5, key=2).json()
    assert cells["layer.1.self"][2] == pytest.approx(numbers["weights"][2])


def test_what_is_moved_is_a_share_of_norms(tiny, server, run):
    moved = bundle(server, "moved", run=run["run"], moved=True)
    assert moved.header["prompt"]["moved"]
    attention = tiny.model.model.layers[1].self_attn
    values = []
    handle = attention.v_proj.register_forward_hook(lambda _, __, output: values.append(output[0]))
    scores(tiny)
    handle.remove()
    values = (
        values[0][:, 8:16] @ attention.o_proj.weight[:, 16:24].mT
    )  # head 2 reads the second group
    weights = torch.tensor(
        bundle(server, "moved", run=run["run"], moved=False).weights("layer.1.self")
    )
    norms = weights[2, 7, :8].float() * values[:8].norm(dim=-1)
    expected = norms / norms.sum()
    actual = torch.tensor(moved.weights("layer.1.self"))[2, 7, :8].float()
    torch.testing.assert_close(actual, expected, atol=2e-3, rtol=0)


def test_two_prompts_are_compared_at_their_ends(tiny, server, run):
    other = "Mary saw Tom"
    header = bundle(server, "prompt", model="tiny", text=other, beside=run["run"]).header
    before = scores(tiny)[-1]
    for each in header["prompt"]["next"][-1]:
        if each["before"] is not None:
            assert each["before"] == pytest.approx(float(before[each["id"]]), abs=1e-4)
    assert all("before" not in each for each in header["prompt"]["next"][0])


def test_a_chat_is_written_by_the_template_of_the_model(server):
    header = bundle(server, "prompt", model="tiny", text="hi", chat=True).header
    assert "".join(header["sequences"][0]["tokens"]) == "<user>hi<answer>"


def test_long_texts_are_computed_head_by_head(server, tiny, monkeypatch):
    monkeypatch.setattr(contract, "WHOLE", 100)
    monkeypatch.setattr(contract.pack, "__defaults__", (None, 100))
    header = bundle(server, "prompt", model="tiny", text="a b c " * 50).header
    assert header["attentions"][0].keys() == {"name", "kind", "rows", "columns", "heads", "shape"}
    look = read(tiny, list(("a b c " * 50).encode())).seen["layer.1.self"][0]
    at = {"run": header["run"], **HEAD}
    picture = server.get("/api/picture", params={**at, "exact": 1}).content
    expected = look[2].map(128, 128, reduce="max")
    drawn = torch.frombuffer(bytearray(picture), dtype=torch.float32).reshape(128, 128)
    torch.testing.assert_close(drawn.nan_to_num(0), expected, atol=1e-6, rtol=1e-5)
    measures = server.get(
        "/api/measures", params={"run": header["run"], "attention": HEAD["attention"]}
    )
    assert measures.json()["measures"]["sink"][2] == pytest.approx(
        float(look.weights()[2, :, 0].mean()), abs=1e-5
    )
    row = server.get(
        "/api/rollout", params={"run": header["run"], "stack": 0, "query": 250}
    ).content
    seen = read(tiny, list(("a b c " * 50).encode())).seen
    steps = [(seen[name].weights()[0].mean(0) + torch.eye(300)) / 2 for name in seen]
    torch.testing.assert_close(
        torch.frombuffer(bytearray(row), dtype=torch.float32), (steps[1] @ steps[0])[250], **CLOSE
    )


@pytest.mark.parametrize(
    ("route", "content", "status", "word"),
    [
        ("prompt", {"model": "nosuch", "text": "a"}, 404, "model"),
        ("prompt", {"model": "tiny", "text": 4}, 400, "text"),
        ("prompt", {"model": "tiny", "text": "a\0"}, 400, "NUL"),
        ("prompt", {"model": "tiny", "text": "a" * 64_001}, 413, "64000"),
        ("prompt", {"model": "tiny", "text": "a", "chat": "yes"}, 400, "chat"),
        ("prompt", {"model": "tiny", "text": "a", "beside": "nosuch"}, 410, "reload"),
        ("prompt", {"model": "tiny", "text": "a", "more": 1}, 400, "more"),
        ("moved", {"run": "nosuch", "moved": True}, 410, "reload"),
        ("effects", {"token": 65, "place": 99, "method": "run"}, 400, "place"),
        ("effects", {"token": 999, "place": 1, "method": "gradient"}, 400, "0 to 255"),
        ("effects", {"token": "", "place": 1, "method": "gradient"}, 422, "token"),
        ("effects", {"token": 65, "place": 1, "method": "guess"}, 400, "method"),
        ("effects", {"token": True, "place": 1, "method": "run"}, 400, "token"),
        ("direct", {"token": 999, "place": 1}, 400, "0 to 255"),
        ("direct", {"token": 65, "place": -1}, 400, "place"),
        ("cell", {"query": "1", "key": 0}, 400, "query"),
        ("change", {"edits": [{**HEAD, "kind": "from"}]}, 400, "text"),
        ("change", {"edits": [{**HEAD, "kind": "from", "text": "a", "x": 1}]}, 400, "x"),
        ("change", {"edits": [{**HEAD, "head": 9, "kind": "hard"}]}, 422, "heads 0 to 3"),
        ("change", {"edits": "all"}, 400, "edits"),
    ],
    ids=str,
)
def test_faults_are_named(server, run, route, content, status, word):
    needed = {} if route == "prompt" or "run" in content else {"run": run["run"]}
    answer = server.post(f"/api/{route}", json={**needed, **content})
    assert answer.status_code == status, answer.text
    assert word in answer.json()["error"]


def test_a_run_is_compared_with_runs_of_its_model(server, run):
    answer = server.post("/api/prompt", json={"model": "other", "text": "a", "beside": run["run"]})
    assert answer.status_code == 400
    assert "beside" in answer.json()["error"]


def test_a_model_that_fails_is_a_sentence_without_its_paths(server, tiny, run, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(tiny.model.model.layers[1], "forward", fail)
    effects = {"run": run["run"], "token": TOKEN, "place": 1, "text": "a", "method": "run"}
    requests = {"prompt": {"model": "tiny", "text": "a"}, "effects": effects}
    for route, content in requests.items():
        answer = server.post(f"/api/{route}", json=content)
        assert answer.status_code == 422
        assert "secret" not in answer.text


def test_hostile_text_is_text(server):
    evil = "</script><img src=x onerror=alert(1)>\u202e"
    header = bundle(server, "prompt", model="tiny", text=evil).header
    assert header["prompt"]["text"] == header["title"] == evil
    tokens = "".join(header["sequences"][0]["tokens"])
    assert tokens.startswith("</script><img▁src=x")
    assert tokens.endswith("⟨E2⟩\u202e⟨80⟩\u202e⟨AE⟩\u202e")


def test_a_pass_ends_when_nobody_waits_for_it(tiny):
    from regard.serving.errors import Cancelled

    told = []

    def task(doing="", done=0, of=0):
        told.append((doing, done, of))
        if done == 1:
            raise Cancelled

    with pytest.raises(Cancelled):
        read(tiny, IDS, task=task)
    assert told == [("running the model", 0, 2), ("running the model", 1, 2)]
    assert len(read(tiny, IDS).seen) == 2  # no hook stays
