"""What bad clients do to `regard explore`, in a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from tests.journeys.commands import PATIENCE, check_refused, finish, run, start

from regard.serving import guard, listening
from regard.serving.listening import PortError, listen

if not Path("/proc/self/fd").exists() or torch.cuda.is_available():
    pytest.skip(
        "no /proc on this system, or a GPU, with which torch cannot be forked",
        allow_module_level=True,
    )

JSON = {"Content-Type": "application/json"}


class Server:
    """`regard explore` in a child of this process, which has torch already."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        with (folder / "errors").open("wb") as errors:
            self.process = start("explore", *arguments, stderr=errors)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := re.search(rb"http://127\.0\.0\.1:(\d+)/", line):
                break
        else:
            raise AssertionError((folder / "errors").read_text(encoding="utf-8"))
        self.port = int(match[1])

    def ask(self, method: str, path: str, body: object = None, **headers: str):
        """Status, headers and content of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        content = json.dumps(body) if body is not None else None
        connection.request(method, path, content, {**JSON, **headers} if content else headers)
        answer = connection.getresponse()
        read = answer.read()
        connection.close()
        return answer.status, answer.headers, read

    def translate(self, text: str):
        return self.ask("POST", "/api/translate", {"model": "es-en-tiny", "text": text})

    def healthy(self, within: float = 5.0) -> None:
        start = time.monotonic()
        assert self.ask("GET", "/healthz")[0] == 200
        assert time.monotonic() - start < within

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def memory(self) -> float:
        """Megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # Short limits, so that the test of slow clients is quick.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening, "IDLE", 3)
        patch.setattr(guard, "SLOW", 3.0)
        running = Server(tmp_path_factory.mktemp("server"), "es-en-tiny")
    assert running.translate("Hola.")[0] == 200
    running.idle = running.descriptors()
    yield running
    running.stop()


def text_of(content: bytes) -> str:
    """The translation in a bundle."""
    length = int.from_bytes(content[8:12], "little")
    return json.loads(content[12 : 12 + length])["translation"]["translation"]


def test_it_listens_on_this_machine_alone(server):
    address = f"{server.port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()
    listening = [line.split()[1] for line in lines[1:] if line.split()[3] == "0A"]
    assert [each for each in listening if each.endswith(f":{address}")] == [f"0100007F:{address}"]


def test_an_endless_body_is_refused_before_it_is_read(server):
    memory_before = server.memory()
    with server.connect() as client:
        client.sendall(
            f"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        sent = 0
        try:
            while sent < 1 << 30:
                client.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
        assert sent < 1 << 26
    assert server.memory() - memory_before < 50
    server.healthy()


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/" + "a" * 65_536, {}), ("/healthz", {"X-Long": "a" * 1_000_000})],
    ids=["address", "header"],
)
def test_long_headers_are_refused(server, path, headers):
    # It may close while the header is still being sent.
    with contextlib.suppress(OSError, http.client.HTTPException):
        assert server.ask("GET", path, **headers)[0] in (400, 414, 431)
    server.healthy()


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%5c..%5cetc/passwd",
        "//etc/passwd",
        "/%00",
        "/" + "a" * 5000,
        "/static/",
        "/explorer.js/../../app.py",
    ],
)
def test_no_path_leads_out(server, path):
    status, _, content = server.ask("GET", path)
    assert status in (400, 404)
    assert b"root:" not in content


@pytest.mark.parametrize(
    "lines",
    [
        ["GET @evil.com HTTP/1.1"],
        ["GET http://evil.com/ HTTP/1.1"],
        ["GET / HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: a"],
    ],
    ids=["userinfo", "absolute", "websocket"],
)
def test_strange_requests_open_nothing(server, lines):
    status_line, *headers = lines
    with server.connect() as client:
        host = "evil.com" if "evil" in status_line else f"127.0.0.1:{server.port}"
        client.sendall("\r\n".join([status_line, f"Host: {host}", *headers, "", ""]).encode())
        status = int(client.recv(4096).split()[1])
    assert status in ((400, 404, 421) if "evil" in status_line else (200, 400, 426))
    server.healthy()


def test_a_text_of_a_million_words_is_refused(server):
    memory_before = server.memory()
    length = len(json.dumps({"model": "es-en-tiny", "text": "palabra " * 1_000_000}))
    with server.connect() as client:
        client.sendall(
            f"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()
        )
        assert client.recv(4096).split()[1] == b"413"  # before the text itself is sent
    assert server.memory() - memory_before < 50
    server.healthy()


def test_many_ranges_do_no_harm(server):
    ranges = ",".join(f"{i}-{i}" for i in range(2000))
    start = time.monotonic()
    assert server.ask("GET", "/explorer.js", Range=f"bytes={ranges}")[0] in (200, 416)
    assert time.monotonic() - start < 5


def test_a_crowd_gets_its_own_answers_or_is_told_to_come_back(server):
    texts = [f"Tengo {word} gatos." for word in ("dos", "tres", "cuatro", "cinco", "seis")]
    alone = {text: text_of(server.translate(text)[2]) for text in texts}
    assert len(set(alone.values())) == len(texts)

    def single_request(number: int):
        text = texts[number % len(texts)]
        status, headers, content = server.translate(text)
        return text, status, headers, content

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(single_request, range(100)))
    served = [answer for answer in answers if answer[1] == 200]
    assert served  # how many depends on the machine and on other work there
    for text, _, _, content in served:
        assert text_of(content) == alone[text]
    for _, status, headers, _ in answers:
        assert status == 200 or (status == 503 and headers["Retry-After"])
    server.healthy()


def test_slow_clients_are_dropped_while_others_are_served(server):
    deadline = time.monotonic() + 30
    while server.descriptors() > server.idle + 5 and time.monotonic() < deadline:
        time.sleep(0.1)  # connections of the tests before are closed
    baseline = server.descriptors()
    clients = [server.connect() for _ in range(200)]
    for number, client in enumerate(clients):
        start = b"GET /healthz HTTP/1.1\r\nHost" if number % 2 else b"P"
        client.sendall(start)
    deadline = time.monotonic() + 30
    while server.descriptors() > baseline + 5 and time.monotonic() < deadline:
        server.healthy()
        time.sleep(0.5)
    assert server.descriptors() <= baseline + 5
    for client in clients:
        client.close()


def test_bodies_of_a_byte_now_and_then_are_dropped_while_others_are_served(server):
    head = (
        f"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    clients = [server.connect() for _ in range(130)]
    for client in clients:
        client.sendall(head.encode())
    answered = 0
    for _ in range(30):
        server.healthy()
        assert server.translate("Hola.")[0] == 200
        for client in clients:
            with contextlib.suppress(OSError):
                client.sendall(b"{")
        answered = sum(bool(select.select([client], [], [], 0)[0]) for client in clients)
        if answered == len(clients):
            break
        time.sleep(0.5)
    assert answered == len(clients)
    assert clients[-1].recv(100).startswith(b"HTTP/1.1 408")
    for client in clients:
        client.close()


def test_a_client_that_leaves_takes_its_work_along(server):
    leaving = [server.connect() for _ in range(40)]
    body = json.dumps({"model": "es-en-tiny", "text": "Me gusta leer libros. " * 40})
    for client in leaving:
        client.sendall(
            f"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
    for client in leaving:
        client.close()
    start = time.monotonic()
    assert server.translate("Hola.")[0] == 200
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_end_it_under_load(number, code, tmp_path):
    running = Server(tmp_path, "es-en-tiny")
    stopped = threading.Event()

    def load() -> None:
        while not stopped.is_set():
            try:
                running.translate("El gato negro duerme.")
            except (OSError, http.client.HTTPException):
                return

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    running.process.send_signal(number)
    result = finish(running.process)
    stopped.set()
    for thread in threads:
        thread.join()
    assert result.code == code
    assert "Traceback" not in (tmp_path / "errors").read_text(encoding="utf-8")


def test_a_port_in_use_is_named(server):
    result = run("explore", "es-en-tiny", "--port", str(server.port))
    check_refused(result, f"port {server.port}")


def test_a_port_in_use_is_an_error_of_ours():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortError, match=str(port)):
            listen("127.0.0.1", port)
