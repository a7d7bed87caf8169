"""Named models: the counts of their papers, of the models that others build, and the differences."""

import pytest
import torch

from regard.costs import cost
from regard.costs.papers import PAPERS

PUBLISHED = {name: paper.published for name, paper in PAPERS.items() if paper.published}


def test_gpt_3_has_the_attention_weights_of_its_formula():
    costs = cost("gpt-3")
    assert costs.attention_weights() == ("4 x 96 x (12 x 1,024)^2", 57_982_058_496)
    assert costs.attention_weights()[1] // 4 == 14_495_514_624
    assert round(costs.parameters, -8) == 174_600_000_000  # table D.1 of the paper: 174,600 million


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_those_that_the_papers_publish(name):
    """Within 1%, but for GPT-2, whose paper was corrected, and the base Transformer, which no paper explains."""
    tolerance = {"gpt-2": 0.07, "gpt-2-xl": 0.011, "vaswani-base": 0.031}.get(name, 0.01)
    parameters = cost(name).parameters
    assert abs(parameters / PUBLISHED[name] - 1) < tolerance
    if tolerance > 0.01:
        assert PAPERS[name].remark


def test_papers_without_counts_say_none():
    assert {name for name in PAPERS if name not in PUBLISHED} == {"bahdanau-2015", "luong-2015"}


@pytest.mark.parametrize("name", ["bert-base", "gpt-2", "gpt-2-xl"])
def test_counts_are_those_of_the_models_of_transformers(name):
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

    large = {"n_embd": 1600, "n_layer": 48, "n_head": 25} if name == "gpt-2-xl" else {}
    with torch.device("meta"):
        bert = name == "bert-base"
        model = BertModel(BertConfig()) if bert else GPT2LMHeadModel(GPT2Config(**large))
    ours = cost(name, queries=9)
    assert ours.parameters == sum(each.numel() for each in model.parameters())
    if name == "gpt-2-xl":
        return
    theirs = cost(model, torch.zeros(1, 9, dtype=torch.long, device="meta"))
    assert theirs.uncounted == ()
    assert theirs.multiply_adds == ours.multiply_adds
    assert theirs["feed-forward"].multiply_adds == ours["feed-forward"].multiply_adds
    assert theirs["scores and values"].multiply_adds == sum(
        ours[part].multiply_adds for part in ("scores", "values")
    )


def test_bahdanau_has_the_matrices_of_the_appendix():
    """Appendix A of arXiv 1409.0473, matrix by matrix."""
    n, m, l, K = 1000, 620, 500, 30_000  # noqa: E741
    encoder = K * m + 2 * (3 * n * m + 3 * n * n)  # E; W, W_z, W_r; U, U_z, U_r in two directions
    decoder = K * m + n * n + 3 * n * m + 3 * n * n + 3 * n * 2 * n  # E; W_s; W; U; C
    alignment = n + n * n + n * 2 * n  # v_a, W_a, U_a
    output = K * l + 2 * l * n + 2 * l * m + 2 * l * 2 * n  # W_o, U_o, V_o, C_o
    assert cost("bahdanau-2015").parameters == encoder + decoder + alignment + output


def test_luong_has_the_matrices_of_the_paper():
    n, K = 1000, 50_000
    costs = cost("luong-2015")
    # Four layers of LSTM on each side; the lowest of the decoder reads the attentional vector too.
    assert costs["recurrence"].parameters == (4 + 4) * 2 * 4 * n * n + 4 * n * n
    assert costs["embeddings"].parameters == 2 * K * n
    assert costs["output layer"].parameters == 2 * n * n + K * n  # W_c, W_s
    assert costs["W_K"].parameters == n * n  # W_a
