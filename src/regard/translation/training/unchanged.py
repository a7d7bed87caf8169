"""corpora.json: the checksums of the files a run began with, so that none of them changes before it is resumed.

Another corpus would put the sentences of the remaining passes in another order, and the scores of other validation
sentences cannot be compared with those that were measured.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from regard.errors import DataError, TrainingError
from regard.translation import checksums
from regard.translation.runs import Run
from regard.translation.settings import DataSettings

CORPORA = "corpora.json"


def sums(section: DataSettings, data: Path | None) -> dict[str, str]:
    """The sha256 of each file by the name that the configuration has for it. A pipe has none: it is read only once."""
    links = (each.links for each in section.training if each.links is not None)
    paths = {name: (data or Path()) / name for name in (*section.names, *links)}
    found = {}
    for name, path in paths.items():
        with suppress(OSError):  # which its reader reports
            if path.is_file():
                found[name] = checksums.of(path)
    return found


def remember(run: Run, found: dict[str, str]) -> None:
    """Keep the checksums in the run folder. Raises `TrainingError` when they cannot be written."""
    if not found:
        return
    path = run.folder / CORPORA
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        checksums.write_table(path, found)
    except OSError as fault:
        raise TrainingError(f"{path}: cannot be written: {fault.strerror}") from None


def check(run: Run, data: Path | None) -> None:
    """Raises `DataError` naming the first file that is not as it was; runs without corpora.json pass."""
    path = run.folder / CORPORA
    if not path.exists():
        return
    before = checksums.read_table(path)
    for name, found in sums(run.configuration.data, data).items():
        if before.get(name, found) != found:
            raise DataError(
                f"{(data or Path()) / name}: has changed since this training began: put the old file back, or start a "
                f"new training with --from {run.folder}; to go on with the new file all the same, remove {path}"
            )
