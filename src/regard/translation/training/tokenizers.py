"""Learns the tokenizers of a new run from its training text."""

from __future__ import annotations

from regard.translation.runs import Tokenizers
from regard.translation.settings import Configuration
from regard.translation.text.corpora import Pair
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training.events import Observer
from regard.translation.training.processes import Processes

# A note lists at most this many characters that are not in the vocabulary.
_NAMED_CHARACTERS = 40


def learn_tokenizers(
    configuration: Configuration, pairs: list[Pair], observer: Observer
) -> Tokenizers:
    """Learn tokenizers from the training text. The observer gets notes about missing pieces and characters."""
    section = configuration.tokenizer
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def learn(lines: list[str], tags: tuple[str, ...] = ()) -> Tokenizer:
        learnt = Tokenizer.train(
            lines,
            vocabulary_size=section.vocabulary_size,
            kind=section.kind,
            character_coverage=section.character_coverage,
            seed=configuration.seed,
            tags=tags,
        )
        if len(learnt) < section.vocabulary_size:
            observer.note(
                f"the text gives {len(learnt)} word pieces, fewer than tokenizer.vocabulary_size = "
                f"{section.vocabulary_size}"
            )
        left_out = learnt.left_out(lines)
        if left_out:
            named = " ".join(map(_visible, left_out[:_NAMED_CHARACTERS]))
            more = " ..." if len(left_out) > _NAMED_CHARACTERS else ""
            observer.note(
                f"{len(left_out)} characters of the text are not in the vocabulary and are written as bytes: "
                f"{named}{more} (tokenizer.character_coverage = 1.0 takes all)"
            )
        return learnt

    tags = configuration.data.tags
    if section.joint:
        shared = learn(sources + targets, tags)
        return Tokenizers(shared, shared)
    return Tokenizers(learn(sources, tags), learn(targets))


def _visible(character: str) -> str:
    return character if character.isprintable() else f"U+{ord(character):04X}"


def learn_in_first(
    configuration: Configuration, pairs: list[Pair], processes: Processes, observer: Observer
) -> Tokenizers:
    """Learn tokenizers in the first process and send them to the others: learning takes memory and time."""
    learnt = learn_tokenizers(configuration, pairs, observer) if processes.first else None
    files = list(learnt.files().values()) if learnt is not None else []
    count = 1 if configuration.tokenizer.joint else 2
    models = [processes.content(files[i] if files else b"") for i in range(count)]
    if learnt is not None:
        return learnt
    opened = [Tokenizer(model) for model in models]
    return Tokenizers(opened[0], opened[-1])
