"""Padding of a batch does not change the table: each sequence is measured as it is alone."""

from __future__ import annotations

from dataclasses import astuple

import pytest
import torch
from tests.explorer.bundles import Bundle
from tests.watching.cases import Fused

import regard
from regard.explorer.contract import pack

pytestmark = pytest.mark.usefixtures("one_interception")

LENGTHS = (7, 3, 5)
LONGEST = max(LENGTHS)
LOWEST = torch.finfo(torch.float32).min


class Reader(torch.nn.Module):
    """Two heads over embedded tokens, which read themselves or another sequence."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(6, 8)
        self.attention = Fused()

    def forward(self, tokens, mask=None, source=None):
        query, key = (self._heads(tokens if each is None else each) for each in (tokens, source))
        return self.attention(query, key, attn_mask=mask)

    def _heads(self, tokens):
        return self.embedding(tokens).unflatten(-1, (2, 4)).transpose(1, 2)


@pytest.fixture
def model():
    torch.manual_seed(3)
    return Reader().requires_grad_(False)


@pytest.fixture
def sequences():
    return [torch.randint(1, 6, (1, length)) for length in LENGTHS]


def padded(sequences, side):
    """The batch, and where it has words."""
    batch = torch.zeros(len(sequences), LONGEST, dtype=torch.long)
    for row, sequence in zip(batch, sequences, strict=True):
        length = sequence.shape[-1]
        row[slice(LONGEST - length, None) if side == "left" else slice(length)] = sequence[0]
    return batch, batch > 0


def rows(table, weights=None):
    """The numbers of each head; of several tables their mean, weighted by the numbers of queries."""
    numbers = torch.tensor([[astuple(head)[3:-3] for head in each] for each in table])
    share = torch.tensor(LENGTHS if weights is None else weights, dtype=torch.float32)
    return (numbers * (share / share.sum())[:, None, None]).sum(0)


def numbers(table):
    """The measures that are means over all queries: without prefix, writes, and one of the caller's."""
    return torch.tensor([astuple(head)[3:-3] for head in table])


def measured(model, *arguments, **how):
    with regard.watch(model) as attentions:
        model(*arguments, **how)
    return attentions.table()


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("form", ["boolean", "lowest", "infinite"])
def test_a_causal_batch_is_measured_like_its_sequences(model, sequences, side, form, window):
    def readable(length):
        rule = torch.ones(length, length, dtype=torch.bool).tril()
        return rule if window is None else rule.triu(1 - window)

    alone = [measured(model, one, mask=readable(one.shape[-1])) for one in sequences]
    batch, words = padded(sequences, side)
    mask = (readable(LONGEST) & words[:, None])[:, None]
    if form != "boolean":
        masked_number = LOWEST if form == "lowest" else -torch.inf
        mask = torch.zeros(mask.shape).masked_fill(~mask, masked_number)
    torch.testing.assert_close(numbers(measured(model, batch, mask=mask)), rows(alone))


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_of_padding_that_read_words_do_not_count(model, sequences, side):
    alone = [measured(model, one) for one in sequences]
    batch, words = padded(sequences, side)
    mask = words[:, None, None].expand(-1, 1, LONGEST, -1)
    torch.testing.assert_close(numbers(measured(model, batch, mask=mask)), rows(alone))


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_proportional_key_of_a_cross_attention_is_among_the_words(model, sequences, side):
    tokens = torch.randint(1, 6, (3, 4))
    alone = [
        measured(model, target[None], source=source)
        for target, source in zip(tokens, sequences, strict=True)
    ]
    batch, words = padded(sequences, side)
    measures = measured(model, tokens, source=batch, mask=words[:, None, None])
    assert {head.kind for head in measures} == {"cross"}
    columns = [0, 2, 3] if side == "left" else [0, 1, 2, 3]  # entropy, sink, diagonal, previous
    torch.testing.assert_close(numbers(measures)[:, columns], rows(alone, [1, 1, 1])[:, columns])


def test_a_row_that_no_row_reads_counts_where_the_mask_hides_the_diagonal(model):
    tokens = torch.randint(1, 6, (1, 6))
    strict = torch.ones(6, 6, dtype=torch.bool).tril(-1)
    with regard.watch(model) as attentions:
        model(tokens, mask=strict)
    weights = attentions["attention.self"].weights()[0, :, 1:]
    expected = torch.special.entr(weights).sum(-1).mean(-1)
    torch.testing.assert_close(numbers(attentions.table())[:, 0], expected)
    assert attentions.table().heads[0].sink == pytest.approx(weights[0, :, 0].mean().item())


def test_the_first_key_of_kept_rows_in_a_window_is_not_that_of_the_window(model):
    tokens = torch.randint(1, 6, (1, 9))
    window = torch.ones(9, 9, dtype=torch.bool).tril().triu(-2)
    with regard.watch(model, rows=slice(5, 9)) as attentions:
        model(tokens, mask=window)
    assert [head.sink for head in attentions.table()] == [0, 0]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_generation_from_a_padded_prompt_is_measured_like_from_the_prompt(implementation):
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 16, "eos_token_id": None}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**sizes, attn_implementation=implementation)
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.randint(1, 20, (1, 5))

    def tables(tokens, mask):
        with torch.no_grad(), regard.watch(model) as attentions:
            model.generate(tokens, attention_mask=mask, max_new_tokens=4, pad_token_id=0)
        return numbers(attentions.table())[:, :7]

    alone = tables(prompt, torch.ones_like(prompt))
    batch = torch.nn.functional.pad(prompt, (4, 0))
    torch.testing.assert_close(tables(batch, (batch > 0).long()), alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_explorer_measures_the_words_of_an_entry(model, sequences, side):
    batch, words = padded(sequences, side)
    with regard.watch(model) as attentions:
        model(batch, mask=words[:, None, None])
    for entry, sequence in enumerate(sequences):
        (sink,) = (
            each["measures"]["sink"]
            for each in Bundle(pack(attentions.scene(entry=entry))).header["attentions"]
        )
        assert sink == pytest.approx([head.sink for head in measured(model, sequence)], rel=1e-4)
