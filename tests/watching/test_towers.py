"""Two towers of one model, for a text and an image, whose attentions and tokens are told apart."""

from __future__ import annotations

import pytest
import torch

import regard

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "projection_dim": 8,
}
TOKENS = torch.tensor([[5, 9, 7, 5, 9, 7, 5, 9, 7, 3]])  # as many as patches, and the class
IMAGE = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
VISION = ["vision_model.0.self", "vision_model.1.self"]
TEXT = ["text_model.0.self", "text_model.1.self"]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    text = SIZES | {"vocab_size": 12, "max_position_embeddings": 10, "eos_token_id": 3}
    vision = SIZES | {"image_size": 12, "patch_size": 4}
    settings = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    return transformers.CLIPModel(settings).eval()


def run(model):
    return model(input_ids=TOKENS, pixel_values=IMAGE)


@torch.no_grad()
def test_attentions_are_named_after_their_tower(model):
    with regard.watch(model) as seen:
        run(model)
    assert list(seen) == [*VISION, *TEXT]
    path = "vision_model.encoder.layers.1.self_attn"
    assert seen.path(VISION[1]) == path
    assert seen[path] is seen[VISION[1]]
    assert [seen.kind(name) for name in (VISION[0], TEXT[0])] == ["self", "causal"]
    with regard.watch(model, layers=VISION[0]) as one:
        run(model)
    assert list(one) == ["encoder.0.self"]
    assert one.path("encoder.0.self").startswith("vision_model.")


@torch.no_grad()
def test_an_image_has_no_tokens_of_the_text(model):
    with regard.watch(model) as seen:
        run(model)
    for head in seen.table():
        assert (head.induction == head.induction) == (head.name in TEXT)


@torch.no_grad()
def test_a_tower_is_edited_alone(model):
    plain = run(model)
    with regard.change(model, {TEXT[1]: regard.edits.Scale(0.0)}):
        edited = run(model)
    assert torch.equal(plain.image_embeds, edited.image_embeds)
    assert not torch.equal(plain.text_embeds, edited.text_embeds)
    inputs = {"input_ids": TOKENS, "pixel_values": IMAGE}
    table = regard.effects(
        model, inputs, lambda output: output.image_embeds[:, 0], layers="text_model.*"
    )
    assert not table.array().any()
    assert [row.name for row in table][::2] == ["encoder.0.self", "encoder.1.self"]
