"""Plain sends and pulls of official clients take the fast path, and nearly all sends match a header template.

Go's client is the exception: it writes the fields of each header in random order. What real programs do: several
producers on one connection, two topics in turn, keys and tags that vary or are absent, user properties in changing
number and order, compressed bodies, message traces.
"""

import random
import re

import pytest

from tests.interop.driver import Driver
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.requests import runtime_info

pytestmark = pytest.mark.interop

ROUNDS, EACH = 60, 40
FIRST_PULLS = 4
"""One for each queue, before it has its first message."""
LARGE_BYTES = 8 << 10
"""More than the size from which clients compress."""
LANGUAGES = {"java5": "JAVA", "java4": "JAVA", "go": "GO", "python": "PYTHON"}
COUNTS = re.compile(
    r"sends: (\d+) template, (\d+) parsed, (\d+) complete; pulls: (\d+) fast, (\d+) complete(.*)"
)


def counts(peer: Peer, client: Driver) -> tuple[list[int], dict[str, str]]:
    """Sends that matched a template, were parsed, were complete, and pulls that were fast and complete; the texts."""
    with ClientSocket(address(peer.address)) as connection:
        texts = {
            key: text
            for key, text in runtime_info(connection).items()
            if key.startswith(f"fastPath_{LANGUAGES[client.name]}_")
        }
    found = [COUNTS.fullmatch(text) for text in texts.values()]
    totals = [sum(int(match[n]) for match in found if match) for n in range(1, 6)]
    return totals, texts


def varied(dice: random.Random, number: int) -> dict[str, object]:
    """Parameters of one send: some keys, tags and user properties, in any order."""
    properties = [(f"property.p{n}", f"value {dice.random()}") for n in range(dice.randrange(4))]
    dice.shuffle(properties)
    given: dict[str, object] = dict(properties)
    if dice.random() < 0.8:
        given["tags"] = f"tag{number % 3}"
    if dice.random() < 0.5:
        given["keys"] = f"key{number}"
    if dice.random() < 0.1:
        given["body"] = (b"compresses well " * (LARGE_BYTES // 16)).hex()
    return given


def test_official_clients_take_the_fast_path(client: Driver, peer: Peer, name: str) -> None:
    if peer.kind != "firearrow":
        pytest.skip("only FireArrow counts this")
    dice = random.Random(42)
    topics, groups = (f"{name}-a", f"{name}-b"), [f"{name}-{n}" for n in range(3)]
    trace = {"trace": "true"} if client.name.startswith("java") else {}
    for topic in topics:
        client.ask("send", group=groups[0], instance=name, topic=topic, body=b"first".hex(), **trace)
    client.ask("consume", name=name, group=name, topic=topics[0])
    before, _ = counts(peer, client)
    bodies = []
    for number in range(ROUNDS):
        group, topic = dice.choice(groups), dice.choice(topics)
        some = [f"{number} {n}".encode().hex() for n in range(EACH)]
        if topic == topics[0]:
            bodies += some
        given = {"body": some} | varied(dice, number)
        if given["body"] is some:
            client.ask("send", group=group, instance=name, topic=topic, how="async", **given, **trace)
        else:
            for _ in range(3):
                client.ask("send", group=group, instance=name, topic=topic, **given, **trace)
            client.ask("send", group=group, instance=name, topic=topic, how="async", body=some, **trace)
    client.await_bodies([name], bodies)
    client.ask("stop", name=name)
    after, texts = counts(peer, client)
    template, parsed, complete, pulls, slow_pulls = (
        now - then for now, then in zip(after, before, strict=True)
    )
    assert template + parsed + complete >= ROUNDS * EACH, texts
    assert (template + parsed) / (template + parsed + complete) >= 0.99, texts
    if client.name != "go":
        assert template / (template + parsed + complete) >= 0.95, texts
    assert slow_pulls <= max(FIRST_PULLS, 0.01 * (pulls + slow_pulls)), texts
