"""The recurrent encoder-decoder of Bahdanau, Luong and Sutskever."""

from .model import RecurrentModel
from .settings import RecurrentConfiguration

__all__ = ["RecurrentConfiguration", "RecurrentModel"]
