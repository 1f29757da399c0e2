"""A store moves between brokers: what one wrote and closed, the other opens, serves whole, and goes on writing."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.interop.driver import Driver, Event
from tests.interop.messages import hexed, numbered, read
from tests.interop.peers import Apache, FireArrow
from tests.interop.toolchain import java_class_path, need

pytestmark = pytest.mark.interop

Open = Callable[[Path, dict[str, str]], AbstractContextManager[FireArrow] | AbstractContextManager[Apache]]
SIZES = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "maxMessageSize": "400000",
    "brokerName": "broker-a",
}
TOPICS = {"Plain": 902, "Keyed": 100, "Batched": 31, "Big": 9, "L" * 127: 1}


def write(client: Driver) -> None:
    """Some of everything: rolls the log, queue files and compressed bodies, a topic name of maximum length."""
    client.ask(
        "send", group="writer", topic="Plain", body=[*numbered("plain", 900), "00ff00", *hexed("火箭 🚀")]
    )
    for tag in ("red", "green"):
        client.ask(
            "send",
            group="writer",
            topic="Keyed",
            tags=tag,
            keys=f"{tag} both",
            flag=3,
            body=numbered(tag, 50),
            **{"property.shape": "rund ○"},
        )
    client.ask("send", group="writer", topic="Batched", body=hexed("makes the topic"))
    client.ask(
        "send", group="writer", topic="Batched", how="batch", keys="batched", body=numbered("item", 30)
    )
    rng = random.Random(11)
    client.ask("send", group="writer", topic="Big", body=[rng.randbytes(300_000).hex() for _ in range(8)])
    client.ask("send", group="writer", topic="Big", body=["61" * 100_000])
    client.ask("send", group="writer", topic="L" * 127, body=hexed("a long name"))


def same(message: Event) -> Event:
    """What must not differ between two readings; the client adds its own properties while reading."""
    kept = {key: message[key] for key in message if key not in ("event", "properties")}
    own = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
    return kept | {"properties": {key: text for key, text in message["properties"].items() if key not in own}}


def read_all(client: Driver) -> list[Event]:
    found = [same(message) for topic, count in TOPICS.items() for message in read(client, topic, count)]
    return sorted(found, key=lambda message: (message["topic"], message["queueId"], message["queueOffset"]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("writer", "reader"),
    [(FireArrow, Apache), (Apache, FireArrow)],
    ids=["ours", "theirs"],
)
def test_store_changes_hands(writer: Open, reader: Open, tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    store = tmp_path / "store"
    with writer(store, SIZES) as peer, Driver("java5", peer.name_server, tmp_path / "writer") as client:
        write(client)
        client.ask("mqadmin", argument=["updateSubGroup", "-b", peer.address, "-g", "interop-puller"])
        client.ask("commit", topic="Keyed", queue=1, offset=5)
        written = read_all(client)
        peer.stop()
    assert len(written) == sum(TOPICS.values())
    with reader(store, SIZES) as peer, Driver("java5", peer.name_server, tmp_path / "reader") as client:
        assert read_all(client) == written
        [committed] = client.ask("committed", topic="Keyed", queue=1)
        assert committed["offset"] == 5
        red = [message for message in written if message["tags"] == "red"]
        assert sorted(found["body"] for found in client.ask("query", topic="Keyed", key="red")) == sorted(
            message["body"] for message in red
        )
        [unique] = client.ask("view", topic="Keyed", id=red[7]["msgId"])
        assert unique["body"] == red[7]["body"]
        [sent] = client.ask(
            "send", group="writer", topic="Plain", how="queue", queue=0, body=hexed("goes on")
        )
        positions = [
            message["queueOffset"]
            for message in written
            if (message["topic"], message["queueId"]) == ("Plain", 0)
        ]
        assert sent["queueOffset"] == len(positions)
        peer.stop()
