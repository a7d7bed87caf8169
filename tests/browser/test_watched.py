"""What `regard.watch` saw, in a real browser: as a page, from a server and in a notebook's frame."""

from __future__ import annotations

import base64
import sys

import pytest
import torch
from tests.browser.conftest import explored

import regard
from regard.explorer import notebook

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
WORDS = [f"w{i}" for i in range(60)]
SMALL = {"vocab_size": 60, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}


def causal(layers: int = 2, **how):
    """A causal model of Hugging Face, built from its configuration."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,  # so that heads differ
        **SMALL,
        **how,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def generated():
    """The attentions of a causal model that writes nine tokens."""
    model, prompt = causal(), torch.tensor([[1, 5, 6, 7, 5, 6]])
    with torch.no_grad(), regard.watch(model) as attentions:
        generated_ids = model.generate(prompt, max_new_tokens=9, do_sample=False)
    return attentions, [WORDS[token] for token in generated_ids[0].tolist()]


@pytest.fixture(scope="module")
def translated():
    """The attentions of an encoder-decoder."""
    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    sizes |= {"encoder_layers": 2, "decoder_layers": 2}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = transformers.BartConfig(
        **sizes, max_position_embeddings=64, decoder_start_token_id=1, **SMALL
    )
    model = transformers.BartForConditionalGeneration(config).eval()
    with torch.no_grad(), regard.watch(model) as attentions:
        model(input_ids=torch.tensor([[3, 4, 5, 3]]), decoder_input_ids=torch.tensor([[1, 8, 9]]))
    return attentions


def names(ids):
    return [WORDS[token] for token in ids]


def numbers(page) -> tuple[list[str], list[str], list[list[float]]]:
    """The labels of the rows and the columns of the table of an enlarged head, and its weights."""
    page.get_by_text("Table of numbers").first.click()
    page.locator(".numbers tbody tr").first.wait_for()
    rows, columns = (
        page.locator(f".numbers {part} th").all_inner_texts() for part in ("tbody", "thead")
    )
    cells = [
        float(cell.replace("masked", "nan"))
        for cell in page.locator(".numbers td").all_inner_texts()
        if cell
    ]
    return (
        rows,
        columns,
        [cells[at : at + len(columns)] for at in range(0, len(cells), len(columns))],
    )


def test_generated_tokens_read_the_prompt_and_each_other(generated, open_page, tmp_path):
    attentions, message = generated
    path = attentions.page(tmp_path / "heads.html", tokenizer=names)
    recorded = open_page(path.as_uri() + "#view=heads&attention=layer.1.self&head=2")
    rows, columns, cells = numbers(recorded.page)
    assert columns == message[:-1]
    assert rows == message[6:-1]
    look = attentions["layer.1.self"]
    expected = look.weights()[0, 2].masked_fill(~look.readable()[0, 2], torch.nan)
    torch.testing.assert_close(torch.tensor(cells), expected, atol=1e-3, rtol=0, equal_nan=True)
    sorts = recorded.page.locator("select").first.locator("option").all_inner_texts()
    assert {"copy", "induction"} <= set(sorts)
    assert recorded.errors == []


def test_an_encoder_and_a_decoder_have_a_map_and_heads_each(translated, open_page, tmp_path):
    path = translated.page(tmp_path / "heads.html", tokenizer=names)
    recorded = open_page(path.as_uri() + "#view=heads&attention=decoder.1.cross&head=1")
    page = recorded.page
    assert page.locator("ul.grid canvas").count() == 12
    rows, columns, cells = numbers(page)
    assert (rows, columns) == (["w1", "w8", "w9"], ["w3", "w4", "w5", "w3"])
    expected = translated["decoder.1.cross"].weights()[0, 1]
    torch.testing.assert_close(torch.tensor(cells), expected, atol=1e-3, rtol=0)
    page.get_by_role("tab", name="Map").click()
    page.locator("canvas.map").wait_for()
    assert page.get_by_role("tab", name="Translate").count() == 0
    assert recorded.errors == []


def test_a_file_of_many_tokens_has_a_map_and_the_largest_weights_of_rows(open_page, tmp_path):
    model = causal(layers=1, max_position_embeddings=2000)
    tokens = torch.arange(1500)[None] % 60
    with torch.no_grad(), regard.watch(model) as attentions:
        model(tokens)
    path = attentions.page(tmp_path / "heads.html", tokenizer=names)
    assert path.stat().st_size < 10e6
    weights = attentions["layer.0.self"].weights(rows=[1201])[0, 3, 0]
    key = int(weights.argmax())
    state = f"#view=map&attention=layer.0.self&head=3&row=1201&column={key}"
    recorded = open_page(path.as_uri() + state)
    element = recorded.page.locator(".exact")
    element.wait_for()
    assert float(element.get_attribute("data-weight")) == pytest.approx(
        float(weights[key]), rel=1e-3
    )
    assert (
        recorded.page.locator("caption")
        .inner_text()
        .endswith("8 largest weights of each row and head")
    )
    smallest = int(weights[:1202].argmin())
    recorded = open_page(path.as_uri() + state.replace(f"column={key}", f"column={smallest}"))
    recorded.page.locator(".exact").wait_for()
    assert "not among the 8 largest" in recorded.page.locator(".exact").inner_text()
    recorded.page.get_by_role("tab", name="Heads").click()
    recorded.page.locator("figure canvas").first.wait_for()
    text = recorded.page.locator("figure output").first.inner_text()
    bin_of = 1201 * 128 // 1500  # a picture has 128 rows
    first_key, last_key = bin_of * 1500 // 128, (bin_of + 1) * 1500 // 128 - 1
    assert text.startswith(f"w{first_key % 60} ({first_key}–{last_key}) ← ")
    assert recorded.errors == []


def test_the_file_of_a_translation_steps_through_its_words(open_page, tmp_path):
    from regard.cli.main import main

    out = tmp_path / "look.html"
    assert main(["look", "El gato negro duerme.", "--out", str(out)]) == 0
    recorded = open_page(out.as_uri(), offline=True)
    words = recorded.page.locator(".target-words button")
    words.first.click()
    recorded.page.keyboard.press("ArrowRight")
    assert words.nth(1).get_attribute("aria-pressed") == "true"
    shares = recorded.page.locator(".source-words li").all()
    total = sum(float(each.get_attribute("data-weight")) for each in shares)
    assert total == pytest.approx(1, abs=0.01)
    tabs = recorded.page.get_by_role("tab").all_inner_texts()
    assert tabs == ["Translate", "Heads", "Map"]
    assert recorded.errors == []
    assert [url for url in recorded.requests if not url.startswith(("file:", "data:"))] == []


def test_a_frame_of_a_notebook_shows_the_explorer(generated, tmp_path, browser):
    """The frame is sandboxed: it has no address and no storage of its own."""
    frame = notebook.Frame(generated[0].scene(tokenizer=names))
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><title>notebook</title>{frame._repr_html_()}", "utf-8")
    context = browser.new_context(offline=True)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda fault: errors.append(str(fault)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.goto(path.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator("ul.grid button").nth(3).click()
    inside.locator("ul.grid button.chosen").wait_for()
    inside.get_by_role("tab", name="Map").click()
    inside.locator("canvas.map").wait_for()
    assert page.title() == "notebook"
    assert errors == []
    context.close()


def test_a_widget_is_drawn_by_the_same_module(generated, browser):
    """anywidget calls the default export with its model, whose bytes are a DataView."""
    widget = pytest.importorskip("anywidget") and generated[0].explore(tokenizer=names)
    data = base64.b64encode(widget.bundle).decode()
    context = browser.new_context()
    page, errors = context.new_page(), []
    page.on("pageerror", lambda fault: errors.append(str(fault)))
    page.route(
        "http://widget/**",
        lambda route: route.fulfill(
            body=widget._esm
            if route.request.url.endswith(".js")
            else "<!doctype html><title>notebook</title><div></div>",
            content_type="text/javascript" if route.request.url.endswith(".js") else "text/html",
        ),
    )
    page.goto("http://widget/")
    page.evaluate(
        """async (data) => {
            const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
            const values = { bundle: new DataView(bytes.buffer) };
            const model = { get: (name) => values[name], on() {} };
            const { default: front } = await import("http://widget/explorer.js");
            front.render({ model, el: document.querySelector("div") });
            front.render({ model, el: document.body.appendChild(document.createElement("p")) });
        }""",
        data,
    )
    page.locator("ul.grid").nth(1).wait_for()
    ids = page.evaluate("Array.from(document.querySelectorAll('[id]'), (each) => each.id)")
    assert len(set(ids)) == len(ids) == 6  # of two tabs and a view, in each of two widgets
    page.locator("ul.grid button").nth(3).click()
    page.locator("ul.grid button.chosen").wait_for()
    assert page.title() == "notebook"
    assert page.url == "http://widget/"
    assert errors == []
    context.close()


def test_a_text_too_long_for_a_file_is_open_to_a_server(open_page, tmp_path, monkeypatch):
    """`regard explore MODULE:CALL`: the model runs once, the map is computed where it is looked at."""
    from regard.cli.commands import explore
    from regard.explorer.server import Explorer, Models

    (tmp_path / "long_text.py").write_text(
        """
import torch
from tests.browser.test_watched import causal, names

def example():
    model = causal(layers=1, max_position_embeddings=12_000)
    tokens = torch.arange(12_000)[None] * 7919 % 59
    return model.model, tokens, names
"""
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    scene = explore._answer("long_text:example").scene
    (attention,) = scene.attentions
    assert attention.shape == (4, 12_000, 12_000)
    state = "#view=map&attention=layer.0.self&head=1&row=10000&column=2345"
    with explored(Explorer(Models({}), scene)) as base:
        recorded = open_page(base + state)
        element = recorded.page.locator(".exact")
        element.wait_for(timeout=60_000)
        expected = float(attention.look.weights(rows=[10_000], columns=[2_345])[1])
        assert float(element.get_attribute("data-weight")) == pytest.approx(expected, abs=1e-5)
        assert f"w{10_000 * 7919 % 59} (10000)" in element.inner_text()
        recorded = open_page(base)  # a scene without a translation opens on its heads
        recorded.page.locator("ul.grid li:nth-child(4) canvas").wait_for()
        recorded.settle()
        recorded.page.locator("select").first.select_option("sink")
        recorded.settle()  # the measures come when they are needed
        hint = recorded.page.locator(".tools .hint").inner_text()
        assert hint.endswith("from 87 of 12000 queries")
        recorded.page.locator("ul.grid button").nth(2).click()
        recorded.page.get_by_role("button", name="Open layer.0.self in the map").click()
        recorded.page.locator("canvas.map").wait_for()
        assert recorded.errors == []
