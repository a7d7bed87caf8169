"""Small Transformers with tokenizers, of every shape that we have, with weights that are not those of a fresh model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.translation.tiny import configuration

from regard.translation.models.transformer.model import Transformer
from regard.translation.runs import Run, Tokenizers
from regard.translation.settings.transformer import TransformerSettings
from regard.translation.text.tokenizer import BOS, EOS, PAD, Tokenizer
from regard.translation.translator import Translator

TEXT = "the cat sees a small dog by the sea and the child wants to eat here today".split()
LINES = [" ".join(TEXT[i:] + TEXT[:i]) for i in range(len(TEXT))]
SENTENCES = [
    "the cat sees the sea",
    "a child",
    "the small dog wants to eat by the sea today",
    "sea",
]


def tokenizer(words: list[str] | None = None) -> Tokenizer:
    return Tokenizer.train(words or LINES, vocabulary_size=290)


def translator(folder: Path, joint: bool = True, **changes: Any) -> Translator:
    """A Transformer of 2+2 layers and width 16, untrained. With `output_bias` its translations end soon."""
    source = tokenizer()
    target = source if joint else tokenizer([line.upper() for line in LINES])
    settings = TransformerSettings(
        **{
            "encoder_layers": 2,
            "decoder_layers": 2,
            "width": 16,
            "heads": 4,
            "feed_forward": 24,
            "longest": 40,
            **changes,
        }
    )
    torch.manual_seed(0)
    model = Transformer(settings, len(source), len(target), PAD)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.uniform_(-0.5, 0.5)
        if model.output.bias is not None:  # so sure of its words that a beam is not all ends
            model.target_embedding.weight *= 3
            model.output.bias[EOS] += 3
    run = Run(folder, configuration(folder))
    return Translator(run, model, Tokenizers(source, target))


def pairs(translator: Translator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two sources, their lengths, and targets that are read, of a translator's vocabularies."""
    sizes = len(translator.tokenizers.source), len(translator.tokenizers.target)
    draw = torch.Generator().manual_seed(1)
    source = torch.randint(EOS + 1, sizes[0], (2, 7), generator=draw)
    source[0, 6], source[1, 4], source[1, 5:] = EOS, EOS, PAD
    target = torch.randint(EOS + 1, sizes[1], (2, 5), generator=draw)
    target[:, 0] = BOS
    return source, torch.tensor([7, 5]), target
