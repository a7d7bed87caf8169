"""Scenes: of what a watch saw, of a look, of a translation."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regard.attention.looks import Look
from regard.attention.shapes import ShapeError
from regard.explorer.agreement import Links
from regard.explorer.contract import Attention, Kind, Scene, Sequence
from regard.watching import spelling
from regard.watching.shown import Shown
from regard.watching.table import places

if TYPE_CHECKING:
    from torch import Tensor

    from regard.translation.evaluation.alignment import Link
    from regard.translation.results import Translation

NOTHING: Mapping[str, Any] = {}
KINDS: Mapping[str, Kind] = {"self": "self", "causal": "causal", "cross": "cross"}


def of_watch(
    attentions_seen: Iterable[Shown],
    title: str,
    model: str = "",
    links: Iterable[Link] | None = None,
) -> Scene:
    """The scene of some attentions of a watch. Those with the same tokens share a sequence.

    Gold links are (key, query) places among the tokens that are shown.

    Raises:
        ShapeError: a link is outside of them.
    """
    sequences: dict[tuple[object, ...], int] = {}
    distinct: list[Sequence] = []

    def index(name: str, tokens: list[str], ids: Tensor | None) -> int:
        numbers = None if ids is None else ids.flatten().tolist()
        at = (name, *tokens), None if numbers is None else tuple(numbers)
        if at not in sequences:
            sequences[at] = len(distinct)
            distinct.append(Sequence(name, tokens, spelling.words(tokens), numbers))
        return sequences[at]

    attentions = []
    for subject, look, queries, keys, ids, extent in attentions_seen:
        late = "decoder" in subject.path
        target = "target" if late else "tokens"
        source = "source" if subject.kind == "cross" else target
        rows = index(target, queries, None if ids is None else ids.queries)
        columns = index(source, keys, None if ids is None else ids.keys)
        query_places = places(subject)
        kind = KINDS[subject.kind]
        sides = rows, columns, subject.numbers, query_places, extent
        attentions.append(Attention(subject.name, kind, look, *sides))
    return Scene(title, distinct, attentions, model, links=Links.of(links))


def of_look(
    look: Look,
    queries: Items[str] | None = None,
    keys: Items[str] | None = None,
    entry: int | tuple[int, ...] = (),
    links: Iterable[Link] | None = None,
) -> Scene:
    """The scene of one look.

    Args:
        look: (*batch, queries, keys); the batch axes that `entry` leaves are heads.
        queries: a word for each query; None for their positions.
        keys: a word for each key; None for their positions.
        entry: indices of the leading batch axes.
        links: gold links, (key, query) places.

    Raises:
        ShapeError: there is not a word for each query or key, no weight to show, or a link outside of them.
    """
    if entry != ():
        look = look[entry]
    if 0 in look.shape:
        raise ShapeError(f"the look has shape {list(look.shape)}: there is no weight to show")
    caption, sides = look.caption, []
    query_places = caption.places
    for name, words, count in zip(("query", "key"), (queries, keys), look.shape[-2:], strict=True):
        if words is None:
            positions = (
                range(count) if query_places is None or name == "key" else query_places.tolist()
            )
            words = list(map(str, positions))
        if len(words) != count:
            raise ShapeError(f"{len(words)} words for {count}: pass one for each {name}")
        sides.append(Sequence(name, list(words)))
    head_axes = [axis for axis in caption.axes or () if not isinstance(axis, int)]
    numbers = list(head_axes[0]) if len(head_axes) == 1 and len(look.shape) == 3 else None
    kind: Kind = "cross" if look.shape[-2] != look.shape[-1] else "self"
    title = caption.title or "Attention"
    attention = Attention(title, kind, look, 0, 1, numbers, query_places)
    return Scene(title, sides, [attention], links=Links.of(links))


def of_translation(
    translation: Translation,
    attentions: Items[Attention],
    model: str = "",
    more: Mapping[str, Any] = NOTHING,
    pieces: bool = False,
    beam: Items[Mapping[str, Any]] | None = None,
) -> Scene:
    """The scene of a translation.

    Args:
        attentions: as from `of_sentence`.
        more: further entries of the header.
        pieces: whether to show subword pieces only, and no words.
        beam: the nodes of the search, where they are known.
    """
    read = ["<s>", *translation.target_pieces[:-1]]
    sides = {
        "source": translation.source_pieces,
        "target": translation.target_pieces,
        "target, read": read,
    }
    sequences = [Sequence.of_pieces(name, tokens) for name, tokens in sides.items()]
    if pieces:
        sequences = [replace(each, words=[]) for each in sequences]
    summary = _summary(translation) if beam is None else {**_summary(translation), "beam": beam}
    return Scene(
        f"{translation.source} → {translation.text}", sequences, attentions, model, summary, more
    )


def with_links(scene: Scene, links: Iterable[Link]) -> Scene:
    """The scene of a translation with gold links between its words; their ends can have none.

    Raises:
        ShapeError: a link is outside of the words.
    """
    keys, queries = ((0, len(scene.sequences[side].spans) - 1) for side in (0, 1))
    return replace(scene, links=Links(frozenset(links), keys=keys, queries=queries))


def of_looks(
    translation: Translation,
    model: str = "",
    names: Container[str] | None = None,
    head: int | None = None,
    pieces: bool = False,
) -> Scene:
    """The scene of a translation with the looks that it has.

    Args:
        names: of the looks to show; None for all.
        head: the number of the head to show; None for all.
        pieces: whether to show subword pieces only, and no words.

    Raises:
        ValueError: it has none.
    """
    if not translation.looks:
        raise ValueError("the translation has no looks: translate with looks=True")
    attentions = [
        of_sentence(name, look, head, causal="decoder" in name)
        for name, look in translation.looks.items()
        if names is None or name in names
    ]
    return of_translation(translation, attentions, model, pieces=pieces)


def of_sentence(name: str, look: Look, head: int | None = None, causal: bool = False) -> Attention:
    """An attention in the scene of a translation.

    Args:
        name: such as "decoder.1.cross".
        look: (*1, [heads,] queries, keys), of one sentence.
        head: the number of the head to show; None for all.
        causal: whether no query reads a later key.
    """
    while len(look.shape) > 3:
        look = look[0]
    heads = None if head is None else [head]
    if head is not None:
        look = look[head : head + 1]
    if name.endswith("cross"):
        return Attention(name, "cross", look, 1, 0, heads)
    side = 2 if "decoder" in name else 0
    return Attention(name, "causal" if causal else "self", look, side, side, heads)


def _summary(translation: Translation) -> dict[str, Any]:
    best: dict[str, dict[str, Any]] = {}  # of candidates with the same words, the first
    for candidate in translation.alternatives:
        candidate_fields = {
            "text": candidate.text,
            "score": candidate.score,
            "log_probability": candidate.log_probability,
        }
        best.setdefault(candidate.text, candidate_fields)
    notes = {
        "the translation repeats itself": translation.repeats,
        "the translation reached the greatest length allowed and stopped there": translation.unfinished,
        f"the sentence was too long: {translation.cut} pieces were left out": translation.cut > 0,
        f"not in the vocabulary: {' '.join(translation.unknown)}": bool(translation.unknown),
    }
    return {
        "text": translation.source,
        "translation": translation.text,
        "score": translation.score,
        "log_probability": translation.log_probability,
        "probabilities": translation.probabilities,
        "candidates": list(best.values()),
        "notes": [note for note, so in notes.items() if so],
    }
