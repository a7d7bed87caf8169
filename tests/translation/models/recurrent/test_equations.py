"""The models against the papers' equations, written out sentence by sentence in `oracle`."""

from __future__ import annotations

import pytest
import torch
from tests.translation.models.recurrent.models import KINDS, LENGTHS, SOURCE, TARGET, small
from tests.translation.models.recurrent.oracle import Oracle


@pytest.mark.parametrize("kind", KINDS)
def test_model_keeps_the_equations(kind: str) -> None:
    model = small(**KINDS[kind])
    oracle = Oracle.of(model)
    logits = model(SOURCE, LENGTHS, TARGET)
    looks = model.looks(SOURCE, LENGTHS, TARGET)
    for row, length in enumerate(LENGTHS.tolist()):
        sentence = SOURCE[row, :length].tolist()
        expected, weights = oracle.translate(sentence, TARGET[row].tolist())
        torch.testing.assert_close(logits[row], expected, rtol=1e-9, atol=1e-11)
        if weights is None:
            assert looks == {}
            continue
        recorded_weights = looks["decoder.0.cross"].weights()
        assert recorded_weights.shape == (3, model.settings.heads, 3, 4)
        torch.testing.assert_close(
            recorded_weights[row, :, :, :length], weights, rtol=1e-9, atol=1e-11
        )
        assert (recorded_weights[row, :, :, length:] == 0).all()


def test_the_oracle_tells_models_apart() -> None:
    fed, unfed = small(attention="luong"), small(attention="luong", input_feeding=False)
    logits, _ = Oracle.of(fed).translate([4, 5, 6, 3], [2, 5, 6])
    assert not torch.allclose(logits, unfed(SOURCE, LENGTHS, TARGET)[0])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_encoder_is_torchs_own_on_packed_sentences(
    cell: str, bidirectional: bool, layers: int
) -> None:
    model = small(cell=cell, bidirectional=bidirectional, encoder_layers=layers)
    encoder, settings = model.encoder, model.settings
    twin = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](
        6, settings.encoder_width, layers, batch_first=True, bidirectional=bidirectional
    ).double()
    with torch.no_grad():
        for way, suffix in (("forwards", ""), ("backwards", "_reverse")):
            for layer, item in enumerate(getattr(encoder, way) or []):
                for name, theirs in (("input_projection", "ih"), ("state_projection", "hh")):
                    projection = getattr(item, name)
                    getattr(twin, f"weight_{theirs}_l{layer}{suffix}").copy_(projection.weight)
                    getattr(twin, f"bias_{theirs}_l{layer}{suffix}").copy_(projection.bias)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        model.source_embedding(SOURCE), LENGTHS, batch_first=True, enforce_sorted=False
    )
    outputs, _ = twin(packed)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    torch.testing.assert_close(model.encode(SOURCE, LENGTHS).states, expected)
