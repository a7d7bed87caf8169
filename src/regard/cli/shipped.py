"""The configurations and models in the package, found by name without importing torch."""

import os
from pathlib import Path

from regard.errors import ConfigurationError

PACKAGE = Path(__file__).parent.parent
CONFIGURATIONS = PACKAGE / "configs"
MODELS = PACKAGE / "bundled"


def configurations() -> dict[str, Path]:
    """The shipped configurations by name."""
    return {path.stem: path for path in sorted(CONFIGURATIONS.glob("*.toml"))}


def listed(indent: str = "") -> str:
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
    known = configurations()
    if os.path.isfile(name_or_file):
        return Path(name_or_file)
    if name_or_file in known:  # even where a folder of that name exists
        return known[name_or_file]
    if os.path.isfile(os.path.join(name_or_file, "config.toml")):
        raise ConfigurationError(
            f"{name_or_file}: is a run folder: add --resume to continue it, or give a configuration"
        )
    raise ConfigurationError(
        f"{name_or_file}: no such configuration file; shipped are {', '.join(known)}"
    )


def complete_configuration(incomplete: str) -> list[str]:
    """Names that a shell may complete to."""
    return [name for name in configurations() if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Names that a shell may complete to."""
    return [name for name in models() if name.startswith(incomplete)]
