"""Figures saved as png, svg or pdf: atomically, and byte for byte the same every time."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard import files
from regard.errors import ConfigurationError
from regard.viewing import fonts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")


def save(figure: Figure, path: str | os.PathLike[str], *, dots_per_inch: int = 200) -> Path:
    """Write a figure in the format that the file's name ends in.

    Warns of characters that no installed font has: a png or pdf shows them as boxes.

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
    ending = format_of(path)
    content = render(figure, ending, dots_per_inch=dots_per_inch)
    lacking = "" if ending == "svg" else missing(figure)
    if lacking:
        warnings.warn(f"{os.fspath(path)}: {lacking}", UserWarning, stacklevel=2)
    return files.write(path, content)


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
    """The bytes of a figure: no dates, no random names, so that equal figures are equal files.

    The text of an svg is text: whoever shows it chooses fonts for characters that this machine lacks.
    """
    import matplotlib

    metadata: dict[str, Any] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    content = io.BytesIO()
    settings: Any = {"svg.hashsalt": "regard", "svg.fonttype": "none", "pdf.fonttype": 42}
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


def missing(figure: Figure) -> str:
    """A sentence about the characters of a figure that no installed font has; "" where none lack."""
    from matplotlib.text import Text

    return fonts.missing(each.get_text() for each in figure.findobj(Text))


@contextmanager
def quiet() -> Iterator[None]:
    """Without matplotlib's warning for each single character that no font has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*[Gg]lyph.*")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        yield
