"""Opening models by name or folder, one or several that are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regard.errors import ModelError
from regard.translation.runs import Run, Tokenizers
from regard.translation.text.tokenizer import Tokenizer

BUNDLED = Path(__file__).parent.parent / "bundled"


def open_runs(
    names_or_folders: str | Path | Sequence[str | Path],
) -> tuple[list[Run], Tokenizers]:
    """The runs of names or folders, and the tokenizers that all of them share.

    Raises:
        ModelError: one of them is missing or broken, or has other tokenizers than the first.
    """
    if isinstance(names_or_folders, str | Path):
        names_or_folders = [names_or_folders]
    if not names_or_folders:
        raise ModelError("no model is named: give the name of a bundled model or a run folder")
    first, *others = names_or_folders
    runs = [Run.open(find(first))]
    tokenizers = runs[0].tokenizers()
    for name in others:
        runs.append(Run.open(find(name)))
        own = runs[-1].tokenizers()
        _check_same(tokenizers, own, first, name)
        tokenizers = replace(tokenizers, unseen=tokenizers.unseen | own.unseen)
    return runs, tokenizers


def bundled() -> dict[str, Path]:
    """The models that come with the package, by name."""
    if not BUNDLED.is_dir():
        return {}
    return {folder.name: folder for folder in sorted(BUNDLED.iterdir()) if folder.is_dir()}


def find(name_or_folder: str | Path) -> Path:
    """The folder of a bundled model's name, or the folder itself."""
    known = bundled()
    if str(name_or_folder) in known:
        return known[str(name_or_folder)]
    folder = Path(name_or_folder)
    try:
        there = folder.is_dir()
    except (OSError, ValueError):
        there = False
    if not there:
        names = ", ".join(known) or "none"
        raise ModelError(f"{name_or_folder}: no such model or run folder; bundled models: {names}")
    return folder


def _check_same(ours: Tokenizers, theirs: Tokenizers, name: str | Path, other: str | Path) -> None:
    """Raises `ModelError` unless two models cut text into the same pieces."""
    for side in ("source", "target"):
        one: Tokenizer = getattr(ours, side)
        two: Tokenizer = getattr(theirs, side)
        if one.model != two.model:
            raise ModelError(
                f"{other}: its {side} vocabulary ({len(two)} pieces) is not that of {name} "
                f"({len(one)} pieces): only models trained with one tokenizer can be averaged"
            )
