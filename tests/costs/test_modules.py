"""Any module: parameters by part, products as they run, and what is not counted."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.attention.scores.score import CLASSES
from regard.costs import cost
from regard.costs.parts import SCORES
from regard.errors import ConfigurationError, ModelError


class Calls(nn.Module):
    """A module of the function that it is given."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(4, 4, bias=False), function

    def forward(self, x):
        return self.function(self.layer, x)


X = torch.randn(3, 4)


def test_torchs_transformer_has_the_sums_of_torchs_counter_and_no_part_is_lost():
    model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()
    source, target = torch.zeros(2, 3, 16), torch.zeros(2, 4, 16)
    costs = cost(model, source, target)
    assert costs.uncounted == ()
    assert costs.parameters == sum(each.numel() for each in model.parameters())
    formula = (
        cost(
            regard.TransformerBlock(16, 2, 32, cross=True), target, torch.zeros(2, 3, 16)
        ).multiply_adds
        + cost(regard.TransformerBlock(16, 2, 32), source).multiply_adds
    )
    assert costs.multiply_adds == formula
    assert costs["feed-forward"].multiply_adds == 2 * 16 * 32 * (2 * 3 + 2 * 4)
    assert costs["scores"].multiply_adds == costs["values"].multiply_adds
    with FlopCounterMode(display=False) as counter:
        model.encoder.layers[0].linear1(source)
    assert counter.get_total_flops() // 2 == 16 * 32 * 2 * 3


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_torchs_recurrent_layers_are_counted(kind, gates):
    costs = cost(kind(4, 5), torch.zeros(3, 2, 4))
    assert costs["recurrence"].parameters == gates * (4 * 5 + 5 * 5 + 2 * 5)
    assert costs["recurrence"].multiply_adds == gates * (4 + 5) * 5 * 3 * 2
    assert costs.uncounted == ()


def test_settings_of_torch_are_left_as_they_were():
    settings_before = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    cost(Calls(lambda layer, x: layer(x)), X)
    assert (
        torch.backends.mha.get_fastpath_enabled(),
        torch.backends.mkldnn.enabled,
    ) == settings_before


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("aten::_fft_r2c", lambda layer, x: torch.fft.rfft(layer(x))),
        ("aten::_cdist_forward", lambda layer, x: torch.cdist(layer(x), x)),
        ("aten::linalg_inv_ex", lambda layer, x: torch.linalg.inv(layer(x)[:, :3])),
        ("aten::_trilinear", lambda layer, x: torch.bilinear(layer(x), x, torch.ones(2, 4, 4))),
        (
            "aten::_sparse_addmm",
            lambda layer, x: torch.sparse.mm(torch.eye(3).to_sparse(), layer(x)),
        ),
    ],
)
def test_an_operation_that_cannot_be_counted_is_named(name, function):
    costs = cost(Calls(function), X)
    assert [each for each in costs.uncounted if each == f"{name}, 1 calls"]
    assert costs.multiply_adds == 3 * 4 * 4  # the layer's


def test_products_within_inference_mode_and_of_vectors_are_counted():
    def function(layer, x):
        with torch.inference_mode():
            return layer(x) @ torch.ones(4)

    costs = cost(Calls(function), X)
    assert costs.multiply_adds == 3 * 4 * 4 + 3 * 4
    assert costs.uncounted == ()


def test_shared_weights_count_once_and_their_product_is_the_output_layer():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(11, 4)
            self.output = nn.Linear(4, 11, bias=False)
            self.output.weight = self.words.weight

        def forward(self, tokens):
            return self.output(self.words(tokens))

    costs = cost(Tied(), torch.zeros(3).long())
    assert costs.parameters == 44
    assert costs["output layer"].multiply_adds == 3 * 4 * 11


def test_a_bias_takes_no_product_from_its_matrix():
    costs = cost(nn.Conv1d(3, 4, 2), torch.zeros(2, 3, 5))
    assert (costs["norms and biases"].multiply_adds, costs.multiply_adds) == (0, 4 * 3 * 2 * 2 * 4)


def test_without_inputs_only_parameters_are_counted_and_the_rest_is_named():
    costs = cost(nn.Linear(3, 4))
    assert (costs.parameters, costs.multiply_adds) == (16, 0)
    assert costs.uncounted == ("multiply-adds and activations: pass the inputs of a call too",)


def test_a_module_of_ours_whose_weights_are_shared_is_counted_as_any_other():
    attention = regard.MultiHeadAttention(8, 2)
    attention.key_projection.weight = attention.query_projection.weight
    assert cost(attention).uncounted
    costs = cost(attention, torch.zeros(1, 5, 8))
    assert costs.parameters == 3 * 8 * 8
    assert costs.multiply_adds == cost(regard.MultiHeadAttention(8, 2), queries=5).multiply_adds


def test_sizes_of_a_module_of_ours_are_its_own():
    for options in ({"width": 4}, {"heads": 4}, {"changes": ("model.width=4",)}):
        with pytest.raises(ConfigurationError, match="of a MultiHeadAttention are its own"):
            cost(regard.MultiHeadAttention(8, 2), **options)


def test_a_count_changes_nothing_in_the_module():
    layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Identity().eval())
    copies_before = {name: value.clone() for name, value in layers.state_dict().items()}
    cost(layers, X)
    assert all(
        torch.equal(value, copies_before[name]) for name, value in layers.state_dict().items()
    )
    assert [layer.training for layer in layers] == [True, True, False]


@pytest.mark.parametrize("bytes", [0, "2"])
def test_bytes_of_a_number_are_whole_for_modules_too(bytes):
    with pytest.raises(ConfigurationError, match="number_bytes is"):
        cost(nn.Linear(4, 4), X, number_bytes=bytes)


@pytest.mark.parametrize("options", [{"queries": 3}, {"batch": 2}, {"width": 4}])
def test_sizes_of_a_module_that_is_called_are_refused(options):
    with pytest.raises(ConfigurationError, match="of a Linear are those of the inputs"):
        cost(nn.Linear(4, 4), X, **options)


def test_a_compiled_module_is_counted_or_its_operations_are_named():
    layer = nn.Linear(4, 4)
    costs = cost(torch.compile(layer, backend="aot_eager"), X)
    assert costs.multiply_adds == 3 * 4 * 4


def test_products_of_a_backward_pass_are_those_of_torchs_counter():
    q = torch.randn(1, 2, 5, 4, requires_grad=True)

    def function(layer, x):
        with torch.enable_grad():
            torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()

    costs = cost(Calls(function), X)
    assert costs["scores"].multiply_adds == costs["values"].multiply_adds == 2 * 5 * 5 * 4
    assert costs.uncounted


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_counted():
    costs = cost(torch.jit.script(nn.Linear(4, 5)), X)
    assert (costs.parameters, costs.multiply_adds) == (25, 3 * 4 * 5)


def test_packed_weights_are_named():
    """Quantised layers of torch's keep their weights in an object of this name, not in parameters."""
    layers = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    layers[1]._packed_params = object()
    assert cost(layers, X).uncounted == ("the packed weights of 1",)


def test_a_module_without_shapes_is_refused():
    with pytest.raises(ModelError, match="weight has no shape yet: call the model once"):
        cost(nn.LazyLinear(3), X)


def test_an_attention_with_a_score_of_the_callers_is_counted_as_it_runs():
    attention = regard.MultiHeadAttention(8, 2, score=lambda q, k: q @ k.mT)
    assert cost(attention).uncounted
    costs = cost(attention, torch.zeros(1, 5, 8))
    plain = cost(regard.MultiHeadAttention(8, 2), queries=5)
    assert costs.multiply_adds == plain.multiply_adds
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        assert costs[name].multiply_adds == plain[name].multiply_adds
        assert costs[name].activations == plain[name].activations


def test_a_score_of_the_caller_counts_its_own_products() -> None:
    """No class of scores is known to costs; a subclass, which may compute more, counts for itself."""

    class Halved(regard.scores.ScaledDot):
        def factors(self, query, key):
            query, key, scale = super().factors(query, key)
            return query, key, scale / 2

    class Counted(Halved):
        def cost_options(self):
            return {"score": "scaled_dot"}

    plain = regard.costs.cost(regard.MultiHeadAttention(8, 2), queries=5)
    counted = regard.costs.cost(regard.MultiHeadAttention(8, 2, score=Counted()), queries=5)
    assert counted["scores"] == plain["scores"]
    with pytest.raises(regard.errors.ConfigurationError):
        regard.costs.cost(regard.MultiHeadAttention(8, 2, score=Halved()), queries=5)


def test_a_score_that_names_no_formula_is_refused() -> None:
    class Mistyped(regard.scores.ScaledDot):
        def cost_options(self):
            return {"score": "scaled-dot"}

    with pytest.raises(
        ConfigurationError, match=r"score 'scaled-dot' has no formula: known are .*scaled_dot"
    ):
        cost(regard.MultiHeadAttention(8, 2, score=Mistyped()), queries=5)


@pytest.mark.parametrize("name", SCORES)
def test_every_name_with_a_formula_is_a_score(name: str) -> None:
    assert name in CLASSES
    assert cost(regard.MultiHeadAttention(8, 2, score=name), queries=5).multiply_adds
