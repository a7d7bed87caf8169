"""Options of a search and of sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.cli.options.checks import changed_options, check_whole, option
from regard.errors import ConfigurationError

if TYPE_CHECKING:
    from regard.translation.decoding.search import Search


@dataclass(frozen=True)
class SearchOptions:
    """Changes of a model's own search; None where it stays.

    Attributes:
        beam: Hypotheses kept; 1 is greedy. [default: the model's own]
        length_penalty: Alpha of ((5 + n) / 6)^alpha; more favours length.
        coverage_penalty: Beta: more favours translations that looked at the whole sentence.
        no_repeat_ngram: No sequence of so many pieces may occur twice in a translation: stops
            loops. [default: the model's own]
        patience: Stop when beam x patience translations have ended, though a better one may be
            alive; 0: when none can become better. [default: the model's own]
        as_written: Read every word as it is written: restore no accents, mend no typing errors, put
            no placeholders for names and numbers.
        batch_tokens: Pieces x beam computed at a time; less takes less memory. [default: 8192]
    """

    beam: int | None = None
    length_penalty: float | None = None
    coverage_penalty: float | None = None
    no_repeat_ngram: int | None = None
    patience: float | None = None
    as_written: bool = False
    batch_tokens: int | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a `Search` that were given."""
        not_settings = ("batch_tokens", "as_written")
        return {name: to for name, to in changed_options(self).items() if name not in not_settings}

    @property
    def batches(self) -> dict[str, Any]:
        return {} if self.batch_tokens is None else {"batch_tokens": self.batch_tokens}

    def of(self, search: Search, **more: Any) -> Search:
        search = search.as_written() if self.as_written else search
        return search.changed(**{**self.changes, **more})

    def check(self, **more: Any) -> None:
        """Raises `ConfigurationError` for numbers out of range, before a model is opened."""
        from regard.translation.decoding.search import Search

        if self.batch_tokens is not None:
            check_whole("--batch-tokens", self.batch_tokens, 1, 2**31)
        self.of(Search(), **more)


@dataclass(frozen=True)
class SamplingOptions:
    """Sampling instead of a search.

    Attributes:
        sample: Draw words by chance instead of the likeliest.
        temperature: Of --sample: below 1 keeps to the likeliest words, above 1 draws unlikely words more often.
        top_k: Of --sample: among so many words.
        top_p: Of --sample: among the fewest words of this probability.
        seed: Of --sample: the same seed draws the same words.
    """

    sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a `Search` that were given."""
        names = {"sample": "sampling"}
        return {
            names.get(name, name): to
            for name, to in changed_options(self).items()
            if name != "seed"
        }

    def check(self) -> None:
        """Raises `ConfigurationError` for an option that needs --sample, and for a seed out of range."""
        for name, value in changed_options(self).items():
            if not self.sample:
                raise ConfigurationError(f"{option(name)} {value}: is for sampling: add --sample")
        if self.seed is not None:
            check_whole("--seed", self.seed, 0, 2**63 - 1)
