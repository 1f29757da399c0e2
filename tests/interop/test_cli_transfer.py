"""`firearrow topic export`, `import`, `copy` and `dlq` by choice with our broker, with Apache's, and between them."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from firearrow.client.base.message import Message
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.interop.cli_messages import Cli, Served, dead_letter, new_topic
from tests.interop.peers import BROKER, LIFE, MARKS_AT_ONCE, Apache, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand

SETTINGS = {"autoCreateTopicEnable": "true", "brokerName": BROKER} | LIFE
COUNT = 2000
BODIES = (b"text", b"\xff\x00\n", b"x" * 5000, b"")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with FireArrow(tmp_path_factory.mktemp("ours") / "store", SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need(lambda: java_class_path("client5"))
    with Apache(tmp_path_factory.mktemp("apache") / "store", SETTINGS | MARKS_AT_ONCE) as broker:
        yield broker


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def fill(broker: Served, topic: str) -> None:
    """COUNT numbered messages, each queue's in order, and then the BODIES in each queue."""

    async def send() -> None:
        async with Producer("transfer", name_server=broker.name_server) as producer:
            for queue in sorted(await producer.queues(topic)):
                numbers = range(queue.queue_id, COUNT, 2)
                batch = [Message(topic, b"%d" % each, keys=["k"], flag=each) for each in numbers]
                await producer.send_batch(batch, queue=queue)
                for body in BODIES:
                    await producer.send(Message(topic, body, tags="b", properties={"p": "ü"}), queue=queue)

    asyncio.run(send())


def contents(broker: Served, topic: str) -> list[tuple[object, ...]]:
    rows = Cli(broker.name_server)("topic", "export", topic, "-").rows
    rows.sort(key=lambda row: (row["queueId"], row["offset"]))
    return [
        (row["queueId"], row["body"], row["tags"], row["keys"], row["msgId"], row["flag"]) for row in rows
    ]


@pytest.mark.interop
def test_there_and_back(ours: Peer, apache: Peer, tmp_path: Path) -> None:
    """Apache's topic is exported and imported at ours; that is copied to Apache, and killed in the middle."""
    first, second, third = new_topic(apache), new_topic(ours), unique("back")
    fill(apache, first)
    eventually(lambda: len(contents(apache, first)) == COUNT + 8, what="Apache's entries of what is stored")
    file = tmp_path / "first.jsonl"
    done = Cli(apache.name_server)("topic", "export", first, str(file)).rows[0]
    assert (done["messages"], done["missing"], done["damaged"]) == (COUNT + 8, 0, 0)
    done = Cli(ours.name_server)("topic", "import", second, str(file)).rows[0]
    assert (done["verified"], done["duplicates"], done["crc"]) == (COUNT + 8, 0, "ok")
    assert contents(ours, second) == contents(apache, first)
    checkpoint = tmp_path / "checkpoint"
    words = ["topic", "copy", second, third, "--target", apache.name_server, "--create-topics"]
    words += ["--checkpoint", str(checkpoint)]
    command = ["firearrow", *words, "--rate", "500", "--namesrv", ours.name_server]
    with ForkedCommand(command, env=dict(os.environ)) as process:
        eventually(
            lambda: (
                checkpoint.exists() and orjson.loads(checkpoint.read_bytes())["state"]["totals"]["sent"] > 0
            )
        )
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    done = Cli(ours.name_server)(*words).rows[0]
    assert (done["verified"], done["duplicates"], done["crc"]) == (COUNT + 8, 0, "ok")
    assert contents(apache, third) == contents(ours, second)


@pytest.mark.interop
def test_dead_letters_of_apache(apache: Peer) -> None:
    cli, topic = Cli(apache.name_server), new_topic(apache)
    group = dead_letter(apache, cli, topic, "one", "two", "three")
    first, second, third = (row["body"] for row in cli("dlq", "show", group).rows)
    done = cli("dlq", "redrive", group, "--key", second, "--property", "own=1", "--yes").rows[0]
    assert done["sent"] == 1
    assert cli("dlq", "redrive", group, "--key", second, "--yes").out == ""
    done = cli("dlq", "drop", group, "--key", first, "--yes")
    assert (done.rows[0]["dropped"], done.rows[0]["deleted"]) == (1, 0)
    assert "keeps them until they expire" in done.err
    assert {row["state"] for row in cli("dlq", "show", group).rows} == {"sent", "dropped", None}
    assert cli("dlq", "redrive", group, "--yes").rows[0]["sent"] == 1
    bodies = sorted(row["body"] for row in cli("topic", "export", topic, "-").rows)
    assert bodies == sorted([first, second, second, third, third])
    assert {row["group"]: row["left"] for row in cli("dlq", "list", code=None).lines}[group] == 0
    assert "only FireArrow" in cli("dlq", "drop", group, "--yes", code=2).err
    assert cli("dlq", "drop", group, "--mark", "--yes").rows[0]["deleted"] == 0
