"""Prompts of encoder-decoders: the source, the target and their attentions, against the models themselves."""

from __future__ import annotations

import pytest
import torch
from starlette.testclient import TestClient
from tests.explorer.bundles import Bundle
from tests.explorer.languages import EndedBytes, encoder_decoder, language, transformers

from regard.cli.commands.explore import _language
from regard.explorer import notebook, prompting
from regard.explorer.server import Explorer, Models, application
from regard.watching import watch
from regard.watching.spelling import spelled

HOST = "127.0.0.1:8000"
FAMILIES = ("T5", "Bart", "Marian")
TEXT, OTHER, TARGET = "Mary saw", "Tom and Ann saw", "Maria"
SOURCE, READ = [*TEXT.encode(), 1], [0, *TARGET.encode()]
TOKEN = 65
CROSS = "decoder.1.cross"


@pytest.fixture(scope="module", autouse=True)
def short():
    """Targets of at most six tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompting, "LONGEST", 6)
        yield


@pytest.fixture(scope="module")
def models(short):
    return {family: encoder_decoder(family) for family in FAMILIES}


@pytest.fixture(scope="module")
def server(models):
    explorer = Explorer(Models({}), languages=[*models.values(), language()])
    with TestClient(application(explorer, [HOST]), base_url=f"http://{HOST}") as client:
        yield client


def bundle(server, route, **content):
    answer = server.post(f"/api/{route}", json=content)
    assert answer.status_code == 200, answer.text
    return Bundle(answer.content)


def scores(subject, ids, source=SOURCE, hook=None):
    """The log-probabilities of a model, with a hook before the output projection of its last cross attention."""
    cross = subject.model.get_decoder().layers[1].encoder_attn if hook else None
    handle = cross.out_proj.register_forward_pre_hook(hook) if hook else None
    with torch.no_grad():
        output = subject.model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([ids])
        )
    if handle:
        handle.remove()
    return output.logits[0].log_softmax(-1)


def check_next(header, expected, earlier=None):
    for place, entries in enumerate(header["prompt"]["next"]):
        for entry in entries:
            assert entry["log_probability"] == pytest.approx(
                float(expected[place, entry["id"]]), abs=1e-4
            )
            if earlier is not None and entry["before"] is not None:  # it is among the 100 likeliest
                assert entry["before"] == pytest.approx(
                    float(earlier[place, entry["id"]]), abs=1e-4
                )


def tokens(header, name):
    (sequence,) = (each for each in header["sequences"] if each["name"] == name)
    return sequence["tokens"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_writes_the_likeliest_token_at_each_step(models, server, family):
    writer, ids = models[family], [0]
    while len(ids) < 6 and (following := int(scores(writer, ids)[-1].argmax())) != 1:
        ids.append(following)
    if family != "T5" and len(ids) == 6:  # the longest target is ended
        ids.pop()
    header = bundle(server, "prompt", model=family, text=TEXT).header
    assert tokens(header, "target") == spelled(writer.tokenizer, ids)
    check_next(header, scores(writer, ids))


@pytest.mark.parametrize("family", FAMILIES)
def test_attentions_of_both_sides_are_those_of_the_model(models, server, family):
    run = bundle(server, "prompt", model=family, text=TEXT, target=TARGET)
    model = models[family].model
    kernel = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(
            input_ids=torch.tensor([SOURCE]),
            decoder_input_ids=torch.tensor([READ]),
            output_attentions=True,
        )
    model.set_attn_implementation(kernel)
    expected = {
        "encoder.{}.self": output.encoder_attentions,
        "decoder.{}.self": output.decoder_attentions,
        "decoder.{}.cross": output.cross_attentions,
    }
    for name, layers in expected.items():
        for number, weights in enumerate(layers):
            actual = torch.tensor(run.weights(name.format(number))).float().nan_to_num(0)
            torch.testing.assert_close(actual, weights[0], atol=1e-3, rtol=0)
    prompt, attentions = run.header["prompt"], run.header["attentions"]
    assert (prompt["text"], prompt["target"]) == (TEXT, TARGET)
    check_next(run.header, scores(models[family], READ))
    assert prompt["log_probabilities"][1] == pytest.approx(
        float(scores(models[family], READ)[0, READ[1]]), abs=1e-4
    )
    cross = next(each for each in attentions if each["name"] == CROSS)
    sides = [run.header["sequences"][cross[side]]["tokens"] for side in ("rows", "columns")]
    assert sides == [spelled(models[family].tokenizer, ids) for ids in (READ, SOURCE)]


def test_a_token_is_written_after_any_place_of_the_target(models, server):
    run = bundle(server, "prompt", model="Bart", text=TEXT, target=TARGET).header["run"]
    header = bundle(server, "step", run=run, place=2, token=TOKEN).header
    assert header["prompt"]["target"] == "MaA"
    check_next(header, scores(models["Bart"], [0, *b"MaA"]))


def test_another_source_keeps_the_target(models, server):
    run = bundle(server, "prompt", model="T5", text=TEXT, target=TARGET).header["run"]
    header = bundle(server, "change", run=run, edits=[], text=OTHER).header
    assert header["prompt"]["target"] == TARGET
    changed, unchanged = (
        scores(models["T5"], READ, source) for source in ([*OTHER.encode(), 1], SOURCE)
    )
    check_next(header, changed, unchanged)


def test_a_head_from_another_source_is_as_by_a_hook(models, server):
    bart, readings = models["Bart"], []
    scores(bart, READ, [*OTHER.encode(), 1], lambda _, inputs: readings.append(inputs[0]))

    def patch(_, inputs):
        mixed = inputs[0].clone()
        mixed[..., 16:24] = readings[0][..., 16:24]
        return (mixed,)

    expected = scores(bart, READ, hook=patch)
    run = bundle(server, "prompt", model="Bart", text=TEXT, target=TARGET).header["run"]
    edit = {"attention": CROSS, "head": 2, "kind": "from", "text": OTHER}
    check_next(bundle(server, "change", run=run, edits=[edit]).header, expected)


def test_effects_are_those_of_hooks(models, server):
    run = bundle(server, "prompt", model="Bart", text=TEXT, target=TARGET).header["run"]
    metric = {"run": run, "token": TOKEN, "place": 3}
    answer = server.post("/api/effects", json={**metric, "method": "run"}).json()
    rows = {(name, head): effect for name, head, effect in answer["rows"]}
    assert len(rows) == 24

    def without(_, inputs):
        changed = inputs[0].clone()
        changed[..., 16:24] = 0
        return (changed,)

    difference = (scores(models["Bart"], READ, hook=without) - scores(models["Bart"], READ))[3]
    assert rows[CROSS, 2] == pytest.approx(float(difference[TOKEN]), abs=1e-4)
    estimated = server.post("/api/effects", json={**metric, "method": "gradient"}).json()
    assert len(estimated["rows"]) == 24


def test_what_is_moved_is_a_share(server):
    run = bundle(server, "prompt", model="T5", text=TEXT, target=TARGET).header["run"]
    shares = torch.tensor(bundle(server, "moved", run=run, moved=True).weights(CROSS)).float()
    torch.testing.assert_close(shares.sum(-1), torch.ones(4, len(READ)), atol=5e-3, rtol=0)


def test_numbers_are_there_and_a_logit_is_not_split(server):
    run = bundle(server, "prompt", model="T5", text=TEXT, target=TARGET).header["run"]
    at = {"run": run, "attention": CROSS, "head": 1, "query": 2, "key": 8}
    assert len(server.get("/api/numbers", params=at).json()["weights"]) == len(SOURCE)
    answer = server.post("/api/direct", json={"run": run, "token": TOKEN, "place": 2})
    assert answer.json()["objection"] == (
        "the model is an encoder-decoder, whose layers have two attentions"
    )


def test_the_end_that_a_tokenizer_does_not_write_is_left_to_the_model(models):
    class Endless(EndedBytes):
        def encode(self, text, add_special_tokens=True):
            return super().encode(text, False)

    class OwnTarget(EndedBytes):  # as Marian's: another vocabulary for targets
        def __call__(self, text_target, add_special_tokens):
            ids = [token + 1 for token in self.encode(text_target, add_special_tokens)]
            return {"input_ids": ids}

    for family in models.values():
        assert prompting.forced(family.model, EndedBytes(), TARGET) == READ
        assert prompting.forced(family.model, Endless(), TARGET) == READ
    shifted = [0, *(byte + 1 for byte in TARGET.encode())]
    assert prompting.forced(models["Marian"].model, OwnTarget(), TARGET) == shifted


def test_first_prompts_are_those_that_a_model_ran_on(models):
    bart = models["Bart"]
    inputs = {"input_ids": torch.tensor([SOURCE]), "decoder_input_ids": torch.tensor([READ])}
    named = _language("MODULE:CALL", (bart.model, inputs, bart.tokenizer))
    with watch(bart.model) as seen, torch.no_grad():
        bart.model(**inputs)
    scene = seen.scene(tokenizer=bart.tokenizer.convert_ids_to_tokens)
    displayed = notebook.language(scene, bart.model, inputs["input_ids"], bart.tokenizer)
    for reader in (named, displayed):
        assert (list(reader.start), list(reader.start_target)) == (SOURCE, READ)
    explorer = Explorer(Models({}), languages=[named])
    with TestClient(application(explorer, [HOST]), base_url=f"http://{HOST}") as client:
        header = bundle(client, "prompt", model="MODULE:CALL").header
    assert (header["prompt"]["text"], header["prompt"]["target"]) == (TEXT, TARGET)


def test_a_model_without_an_output_layer_is_named(models, capsys):
    bart = models["Bart"]
    bare = transformers().BartModel(bart.model.config)
    assert _language("MODULE:CALL", (bare, torch.tensor([SOURCE]), bart.tokenizer)) is None
    assert "the BartModel writes no tokens: pass a model with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("route", "content", "status", "word"),
    [
        ("prompt", {"model": "tiny", "text": "a", "target": "b"}, 400, "no encoder-decoder"),
        ("prompt", {"model": "T5", "text": "a", "target": 4}, 400, "target"),
        ("prompt", {"model": "T5", "text": "a", "chat": True}, 422, "no chat template"),
        ("step", {"run": "T5", "place": 9, "token": TOKEN}, 400, "place"),
        ("step", {"run": "T5", "place": 1, "token": 999}, 400, "0 to 255"),
        ("step", {"run": "tiny", "place": 1, "token": TOKEN}, 400, "no encoder-decoder"),
    ],
    ids=str,
)
def test_faults_are_named(server, route, content, status, word):
    if "run" in content:
        target = {"target": TARGET} if content["run"] == "T5" else {}
        run = bundle(server, "prompt", model=content["run"], text=TEXT, **target)
        content = {**content, "run": run.header["run"]}
    answer = server.post(f"/api/{route}", json=content)
    assert answer.status_code == status, answer.text
    assert word in answer.json()["error"]
