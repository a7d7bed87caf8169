"""Every number of the arithmetic is read from the run, and leads to the next one."""

from __future__ import annotations

import pytest
import torch

from regard.attention.heads import MultiHeadAttention, new_norm
from regard.attention.scores import Cosine, ScaledDot
from regard.explorer.translating import arithmetic, explore
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings
from regard.translation.text.tokenizer import PAD
from regard.translation.translator import Translator
from regard.watching.edits import Hard

TEXT = "La hermana de mi madre vive en una casa grande."


@pytest.fixture(scope="module", params=["es-en-tiny", "es-en-recurrent"])
def run(request):
    translator = Translator.open(request.param)
    scene, translation = explore(translator, TEXT)
    return scene, arithmetic(translator, translation)


@pytest.fixture(scope="module")
def shipped():
    translator = Translator.open("es-en-tiny")
    return translator, translator.translate([TEXT])[0]


def close(actual, two, tolerance=1e-4):
    torch.testing.assert_close(
        torch.as_tensor(actual, dtype=torch.float32),
        torch.as_tensor(two, dtype=torch.float32),
        atol=tolerance,
        rtol=1e-4,
    )


def test_the_numbers_of_every_attention_follow_from_each_other(run):
    scene, numbers = run
    for attention in scene.attentions:
        heads, queries, keys = attention.shape
        head, query, key = heads - 1, queries // 2, min(1, keys - 1)
        stages = numbers.of(attention.name, head, query, key)
        weight = attention.look.weights().reshape(attention.shape)[head, query]
        close(stages["weights"], weight, 1e-5)
        terms = stages["terms"]
        close(sum(terms["terms"]), terms["sum"])
        close(terms["sum"] * terms["scale"], terms["score"])
        close(terms["score"], stages["scores"][key])
        scores = torch.tensor(stages["scores"])
        if "bias" in stages:
            scores = scores + torch.tensor(stages["bias"])
        scores = scores.masked_fill(~torch.tensor(stages["readable"]), -torch.inf)
        close(scores.softmax(-1), weight, 1e-5)


def test_readings_heads_and_residuals_add_up(run):
    scene, numbers = run
    if type(numbers.model).__name__ != "Transformer":
        pytest.skip("the recurrent model has no residual stream")
    for attention in scene.attentions:
        result = numbers.of(attention.name, 1, 2, 0)
        stages = result["stages"]
        residual_in = torch.tensor(stages["before: residual in"])
        residual_out = torch.tensor(stages["before: residual out"])
        close(residual_in + torch.tensor(stages["attention output"]), residual_out)
        fed = torch.tensor(stages["feed-forward: residual in"])
        out = torch.tensor(stages["feed-forward: residual out"])
        close(fed + torch.tensor(stages["feed-forward: output"]), out)
        close(result["split"], result["terms"]["score"], 1e-3)
        close(
            sum(pair["score"] for pair in result["pairs"]) + result["rest"], result["split"], 1e-3
        )


def test_the_heads_outputs_sum_to_the_attentions_output(run):
    scene, numbers = run
    if type(numbers.model).__name__ != "Transformer":
        pytest.skip("the recurrent model has one head")
    name = scene.attentions[0].name
    outputs = [numbers.of(name, head, 1, 0)["stages"] for head in range(4)]
    total = torch.tensor([each["head output"] for each in outputs]).sum(0)
    close(total, outputs[0]["attention output"])


SETTINGS = {
    "post-norm": {"norm": "post"},
    "rms": {"normalisation": "rms", "attention_bias": True},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
    "alibi": {"positions": "alibi", "gated": True},
    "wide heads": {"head_width": 24, "positions": "learned"},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("edits", [{}, {"*": [Hard()]}], ids=["as it is", "edited"])
def test_models_of_other_settings(name, edits, shipped):
    torch.manual_seed(0)
    actual_translator, translation = shipped
    settings = TransformerSettings(width=32, heads=2, feed_forward=48, **SETTINGS[name])
    size = len(actual_translator.tokenizers.target)
    model = Transformer(settings, size, size, PAD).eval()
    translator = Translator(actual_translator.run, model, actual_translator.tokenizers)
    numbers = arithmetic(translator, translation, edits)
    for look in numbers.looks:
        result = numbers.of(look, 1, 2, 1)
        stages = result["stages"]
        close(result["terms"]["score"], result["scores"][1])
        if edits:
            assert sorted(result["edited"])[-2:] == [0.0, pytest.approx(1.0)]
        path = numbers.looks.path(look)
        weight = model.get_submodule(path).output_projection.weight
        head_weight = weight[:, weight.shape[1] // 2 :]  # of head 1 of 2
        close(head_weight @ torch.tensor(stages["reading"]), stages["head output"])
        head_output = numbers.of(look, 0, 2, 1)["stages"]["head output"]
        output = torch.tensor(stages["attention output"])
        close(
            torch.tensor(head_output) + torch.tensor(stages["head output"]) + bias(model, path),
            output,
        )
        total = torch.tensor(stages["before: residual in"]) + output
        if name == "post-norm":
            residual = model.get_submodule(path.replace("_attention", "_residual"))
            close(residual.norm(total), stages["before: normalised sum"])
            assert "before: residual out" not in stages
        else:
            close(total, stages["before: residual out"])
        close(result["split"], result["terms"]["score"], 1e-4)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("score", [ScaledDot(), Cosine(3.0)], ids=["dot", "cosine"])
@pytest.mark.parametrize("qk_norm", ["rms", "layer"])
def test_a_split_score_passes_the_norms_of_queries_and_keys(norm, score, qk_norm, shipped):
    torch.manual_seed(0)
    actual_translator, translation = shipped
    settings = TransformerSettings(
        width=32, heads=2, feed_forward=48, norm=norm, positions="rotary"
    )
    size = len(actual_translator.tokenizers.target)
    model = Transformer(settings, size, size, PAD).eval()
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.score = score
            module.query_norm, module.key_norm = (new_norm(16, qk_norm) for _ in range(2))
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(weight)  # gains and biases of their own
    translator = Translator(actual_translator.run, model, actual_translator.tokenizers)
    numbers = arithmetic(translator, translation)
    for look in numbers.looks:
        stages = numbers.of(look, 1, 2, 1)
        close(stages["split"], stages["terms"]["score"], 1e-3)
    assert len(stages["pairs"]) > 20


def test_the_numbers_of_an_edited_recurrent_model():
    translator = Translator.open("es-en-recurrent")
    scene, translation = explore(translator, TEXT, edits={"*": [Hard()]})
    numbers = arithmetic(translator, translation, {"*": [Hard()]})
    for attention in scene.attentions:
        weight = attention.look.weights().reshape(attention.shape)[0, 3]
        assert numbers.of(attention.name, 0, 3, 1)["edited"] == pytest.approx(
            weight.tolist(), abs=1e-6
        )


def bias(model, path):
    own_bias = model.get_submodule(path).output_projection.bias
    return 0.0 if own_bias is None else own_bias
