"""Programs that read one topic and write to another: Apache Camel's route, and Spring Cloud Stream's function."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from firearrow.client import Message
from firearrow.client.blocking import Admin, Producer
from tests.client.conftest import unique
from tests.interop.driver import end, java, started
from tests.interop.peers import Peer
from tests.interop.toolchain import java_class_path, need
from tests.neighbours.reading import read

NAMES = [f"order {number}" for number in range(30)] + ["bad one", "Größe"]
"""Spring's function fails once for each that begins with `bad`."""


class Neighbour(NamedTuple):
    main: str
    encode: Callable[[str], bytes]
    decode: Callable[[bytes], str]
    colours: set[str | None]
    """The property `colour` of what it sends: Camel's component does not pass it on."""


def as_json(name: str) -> bytes:
    return json.dumps({"name": name}).encode()


NEIGHBOURS = {
    "camel": Neighbour("Camel", str.encode, bytes.decode, {None}),
    "stream": Neighbour("Stream", as_json, lambda body: str(json.loads(body)["name"]), {"green"}),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_program_copies_from_topic_to_topic(peer: Peer, tmp_path: Path, name: str) -> None:
    """The messages of one tag, each once and in capital letters, with keys, a new tag and other properties."""
    need(lambda: java_class_path(name))
    neighbour, log = NEIGHBOURS[name], tmp_path / "errors.log"
    source, target, group = unique("source"), unique("target"), unique(name)
    with Admin(name_server=peer.name_server) as admin:
        for topic in (source, target):
            admin.create_topic(topic, queues=2)
        words = [peer.name_server, source, target, group, "paid"]
        logs = "-Dlogging.threshold.console=OFF", f"-Dlogging.file.name={tmp_path / 'spring.log'}"
        command = [*java(name, neighbour.main, tmp_path, "-Xmx192m", *logs), *words]
        send_orders(
            peer, source, neighbour
        )  # before: a new group starts at the first message, which is in memory
        process = started(command, log, f"{name} ready".encode(), 120)
        try:
            found = read(peer, target, len(NAMES))
            [member] = admin.consumers(group).connections
            assert member.language == "JAVA"
        finally:
            end(process)
    copied = sorted(neighbour.decode(message.body) for message in found)
    assert copied == sorted(name.upper() for name in NAMES)
    assert {message.tags for message in found} == {"copied"}
    assert {message.get_property("colour") for message in found} == neighbour.colours
    assert sorted(message.keys[0] for message in found) == sorted(f"k{n}" for n in range(len(NAMES)))


def send_orders(peer: Peer, topic: str, neighbour: Neighbour) -> None:
    with Producer(unique("p"), name_server=peer.name_server) as producer:
        for number, name in enumerate(NAMES):
            body, colour = neighbour.encode(name), {"colour": "green"}
            producer.send(Message(topic, body, tags="paid", keys=[f"k{number}"], properties=colour))
        producer.send(Message(topic, neighbour.encode("of another tag"), tags="new"))
