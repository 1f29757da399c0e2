"""The HTTP listener by raw bytes: what it answers, its bounds, and that nothing sent to it harms the broker."""

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

import orjson
import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.http.listener import CONNECTIONS_MAX, HttpListener, Visitor
from firearrow.broker.http.messages import (
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    TARGET_BYTES_MAX,
    BadRequest,
    Request,
    Response,
    parse,
    path_of,
)
from tests.metrics.scrapes import WatchedBroker, watched
from tests.support.requests import send


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    with watched(tmp_path_factory.mktemp("http") / "store") as broker:
        yield broker


def exchange(broker: WatchedBroker, data: bytes) -> bytes:
    """All that comes back until the end."""
    with socket.create_connection(("127.0.0.1", broker.http_port), 20) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            found = b""
            while part := connection.recv(1 << 16):
                found += part
        except OSError:
            return b""
        return found


@pytest.mark.parametrize(
    ("path", "status", "start"),
    [
        ("/healthz", 200, b"ok"),
        ("/readyz", 200, b"ready"),
        ("/", 200, b"FireArrow"),
        ("/healthz/?x=1", 200, b"ok"),
        ("/other", 404, b"there is no such page"),
    ],
)
def test_pages(broker: WatchedBroker, path: str, status: int, start: bytes) -> None:
    assert broker.get(path)[0] == status
    assert broker.get(path)[2].startswith(start)
    assert broker.get(path, "HEAD")[::2] == (status, b"")


def test_the_status_is_that_of_request_30008(broker: WatchedBroker) -> None:
    status, content_type, body = broker.get("/status")
    assert (status, content_type) == (200, "application/json")
    members = orjson.loads(body)
    with broker.connect() as connection:
        send(connection, "T", b"x")
        answer = connection.ask(RequestCode.GET_STATUS)
    assert answer.code == 0
    assert orjson.loads(answer.body).keys() == members.keys()
    assert orjson.loads(answer.body)["counts"]["messagesIn"] == 1
    assert members["ready"] is True
    assert members["options"]["metricsExporterType"] == "PROM"
    assert members["uptimeMs"] >= 0


def test_requests_of_one_connection_are_answered_in_order(broker: WatchedBroker) -> None:
    pages = [b"/healthz", b"/metrics", b"/readyz", b"/nope"]
    found = exchange(broker, b"".join(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % page for page in pages))
    assert found.count(b"HTTP/1.1 200 OK") == 3
    assert (
        found.index(b"ok\n")
        < found.index(b"# HELP")
        < found.index(b"ready\n")
        < found.index(b"404 Not Found")
    )


def test_an_old_client_gets_the_body_to_the_end_of_the_connection(broker: WatchedBroker) -> None:
    found = exchange(broker, b"GET /metrics HTTP/1.0\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.startswith(b"# HELP")
    assert body.endswith(b"\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET /" + b"a" * TARGET_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /" + b"a" * (TARGET_BYTES_MAX - 1) + b" HTTP/1.1\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (HEADERS_MAX + 1) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * HEADERS_MAX + b"\r\n", 200),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (b"x" * (HEAD_BYTES_MAX + 1), 431),
    ],
)
def test_what_is_wrong_is_refused(broker: WatchedBroker, data: bytes, status: int) -> None:
    assert exchange(broker, data).split(b" ")[1] == str(status).encode()


def test_at_the_limit_the_connection_that_was_idle_longest_is_closed(broker: WatchedBroker) -> None:
    """So that idle ones do not shut out who watches the broker."""
    opened = [socket.create_connection(("127.0.0.1", broker.http_port), 10) for _ in range(CONNECTIONS_MAX)]
    try:
        time.sleep(0.1)
        opened[0].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert opened[0].recv(1000).startswith(b"HTTP/1.1 200")
        assert broker.get("/healthz")[0] == 200
        assert opened[1].recv(1) == b""
        opened[0].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert opened[0].recv(1000).startswith(b"HTTP/1.1 200")
    finally:
        for each in opened:
            each.close()
    time.sleep(0.1)
    assert broker.get("/healthz")[0] == 200


def test_one_more_connection_than_the_limit_is_closed_while_all_are_answered() -> None:
    async def run() -> None:
        loop, may_answer = asyncio.get_running_loop(), asyncio.Event()

        async def answer(request: Request, visitor: Visitor) -> Response:
            await may_answer.wait()
            return Response(HTTPStatus.OK, b"")

        with ThreadPoolExecutor(1) as thread:
            listener = HttpListener(
                loop,
                answer,
                lambda host, port, make: loop.create_server(lambda: make(None), host, port),
                thread,
            )
            address = await listener.listen("127.0.0.1", 0)
            opened = [await asyncio.open_connection(*address) for _ in range(CONNECTIONS_MAX)]
            for _, writer in opened:
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.1)
            refused = await asyncio.open_connection(*address)
            assert await refused[0].read() == b""
            may_answer.set()
            for reader, _ in opened:
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            for _, writer in (*opened, refused):
                writer.close()
            await listener.close()

    asyncio.run(run())


def test_a_client_that_does_not_read_delays_nobody(broker: WatchedBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.http_port), 10) as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 50)
        began = time.monotonic()
        assert broker.get("/healthz")[0] == 200
        assert time.monotonic() - began < 2


def test_random_bytes_and_mutated_requests_do_no_harm(broker: WatchedBroker) -> None:
    dice = random.Random(5)
    whole = (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain;q=0.5\r\nConnection: close\r\n\r\n"
    )
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(len(data))
            data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(4))
        exchange(broker, bytes(data))
    for _ in range(100):
        exchange(broker, dice.randbytes(dice.randrange(1, 300)))
    assert broker.get("/healthz")[0] == 200
    assert "Traceback" not in broker.log.read_text()


def test_parsing_accepts_or_refuses_all_bytes() -> None:
    dice = random.Random(6)
    alphabet = [b"GET", b" ", b"/", b"\r\n", b":", b"HTTP/1.1", b"a", b"\0", b"\xff", b"\n", b",", b"Host"]
    accepted = 0
    for _ in range(20_000):
        head = b"".join(dice.choices(alphabet, k=dice.randrange(1, 14)))
        with contextlib.suppress(BadRequest):
            accepted += isinstance(parse(head), Request)
    accepted += isinstance(parse(b"GET / HTTP/1.1\r\nHost: a"), Request)
    assert accepted


def test_a_target_may_be_absolute() -> None:
    assert path_of("http://host:5557/metrics?a=b") == "/metrics"
    assert path_of("/metrics#x") == "/metrics"


def test_accepting_is_as_the_header_says() -> None:
    request = parse(b"GET / HTTP/1.1\r\nAccept-Encoding: br, gzip;q=0\r\nAccept: text/plain;q=0.3")
    assert not request.accepts("accept-encoding", "gzip")
    assert request.accepts("accept", "text/plain")
    assert not request.accepts("accept", "application/openmetrics-text")
