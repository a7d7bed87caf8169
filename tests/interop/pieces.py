"""Sentencepiece models as others train them: characters normalised by a compiled map, no bytes, ids of their own."""

from __future__ import annotations

import io

import sentencepiece


def trained(lines: list[str], rule: str = "nmt_nfkc") -> bytes:
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=stream,
        vocab_size=60,
        hard_vocab_limit=False,
        normalization_rule_name=rule,
        minloglevel=2,
    )
    return stream.getvalue()
