"""Searches that end when nobody waits for them any more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from regard.translation.engines import SearchEngine
from regard.translation.translator import Translator


class Stoppable:
    """An engine whose search ends at the next step once `check` raises."""

    def __init__(self, engine: SearchEngine, check: Callable[[], None]) -> None:
        self._engine, self._check = engine, check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self, *arguments: Any) -> Any:
        self._check()
        return self._engine.step(*arguments)


@contextmanager
def stoppable(translator: Translator, check: Callable[[], None]) -> Iterator[None]:
    """Searches of this translator end at the next step once `check` raises."""
    engine = translator.engine
    translator.engine = cast(SearchEngine, Stoppable(engine, check))
    try:
        yield
    finally:
        translator.engine = engine
