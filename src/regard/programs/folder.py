"""The folder of a compiled program: program.json, model.safetensors, checksums.json and a card."""

import json
import re
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from math import isfinite, prod
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from regard import files
from regard.errors import CheckpointError, ModelError, raised_as
from regard.programs.compiling import Compiled
from regard.programs.language import ProgramError
from regard.programs.model import SequenceModel
from regard.programs.sizes import Sizes
from regard.translation import checksums, weights

PROGRAM, MODEL, CARD = "program.json", "model.safetensors", "card.md"
_LARGEST = 2**24
# A fraction as text. An exponent would be computed without end.
_NUMBER = re.compile(r"-?\d{1,40}(/0*[1-9]\d{0,39})?", re.ASCII)


@dataclass(frozen=True)
class _Stored:
    """The content of program.json. A fraction is kept as text, a tuple as a list."""

    name: str
    causal: bool
    numerical: bool
    alphabet: list[Any]
    answers: list[Any]
    example: list[Any]
    heads: list[list[str]]
    sizes: Sizes


_STORED = TypeAdapter(_Stored)


def save(compiled: Compiled, folder: str | Path) -> None:
    """Write a compiled program to a new folder.

    Raises:
        ModelError: there is something of this name, or it cannot be written.
        ProgramError: a token or an answer is of a type that JSON does not have.
    """
    folder = Path(folder)
    if folder.exists():
        raise ModelError(f"{folder}: is there already: choose a new folder")
    answers = [str(each) for each in compiled.answers] if compiled.numerical else compiled.answers
    stored = {
        "name": compiled.name,
        "causal": compiled.model.mask is not None,
        "numerical": compiled.numerical,
        "alphabet": compiled.alphabet,
        "answers": answers,
        "example": compiled.example,
        "heads": compiled.heads,
        "sizes": asdict(compiled.model.sizes),
    }
    try:
        content = json.dumps(stored, indent=1, ensure_ascii=False).encode()
    except TypeError as fault:
        raise ProgramError(f"{compiled.name} cannot be stored: {fault}") from None
    with raised_as(ModelError, f"{folder}: cannot be written"), files.new_folder(folder) as new:
        files.write(new / PROGRAM, content)
        weights.save(compiled.model.state_dict(), new / MODEL)
        files.write(new / CARD, _card(compiled).encode())
        checksums.sign(new, [PROGRAM, MODEL])


def open_folder(folder: str | Path) -> Compiled:
    """The compiled program of a folder.

    Raises:
        ModelError: it is none, or a file of it is damaged.
    """
    folder = Path(folder)
    if not (folder / PROGRAM).is_file():
        raise ModelError(f"{folder}: no compiled program: it has no {PROGRAM}")
    sums = checksums.read(folder, [PROGRAM, MODEL])
    path = folder / PROGRAM
    content = checksums.content(path, sums.get(PROGRAM), _LARGEST)
    stored = checksums.parsed(_STORED, content, path, "a compiled program")
    try:
        answers = tuple(map(_number if stored.numerical else _token, stored.answers))
        alphabet, example = (tuple(map(_token, each)) for each in (stored.alphabet, stored.example))
    except ValueError as fault:
        raise ModelError(f"{path}: {fault}") from None
    objection = _objection(stored, alphabet, answers, example)
    if objection is not None:
        raise ModelError(f"{path}: {objection}")
    weights_file = folder / MODEL
    check = partial(_check_shapes, stored, weights_file)
    tensors = weights.load(weights_file, sums.get(MODEL), check)
    model = SequenceModel(stored.sizes, stored.causal).eval().requires_grad_(False)
    weights.load_into(model, tensors, weights_file)
    return Compiled(stored.name, model, alphabet, answers, stored.numerical, stored.heads, example)


def _token(value: Any) -> Any:
    """A token or an answer as JSON keeps it, hashable. Raises `ValueError` where it is none."""
    match value:
        case list():
            return tuple(map(_token, value))
        case str() | int() | None:
            return value
        case float() if isfinite(value):
            return value
    raise ValueError(f"{_short(value)} is no token or answer")


def _number(value: Any) -> Fraction:
    """A numerical answer. Raises `ValueError` where it is none."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Fraction(value)
    raise ValueError(f"the answer {_short(value)} is no fraction of at most 40 digits")


def _short(value: Any) -> str:
    return repr(value)[:60]


def _objection(
    stored: _Stored, alphabet: tuple[Any, ...], answers: tuple[Any, ...], example: tuple[Any, ...]
) -> str | None:
    """Why the parts of a description do not belong together; None where they do."""
    sizes = stored.sizes
    if sizes.tokens != 1 + len(alphabet):
        return f"it has {len(alphabet)} tokens, its sizes say {sizes.tokens - 1}"
    if len(set(alphabet)) < len(alphabet):
        return "a token is twice in its alphabet"
    if sizes.answers != (1 if stored.numerical else len(answers)):
        return f"it has {len(answers)} answers, its sizes say {sizes.answers}"
    if not answers or (stored.numerical and list(answers) != sorted(set(answers))):
        return "its numbers are not in order, or it has none"
    if len(set(answers)) < len(answers):
        return "an answer is twice in it"
    if len(stored.heads) != sizes.layers:
        return f"it describes {len(stored.heads)} layers, its sizes say {sizes.layers}"
    heads = max(map(len, stored.heads))
    if heads > sizes.heads:
        return f"it describes {heads} heads of a layer, its sizes say {sizes.heads}"
    if len(example) >= sizes.places:
        return f"its example has {len(example)} tokens, its sizes say at most {sizes.places - 1}"
    foreign = [token for token in example if token not in alphabet]
    if foreign:
        return f"its example has {_short(foreign[0])}, which is not in its alphabet"
    return None


def _check_shapes(stored: _Stored, path: Path, shapes: weights.Shapes) -> None:
    """Raise `CheckpointError` for weights of other sizes. Enormous sizes are neither allocated nor built."""
    stored_numbers = sum(map(prod, shapes.values()))
    if stored_numbers != stored.sizes.parameters:
        raise CheckpointError(
            f"{path}: has {stored_numbers:,} numbers, the sizes in {PROGRAM} ask for {stored.sizes.parameters:,}"
        )
    with torch.device("meta"):
        shaped = SequenceModel(stored.sizes, stored.causal)
    weights.check_shapes(shaped, shapes, path)


def _card(compiled: Compiled) -> str:
    sizes = compiled.model.sizes
    return f"""# {compiled.name}

A program compiled into a Transformer: {sizes}. It answers for inputs of at most {compiled.length} tokens
of {" ".join(map(str, compiled.alphabet))}, as the program does.

| layer | head | computes |
|---|---|---|
""" + "".join(
        f"| {layer} | {head} | `{about}` |\n"
        for layer, own in enumerate(compiled.heads)
        for head, about in enumerate(own)
    )
