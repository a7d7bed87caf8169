"""Scores, normalisers and positions of the caller's, by the public names of Regard alone."""

import pytest
import torch
from torch import nn

import regard


def weighted(bases, name=()):
    """A dot product with weights of channels, with its two bases in an order."""

    class Weighted(*bases, name=name):
        widths = ("d_key",)

        def __init__(self, d_key, heads=None):
            super().__init__()
            self.weight = nn.Parameter(torch.arange(1.0, d_key + 1))

        def factors(self, query, key):
            return query * self.weight, key, 1.0

    return Weighted


BASES = (regard.scores.DotLike, nn.Module), (nn.Module, regard.scores.DotLike)


@pytest.mark.parametrize("bases", BASES, ids=["dots first", "module first"])
def test_a_score_with_parameters_is_fused_and_learns(bases):
    query, key, value = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 2)
    score = weighted(bases)(4)
    assert regard.explain(query, key, value, score=score).kernel in ("sdpa", "matmul")
    reading = regard.attend(query, key, value, score=score)
    assert torch.allclose(
        reading, torch.softmax(query * score.weight @ key.mT, -1) @ value, atol=1e-6
    )
    reading.sum().backward()
    assert score.weight.grad.any()


def test_a_named_score_with_parameters_is_made_by_modules_and_refused_without_them():
    weighted(BASES[0], name="weighted_of_this_test")
    heads = regard.MultiHeadAttention(8, heads=2, score="weighted_of_this_test")
    assert heads.score.weight.shape == (4,)
    with pytest.raises(ValueError, match=r"build Weighted\(d_key=4\) once and pass it"):
        regard.look(torch.ones(1, 4), torch.ones(1, 4), score="weighted_of_this_test")


@pytest.mark.parametrize("is_module_first", ["score", "module"])
def test_a_pair_score_with_parameters_runs_its_hooks(is_module_first):
    bases = (regard.scores.PairScore, nn.Module)

    class Far(*(bases if is_module_first == "score" else bases[::-1])):
        def forward(self, query, key):
            return torch.cdist(query, key)

    score, calls = Far(), []
    query, key = torch.randn(3, 4), torch.randn(5, 4)
    assert torch.allclose(
        regard.look(query, key, score=score).weights(), torch.cdist(query, key).softmax(-1)
    )
    score.register_forward_hook(lambda *call: calls.append(call))
    regard.look(query, key, score=score).weights()
    assert calls


def test_a_name_that_another_class_has_is_refused():
    for base in (regard.scores.DotLike, regard.normalisers.Normaliser):
        name = "dot" if base is regard.scores.DotLike else "softmax"
        with pytest.raises(ValueError, match=f"has the name '{name}' already"):
            type("Mine", (base,), {}, name=name)


def test_a_named_normaliser_is_used_everywhere():
    class Squared(regard.normalisers.Normaliser, name="squared_of_this_test"):
        def lowest(self, dtype):
            return 0.0

        def rows(self, scores):
            squares = scores.clamp(min=0).square()
            return squares / squares.sum(-1, keepdim=True).clamp(min=1e-12)

    x = torch.randn(2, 5, 8)
    expected = regard.attend(x, x, x, mask="causal", normaliser=Squared())
    named = regard.attend(x, x, x, mask="causal", normaliser="squared_of_this_test")
    assert torch.equal(named, expected)
    assert regard.look(x, x, normaliser="squared_of_this_test").entropy().shape == (2, 5)
    block = regard.TransformerBlock(8, 2, normaliser="squared_of_this_test")
    assert isinstance(block.self_attention.normaliser, Squared)
    memory = regard.Memory(normaliser="squared_of_this_test")
    memory.write(x[0], x[0])
    assert torch.allclose(memory.read(x[0]), Squared()(x[0] @ x[0].mT / 8**0.5) @ x[0], atol=1e-6)


def test_an_object_with_a_function_of_positions_is_a_bias():
    class Near:
        def between(self, rows, columns):
            return -(rows - columns).abs().float()

    query, key, value = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 2)
    table = Near().between(torch.arange(3)[:, None], torch.arange(5))
    assert torch.allclose(
        regard.attend(query, key, value, bias=Near()),
        regard.attend(query, key, value, bias=table),
        atol=1e-6,
    )


def test_every_named_normaliser_and_score_is_a_setting_of_translators_or_left_out_on_purpose():
    from typing import get_args

    from regard.attention import normalisers
    from regard.attention.scores import score
    from regard.translation.settings.base import NormaliserName, ScoreName

    for names, classes, absent in (
        (ScoreName, score.CLASSES, set()),
        (NormaliserName, normalisers.CLASSES, {"identity"}),  # its weights do not sum to 1
    ):
        ours = {name for name, cls in classes.items() if cls.__module__.startswith("regard.")}
        assert ours == set(get_args(names)) | absent


def test_every_setting_of_positions_has_a_scheme():
    from typing import get_args

    from regard.translation.models.transformer.positions import SCHEMES
    from regard.translation.settings.transformer import TransformerSettings

    names = get_args(TransformerSettings.model_fields["positions"].annotation)
    assert set(SCHEMES) == set(names)
