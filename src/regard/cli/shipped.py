"""What is in the package, found by name without importing torch: configurations, models, programs, costs of papers."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from regard.errors import ConfigurationError

PACKAGE = Path(__file__).parent.parent
CONFIGURATIONS = PACKAGE / "configs"
MODELS = PACKAGE / "bundled"


def configurations() -> dict[str, Path]:
    return {path.stem: path for path in sorted(CONFIGURATIONS.glob("*.toml"))}


def configuration_lines(indent: str = "") -> str:
    """A line for each shipped configuration: its name, and its purpose from the first line of its file."""
    purposes = {
        name: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        for name, path in configurations().items()
    }
    width = max(map(len, purposes), default=0)
    return "\n".join(f"{indent}{name:{width}}  {purpose}" for name, purpose in purposes.items())


def models() -> dict[str, Path]:
    """The bundled models by name."""
    return {path.parent.name: path.parent for path in sorted(MODELS.glob("*/config.toml"))}


def configuration(name_or_file: str) -> Path:
    """The file of a configuration. Raises `ConfigurationError` when there is none."""
    shipped = configurations()
    if os.path.isfile(name_or_file):
        return Path(name_or_file)
    if name_or_file in shipped:  # even where a folder of that name exists
        return shipped[name_or_file]
    if os.path.isfile(os.path.join(name_or_file, "config.toml")):
        raise ConfigurationError(
            f"{name_or_file}: is a run folder: add --resume to continue it, or give a configuration"
        )
    raise ConfigurationError(
        f"{name_or_file}: no such configuration file; shipped are {', '.join(shipped)}"
    )


def programs() -> Iterable[str]:
    from regard.programs import PROGRAMS

    return PROGRAMS


def counted() -> list[str]:
    """The names that `regard cost` counts."""
    from regard.costs.counting import KINDS
    from regard.costs.papers import PAPERS

    return [*PAPERS, *KINDS, *configurations(), *models()]


def tables() -> list[str]:
    from regard.translation.settings.reference import reference

    return sorted({each.header[1:].partition("]")[0] for each in reference()[1:]})


def _completer(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What a shell may complete a name to."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


complete_configuration = _completer(configurations)
complete_counted = _completer(counted)
complete_model = _completer(models)
complete_program = _completer(programs)
complete_table = _completer(tables)
