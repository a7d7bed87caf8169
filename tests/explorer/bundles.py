"""Read what the front end reads."""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path

import numpy as np


class Bundle:
    """A bundle: its header, its buffers, and the weights and labels of an attention."""

    def __init__(self, bundle: bytes) -> None:
        assert bundle[:4] == b"RGRD"
        version, length = struct.unpack("<II", bundle[4:12])
        assert version == 3
        self.header = json.loads(bundle[12 : 12 + length])
        self._bytes, self._start = bundle, 12 + length
        total = sum(place["length"] for place in self.header["buffers"])
        assert self._start + total == len(bundle)

    @classmethod
    def of_page(cls, path: Path) -> Bundle:
        """The bundle that a standalone page holds."""
        match = re.search(r' id="regard-bundle">([^<]*)</script>', path.read_text("utf-8"))
        assert match is not None
        return cls(base64.b64decode(match[1]))

    @property
    def names(self) -> list[str]:
        return [one["name"] for one in self.header["attentions"]]

    def buffer(self, index: int, kind: str) -> np.ndarray:
        place = self.header["buffers"][index]
        start = self._start + place["offset"]
        return np.frombuffer(self._bytes[start : start + place["length"]], kind)

    def attention(self, name: str) -> dict:
        return next(one for one in self.header["attentions"] if one["name"] == name)

    def weights(self, name: str) -> np.ndarray:
        """(heads, queries, keys); NaN where a key may not be read."""
        attention = self.attention(name)
        return self.buffer(attention["weights"]["buffer"], "<f2").reshape(attention["shape"])

    def labels(self, name: str) -> tuple[list[str], list[str]]:
        header, sequences = self.attention(name), self.header["sequences"]
        return sequences[header["rows"]]["tokens"], sequences[header["columns"]]["tokens"]
