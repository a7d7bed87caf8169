"""Learns the tokenizers of a new run from its training text."""

from __future__ import annotations

from regard.translation.runs import Tokenizers
from regard.translation.settings import Configuration
from regard.translation.text.corpora import Pair
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.training.processes import Processes
from regard.translation.training.reporting import Observer

# A note lists at most this many characters that are not in the vocabulary.
_NAMED_CHARACTERS = 40


def learn_tokenizers(
    configuration: Configuration, pairs: list[Pair], processes: Processes, observer: Observer
) -> Tokenizers:
    """Learn tokenizers in the first process and send them to the others: learning takes memory and time.

    The observer gets notes about missing pieces and characters.
    """
    learnt = _learn(configuration, pairs, observer) if processes.first else None
    source = processes.content(learnt.source.model if learnt else b"")
    target = processes.content(learnt.target.model if learnt else b"")
    if learnt is not None:
        return learnt
    opened = Tokenizer(source)
    return Tokenizers(opened, opened if configuration.tokenizer.joint else Tokenizer(target))


def _learn(configuration: Configuration, pairs: list[Pair], observer: Observer) -> Tokenizers:
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
            named = " ".join(
                each if each.isprintable() else f"U+{ord(each):04X}"
                for each in left_out[:_NAMED_CHARACTERS]
            )
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
