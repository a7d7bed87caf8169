"""Scenes of a translator: one sentence, its translation and every look."""

from __future__ import annotations

from typing import Any

import torch

from regard.explorer.contract import Attention, Kind, Scene, Sequence
from regard.translation.settings import Search
from regard.translation.text.batches import sources, targets
from regard.translation.translator import Translation, Translator

OTHERS = 6  # pieces that are listed for each place of a translation


def explore(translator: Translator, text: str, prefix: str = "", model: str = "") -> Scene:
    """Translate a sentence and look at it.

    Args:
        translator: the model.
        text: one sentence.
        prefix: the beginning of the translation; "" for any.
        model: the name to show.

    Raises:
        ConfigurationError: a prefix that is too long.
    """
    own = translator.search
    search = Search(**{**dict(own), "nbest": own.beam})
    (translation,) = translator.translate([text], search=search, prefix=prefix or None, looks=True)
    return scene(translator, translation, model)


def scene(translator: Translator, translation: Translation, model: str = "") -> Scene:
    """The scene of a translation that keeps its looks."""
    source = Sequence.of_pieces("source", translation.source_pieces)
    target = Sequence.of_pieces("target", translation.target_pieces)
    read = Sequence.of_pieces("target, read", ["<s>", *translation.target_pieces[:-1]])
    attentions = []
    for name, look in translation.looks.items():
        kind, rows, columns = _sides(name)
        attentions.append(Attention(name, kind, look[0], rows, columns))
    return Scene(
        title=f"{translation.source} → {translation.text}",
        sequences=[source, target, read],
        attentions=attentions,
        model=model,
        translation=_translation(translation),
        more={"alternatives": _alternatives(translator, translation)} if target.tokens else {},
    )


def _sides(name: str) -> tuple[Kind, int, int]:
    """The kind of an attention, and the sequences of its rows and columns."""
    if "encoder." in name:
        return "self", 0, 0
    return ("cross", 1, 0) if name.endswith("cross") else ("causal", 2, 2)


def _translation(one: Translation) -> dict[str, Any]:
    notes = {
        "the translation repeats itself": one.repeats,
        "the translation reached the greatest length allowed and stopped there": one.unfinished,
        f"the sentence was too long: {one.cut} pieces were left out": one.cut > 0,
        f"not in the vocabulary: {' '.join(one.unknown)}": bool(one.unknown),
    }
    return {
        "text": one.source,
        "translation": one.text,
        "score": one.score,
        "log_probability": one.log_probability,
        "probabilities": one.probabilities,
        "candidates": _candidates(one),
        "notes": [note for note, so in notes.items() if so],
    }


def _candidates(one: Translation) -> list[dict[str, Any]]:
    """The n-best translations; of those with the same words, the best."""
    best: dict[str, dict[str, Any]] = {}
    for each in one.alternatives:
        own = {"text": each.text, "score": each.score, "log_probability": each.log_probability}
        best.setdefault(each.text, own)
    return list(best.values())


@torch.no_grad()
def _alternatives(translator: Translator, one: Translation) -> list[list[dict[str, Any]]]:
    """For each place of the translation the likeliest pieces, and the prefix that begins with each."""
    pieces, tokenizer = translator.tokenizers.target, translator.tokenizers.target
    device = next(translator.model.parameters()).device
    source, lengths = sources([one.source_ids])
    read, _ = targets([one.target_ids])
    logits = translator.model(source.to(device), lengths.to(device), read.to(device))[0]
    probabilities, ids = logits.float().softmax(-1).topk(OTHERS, -1)
    return [
        [
            {
                "piece": pieces.pieces([token])[0],
                "probability": probability,
                "prefix": tokenizer.decode([*one.target_ids[:place], token]),
            }
            for probability, token in zip(row, tokens, strict=True)
        ]
        for place, (row, tokens) in enumerate(
            zip(probabilities.tolist(), ids.tolist(), strict=True)
        )
    ]
