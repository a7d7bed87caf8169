"""Scenes of a translator: one sentence, its translation and every attention, with or without edits."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.looks import StoredLook
from regard.explorer import scenes
from regard.explorer.agreement import Links
from regard.explorer.contract import Attention, Scene
from regard.explorer.numbers import Arithmetic, traced
from regard.translation.aligning.words import Words, in_pieces
from regard.translation.decoding.beam import Tree
from regard.translation.decoding.prefix import goes_on
from regard.translation.evaluation.gold import Gold
from regard.translation.results import Translation
from regard.translation.text.batches import sources, targets
from regard.translation.text.glossary import Glossary
from regard.translation.text.tokenizer import EOS
from regard.translation.translator import Translator
from regard.watching import Seen, change, watch
from regard.watching.change import Change, Edits
from regard.watching.interception import intercepted

OTHERS = 6  # pieces that are listed for each place of a translation
NODES = 1000  # of the tree of a search that are sent
NO_EDITS: Mapping[str, Edits] = {}


def explore(
    translator: Translator,
    text: str,
    prefix: str = "",
    model: str = "",
    edits: Mapping[str, Edits] = NO_EDITS,
    check: Callable[[], None] = lambda: None,
) -> tuple[Scene, Translation]:
    """Translate a sentence, and look at all attentions while the model writes that translation.

    Args:
        prefix: the beginning of the translation; "" for any.
        model: the name to show.
        edits: of attentions, as `regard.change` takes them.
        check: called at each step of the search; it may raise to end it.

    Raises:
        ConfigurationError: a prefix that is too long.
        WatchError: edits of attentions or heads that do not exist.
    """
    if not translator.tokenizers.source.encode(text):
        edits = NO_EDITS  # nothing runs that could be edited
    configured = translator.search
    search = configured.changed(nbest=configured.beam)
    tree = _Checked(check, records=not edits)
    with _edited(translator.model, edits):
        (translation,) = translator.translate(
            [text], search=search, prefix=prefix or None, tree=tree
        )
    attentions: list[Attention] = []
    more: dict[str, Any] = {}
    if translation.source_ids:
        logits, attentions = _forced(translator, translation, edits)
        more = {"alternatives": _alternatives(translator, translation, logits)}
    beam = None if edits else _beam(translator, tree)
    return scenes.of_translation(translation, attentions, model, more, beam=beam), translation


def printed(translator: Translator, text: str, glossary: Glossary | None = None) -> dict[str, Any]:
    """A line as `regard translate` prints it: each sentence by itself, with stand-ins, tags and terms in place."""
    (translation,) = translator.translate([text], glossary=glossary)
    names = ("text", "quality", "doubts", "terms", "overlapping")
    return {name: getattr(translation, name) for name in names}


def of_gold(
    translator: Translator, gold: Gold, number: int, model: str = ""
) -> tuple[Scene, Translation]:
    """Look at all attentions while the model writes a translation with gold links, which heads are compared with.

    Raises:
        ConfigurationError: the translation is too long.
    """
    assert gold.words is not None
    tokenizers = (translator.tokenizers.source, translator.tokenizers.target)
    source, target = map(in_pieces, tokenizers, gold.words[number])
    translation = translator.look(
        *(own.decode(side.ids) for own, side in zip(tokenizers, (source, target), strict=True))
    )
    if not translation.source_ids:
        return scenes.of_translation(translation, [], model), translation
    logits, attentions = _forced(translator, translation, NO_EDITS)
    scene = scenes.of_translation(
        translation,
        attentions,
        model,
        {"alternatives": _alternatives(translator, translation, logits)},
    )
    sides = [
        replace(sequence, words=_words(words, sequence.tokens))
        for sequence, words in zip(
            scene.sequences, (source.shortened(len(translation.source_ids)), target), strict=False
        )
    ]
    tags = source.owners.count(-1)
    sure, possible = (
        frozenset((tags + key, query) for key, query in links[number])
        for links in (gold.sure, gold.possible)
    )
    keys, queries = (tags, tags + len(source.words)), (0, len(target.words))
    links = Links(sure, possible, keys, queries)
    return replace(scene, sequences=[*sides, scene.sequences[2]], links=links), translation


def _words(segmented: Words, pieces: list[str]) -> list[tuple[int, int, str]]:
    """The pieces of tags, of each given word and of the end."""
    tags, counts = segmented.owners.count(-1), Counter(segmented.owners)
    spans, start = [(place, place + 1, pieces[place]) for place in range(tags)], tags
    for number, word in enumerate(segmented.words):
        spans.append((start, start + counts[number], word))
        start += counts[number]
    return [*spans, (start, len(pieces), pieces[-1])]


def retranslated(
    translator: Translator,
    previous: Translation,
    edits: Mapping[str, Edits],
    text: str | None = None,
    prefix: str = "",
    model: str = "",
    check: Callable[[], None] = lambda: None,
) -> tuple[Scene, Translation]:
    """`explore` with edits, or of another sentence, in place of a translation that was made before.

    The scene also says how likely the model now finds the translation that it had.

    Args:
        translator, prefix, model, edits, check: as of `explore`.
        previous: the translation that was made.
        text: the sentence with words exchanged; None for that of `previous`.

    Raises:
        ConfigurationError, WatchError: as of `explore`.
    """
    text = previous.source if text is None else text
    with intercepted(translator.model):
        scene, translation = explore(translator, text, prefix, model, edits, check)
        likelihood = translation.log_probability
        if translation.source_ids and translation.target_ids != previous.target_ids:
            likelihood = log_probability(
                translator, replace(previous, source_ids=translation.source_ids), edits
            )
    more = {**scene.more, "before": {"text": previous.text, "log_probability": likelihood}}
    return replace(scene, more=more), translation


@torch.no_grad()
def log_probability(
    translator: Translator, translation: Translation, edits: Mapping[str, Edits] = NO_EDITS
) -> float:
    """The log-probability of a translation and its end, by the model with these edits."""
    with _edited(translator.model, edits):
        logits = _logits(translator, translation)
    words = torch.tensor([*translation.target_ids, EOS], device=logits.device)
    return float(logits.log_softmax(-1).gather(-1, words[:, None]).sum())


@torch.no_grad()
def _forced(
    translator: Translator, translation: Translation, edits: Mapping[str, Edits]
) -> tuple[Tensor, list[Attention]]:
    """The logits of each step of a given translation, and the attentions of this pass."""
    model = translator.model
    with watch(model) as looks, _edited(model, edits) as edited:
        logits = _logits(translator, translation)
    return logits, [_attention(looks, edited, name) for name in looks]


def _logits(translator: Translator, translation: Translation) -> Tensor:
    """The logits of each step, while the model writes a given translation, with what its memory adds."""
    model, recall = translator.model, translator.recall
    device = next(model.parameters()).device
    (source, lengths), (read, _) = (
        sources([translation.source_ids]),
        targets([translation.target_ids]),
    )
    arguments = source.to(device), lengths.to(device), read.to(device)
    if recall is None or not recall.adds:
        logits: Tensor = model(*arguments)[0]
        return logits.float()
    hidden = model.hidden(*arguments)[0]
    spans = recall.similar(source, lengths, [len(hidden)])
    return recall.mix(hidden, model.logits(hidden), spans).float()


def _edited(model: nn.Module, edits: Mapping[str, Edits]) -> AbstractContextManager[Change | None]:
    """The change of these edits; nothing where there are none."""
    return change(model, edits) if edits else nullcontext()


def arithmetic(
    translator: Translator, translation: Translation, edits: Mapping[str, Edits] = NO_EDITS
) -> Arithmetic:
    """The numbers of the pass that writes a given translation."""
    model = translator.model
    with (
        torch.no_grad(),
        traced(model) as trace,
        watch(model) as looks,
        _edited(model, edits) as edited,
    ):
        _logits(translator, translation)
    return Arithmetic(model, looks, trace, edited)


def _attention(looks: Seen, edited: Change | None, name: str) -> Attention:
    """An attention of one sentence, with its edited weights where it was edited."""
    steps = looks.steps(name)
    look = looks[name]
    if edited is not None and name in edited:
        look = StoredLook(edited.weights(name))
    elif len(steps) > 1:  # a recurrent decoder reads once for each word
        look = StoredLook(torch.cat([looks[name, step.number].weights() for step in steps], -2))
    return scenes.of_sentence(name, look, causal=looks.kind(name) == "causal")


class _Checked(Tree):
    """The tree of a search that can be ended from outside, at any step."""

    def __init__(self, check: Callable[[], None], records: bool) -> None:
        super().__init__()
        self._check, self._records = check, records

    def step(self, *step: Any) -> None:
        self._check()
        if self._records:
            super().step(*step)


def _beam(translator: Translator, tree: Tree) -> list[dict[str, Any]]:
    """The nodes of the search's first steps, each with the prefix that begins there.

    A prefix is of whole words: a word that is not complete at a node is completed as the search completed it.
    """
    tokenizer, nodes = translator.tokenizers.target, tree.nodes[:NODES]
    pieces = tokenizer.pieces([node.token for node in nodes])
    paths: list[list[int]] = []
    following: dict[int, int] = {}  # the best child of a node that was kept
    for number, node in enumerate(nodes):
        paths.append([*(paths[node.parent] if node.parent >= 0 else []), node.token])
        if node.kept:
            following.setdefault(node.parent, number)
    prefixes = [tokenizer.decode([token for token in path if token != EOS]) for path in paths]
    for number in reversed(range(len(nodes))):
        child = following.get(number)
        if child is not None and goes_on(pieces[child]):
            prefixes[number] = prefixes[child]
    return [
        {
            "parent": node.parent,
            "piece": piece,
            "score": node.log_probability,
            "kept": node.kept,
            "prefix": prefix,
        }
        for node, piece, prefix in zip(nodes, pieces, prefixes, strict=True)
    ]


def _alternatives(
    translator: Translator, translation: Translation, logits: Tensor
) -> list[list[dict[str, Any]]]:
    """For each place of the translation the likeliest pieces, and the prefix that begins with each."""
    tokenizer = translator.tokenizers.target
    probabilities, ids = logits.softmax(-1).topk(min(OTHERS, logits.shape[-1]), -1)
    return [
        [
            {
                "piece": tokenizer.pieces([token])[0],
                "probability": probability,
                "prefix": tokenizer.decode([*translation.target_ids[:place], token]),
            }
            for probability, token in zip(row, tokens, strict=True)
        ]
        for place, (row, tokens) in enumerate(
            zip(probabilities.tolist(), ids.tolist(), strict=True)
        )
    ]
