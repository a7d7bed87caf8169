"""Every number of the arithmetic is read from the run, and leads to the next one."""

from __future__ import annotations

import pytest
import torch

from regard.explorer.translating import arithmetic, explore
from regard.translation.translator import Translator

TEXT = "La hermana de mi amigo vive en una casa grande."


@pytest.fixture(scope="module", params=["es-en", "es-en-recurrent"])
def run(request):
    translator = Translator.open(request.param)
    scene, translation = explore(translator, TEXT)
    return scene, arithmetic(translator, translation)


def close(one, two, tolerance=1e-4):
    torch.testing.assert_close(
        torch.as_tensor(one, dtype=torch.float32),
        torch.as_tensor(two, dtype=torch.float32),
        atol=tolerance,
        rtol=1e-4,
    )


def test_the_numbers_of_every_attention_follow_from_each_other(run):
    scene, numbers = run
    for one in scene.attentions:
        heads, queries, keys = one.shape
        head, query, key = heads - 1, queries // 2, min(1, keys - 1)
        found = numbers.of(one.name, head, query, key)
        shown = one.look.weights().reshape(one.shape)[head, query]
        close(found["weights"], shown, 1e-5)
        terms = found["terms"]
        close(sum(terms["terms"]), terms["sum"])
        close(terms["sum"] * terms["scale"], terms["score"])
        close(terms["score"], found["scores"][key])
        scores = torch.tensor(found["scores"])
        if "bias" in found:
            scores = scores + torch.tensor(found["bias"])
        scores = scores.masked_fill(~torch.tensor(found["readable"]), -torch.inf)
        close(scores.softmax(-1), shown, 1e-5)


def test_readings_heads_and_residuals_add_up(run):
    scene, numbers = run
    if numbers.seen.model != "Transformer":
        pytest.skip("the recurrent model has no residual stream")
    for one in scene.attentions:
        found = numbers.of(one.name, 1, 2, 0)
        stages = found["stages"]
        before = torch.tensor(stages["before: residual in"])
        after = torch.tensor(stages["before: residual out"])
        close(before + torch.tensor(stages["attention output"]), after)
        fed = torch.tensor(stages["feed-forward: residual in"])
        out = torch.tensor(stages["feed-forward: residual out"])
        close(fed + torch.tensor(stages["feed-forward: output"]), out)
        close(found["split"], found["terms"]["score"], 1e-3)
        close(sum(pair["score"] for pair in found["pairs"]) + found["rest"], found["split"], 1e-3)


def test_the_heads_outputs_sum_to_the_attentions_output(run):
    scene, numbers = run
    if numbers.seen.model != "Transformer":
        pytest.skip("the recurrent model has one head")
    name = scene.attentions[0].name
    outputs = [numbers.of(name, head, 1, 0)["stages"] for head in range(4)]
    total = torch.tensor([each["head output"] for each in outputs]).sum(0)
    close(total, outputs[0]["attention output"])
