"""Counts of a server in Prometheus' text format (version 0.0.4), summed over its processes.

Each process adds to numbers of its own in memory that all share, so none waits for another and any can answer for all.
prometheus_client keeps such numbers in files, which outlive a server and must be removed before the next one starts.
"""

from collections.abc import Iterator, MutableSequence
from itertools import accumulate

STATUSES = (200, 400, 403, 404, 405, 408, 413, 414, 415, 421, 422, 499, 500, 503)
SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, float("inf"))
_COUNTERS = {
    "sentences": "Sentences that were translated.",
    "characters": "Characters of the texts that were translated.",
    "batches": "Batches that were computed.",
    "batch_seconds": "Seconds in which batches were computed.",
}
_GAUGES = {"waiting": "Sentences that wait to be translated."}
_REQUESTS = [f"status {status}" for status in (*STATUSES, "other")]
_TIMES = [f"at most {bound}" for bound in SECONDS]
NAMES = [*_COUNTERS, *_GAUGES, *_REQUESTS, *_TIMES, "request_seconds"]
_PLACES = {name: place for place, name in enumerate(NAMES)}


class Metrics:
    """The numbers of one process among those of all."""

    def __init__(self, numbers: MutableSequence[float] | None = None, process: int = 0) -> None:
        """`numbers` has `len(NAMES)` of them for each process; without it, there is one process."""
        self._numbers = [0.0] * len(NAMES) if numbers is None else numbers
        self._start = process * len(NAMES)

    def add(self, name: str, number: float = 1.0) -> None:
        self._numbers[self._start + _PLACES[name]] += number

    def put(self, name: str, number: float) -> None:
        self._numbers[self._start + _PLACES[name]] = number

    def add_request(self, status: int, seconds: float) -> None:
        self.add(f"status {status if status in STATUSES else 'other'}")
        self.add(f"at most {next(bound for bound in SECONDS if seconds <= bound)}")
        self.add("request_seconds", seconds)

    def __getitem__(self, name: str) -> float:
        """The sum over all processes."""
        places = range(_PLACES[name], len(self._numbers), len(NAMES))
        return sum(self._numbers[place] for place in places)

    def __str__(self) -> str:
        """The page that Prometheus reads."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        for kind, texts in (("counter", _COUNTERS), ("gauge", _GAUGES)):
            for name, text in texts.items():
                metric = f"regard_{name}" + "_total" * (kind == "counter")
                yield from _head(metric, kind, text)
                yield f"{metric} {self[name]:.6g}"
        yield from _head(
            "regard_requests_total", "counter", "Requests, by the status of the answer."
        )
        for status in (*STATUSES, "other"):
            yield f'regard_requests_total{{status="{status}"}} {self[f"status {status}"]:.0f}'
        yield from _head(
            "regard_request_seconds", "histogram", "Seconds until the answer was sent."
        )
        counts = list(accumulate(map(self.__getitem__, _TIMES)))
        for bound, count in zip(SECONDS, counts, strict=True):
            limit = "+Inf" if bound == SECONDS[-1] else f"{bound:g}"
            yield f'regard_request_seconds_bucket{{le="{limit}"}} {count:.0f}'
        yield f"regard_request_seconds_sum {self['request_seconds']:.6f}"
        yield f"regard_request_seconds_count {counts[-1]:.0f}"
        yield from _head("regard_processes", "gauge", "Processes that translate.")
        yield f"regard_processes {len(self._numbers) // len(NAMES)}"


def _head(metric: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {metric} {text}"
    yield f"# TYPE {metric} {kind}"
