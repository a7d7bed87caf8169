"""`regard serve` under load: throughput beside `regard translate`, times at half load, answers, memory, a kill.

python benchmarks/serve.py --text FILE [--column 0] [--model es-en] [--clients 64] [--requests 20000] [--seconds 60]
    [--killed 2000] [--out benchmarks/results/serve.json]

FILE has a sentence on each line, or in a column of its table. A server runs in processes of its own, and
the clients in this one. Throughput is in sentences for each second of the processor that the server took, and in
sentences a second of the wall clock; Translator.translate has batches of 32 in another process, before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _measure import write

BATCH = 32
TICKS = os.sysconf("SC_CLK_TCK")
SHORT = 40  # characters of a short sentence
IDLE = 2  # seconds; the server ends a connection that has been idle for five

BASELINE = """
import json, sys, time
from regard.translation.translator import Translator
model, batch = sys.argv[1], int(sys.argv[2])
texts = json.load(sys.stdin)
translator = Translator.open(model)
translator.translate(texts[:batch], whole_lines=True)
wall, processor, answers = time.monotonic(), time.process_time(), []
for start in range(0, len(texts), batch):
    answers += [each.text for each in translator.translate(texts[start:start + batch], whole_lines=True)]
print(json.dumps([time.monotonic() - wall, time.process_time() - processor, answers]))
"""


def baseline(model: str, texts: list[str]) -> tuple[float, float, list[str]]:
    """The seconds and the processor seconds of batches of 32, and the translations."""
    command = [sys.executable, "-c", BASELINE, model, str(BATCH)]
    answer = subprocess.run(
        command, input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    wall, processor, answers = json.loads(answer.stdout)
    return wall, processor, answers


class Server:
    """A running `regard serve`."""

    def __init__(self, model: str, workers: int) -> None:
        command = [
            sys.executable,
            "-m",
            "regard",
            "serve",
            model,
            "--port",
            "0",
            "--workers",
            str(workers),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        match = re.search(r":(\d+)/", self.process.stdout.readline())
        assert match is not None
        self.port = int(match[1])

    def workers(self) -> list[int]:
        """The processes that translate."""
        children = (
            Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        )
        commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
        return [pid for pid, command in commands.items() if b"spawn_main" in command] or [
            self.process.pid
        ]

    def processor(self) -> float:
        """Seconds of the processor that the workers took until now."""
        return sum(_fields(pid)[0] for pid in self.workers())

    def memory(self) -> float:
        """Megabytes of the workers."""
        return sum(_fields(pid)[1] for pid in self.workers())


def _fields(pid: int) -> tuple[float, float]:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    resident = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return (int(stat[11]) + int(stat[12])) / TICKS, int(resident[1]) / 1024 if resident else 0.0


@contextmanager
def served(model: str, workers: int = 1) -> Iterator[Server]:
    server = Server(model, workers)
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(30)


class Client:
    """One connection, which asks again after each answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._answered = 0.0

    async def translate(self, text: str) -> str:
        """The translation. Raises `OSError` when the server ends the connection."""
        if time.monotonic() - self._answered > IDLE:
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        body = json.dumps({"q": text, "source": "es", "target": "en"}).encode()
        head = (
            f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"content-length: (\d+)", answer)
            content = await reader.readexactly(int(length[1]) if length else 0)
        except (OSError, asyncio.IncompleteReadError) as fault:
            self.close()
            raise ConnectionError(str(fault)) from None
        if " 200 " not in answer.partition("\r\n")[0]:
            raise ValueError(answer.partition("\r\n")[0])
        self._answered = time.monotonic()
        return str(json.loads(content)["translatedText"])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def crowd(port: int, texts: list[str], clients: int) -> list[str | Exception]:
    """The answer to each text: every client asks for the next one as soon as it has an answer."""
    answers: list[str | Exception] = [ValueError("no answer")] * len(texts)
    supply = iter(enumerate(texts))

    async def ask() -> None:
        client = Client(port)
        for place, text in supply:
            try:
                answers[place] = await client.translate(text)
            except (OSError, ValueError) as fault:
                answers[place] = fault
        client.close()

    await asyncio.gather(*(ask() for _ in range(clients)))
    return answers


async def at_rate(port: int, texts: list[str], rate: float, seconds: float) -> list[float]:
    """The seconds of each answer; requests come at random times, `rate` a second on average."""
    idle: list[Client] = []
    chance = random.Random(0)
    spent: list[float] = []

    async def ask(text: str) -> None:
        client = idle.pop() if idle else Client(port)
        start = time.monotonic()
        await client.translate(text)
        spent.append(time.monotonic() - start)
        idle.append(client)

    tasks: list[asyncio.Task[None]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tasks.append(asyncio.create_task(ask(chance.choice(texts))))
        await asyncio.sleep(chance.expovariate(rate))
    await asyncio.gather(*tasks)
    for client in idle:
        client.close()
    return sorted(spent)


def judged(answers: list[str | Exception], expected: list[str]) -> dict[str, int]:
    """How many answers are right, another text's, or none."""
    wrong_texts = set(expected)
    counts: Counter[str] = Counter(right=0, other_digits=0, mixed_up=0, failed=0)
    for answer, right in zip(answers, expected, strict=True):
        if isinstance(answer, Exception):
            counts["failed"] += 1
        elif answer == right:
            counts["right"] += 1
        else:  # sums of another batch may have other last bits, and so another of two equal words
            counts["mixed_up" if answer in wrong_texts else "other_digits"] += 1
    return dict(counts)


def load(model: str, sentences: list[str], options: argparse.Namespace) -> dict[str, Any]:
    texts = [sentences[number % len(sentences)] for number in range(options.requests)]
    sample = sentences[: options.baseline]
    base_before = baseline(model, sample)
    unique = list(dict.fromkeys(texts))
    translations = dict(zip(unique, baseline(model, unique)[2], strict=True))
    expected = [translations[text] for text in texts]
    with served(model) as server:
        asyncio.run(crowd(server.port, texts[: 4 * options.clients], options.clients))
        memory = [server.memory()]
        wall, processor, answers = time.monotonic(), server.processor(), []
        quarter = -(-len(texts) // 4)
        for start in range(0, len(texts), quarter):
            answers += asyncio.run(
                crowd(server.port, texts[start : start + quarter], options.clients)
            )
            memory.append(server.memory())
        wall, processor = time.monotonic() - wall, server.processor() - processor
        rate = len(texts) / wall
        short = [text for text in sentences if len(text) <= SHORT]
        spent = asyncio.run(at_rate(server.port, short, rate / 2, options.seconds))
    base_after = baseline(model, sample)
    alone = {
        name: 2 * len(sample) / (base_before[place] + base_after[place])
        for place, name in enumerate(("wall", "processor"))
    }
    served_rates = {"wall": rate, "processor": len(texts) / processor}
    return {
        "requests": len(texts),
        "different_sentences": len(unique),
        "clients": options.clients,
        "sentences_per_second": {"serve": served_rates, "translate_32": alone},
        "share": {name: served_rates[name] / alone[name] for name in alone},
        "answers": judged(answers, expected),
        "megabytes": [round(number, 1) for number in memory],
        "half_load": {
            "requests": len(spent),
            "rate": rate / 2,
            "p50": spent[len(spent) // 2],
            "p99": spent[int(len(spent) * 0.99)],
            "longest": spent[-1],
        },
    }


def killed(model: str, sentences: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Two workers, of which one is killed amid the requests: those that it had fail, and no others."""
    texts = [sentences[number % len(sentences)] for number in range(options.killed)]
    expected = baseline(model, texts)[2]
    with served(model, workers=2) as server:
        while len(server.workers()) < 2:
            time.sleep(0.1)
        asyncio.run(crowd(server.port, texts[:200], options.clients))

        async def amid() -> list[str | Exception]:
            asking = asyncio.create_task(crowd(server.port, texts, options.clients))
            await asyncio.sleep(options.after)
            victim = server.workers()[0]
            os.kill(victim, signal.SIGKILL)
            return await asking

        answers = asyncio.run(amid())
        later = asyncio.run(crowd(server.port, texts[:200], options.clients))
        workers = len(server.workers())
    return {
        "requests": len(texts),
        "answers": judged(answers, expected),
        "afterwards": judged(later, expected[:200]),
        "workers_afterwards": workers,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--column", type=int, default=0)
    parser.add_argument("--model", default="es-en")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--baseline", type=int, default=640)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--killed", type=int, default=2000)
    parser.add_argument("--after", type=float, default=3)
    parser.add_argument("--note", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = options.text.read_text(encoding="utf-8").splitlines()
    sentences = list(dict.fromkeys(line.split("\t")[options.column] for line in lines if line))
    random.Random(0).shuffle(sentences)  # corpora are often sorted by length
    result: dict[str, Any] = {"model": options.model, "note": options.note}
    for measure in (load, killed):
        result[measure.__name__] = measure(options.model, sentences, options)
        print(json.dumps(result, indent=1), flush=True)
        if options.out:
            write(options.out, result)


if __name__ == "__main__":
    main()
