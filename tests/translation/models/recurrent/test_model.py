"""Models by their settings: shared vectors, names of the weights, dropout and scheduled sampling."""

from __future__ import annotations

import pytest
import torch
from tests.translation.models.recurrent.models import LENGTHS, SOURCE, TARGET, small

from regard.translation.models.recurrent.model import RecurrentModel
from regard.translation.settings.recurrent import RecurrentSettings


def test_three_way_tying_needs_one_vocabulary() -> None:
    with pytest.raises(ValueError, match="50 source and 60 target words"):
        RecurrentModel(RecurrentSettings(tied="three_way"), 50, 60)


@pytest.mark.parametrize(("tied", "vectors"), [("none", 3), ("target", 2), ("three_way", 1)])
def test_tied_vectors_are_one_tensor(tied: str, vectors: int) -> None:
    model = small(tied=tied)
    layers = (model.source_embedding, model.target_embedding, model.output)
    assert len({layer.weight.data_ptr() for layer in layers}) == vectors


def test_names_of_the_weights_are_those_of_shipped_files() -> None:
    gates = ["input_projection", "state_projection"]
    expected = {f"{side}_embedding.weight" for side in ("source", "target")}
    for cell in ("encoder.forwards.0", "encoder.backwards.0", "decoder.cells.0"):
        expected |= {f"{cell}.{gate}.{part}" for gate in gates for part in ("weight", "bias")}
    expected |= {"decoder.cells.0.feed_projection.weight"}
    expected |= {f"decoder.attention.score.{w}weight" for w in ("", "query_", "key_")}
    for layer in ("bridge.state.0", "decoder.readout", "output"):
        expected |= {f"{layer}.weight", f"{layer}.bias"}
    assert set(small().state_dict()) == expected


def test_dropout_is_drawn_in_training_alone() -> None:
    model = small(dropout=0.5, encoder_layers=2, decoder_layers=2)
    torch.testing.assert_close(model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))
    model.train()
    assert not torch.allclose(model(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))


def test_scheduled_sampling_reads_the_models_own_words_in_training_alone() -> None:
    model, plain = small(scheduled_sampling=1.0), small()
    torch.testing.assert_close(model(SOURCE, LENGTHS, TARGET), plain(SOURCE, LENGTHS, TARGET))
    with torch.no_grad():
        model.output.bias[7] = 1000.0  # the model has one word left to say
        plain.output.bias[7] = 1000.0
    model.train()
    targets = torch.full_like(TARGET, 7)
    targets[:, 0] = TARGET[:, 0]
    torch.testing.assert_close(
        model.hidden(SOURCE, LENGTHS, TARGET), plain.hidden(SOURCE, LENGTHS, targets)
    )


def test_scheduled_sampling_leaves_padding_alone_and_trains() -> None:
    model = small(scheduled_sampling=1.0).train()
    target = torch.tensor([[2, 5, 0], [2, 0, 0], [2, 9, 4]])
    torch.manual_seed(1)
    token_draws = model._draw(model.hidden(SOURCE, LENGTHS, target)[:, 1], target[:, 2])
    assert token_draws[:2].tolist() == [0, 0]
    model(SOURCE, LENGTHS, target).sum().backward()
    assert model.decoder.cells[0].state_projection.weight.grad.abs().sum() > 0


def test_a_fixed_vector_carries_the_source() -> None:
    model = small(attention="none")
    flipped = SOURCE.flip(0)
    assert not torch.allclose(
        model(SOURCE, LENGTHS, TARGET), model(flipped, LENGTHS.flip(0), TARGET)
    )
