"""Figures saved as png, svg or pdf: atomically, and byte for byte the same every time."""

from __future__ import annotations

import functools
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import files
from regard.translation.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
_FAMILIES = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Yu Gothic",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
)


def save(figure: Figure, path: str | os.PathLike[str], *, dots_per_inch: int = 200) -> Path:
    """Write a figure in the format that the file's name ends in.

    Args:
        figure: what `pictures`, `multiples` or `curves` drew.
        path: ends in .png, .svg or .pdf; a file that is there is replaced.
        dots_per_inch: resolution of a png, and of what is not vectors in the others.

    Returns:
        The path.

    Raises:
        ConfigurationError: the name ends in no format that is known.
        OSError: the file cannot be written; one that was there is untouched.
    """
    return files.write(path, render(figure, format_of(path), dots_per_inch=dots_per_inch))


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file's name asks for: to be called before work is spent on a figure.

    Raises:
        ConfigurationError: it is none of `FORMATS`.

    >>> format_of("picture.PNG")
    'png'
    """
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        known = ", ".join(f".{known}" for known in FORMATS)
        raise ConfigurationError(f"{os.fspath(path)}: a picture's name must end in {known}")
    return ending


def render(figure: Figure, ending: str, *, dots_per_inch: int = 200) -> bytes:
    """The bytes of a figure: no dates, no random names, so that equal figures are equal files."""
    import matplotlib

    metadata: dict[str, Any] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    content = io.BytesIO()
    settings: Any = {"svg.hashsalt": "regard", "svg.fonttype": "path", "pdf.fonttype": 42}
    with matplotlib.rc_context(settings), quiet():
        figure.savefig(
            content,
            format=ending,
            dpi=dots_per_inch,
            facecolor=figure.get_facecolor(),
            metadata=metadata[ending],
            bbox_inches=None,
        )
    return content.getvalue()


@contextmanager
def quiet() -> Iterator[None]:
    """Without a warning for each character that no font on this machine has: it shows as a box."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*[Gg]lyph.*")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        yield


@functools.cache
def families() -> tuple[str, ...]:
    """The fonts to try in turn: DejaVu Sans, then whichever of other scripts are installed."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return tuple(family for family in _FAMILIES if family in installed)
