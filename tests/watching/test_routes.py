"""Routes beside the products and gradients of plain hooks."""

from __future__ import annotations

import pytest
import torch
from tests.watching.cases import CLOSE
from tests.watching.models import gpt2, llama
from tests.watching.test_values import TOKENS

import regard
from regard import metrics
from regard.watching import WatchError


def eager_weights(model):
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(TOKENS, output_attentions=True).attentions


@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_rollout_is_the_product_of_layers(make):
    rollout = regard.routes(make(), TOKENS, 5)
    product = torch.eye(7)
    for weights in eager_weights(make()):
        product = (weights.mean(1) + torch.eye(7)) / 2 @ product
    torch.testing.assert_close(rollout.matrix, product, **CLOSE)
    torch.testing.assert_close(rollout.tokens(), product[:, 5], **CLOSE)
    torch.testing.assert_close(rollout.tokens().sum(-1), torch.ones(2))
    assert "<table>" in rollout._repr_html_()


def test_the_flow_of_an_edge_is_its_gradient_with_frozen_weights():
    metric = metrics.LogProbability(4)
    flows = regard.routes(llama(), TOKENS, metric).flows
    model = llama()
    weights = eager_weights(model)
    fixed = [each.detach().clone().requires_grad_() for each in weights]
    # The weights of each layer are fixed: a softmax that returns them, in eager attention.
    calls = iter(fixed)
    softmax = torch.nn.functional.softmax
    try:
        torch.nn.functional.softmax = lambda *_, **__: next(calls)
        metric(model(TOKENS)).mean().backward()
    finally:
        torch.nn.functional.softmax = softmax
    for flow, expected in zip(flows.values(), fixed, strict=True):
        torch.testing.assert_close(flow, expected.grad * expected.detach(), **CLOSE)


def test_routes_are_shown_by_edge_by_head_and_by_token(tmp_path):
    routes = regard.routes(gpt2(), TOKENS, metrics.LogProbability(4))
    largest = max(float(flow[0].abs().max()) for flow in routes.flows.values())
    edge, *_ = routes.top(3)
    assert abs(edge.flow) == pytest.approx(largest)
    assert float(routes.flows[edge.name][0, edge.head, edge.query, edge.key]) == edge.flow
    assert routes.array().shape == (2, 3)
    total = sum(float(each.sum()) for each in routes.tokens().values())
    assert float(routes.array().sum()) == pytest.approx(total, abs=1e-5)
    assert len(str(routes).splitlines()) == 10
    assert "<table>" in routes._repr_html_()
    pytest.importorskip("matplotlib")
    routes.plot().savefig(tmp_path / "routes.png")


def test_bad_targets_are_refused_in_a_sentence():
    with pytest.raises(TypeError, match="pass a metric, or the number of a query"):
        regard.routes(gpt2(), TOKENS, "end")
    with pytest.raises(WatchError, match="the attentions have 7 queries"):
        regard.routes(gpt2(), TOKENS, 7)
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, y = torch.randn(1, 4, 8), torch.randn(1, 5, 8)
    with pytest.raises(WatchError, match="has 4 queries and 5 keys"):
        regard.routes(model, (x, y, y), -1)
