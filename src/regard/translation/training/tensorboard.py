"""The numbers of metrics.jsonl as scalars for TensorBoard: `pip install regard[tensorboard]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard import files
from regard.errors import ConfigurationError
from regard.translation.training.events import Observer, Stepped, Validated

FOLDER = "tensorboard"


class TensorBoard(Observer):
    """Writes scalars `training/...` at each report and `validation/...` at each validation.

    Args:
        folder: the run folder; the event file is written to its `tensorboard` folder.
        step: the last step that was made; scalars of later steps, from before an interruption, are hidden.

    Raises:
        ConfigurationError: tensorboard is not installed.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        check_installed()
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(
            str(files.subfolder(folder / FOLDER)), purge_step=step + 1
        )

    def stepped(self, event: Stepped, total: int) -> None:
        self._write(
            "training", event, ("loss", "learning_rate", "gradient_norm", "tokens_per_second")
        )

    def validated(self, event: Validated) -> None:
        self._write("validation", event, ("loss", "bleu", "chrf", "exact"))
        self._writer.flush()

    def close(self) -> None:
        """Write all scalars to the disk."""
        self._writer.close()

    def _write(self, kind: str, event: Stepped | Validated, names: tuple[str, ...]) -> None:
        for name in names:
            self._writer.add_scalar(f"{kind}/{name}", getattr(event, name), event.step)


def check_installed() -> None:
    """Raise `ConfigurationError` when tensorboard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "training.tensorboard = true needs TensorBoard: pip install 'regard[tensorboard]'"
        ) from None
