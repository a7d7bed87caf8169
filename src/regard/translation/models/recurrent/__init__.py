"""The recurrent encoder-decoder of Bahdanau, Luong and Sutskever."""

from regard.translation.settings import RecurrentSettings

from .model import RecurrentModel

__all__ = ["RecurrentSettings", "RecurrentModel"]
