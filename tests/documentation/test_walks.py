"""The walks of the page on the architecture name the files that their calls enter, in order."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from regard.translation.translator import Translator

PACKAGE = Path(regard.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "how-it-works" / "architecture.md"
UNLISTED = 6  # files of a walk that the page may leave out, such as loops/availability.py


def attend() -> Callable[[], object]:
    query, key, mask = torch.randn(2, 4, 8), torch.randn(2, 6, 8), regard.masks.padding([6, 2])
    return lambda: regard.attend(query, key, key, mask=mask)


def trained() -> Callable[[], object]:
    query, key, mask = torch.randn(2, 4, 8), torch.randn(2, 6, 8), regard.masks.padding([6, 2])
    query.requires_grad_()
    return lambda: regard.attend(query, key, key, mask=mask)


def entropy() -> Callable[[], object]:
    query, key, mask = torch.randn(2, 4, 8), torch.randn(2, 6, 8), regard.masks.padding([6, 2])
    return lambda: regard.look(query, key, mask=mask).entropy()


def watch() -> Callable[[], object]:
    layer = torch.nn.TransformerEncoderLayer(16, nhead=2, batch_first=True).eval()

    def watched() -> object:
        with torch.no_grad(), regard.watch(layer) as attentions:
            layer(torch.randn(1, 5, 16))
        return attentions["self_attn"].weights()

    return watched


def sentence() -> Callable[[], object]:
    translator = Translator.open("es-en")
    return lambda: translator.translate(["El gato negro duerme."])


WALKS = [
    ("`attend` with a padding mask", "attention", attend),
    ("`attend` with a mask and gradients", "attention", trained),
    ("An entropy of `look`", "attention", entropy),
    ("A watch of a layer", "watching", watch),
    ("A sentence through", "translation", sentence),
]


def entered(call: Callable[[], object]) -> list[str]:
    """The files of the package that a call enters, in the order of their first call."""
    files: dict[str, None] = {}

    def enter(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            files.setdefault(path.relative_to(PACKAGE).as_posix())

    call()  # what is made once is made now
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(None)
    return list(files)


def listed_files(title: str, package: str) -> list[list[str]]:
    """The files that each step of a walk names."""
    page = PAGE.read_text(encoding="utf-8")
    steps = page.partition(f"**{title}")[2].partition("\n\n")[2].partition("\n\n")[0]
    names = [re.findall(r"`([\w/]+\.py)`", step) for step in steps.splitlines()]
    return [[f"{package}/{name}" for name in step] for step in names]


@pytest.mark.parametrize(("title", "package", "prepare"), WALKS, ids=[walk[0] for walk in WALKS])
def test_the_files_of_a_walk_are_entered_in_the_order_of_the_page(title, package, prepare):
    files, steps = entered(prepare()), listed_files(title, package)
    assert len(steps) > 3
    leading = [step[0] for step in steps if step[0] in files]
    assert leading == [name for name in files if name in set(leading)]
    assert [step[0] for step in steps if step[0] not in files] == []
    named = {name for step in steps for name in step}
    unlisted = [name for name in files if name.startswith(f"{package}/") and name not in named]
    assert len(unlisted) <= UNLISTED, unlisted
