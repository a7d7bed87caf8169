"""The folder of a compiled program: program.json, model.safetensors, checksums.json and a card."""

import json
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from regard import files
from regard.errors import ModelError, raised_as
from regard.programs.compiling import Compiled
from regard.programs.language import ProgramError
from regard.programs.model import SequenceModel
from regard.programs.sizes import Sizes
from regard.translation import checksums, weights

PROGRAM, MODEL, CARD = "program.json", "model.safetensors", "card.md"
_LARGEST = 2**24


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
    with torch.device("meta"):  # enormous sizes are refused by the shapes, not allocated
        shaped = SequenceModel(stored.sizes, stored.causal)
    tensors = weights.load(
        folder / MODEL,
        sums.get(MODEL),
        lambda shapes: weights.check_shapes(shaped, shapes, folder / MODEL),
    )
    model = SequenceModel(stored.sizes, stored.causal).eval().requires_grad_(False)
    weights.load_into(model, tensors, folder / MODEL)
    answers = tuple(
        Fraction(each) if stored.numerical else _hashed(each) for each in stored.answers
    )
    alphabet, example = (tuple(map(_hashed, each)) for each in (stored.alphabet, stored.example))
    return Compiled(stored.name, model, alphabet, answers, stored.numerical, stored.heads, example)


def _hashed(value: Any) -> Any:
    return tuple(map(_hashed, value)) if isinstance(value, list) else value


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
