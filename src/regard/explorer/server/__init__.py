"""The explorer's server: on this machine alone, for the models that it was started with."""

from regard.explorer.server.app import Explorer, application, serve
from regard.explorer.server.models import Models

__all__ = ["Explorer", "Models", "application", "serve"]
