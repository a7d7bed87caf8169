"""The keys and values of a memory: tensors that grow, train and load."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.caches import GrowingTensor
from regard.attention.products import HALVES
from regard.attention.scores import Score, prepare
from regard.attention.shapes import ShapeError
from regard.memory.coded_entries import AT_ONCE, CodedEntries, versions
from regard.memory.growing import GrowingRows, Prepared, tensors_of
from regard.memory.lists import LISTS, as_bytes, from_bytes, objections

Trainable = bool | Literal["keys", "values"]


def objection(
    key: Tensor,
    value: Tensor | None,
    payloads: Sequence[Any] | None,
    d_key: int | None,
    d_value: int | None,
) -> str | None:
    """Why entries do not fit each other or earlier ones, of these widths; None if they do."""
    values, shape = (key if value is None else value), key.shape
    if len(shape) < 2 or (values is not key and shape[:-1] != values.shape[:-1]):
        shapes = f"keys have shape {tuple(shape)}, values {tuple(values.shape)}"
        return f"{shapes}: pass one value for each key"
    if payloads is not None:
        if isinstance(payloads, str) or len(payloads) != shape[-2]:
            description = "a string" if isinstance(payloads, str) else f"a list of {len(payloads)}"
            return f"payloads is {description}: pass a list of {shape[-2]}, one for each key"
        if len(shape) > 2:
            return "keys with batch axes have no payloads: leave out payloads="
    if shape[-1] == d_key and (shape if values is key else values.shape)[-1] == d_value:
        return None
    for name, vectors, width in (("key", key, d_key), ("value", values, d_value)):
        if width is not None and vectors.shape[-1] != width:
            return f"{name}s are {vectors.shape[-1]} wide: pass {name}s of width {width}"
    return None


class Entries(nn.Module):
    """Keys ``(*batch, entries, d_key)`` and values ``(*batch, entries, d_value)``.

    Values that were never given are the keys themselves, not a copy. Trainable
    tensors are parameters, the others buffers; both are absent until the first write, which sets the
    batch axes, widths and precision of the later ones.
    """

    def __init__(self, d_key: int | None, d_value: int | None, trainable: Trainable) -> None:
        super().__init__()
        if trainable not in (True, False, "keys", "values"):
            raise ValueError(f'trainable is {trainable!r}: pass True, False, "keys" or "values"')
        for name, width in (("d_key", d_key), ("d_value", d_value)):
            if width is not None and width < 1:
                raise ValueError(f"{name} is {width}: pass a width of at least 1")
        self.d_key, self.d_value = d_key, d_value
        self._trained = {"key": trainable in (True, "keys"), "value": trainable in (True, "values")}
        self._rows: dict[str, GrowingRows] = {}
        self._prepared: Prepared | None = None
        self._coded: CodedEntries | None = None
        self.payloads: list[Any] | None = None
        self.names: list[str | None] | None = None
        self._places: dict[str | None, int] = {}  # of each name the first
        for name, trained in self._trained.items():
            (self._parameters if trained else self._buffers)[name] = None

    def __len__(self) -> int:
        return 0 if self.key is None else self.key.shape[-2]

    @property  # nn.Module finds them in five times the time
    def key(self) -> Tensor | None:
        """The keys, or None before the first write."""
        return (self._parameters if self._trained["key"] else self._buffers)["key"]

    @property
    def value(self) -> Tensor | None:
        """The values, or None where they are the keys."""
        return (self._parameters if self._trained["value"] else self._buffers)["value"]

    @property
    def has_values(self) -> bool:
        """Whether there are values, and not only keys."""
        return self.value is not None

    @property
    def rows(self) -> int:
        """How many positions there are."""
        return len(self)

    @property
    def changes(self) -> tuple[int | None, ...]:
        """Numbers that differ after entries were appended or deleted, or keys changed in place."""
        return self.rows, *versions(self.key)

    @property
    def nbytes(self) -> int:
        """The bytes of keys and values."""
        return sum(each.nbytes for each in (self.key, self.value) if each is not None)

    @property
    def like(self) -> Tensor | None:
        """A tensor of the precision, and on the device, of the keys; None before the first write."""
        return self.key

    def columns(self) -> tuple[Any, ...]:
        """Keys, values, payloads and names, as `append` takes them."""
        return self.key, self.value, self.payloads, self.names

    def key_blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The positions and the keys of the entries, some at a time."""
        if self.key is not None:
            yield from zip(
                torch.arange(len(self)).split(AT_ONCE), self.key.split(AT_ONCE, dim=-2), strict=True
            )

    def places(self) -> Iterable[int]:
        """The positions of the entries in their order."""
        return range(len(self))

    def key_at(self, place: int) -> Any:
        """The key of an entry as a vector."""
        return None if self.key is None else self.key[..., place, :]

    def value_at(self, place: int) -> Any:
        """The value of an entry."""
        return None if self.values is None else self.values[..., place, :]

    def equal(self, vector: Tensor) -> list[int]:
        """The places of the keys with these very numbers."""
        key = self.key
        if key is None or key.dim() > 2 or vector.shape != key.shape[-1:]:
            return []
        vector = vector.to(key)
        alike = (key[:, :1] == vector[:1]).nonzero()[:, 0]  # few: most differ in the first number
        places: list[int] = alike[(key[alike] == vector).all(-1)].tolist()
        return places

    @property
    def values(self) -> Float[Tensor, "*batch entries d_value"] | None:
        """The values, or None before the first write."""
        return self.key if self.value is None else self.value

    def append(
        self,
        key: Tensor,
        value: Tensor | None = None,
        payloads: Sequence[Any] | None = None,
        names: Sequence[str | None] | None = None,
    ) -> None:
        """Add entries behind the last one; all of them or, where shapes do not fit, none."""
        old_key, old_value = self.key, self.value
        value = self._checked(key, value, payloads, old_key, old_value)
        coded_entries = self._coded
        if coded_entries is not None and not coded_entries.is_of(self.key, self.values):
            coded_entries = self._coded = None
        if payloads is not None or self.payloads is not None:
            self._keep(payloads, key.shape[-2])
        if names is not None or self.names is not None:
            self._name(names, key.shape[-2])
        if value is not None and old_value is None and old_key is not None:
            self._put("value", old_key)
            old_value = self.value
        self._grow("key", key, old_key)
        if value is not None:
            self._grow("value", value, old_value)
        if old_key is None:
            self._set_widths(key, value)
        if coded_entries is not None:
            coded_entries.append(self.key, self.values)  # type: ignore[arg-type]

    def append_keys(self, keys: Tensor) -> bool:
        """Copy keys, or one, behind the last one; False where `append` has to do more than that."""
        rows = self._rows.get("key")
        is_alone = (
            self.value is None
            and self.payloads is None
            and self.names is None
            and self._coded is None
            and self._prepared is None
        )
        if not is_alone or rows is None or rows.filled is not self.key or not rows.copy(keys):
            return False
        self._buffers["key"] = rows.filled
        return True

    def coded(self) -> CodedEntries | None:
        """The entries with their codes, which are kept; None for those with batch axes or on another device."""
        key, value = self.key, self.values
        if key is None or value is None or key.dim() > 2 or not (key.is_cpu and value.is_cpu):
            return None
        if self._coded is None or not self._coded.is_of(key, value):
            self._coded = CodedEntries(key, value)
        return self._coded

    def _set_widths(self, key: Tensor, value: Tensor | None) -> None:
        widths = key.shape[-1], (key if value is None else value).shape[-1]
        if widths != (self.d_key, self.d_value):
            self.d_key, self.d_value = widths

    def _checked(
        self,
        key: Tensor,
        value: Tensor | None,
        payloads: Sequence[Any] | None,
        old_key: Tensor | None,
        old_value: Tensor | None,
    ) -> Tensor | None:
        """The values that the entries get, which are None where they stay the keys."""
        separate = old_value is not None or self._trained["key"] != self._trained["value"]
        if value is None and separate:
            value = key
        if problem := objection(key, value, payloads, self.d_key, self.d_value):
            raise ShapeError(problem)
        if old_key is None or key.dim() == old_key.dim() == 2:
            return value
        values = key if value is None else value
        old_values = old_key if old_value is None else old_value
        for name, new, old in (("key", key, old_key), ("value", values, old_values)):
            if new.shape[:-2] != old.shape[:-2]:
                raise ShapeError(
                    f"{name}s have batch axes {list(new.shape[:-2])}, the memory's have"
                    f" {list(old.shape[:-2])}: pass {name}s with the same batch axes"
                )
        return value

    def _keep(self, payloads: Sequence[Any] | None, count: int) -> None:
        if self.payloads is None:
            self.payloads = [None] * len(self)
        self.payloads.extend([None] * count if payloads is None else payloads)

    def _name(self, names: Sequence[str | None] | None, count: int) -> None:
        if self.names is None:
            self.names = [None] * len(self)
            if self.names:
                self._places[None] = 0
        new = names or [None] * count
        for place, name in enumerate(new, len(self.names)):
            self._places.setdefault(name, place)
        self.names.extend(new)

    def prepared(self, score: Score) -> tuple[Score, Tensor]:
        """The score and keys of `scores.prepare`, kept for the next search where no gradient is wanted.

        Half precisions stay as they are: each score is computed from them in float32.
        """
        key: Any = self.key
        tensors = tensors_of(score, key)
        if key.dtype in HALVES:
            return score, key
        is_trained = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
        if is_trained or any(each.is_inference() for each in tensors):
            return prepare(score, key)
        prepared = self._prepared
        if prepared is None or not prepared.is_of(score, key):
            with torch.no_grad():
                quick, rows = prepare(score, key)
            if rows is key:
                return quick, rows
            prepared = self._prepared = Prepared(score, key, quick, GrowingTensor(rows))
        return prepared.quick, prepared.rows.filled

    def place(self, name: str) -> int | None:
        """The place of the first entry of this name, or None."""
        return self._places.get(name)

    def is_named(self, place: int) -> bool:
        """Whether this entry has a name."""
        return self.names is not None and self.names[place] is not None

    def are_all_named(self) -> bool:
        """Whether no entry is without a name."""
        return not len(self) or (self.names is not None and None not in self._places)

    def replace(
        self, places: Sequence[int], value: Tensor | None, payloads: Sequence[Any] | None
    ) -> None:
        """Put values at these entries, or leave theirs; and payloads, or take theirs away."""
        if value is not None:
            key: Any = self.key
            self._checked(key[..., places, :], value, payloads, key, self.value)
            if self.value is None:
                self._put("value", key)
            self._overwrite(places, value)
        if payloads is not None and self.payloads is None:
            self.payloads = [None] * len(self)
        if self.payloads is not None:
            for place, payload in zip(places, payloads or [None] * len(places), strict=True):
                self.payloads[place] = payload

    def _overwrite(self, places: Sequence[int], value: Tensor) -> None:
        old: Any = self.value
        where = torch.tensor(places, device=old.device)
        if self._trained["value"]:
            with torch.no_grad():
                old.index_copy_(-2, where, value.to(old))
        else:  # a new tensor, because the old one may be in a graph
            self._buffers["value"] = old.index_copy(-2, where, value.to(old))

    def __copy__(self) -> Entries:
        """The same tensors, and lists that grow by themselves."""
        twin = Entries.__new__(Entries)
        twin.__dict__.update(self.__dict__)
        for name in ("_parameters", "_buffers", "_trained", "_places"):
            twin.__dict__[name] = self.__dict__[name].copy()
        twin._rows, twin._prepared, twin._coded = {}, None, None
        for name in ("payloads", "names"):
            items = getattr(self, name)
            setattr(twin, name, None if items is None else list(items))
        return twin

    def _grow(self, name: str, new: Tensor, old: Tensor | None) -> None:
        if old is None:
            self._put(name, new)
        elif self._trained[name]:
            self._put(name, torch.cat([old.detach(), new.detach().to(old)], dim=-2))
        else:
            rows = self._rows.get(name)
            if rows is None or rows.filled is not old:  # moved or loaded since the last write
                rows = self._rows[name] = GrowingRows(old)
            rows.append(new)
            grown = self._buffers[name] = rows.filled  # setattr takes as long as all else
            prepared = self._prepared
            if prepared and name == "key" and not prepared.append(new, old, grown):
                self._prepared = None

    def _put(self, name: str, content: Tensor) -> None:
        if self._trained[name]:
            setattr(self, name, nn.Parameter(content.detach().clone()))
        else:
            setattr(self, name, content.clone())  # the caller may go on to change theirs

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, *rest: Any) -> None:
        """As in nn.Module, with the names and payloads as JSON."""
        super()._save_to_state_dict(destination, prefix, *rest)
        for name in LISTS:
            if (items := getattr(self, name)) is not None:
                try:
                    destination[prefix + name] = as_bytes(name, items)
                except ValueError:
                    destination[prefix + name] = as_bytes(name, self._in_json(items))

    def _in_json(self, items: list[Any]) -> list[Any]:
        """The payloads, with None for those that JSON cannot hold, and a warning."""
        reasons = objections(items)
        names = self.names or [None] * len(items)
        first_reason, *more_reasons = (
            f"entry {place if names[place] is None else repr(names[place])} ({reason})"
            for place, reason in reasons.items()
        )
        more = f" and {len(more_reasons)} more" if more_reasons else ""
        warnings.warn(
            f"JSON cannot hold the payload of {first_reason}{more}: the state of the memory is without",
            stacklevel=5,  # the caller of the state_dict() of a memory
        )
        return [None if place in reasons else item for place, item in enumerate(items)]

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """As in nn.Module, but of any length: the tensors take the shape of what arrives."""
        key, value = state.get(prefix + "key"), state.get(prefix + "value")
        stored = {name: state.pop(prefix + name, None) for name in LISTS}
        if key is not None:
            if value is None and self._trained["key"] != self._trained["value"]:
                value = state[prefix + "value"] = key
            if problem := objection(key, value, None, self.d_key, self.d_value):
                errors: list[str] = rest[-1]
                errors.append(f"memory {prefix or 'entries'}: {problem}")
                return
            try:
                self._adopt_lists(stored, key)
            except ValueError as problem:
                rest[-1].append(f"memory {prefix or 'entries'}: {problem}")
                return
            self._adopt("key", key)
            self._adopt("value", value)
            self._set_widths(key, value)
        super()._load_from_state_dict(state, prefix, *rest)

    def _adopt_lists(self, stored: dict[str, Tensor | None], key: Tensor) -> None:
        """Take the names and payloads of a state; without any, keep those of equal or trained keys."""
        count = key.shape[-2]
        lists = {
            name: None if each is None else from_bytes(name, each, count)
            for name, each in stored.items()
        }
        old = self.key
        same = old is not None and old.shape == key.shape
        if not (same and (self._trained["key"] or torch.equal(old, key.to(old)))):  # type: ignore[arg-type]
            self.payloads, self.names, self._places = None, None, {}
        if lists["payloads"] is not None:
            self.payloads = lists["payloads"]
        if lists["names"] is not None:
            self.names, self._places = [], {}
            self._name(lists["names"], count)

    def _adopt(self, name: str, arriving: Tensor | None) -> None:
        old = getattr(self, name)
        if arriving is None:
            setattr(self, name, None)
        elif old is None:
            self._put(name, torch.empty_like(arriving))
        elif isinstance(old, nn.Parameter):  # stays the same object, for an optimiser that knows it
            old.data = old.data.new_empty(arriving.shape)
            old.grad = None
        else:
            setattr(self, name, old.new_empty(arriving.shape))
