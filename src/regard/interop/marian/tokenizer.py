"""Marian's tokenizer: a sentencepiece model, a table of ids, and an optional language code before the text."""

from __future__ import annotations

import re

from regard.interop.huggingface.tokenizer import NumberedTokenizer

# The language that a multilingual model is to write: ">>fra<<" before the text.
_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*(.*)", re.DOTALL)


class MarianTokenizer(NumberedTokenizer):
    """A language code before the text, ">>fra<<", is one piece where the table has it."""

    def _cut(self, text: str) -> list[str]:
        found = _LANGUAGE.fullmatch(text)
        if found is not None and found[1] in self._ids:
            return [found[1], *super()._cut(found[2])]
        return super()._cut(text)
