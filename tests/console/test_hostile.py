"""Enemies of the console: brokers that answer anything, and visitors that only want it to be busy."""

import asyncio
import re
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.types import Message

from firearrow.client.console import connections, forms
from firearrow.client.console.app import NAV
from firearrow.client.console.connections import CONNECTIONS_MAX
from firearrow.client.console.forms import Bodies, TooLarge
from tests.console.conftest import Site
from tests.console.hostile_broker import ANSWERS, hostile_broker
from tests.console.running import ConsoleProcess, Visitor
from tests.support.certificates import CertificateFiles
from tests.support.eventually import eventually

PAGES = [href for _, href in NAV if href != "/doctor"]
PAGES += [
    "/topics/t1",
    "/topics/t1/messages",
    "/groups/g1",
    "/dead-letters/g1",
    "/ordered?group=g1",
    "/pop?group=g1",
]
PAGES += ["/groups/g1/members/c1", "/groups/g1/compared", "/topics/t1/producers", "/series?name=in"]
PAGES += ["/topics/t1/messages?key=k", "/topics/t1/messages/7F000001000000000000000000000000", "/users/u"]
FORM_HEAD = (
    b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\na="
)
PAGE_S = 20.0
MEMORY_KB = 160 << 10


@pytest.mark.parametrize("kind", ANSWERS)
def test_hostile_answers(kind: str, tmp_path: Path) -> None:
    """Each page ends, with an error if need be, without markup of theirs, and within bounds of memory and time."""
    with (
        hostile_broker(kind) as where,
        ConsoleProcess(where, tmp_path) as console,
        console.visitor() as visitor,
    ):
        for path in PAGES:
            began = time.monotonic()
            answer = visitor.get(path)
            assert time.monotonic() - began < PAGE_S, path
            assert answer.status_code in (200, 303, 400, 404, 501, 502), (
                path,
                console.log.read_text()[-2000:],
            )
            assert "<script>" not in answer.text, path
            assert len(answer.text) < 2 << 20, path
        assert visitor.get("/actions/create-topic").status_code in (200, 303)
        status = Path(f"/proc/{console.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        assert int(found[1]) < MEMORY_KB
        assert "Traceback" not in console.log.read_text()


@pytest.mark.parametrize("sent", [b"", FORM_HEAD])
def test_idle_connections_keep_no_visitor_out(site: Site, visitor: Visitor, sent: bytes) -> None:
    """Those that send nothing, and those that send the head of a form and then nothing."""
    host, port = site.console.url.removeprefix("http://").split(":")
    with ExitStack() as opened:
        idle = [
            opened.enter_context(socket.create_connection((host, int(port)), 10, ("127.0.0.3", 0)))
            for _ in range(CONNECTIONS_MAX + 50)
        ]
        for each in idle:
            with suppress(ConnectionError):
                each.sendall(sent)
        assert visitor.get("/topics").status_code == 200
        with site.console.visitor() as other:
            assert other.get("/topics").status_code == 200
        closed = eventually(lambda: sum(map(_is_closed, idle)) >= 50, 10)
        assert closed
        if sent:
            assert "Traceback" not in site.console.log.read_text()
            return
        idle[-1].sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle[-1].recv(15) == b"HTTP/1.1 200 OK"


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    finally:
        connection.settimeout(10)


def test_handshakes_that_do_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of connections that send nothing where HTTPS is served: they add no traceback to the log."""
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    files, errors = CertificateFiles(tmp_path), list[object]()

    async def check() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        server = uvicorn.Server(
            connections.configured(Starlette(), files.path("server.pem"), files.path("server.key"))
        )
        with socket.create_server(("127.0.0.1", 0)) as listening:
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            with socket.create_connection(listening.getsockname()):
                await asyncio.sleep(0.3)
            server.should_exit = True
            await serving

    asyncio.run(check())
    assert not errors


async def _sent(bodies: Bodies, *parts: bytes, most: int = 1 << 30) -> None:
    left = [{"type": "http.request", "body": part, "more_body": True} for part in parts]

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(60)
        return left.pop(0)

    with bodies.bounded(receive, most) as bounded:
        while True:
            await bounded()


def test_bodies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each, all together, and in time."""
    monkeypatch.setattr(forms, "ALL_BODIES_BYTES_MAX", 1000)
    monkeypatch.setattr(forms, "BODY_S", 0.1)
    bodies = Bodies()

    async def check() -> None:
        with pytest.raises(TooLarge, match="may have 10 bytes"):
            await _sent(bodies, b"x" * 6, b"x" * 6, most=10)
        slow = asyncio.create_task(_sent(bodies, b"x" * 900))
        await asyncio.sleep(0)
        with pytest.raises(TooLarge, match="too many large forms"):
            await _sent(bodies, b"x" * 200)
        with pytest.raises(TooLarge, match="was not sent within"):
            await slow

    asyncio.run(check())
    assert bodies.held == 0


@pytest.mark.parametrize(
    "path",
    [
        "/topics/x%0d%0aSet-Cookie:%20a=b/messages?id=y%0d%0aSet-Cookie:%20c=d",
        "/topics/orders/bodies/x%0d%0aSet-Cookie:%20a=b",
        "/topics/orders/messages?id=//evil.example",
        "/%2F%2Fevil.example/..",
        "/topics%0d%0aSet-Cookie:%20a=b",
    ],
)
def test_addresses_add_no_headers_and_lead_nowhere_else(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert "set-cookie" not in answer.headers or answer.headers["set-cookie"].startswith("firearrow_console_")
    location = answer.headers.get("location", "/")
    assert location.startswith("/")
    assert not location.startswith("//")
