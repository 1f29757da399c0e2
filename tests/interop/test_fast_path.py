"""Plain sends and pulls of official clients take the fast path, and nearly all sends match a header template.

Go's client is the exception: it writes the fields of each header in random order. What real programs do: several
producers on one connection, two topics in turn, keys and tags that vary or are absent, user properties in changing
number and order, compressed bodies, message traces.
"""

import random
from pathlib import Path

import pytest

from tests.interop.conftest import EVERY_CLIENT
from tests.interop.driver import Driver
from tests.interop.load_programs import PROGRAMS, assert_fast, counts, run_load
from tests.interop.peers import Peer
from tests.interop.toolchain import need

pytestmark = pytest.mark.interop

ROUNDS, EACH = 60, 40
LARGE_BYTES = 8 << 10
"""More than the size from which clients compress."""


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


@pytest.mark.parametrize("client", EVERY_CLIENT, indirect=True)
def test_official_clients_take_the_fast_path(client: Driver, peer: Peer, name: str) -> None:
    if peer.kind != "firearrow":
        pytest.skip("only FireArrow counts this")
    dice = random.Random(42)
    topics, groups = (f"{name}-a", f"{name}-b"), [f"{name}-{n}" for n in range(3)]
    trace = {"trace": "true"} if client.name.startswith("java") else {}
    for topic in topics:
        client.ask("send", group=groups[0], instance=name, topic=topic, body=b"first".hex(), **trace)
    client.ask("consume", name=name, group=name, topic=topics[0])
    before, _ = counts(peer, client.name)
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
    after, texts = counts(peer, client.name)
    found = [now - then for now, then in zip(after, before, strict=True)]
    assert sum(found[:3]) >= ROUNDS * EACH, texts
    assert_fast(found, texts, has_order=client.name != "go")


@pytest.mark.parametrize("program", [pytest.param("spring", marks=pytest.mark.long), "cpp"])
def test_many_threads_take_the_fast_path(program: str, tmp_path: Path) -> None:
    """Rust's program takes minutes to build: `python -m tests.interop.load_programs rust`."""
    need(lambda: PROGRAMS[program](tmp_path))
    assert_fast(*run_load(program, tmp_path))
