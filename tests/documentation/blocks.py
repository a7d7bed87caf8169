"""The fenced blocks of the documents: each is run, or says above it why not.

<!-- not run: costly, an evening on one machine -->
```bash
regard train my.toml --run runs/en-fr
```
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if "_build" not in path.parts
)
RUN = ("python", "bash", "console")
SHOWN = ("text", "toml", "json")
REASONS = (
    "costly",
    "needs a GPU",
    "needs data",
    "needs a network",
    "needs a person",
    "illustration",
)
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*) -->\n)?(?P<ticks>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=ticks)$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    language: str
    text: str
    mark: str | None
    line: int

    @property
    def runs(self) -> bool:
        return self.language in RUN and self.mark is None


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a document, in its order; `{code-cell}` and other directives are the site's."""
    return [
        Block(m["language"], m["text"], m["mark"], text.count("\n", 0, m.start("ticks")) + 1)
        for m in _BLOCK.finditer(text)
        if not m["language"].startswith("{")
    ]


def hidden(text: str) -> list[str]:
    """Fences that `blocks` does not see: those that are indented, or made of other marks."""
    return re.findall(r"^(?: +```|\s*~~~).*$", _BLOCK.sub("", text), re.MULTILINE)


def complaint(block: Block) -> str | None:
    """What is wrong with how a block is marked, or None."""
    if block.language not in (*RUN, *SHOWN):
        return (
            f"the language of a block is one of {', '.join((*RUN, *SHOWN))}, not {block.language!r}"
        )
    if block.mark is None or block.mark.startswith("command: "):
        return None
    kind, _, reason = block.mark.partition(": ")
    if kind != "not run" or not reason.startswith(REASONS):
        return f"<!-- {block.mark} --> should be <!-- not run: REASON -->, a REASON beginning with {REASONS}"
    return None
