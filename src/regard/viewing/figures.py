"""Save figures as png, svg or pdf. Equal figures give equal files."""

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

# For each format, the metadata to leave out: it differs each time a file is made.
_METADATA: dict[str, Any] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
FORMATS = tuple(_METADATA)


def save(figure: Figure, path: str | os.PathLike[str], *, dots_per_inch: int = 200) -> Path:
    """Write a figure in the format that the file's name ends in.

    An existing file is replaced, or kept if writing fails. A warning lists the characters that no
    installed font has, which a png or pdf shows as boxes.

    Raises:
        ConfigurationError: the name does not end in .png, .svg or .pdf.
        OSError: the file cannot be written.
    """
    ending = format_of(path)
    content = render(figure, ending, dots_per_inch=dots_per_inch)
    lacking = "" if ending == "svg" else fonts.missing(figure)
    if lacking:
        warnings.warn(f"{os.fspath(path)}: {lacking}", UserWarning, stacklevel=2)
    return files.write(path, content)


def format_of(path: str | os.PathLike[str]) -> str:
    """The format of a file name, or a ConfigurationError. Call it before a figure is computed.

    >>> format_of("picture.PNG")
    'png'
    """
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        endings = ", ".join(f".{endings}" for endings in FORMATS)
        raise ConfigurationError(f"{os.fspath(path)}: a picture's name must end in {endings}")
    return ending


def render(figure: Figure, ending: str, *, dots_per_inch: int = 200) -> bytes:
    """The bytes of a figure, without dates and random names, so that equal figures are equal files.

    The text of an svg remains text: the program that shows it chooses the fonts.
    """
    import matplotlib

    content = io.BytesIO()
    settings: Any = {"svg.hashsalt": "regard", "svg.fonttype": "none", "pdf.fonttype": 42}
    with matplotlib.rc_context(settings), quiet():
        figure.savefig(
            content,
            format=ending,
            dpi=dots_per_inch,
            facecolor=figure.get_facecolor(),
            metadata=_METADATA[ending],
            bbox_inches=None,
        )
    return content.getvalue()


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress matplotlib's warning for each character that no font has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*[Gg]lyph.*")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        yield
