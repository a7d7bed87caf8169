"""Checks of options before any work: combinations, numbers, sentences and files to write."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from regard.errors import ConfigurationError, RegardError


def changed_options(*options: Any) -> dict[str, Any]:
    """The values of dataclasses of options that are not the defaults, by the name of the field."""
    return {
        field.name: getattr(each, field.name)
        for each in options
        for field in fields(each)
        if getattr(each, field.name) != field.default
    }


def option(name: str) -> str:
    """The option of a field: "--top-k" of top_k."""
    return "--" + name.replace("_", "-")


def exclude(option: str, used: Mapping[str, bool], why: str) -> None:
    """Raises `ConfigurationError` that names the first of the others that was given beside an option."""
    for name, is_used in used.items():
        if is_used:
            raise ConfigurationError(f"{option} and {name} do not go together: {why}")


def check_whole(option: str, value: int, smallest: int, largest: int) -> None:
    """Raises `ConfigurationError` for a number out of range."""
    if not smallest <= value <= largest:
        top = {2**31: "2^31", 2**63 - 1: "2^63 - 1", 1000: "1000"}.get(largest, f"{largest:,}")
        raise ConfigurationError(f"{option} {value}: use a whole number, {smallest} to {top}")


def check_columns(source: int, target: int) -> None:
    """Raises `ConfigurationError` for a number of a column out of range."""
    check_whole("--source-column", source, 0, 1000)
    check_whole("--target-column", target, 0, 1000)


def check_sentences(texts: Sequence[str], advice: str) -> None:
    """Raises `ConfigurationError` for the name of a file where a sentence is expected."""
    for text in texts:
        if os.path.isfile(text):
            name = shlex.quote(text)
            raise ConfigurationError(f"TEXT {name} is the name of a file: {advice.format(name)}")


def check_picture(out: Path) -> None:
    """Raises `RegardError` when no picture can be written there."""
    from regard.viewing import figures

    figures.format_of(out)
    check_writable(out)


def check_writable(path: Path) -> None:
    """Raises `RegardError` when no file can be written there."""
    try:
        if path.is_dir():
            raise RegardError(f"{path}: is a folder, expected the name of a file")
        check_parent(path)
        if path.exists() and not path.is_file():
            raise RegardError(f"{path}: is no file that can be replaced")
    except (OSError, ValueError) as fault:
        raise RegardError(f"{path}: cannot be written: {fault}") from None


def check_parent(path: Path) -> None:
    """Raises `RegardError` when nothing new can be made in the folder of this path."""
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        raise RegardError(f"{path}: cannot be written: {folder} is a file, not a folder")
    if not folder.is_dir():
        raise RegardError(f"{path}: cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RegardError(f"{path}: cannot be written: permission denied in {folder}")
