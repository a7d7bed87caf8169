"""The explorer: one front end for a page of a server, a file and a notebook, and the data that it reads.

The front end is written in TypeScript (explorer-web in the repository); its built files are in `static`.
"""

from regard.explorer.contract import Attention, Scene, Sequence, pack
from regard.explorer.page import render, write

__all__ = ["Attention", "Scene", "Sequence", "pack", "render", "write"]
