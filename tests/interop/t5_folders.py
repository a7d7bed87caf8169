"""Small T5 folders as save_pretrained writes them, that have learnt a little."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import sentencepiece
import torch
from tests.interop.models import LINES, SENTENCES

transformers = pytest.importorskip("transformers")

PROMPT = "translate English to German: "
TASKS = {
    "translation_en_to_de": {"prefix": PROMPT, "num_beams": 4},
    "summarization": {"prefix": "summarize: "},
}
# The first T5, version 1.1, mT5, and MADLAD-400: its tags, and its beginning, which is its unknown.
SHAPES: dict[str, dict[str, Any]] = {
    "t5": {"task_specific_params": TASKS},
    "t5_1_1": {"feed_forward_proj": "gated-gelu", "untied": True, "d_kv": 6},
    "mt5": {"model_type": "mt5", "feed_forward_proj": "gated-silu", "num_decoder_layers": 1},
    "madlad": {
        "feed_forward_proj": "gated-gelu",
        "untied": True,
        "ids": {"unk_id": 0, "pad_id": 1, "eos_id": 2},
        "decoder_start_token_id": 0,
    },
}
ROOM = 5  # rows of the embedding beyond the pieces


def pieces(unk_id: int = 2, pad_id: int = 0, eos_id: int = 1) -> bytes:
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*LINES, PROMPT, *(line[::-1] for line in LINES)]),
        model_writer=stream,
        vocab_size=80,
        hard_vocab_limit=False,
        user_defined_symbols=["<2de>", "<2pt_BR>"],
        unk_id=unk_id,
        pad_id=pad_id,
        eos_id=eos_id,
        bos_id=-1,
        minloglevel=2,
    )
    return stream.getvalue()


def save(folder: Path, **changes: Any) -> Path:
    """What save_pretrained of a small model writes, and the file of its pieces."""
    folder.mkdir()
    model_type, untied = changes.pop("model_type", "t5"), changes.pop("untied", False)
    actual_pieces = pieces(**changes.pop("ids", {}))
    (folder / "spiece.model").write_bytes(actual_pieces)
    cut = sentencepiece.SentencePieceProcessor(model_proto=actual_pieces)
    mt5 = model_type == "mt5"
    kind, described = (
        (transformers.MT5ForConditionalGeneration, transformers.MT5Config)
        if mt5
        else (transformers.T5ForConditionalGeneration, transformers.T5Config)
    )
    torch.manual_seed(0)
    model = kind(
        described(
            **{
                "vocab_size": cut.get_piece_size() + ROOM,
                "d_model": 16,
                "d_kv": 4,
                "d_ff": 24,
                "num_layers": 2,
                "num_heads": 4,
                "relative_attention_num_buckets": 8,
                "relative_attention_max_distance": 12,
                "dropout_rate": 0.0,
                "pad_token_id": cut.pad_id(),
                "eos_token_id": cut.eos_id(),
                "decoder_start_token_id": 0,
                "tie_word_embeddings": not untied,
                **changes,
            }
        )
    ).eval()
    if untied:
        model.lm_head.weight = torch.nn.Parameter(model.shared.weight.detach().clone())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    teach(model, cut)
    model.generation_config.num_beams = 3
    model.generation_config.max_length = 40
    model.save_pretrained(folder)
    if untied:  # which transformers 5 would not write, since they hold that T5 ties them
        path = folder / "model.safetensors"
        tensors = safetensors.torch.load_file(path)
        tensors["lm_head.weight"] = model.lm_head.weight.detach().clone()
        safetensors.torch.save_file(tensors, path, {"format": "pt"})
    return folder


def padded(rows: list[list[int]], pad: int) -> dict[str, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return {
        "input_ids": ids,
        "attention_mask": (torch.arange(longest) < lengths[:, None]).long(),
    }


def tokenised(cut: Any, texts: list[str]) -> dict[str, torch.Tensor]:
    return padded([[*cut.encode(text), cut.eos_id()] for text in texts], cut.pad_id())


def teach(model: Any, cut: Any) -> None:
    """A little of reversing letters, so that what it writes depends on what it reads, and ends."""
    lines = [*LINES, *SENTENCES]
    labels = tokenised(cut, [line[::-1] for line in lines])
    labels = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, -100)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        model(**tokenised(cut, lines), labels=labels).loss.backward()
        optimiser.step()
