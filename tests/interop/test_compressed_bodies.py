"""Bodies around the LZ4 block size and the largest, compressed by one client and read by another.

A Java client that cannot read one message drops all after it in the same answer, so all lie in one queue.
"""

import itertools

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver

pytestmark = pytest.mark.interop

KIB = 1 << 10
SIZES = (64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 1024 * KIB, 4096 * KIB)
EVERY = ("none", "ZLIB", "LZ4", "ZSTD")
GO_KINDS = ("none", "ZLIB")
"""The Go client 2.1.2 knows no other: it takes every compressed body for zlib."""


def text(what: str, size: int) -> str:
    """A body that compresses well, in hex; no two are equal."""
    lines = (f"{what} {size} line {number}\n" for number in itertools.count())
    body = b""
    while len(body) < size:
        body += "".join(itertools.islice(lines, 1000)).encode()
    return body[:size].hex()


def send(client: Driver, topic: str, kind: str) -> list[str]:
    bodies = [text(kind, size) for size in SIZES]
    for body in bodies:
        client.ask(
            "send", group=f"{topic}-{kind}", topic=topic, compression=kind, body=body, how="queue", queue=0
        )
    return bodies


def send_as_automatic_batches(client: Driver, topic: str) -> list[str]:
    """Small bodies fill batches; those that a batch cannot hold are sent alone and compressed."""
    bodies = [text(f"automatic {number}", 4 * KIB) for number in range(30)]
    bodies += [text("automatic", size) for size in SIZES[:-1]]
    client.ask(
        "send",
        group=f"{topic}-auto",
        topic=topic,
        compression="LZ4",
        autoBatch="true",
        body=bodies,
        how="async",
    )
    return bodies


def await_all(client: Driver, topic: str, bodies: list[str]) -> None:
    client.ask("consume", name=topic, group=topic, topic=topic)
    got = client.await_bodies([topic], bodies)
    client.ask("stop", name=topic)
    assert len(got) == len(bodies)


@pytest.mark.parametrize(("receiver", "kinds"), [("java5", EVERY), ("go", GO_KINDS)])
def test_ours_are_read_by_others(drivers: Drivers, receiver: str, kinds: tuple[str, ...], name: str) -> None:
    ours = drivers("python")
    bodies = [body for kind in kinds for body in send(ours, name, kind)]
    if "LZ4" in kinds:
        bodies += send_as_automatic_batches(ours, name)
    await_all(drivers(receiver), name, bodies)


@pytest.mark.parametrize(("sender", "kinds"), [("java5", EVERY), ("go", GO_KINDS)])
def test_those_of_others_are_read_by_ours(
    drivers: Drivers, sender: str, kinds: tuple[str, ...], name: str
) -> None:
    theirs = drivers(sender)
    bodies = [body for kind in kinds for body in send(theirs, name, kind)]
    await_all(drivers("python"), name, bodies)
