"""The explorer's server: on this machine alone, for the models that it was started with."""

from regard.explorer.server.app import Explorer, application
from regard.explorer.server.models import Models
from regard.explorer.server.serve import serve

__all__ = ["Explorer", "Models", "application", "serve"]
