"""Scenes of a translator: one sentence, its translation and every attention, with or without edits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from regard.attention.looks import StoredLook
from regard.explorer.contract import Attention, Scene, Sequence
from regard.explorer.numbers import Arithmetic, traced
from regard.translation.text.batches import sources, targets
from regard.translation.text.tokenizer import EOS
from regard.translation.translator import Translation, Translator
from regard.watching import Seen, change, watch
from regard.watching.change import Change, Edits

OTHERS = 6  # pieces that are listed for each place of a translation
NO_EDITS: Mapping[str, Edits] = {}


def explore(
    translator: Translator,
    text: str,
    prefix: str = "",
    model: str = "",
    edits: Mapping[str, Edits] = NO_EDITS,
) -> tuple[Scene, Translation]:
    """Translate a sentence, and look at all attentions while the model writes that translation.

    Args:
        translator: the model.
        text: one sentence.
        prefix: the beginning of the translation; "" for any.
        model: the name to show.
        edits: of attentions, as `regard.change` takes them.

    Raises:
        ConfigurationError: a prefix that is too long.
        WatchError: edits of attentions or heads that do not exist.
    """
    own = translator.search
    search = own.changed(nbest=own.beam)
    with change(translator.model, edits) if edits else nullcontext():
        (translation,) = translator.translate([text], search=search, prefix=prefix or None)
    sequences = [
        Sequence.of_pieces("source", translation.source_pieces),
        Sequence.of_pieces("target", translation.target_pieces),
        Sequence.of_pieces("target, read", ["<s>", *translation.target_pieces[:-1]]),
    ]
    attentions: list[Attention] = []
    more: dict[str, Any] = {}
    if translation.source_ids:
        logits, attentions = _forced(translator, translation, edits)
        more = {"alternatives": _alternatives(translator, translation, logits)}
    title = f"{translation.source} → {translation.text}"
    scene = Scene(title, sequences, attentions, model, _translation(translation), more)
    return scene, translation


@torch.no_grad()
def log_probability(
    translator: Translator, translation: Translation, edits: Mapping[str, Edits] = NO_EDITS
) -> float:
    """The log-probability of a translation and its end, by the model with these edits."""
    logits, _ = _forced(translator, translation, edits)
    words = torch.tensor([*translation.target_ids, EOS], device=logits.device)
    return float(logits.log_softmax(-1).gather(-1, words[:, None]).sum())


@torch.no_grad()
def _forced(
    translator: Translator, translation: Translation, edits: Mapping[str, Edits]
) -> tuple[Tensor, list[Attention]]:
    """The logits of each step of a given translation, and the attentions of this pass."""
    seen, changed, logits = _run(translator, translation, edits)
    return logits, [_attention(seen, changed, name) for name in seen]


@torch.no_grad()
def _run(
    translator: Translator, translation: Translation, edits: Mapping[str, Edits]
) -> tuple[Seen, Change, Tensor]:
    """Watch the model write a given translation: the attentions, their edits, the logits."""
    model = translator.model
    device = next(model.parameters()).device
    source, lengths = sources([translation.source_ids])
    read, _ = targets([translation.target_ids])
    with watch(model) as seen, change(model, edits) as changed:
        logits = model(source.to(device), lengths.to(device), read.to(device))[0].float()
    return seen, changed, logits


def arithmetic(
    translator: Translator, translation: Translation, edits: Mapping[str, Edits] = NO_EDITS
) -> Arithmetic:
    """The numbers of the pass that writes a given translation."""
    model = translator.model
    with traced(model) as trace:
        seen, _, _ = _run(translator, translation, edits)
    return Arithmetic(model, seen, trace)


def _attention(seen: Seen, changed: Change, name: str) -> Attention:
    """An attention of one sentence, with its edited weights where it was edited."""
    steps = seen.steps(name)
    look = seen[name]
    if name in changed:
        look = StoredLook(changed.weights(name))
    elif len(steps) > 1:  # a recurrent decoder reads once for each word
        look = StoredLook(torch.cat([seen[name, step.number].weights() for step in steps], -2))
    while len(look.shape) > 3:
        look = look[0]
    kind = seen.kind(name)
    if kind == "cross":
        return Attention(name, "cross", look, 1, 0)
    side = 2 if "decoder" in name else 0
    return Attention(name, "causal" if kind == "causal" else "self", look, side, side)


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


def _alternatives(
    translator: Translator, one: Translation, logits: Tensor
) -> list[list[dict[str, Any]]]:
    """For each place of the translation the likeliest pieces, and the prefix that begins with each."""
    tokenizer = translator.tokenizers.target
    probabilities, ids = logits.softmax(-1).topk(min(OTHERS, logits.shape[-1]), -1)
    return [
        [
            {
                "piece": tokenizer.pieces([token])[0],
                "probability": probability,
                "prefix": tokenizer.decode([*one.target_ids[:place], token]),
            }
            for probability, token in zip(row, tokens, strict=True)
        ]
        for place, (row, tokens) in enumerate(
            zip(probabilities.tolist(), ids.tolist(), strict=True)
        )
    ]
