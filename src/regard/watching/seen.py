"""The attentions that a watch saw: looks by name."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.looks import Look
from regard.watching.captured import CapturedCall, Selection
from regard.watching.errors import WatchError
from regard.watching.measures import TokenIds
from regard.watching.readings import Readings, readings
from regard.watching.records import Recording, storages
from regard.watching.shown import Tokens, shown
from regard.watching.table import HeadTable, Measure, Subject, extent_of, html, of_tower, table
from regard.watching.unembedding import token_writes

# Of the explorer, which is a higher package and needed when it is called alone.
SCENES, PAGE, NOTEBOOK = (f"regard.explorer.{name}" for name in ("scenes", "page", "notebook"))
CLOSE, CLOSE_IN_HALF = 1e-4, 3e-2


class Step(NamedTuple):
    """A look of an attention: its number, its kind and its shape."""

    number: int
    of: str  # "call", or "tokens" for one-token calls that became one look
    shape: tuple[int, ...]


class Seen(Mapping[str, Look]):
    """Looks by name, such as "decoder.3.cross", or by the module's path.

    `seen[name]` is the last call of an attention, `seen[name, step]` another one; `seen.steps(name)`
    lists them. The one-token calls of cached generation are one look, whose rows are the tokens.

    `seen.unseen` gives, for each module whose attention was not seen, the reason. If no attention
    was seen, every access raises a `WatchError` with those reasons.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._looks: dict[tuple[str, int], tuple[int, Look]] = {}  # with the number of tokens

    @property
    def unseen(self) -> dict[str, str]:
        """The reason why an attention was not seen, by the path of its module."""
        return self._recording.unseen

    def __getitem__(self, name: str | tuple[str, int]) -> Look:
        name, step = name if isinstance(name, tuple) else (name, -1)
        record = self._recording.record(name)
        count = len(record.calls)
        if not -count <= step < count:
            raise KeyError(f"{name} has {count} looks, there is no number {step}")
        key, tokens = (record.path, step % count), record.calls[step].tokens
        looked_tokens, look = self._looks.get(key, (0, None))
        if look is None or looked_tokens != tokens:
            call = record.calls[step].captured()
            with torch.inference_mode(False):
                look = self._recording.look(record, call, self._recording.selection.heads)
            if call.witness is not None:
                _agree(record.path, look, call.witness)
            self._looks[key] = tokens, look
        return look

    def __iter__(self) -> Iterator[str]:
        return iter(self._recording.by_name())

    def __len__(self) -> int:
        return len(self._recording.by_name())

    def __contains__(self, name: object) -> bool:
        recording = self._recording
        return (
            isinstance(name, str) and bool(recording.records) and recording.find(name) is not None
        )

    def __repr__(self) -> str:
        if not self._recording.records:
            return f"Seen(nothing; unseen: {self.unseen})"
        lines = [f"{name:24} {kind:7} {shapes}" for name, kind, shapes in self._rows()]
        return "\n".join([*lines, *(f"not seen: {reason}" for reason in self._recording.reasons())])

    def _repr_html_(self) -> str:
        if not self._recording.records:
            return f"<div>{escape(self._recording.objection())}</div>"
        missing = (f"<div>not seen: {escape(reason)}</div>" for reason in self._recording.reasons())
        return html(["name", "kind", "shapes of the looks"], self._rows()) + "".join(missing)

    def _rows(self) -> list[list[str]]:
        shapes = {
            name: [" x ".join(map(str, step.shape)) for step in self.steps(name)] for name in self
        }
        return [[name, self.kind(name), ", ".join(each)] for name, each in shapes.items()]

    def path(self, name: str) -> str:
        """The path of the module that computed this attention."""
        return self._recording.record(name).path

    def kind(self, name: str) -> str:
        """ "self", "causal" (no query reads a later key) or "cross" (keys of another sequence)."""
        return self._recording.record(name).kind

    def steps(self, name: str) -> list[Step]:
        """The looks of one attention, in the order of its calls."""
        return [
            Step(number, "tokens" if call.tokens > 1 else "call", call.shape)
            for number, call in enumerate(self._recording.record(name).calls)
        ]

    def parts(self, name: str, step: int = -1) -> CapturedCall:
        """The kept query, key, score, bias, mask and normaliser of a look."""
        return self._recording.record(name).calls[step].captured()

    def of_heads(self, name: str, heads: Iterable[int], step: int = -1) -> Look:
        """A look at some heads of an attention only."""
        places, kept_heads = tuple(heads), self._recording.selection.heads
        call = self.parts(name, step).selected(Selection(heads=places))
        numbers = places if kept_heads is None else tuple(kept_heads[head] for head in places)
        return self._recording.look(self._recording.record(name), call, numbers)

    def moved(self, name: str, step: int = -1, *, shares: bool = False) -> Look:
        """How much each key moves: the norm of weight x value x output projection, as a look.

        Where the output projection is unknown, it is the norm of weight x value, and
        `readings(name).objection` is the reason. The titles of pictures say which.

        Args:
            name: of the attention.
            step: the number of its call.
            shares: divide each row by its sum.

        Source: Kobayashi et al. 2020, arXiv 2004.10102, equation 4 (the bias of the values is part
        of them, that of the output belongs to no key).

        Raises:
            KeyError: there is no attention of this name.
            WatchError: the watch was opened without `values=True`.
        """
        readings = self.readings(name, step)
        look = self[name, step]
        moved = look.scaled(readings.norms(), normalised=shares)
        measure = "norms of weight x value"
        measure += " x output projection" * (readings.projection is not None)
        moved.caption = replace(look.caption, title=f"{look.caption.title}, {measure}")
        return moved

    def readings(self, name: str, step: int = -1) -> Readings:
        """What each head of an attention reads and adds to the output, and its split by key.

        Raises:
            KeyError: there is no attention of this name.
            WatchError: the watch was opened without `values=True`.
        """
        if not self._recording.selection.values:
            raise WatchError("no values were kept: open the watch with values=True")
        record = self._recording.record(name)
        return readings(self.parts(name, step), record.projected, self._recording.selection.heads)

    def table(
        self, tokens: Tensor | None = None, *, moved: bool = False, measure: Measure | None = None
    ) -> HeadTable:
        """Entropy, distance, sink, diagonal, copy and induction scores of every head, and its role.

        A watch of a language model with `values=True` also has the share of keys whose token a head writes.

        Args:
            tokens: (batch, length), the token ids; by default the input of the embedding with the
                largest vocabulary.
            moved: measure `moved(name, shares=True)` in place of the weights.
            measure: a function of the name of an attention and its look, which returns a number for
                each head: one more column.

        Raises:
            WatchError: the measure returned something else, or `moved` lacks the values of a watch
                with `values=True`.
        """
        return table(self._subjects(self, moved), tokens, measure, self._written)

    def scene(
        self,
        *,
        tokens: Tokens | None = None,
        tokenizer: Any = None,
        names: Iterable[str] | None = None,
        entry: int = 0,
        title: str | None = None,
        links: Iterable[tuple[int, int]] | None = None,
        moved: bool = False,
    ) -> Any:
        """The scene that an explorer shows: the last look of each attention, with labels.

        Args:
            tokens: a string for each position, special tokens included; for an encoder and a
                decoder {"encoder": [...], "decoder": [...]}. Positions are numbered by default.
            tokenizer: a tokenizer of Hugging Face, or a function from a list of ids to a list of
                strings. It converts the ids that the model's embedding was called with.
            names: the attentions to show; None for all.
            entry: the number of the batch entry.
            title: the heading of the page; the name of the model's class by default.
            links: gold links, (key, query) places among the tokens that are shown, which the heads are sorted by: of
                the cross attentions, or of all attentions where none is one.
            moved: show `moved(name, shares=True)` in place of the weights.

        Returns:
            A `regard.explorer.Scene`.

        Raises:
            ShapeError: a link is outside of the tokens.
            WatchError: no attention was seen, or the tokens fit no attention.
        """
        subjects = self._subjects(self if names is None else names, moved)
        attentions = shown(subjects, tokens=tokens, tokenizer=tokenizer, entry=entry)
        title = title or self._recording.model or "Attention"
        return import_module(SCENES).of_watch(attentions, title, self._recording.model, links)

    def page(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write the explorer's page, one HTML file that needs no network.

        Where all weights are too many for a file, it has a picture of each head and the largest
        weights of each row.

        Args:
            path: a file that ends in .html; an existing file is replaced.
            options: the arguments of `scene`.

        Returns:
            The path.

        Raises:
            WatchError: no attention was seen, or the tokens fit no attention.
        """
        page: Path = import_module(PAGE).write(Path(path), self.scene(**options))
        return page

    def explore(self, *, frame: bool = False, **options: Any) -> Any:
        """The explorer of these attentions, which a notebook displays.

        With a tokenizer that can encode, the widget runs the model in the kernel: all views, for any prompt.

        Args:
            frame: show the page in a frame in any case; it needs no widgets, and cannot run the model.
            options: the arguments of `scene`.

        Returns:
            A widget where `regard[notebook]` is installed, for the kernel and for the notebook's server, else the page
            in a frame, with a line that says why.

        Raises:
            WatchError: no attention was seen, or the tokens fit no attention.
        """
        notebook = import_module(NOTEBOOK)
        scene = self.scene(**options)
        model, tokenizer = self._recording.module(), options.get("tokenizer")
        start = [each.tokens[:1] for each in self._recording.embedded]
        language = notebook.language(scene, model, start[0] if start else None, tokenizer)
        return notebook.display(scene, frame, language)

    @property
    def nbytes(self) -> int:
        """The memory in bytes that the kept tensors use."""
        calls = (call for record in self._recording.records.values() for call in record.calls)
        return sum(storages(each for call in calls for each in call.tensors()).values())

    def _subjects(self, names: Iterable[str], moved: bool) -> list[Subject]:
        subjects = [self._subject(name) for name in names]
        if not moved:
            return subjects
        return [each._replace(look=self.moved(each.name, shares=True)) for each in subjects]

    def _subject(self, name: str) -> Subject:
        record, look = self._recording.record(name), self[name]
        heads = self._recording.selection.heads or range(
            look.shape[-3] if record.has_heads(look.shape) else 1
        )
        embedded = self._recording.embedded
        if record.kind != "cross":
            paths = [*self._recording.records, *self._recording.excluded]
            embedded = of_tower(embedded, record.path, paths)
        return Subject(name, record.kind, record.path, look, self.parts(name), heads, embedded)

    def _written(self, subject: Subject, ids: TokenIds) -> Tensor | None:
        """Whether heads write what they read; None without values, or where no logits are made of tokens."""
        unembedding = self._recording.unembedding
        if unembedding is None or subject.kind != "causal":
            return None
        extent = extent_of(subject)
        is_whole = subject.look.shape[-2] == subject.look.shape[-1]
        counts = extent.rows[:, 0] if extent is not None and is_whole else None
        return token_writes(self.readings(subject.name), unembedding, ids.keys, counts)


def _agree(path: str, look: Look, witness: Tensor) -> None:
    """Raise if the look differs from the weights that the model itself computed."""
    row = look.weights(rows=[look.shape[-2] - 1])
    half = witness.dtype in (torch.float16, torch.bfloat16)
    apart = float((row - witness.to(row)).abs().max()) if witness.numel() else 0.0
    if not apart <= (CLOSE_IN_HALF if half else CLOSE):
        raise WatchError(
            f"{path} computes its weights in an unknown way: weights computed from its queries and"
            f" keys differ from the model's by {apart:.2g}; add regard.declare(...) to it"
        )
