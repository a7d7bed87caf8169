"""A beam's rows read the memories of their own sentences, however they are selected."""

from __future__ import annotations

import pytest
import torch

from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

SOURCE = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0], [8, 9, 3, 0]])
LENGTHS = torch.tensor([4, 2, 3])


def model() -> Transformer:
    torch.manual_seed(0)
    settings = TransformerSettings(
        encoder_layers=2, decoder_layers=2, width=16, heads=4, feed_forward=24
    )
    return Transformer(settings, 12, 12).double().eval()


@pytest.mark.parametrize(
    "rows",
    [
        [0, 1, 2],
        [0, 0, 1, 1, 2, 2],
        [2, 2, 2],
        [2, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 1],  # no longer as many hypotheses for each
        [0, 1, 0, 1],
        [],
    ],
)
@torch.inference_mode()
def test_selected_rows_go_on_as_if_they_had_started_alone(rows: list[int]) -> None:
    transformer, row_numbers = model(), torch.tensor(rows, dtype=torch.long)
    words, next_words = torch.tensor([2, 5, 7]), torch.tensor([6, 8, 9])

    _, state = transformer.step(words, transformer.begin(SOURCE, LENGTHS))
    logits, _ = transformer.step(next_words[row_numbers], state.select(row_numbers))

    _, alone = transformer.step(
        words[row_numbers], transformer.begin(SOURCE[row_numbers], LENGTHS[row_numbers])
    )
    expected, _ = transformer.step(next_words[row_numbers], alone)
    torch.testing.assert_close(logits, expected)


@torch.inference_mode()
def test_a_beam_that_changes_places_copies_no_source() -> None:
    transformer = model()
    state = transformer.begin(SOURCE, LENGTHS)
    beams = state.select(torch.arange(3).repeat_interleave(2))
    swapped = beams.select(torch.tensor([1, 0, 2, 2, 5, 4]))
    assert swapped.sources is state.sources
    assert swapped.per_sentence == 2
    assert len(beams.select(torch.tensor([2, 3])).sources[0].keys) == 1
