"""The attentions of one batch entry with a label for each query and key: the explorer's view of a watch."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from regard.attention.looks import Look
from regard.watching.errors import WatchError
from regard.watching.extents import Extent
from regard.watching.measures import TokenIds
from regard.watching.spelling import spelled
from regard.watching.table import Subject, extent_of, places, tokens_read

LONGEST = 60  # characters of a token

Tokens = Sequence[str] | Mapping[str, Sequence[str]]


class Shown(NamedTuple):
    """An attention, its look at one batch entry, and the labels, token ids and extent of its rows and columns."""

    subject: Subject
    look: Look
    queries: list[str]
    keys: list[str]
    ids: TokenIds | None
    extent: Extent | None


def shown(
    subjects: Iterable[Subject],
    *,
    tokens: Tokens | None = None,
    tokenizer: Any = None,
    entry: int = 0,
) -> list[Shown]:
    """The attentions to show; arguments as for `Seen.page`."""
    subjects_with_keys = [subject for subject in subjects if prod(subject.look.shape)]
    if not subjects_with_keys:
        raise WatchError(
            "no attention that was seen has both queries and keys: there is nothing to show"
        )
    looks = [_of_entry(subject, entry) for subject in subjects_with_keys]
    ids = [_ids(subject, entry) for subject in subjects_with_keys]
    labels = _labels(subjects_with_keys, ids, tokens, tokenizer)
    return [
        Shown(subject, look, *words, read, _extent(subject, entry))
        for subject, look, words, read in zip(subjects_with_keys, looks, labels, ids, strict=True)
    ]


def _of_entry(subject: Subject, entry: int) -> Look:
    """The look at one batch entry, ([heads,] queries, keys)."""
    entries, front = subject.entries, subject.look.shape[:-2]
    if not -entries <= entry < entries:
        raise WatchError(f"entry is {entry}, but {subject.name} has {entries} batch entries")
    outer = front[:-1] if subject.heads > 1 else front
    return subject.look[tuple(map(int, np.unravel_index(entry % entries, outer)))]


def _ids(subject: Subject, entry: int) -> TokenIds | None:
    """The ids of one batch entry, each of shape (1, length)."""
    read = tokens_read(subject)
    if read is None:
        return None
    return TokenIds(*(side[[entry % len(side)]] for side in read))


def _extent(subject: Subject, entry: int) -> Extent | None:
    extent = extent_of(subject)
    return None if extent is None else extent.of_entry(entry % len(extent.rows))


def _labels(
    subjects: list[Subject], ids: list[TokenIds | None], tokens: Tokens | None, tokenizer: Any
) -> list[tuple[list[str], list[str]]]:
    """The words of the queries and of the keys of each attention; positions if they are unknown."""
    if tokens is None:
        labels = [_decoded(each, tokenizer) for each in ids]
    else:
        sides = _sides(tokens, subjects)
        labels = [_words_of(subject, sides) for subject in subjects]
        if not any(map(any, labels)):
            counts = ", ".join(sorted({str(len(words)) for words in sides.values()}))
            lengths = sorted({length for subject in subjects for length in subject.look.shape[-2:]})
            raise WatchError(
                f"tokens has {counts} strings, but the attentions have {lengths} queries and keys:"
                " pass one string for each position, special tokens included"
            )
    return [
        (
            _short(query) or list(map(str, places(subject).tolist())),
            _short(key) or list(map(str, range(subject.look.shape[-1]))),
        )
        for subject, (query, key) in zip(subjects, labels, strict=True)
    ]


def _sides(tokens: Tokens, subjects: list[Subject]) -> dict[str, list[str]]:
    """The words of the encoder and of the decoder; the same without cross attention."""
    if isinstance(tokens, Mapping):
        if not tokens.keys() <= {"encoder", "decoder"}:
            raise WatchError(
                f'tokens has the names {list(tokens)}: expected "encoder" and "decoder"'
            )
        return {side: list(map(str, words)) for side, words in tokens.items()}
    if any(subject.kind == "cross" for subject in subjects):
        raise WatchError(
            'the model reads two sequences: pass tokens={"encoder": [...], "decoder": [...]}'
        )
    words = list(map(str, tokens))
    return {"encoder": words, "decoder": words}


def _words_of(subject: Subject, sides: dict[str, list[str]]) -> tuple[list[str], list[str]]:
    """The words of the queries and of the keys; none if their number does not fit."""
    queries, keys = subject.look.shape[-2:]
    source, target = sides.get("encoder", []), sides.get("decoder", [])
    if subject.kind == "cross":
        query = target[-queries:] if len(target) >= queries else []
        return query, source if len(source) == keys else []
    words = target if "decoder" in subject.path else source
    return ([words[place] for place in places(subject)], words) if len(words) == keys else ([], [])


def _decoded(ids: TokenIds | None, tokenizer: Any) -> tuple[list[str], list[str]]:
    """The ids that the model's embedding was called with, as tokens of the tokenizer."""
    if tokenizer is None or ids is None:
        return [], []
    query, key = (spelled(tokenizer, side[0].tolist()) for side in ids)
    return query, key


def _short(words: list[str]) -> list[str]:
    return [word if len(word) <= LONGEST else word[: LONGEST - 1] + "…" for word in words]
