"""corpora.json: the checksums of the corpora of a run. A run is resumed only with the same corpora.

Other training sentences would change the order of the remaining batches. The scores of other validation sentences
cannot be compared with earlier scores.
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
    """The sha256 of each corpus file, by its name in the configuration. Pipes can be read only once and have none."""
    links = (each.links for each in section.training if each.links is not None)
    paths = {name: (data or Path()) / name for name in (*section.names, *links)}
    found = {}
    for name, path in paths.items():
        with suppress(OSError):  # reading the corpus reports it
            if path.is_file():
                found[name] = checksums.of(path)
    return found


def remember(run: Run, found: dict[str, str]) -> None:
    """Write the checksums into the run folder. Raises `TrainingError` when that fails."""
    if not found:
        return
    path = run.folder / CORPORA
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        checksums.write(path, found)
    except OSError as fault:
        raise TrainingError(f"{path}: cannot be written: {fault.strerror}") from None


def check(run: Run, data: Path | None) -> None:
    """Raise `DataError` for the first file that has changed. Runs without corpora.json are not checked."""
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
