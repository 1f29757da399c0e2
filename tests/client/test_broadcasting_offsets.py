"""Who broadcasts keeps its offsets in a file of its own: where it begins without one, and that it goes on from it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from firearrow._native.store.received import ReceivedMessage
from firearrow.client import java_json
from firearrow.client.options import ConsumeFromWhere, MessageModel, PushConsumerOptions
from firearrow.client.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.feeding import Feeder
from tests.client.waiting import wait_until
from tests.interop.peers import Peer

Topics = Callable[..., str]


@pytest.fixture
def feeder(peer: Peer) -> Feeder:
    return Feeder(peer)


@asynccontextmanager
async def broadcasting(
    name_server: str, topic: str, group: str, folder: Path, **options: object
) -> AsyncIterator[list[bytes]]:
    """The bodies that a consumer is given."""
    bodies: list[bytes] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        bodies.extend(message.body for message in messages)

    chosen = PushConsumerOptions(model=MessageModel.BROADCASTING, local_offsets=folder, **options)  # type: ignore[arg-type]
    consumer = PushConsumer(group, name_server=name_server, options=chosen)
    consumer.subscribe(topic, handle)
    async with consumer:
        await wait_until(lambda: consumer.queues)
        yield bodies


def only_file(folder: Path) -> Path:
    [path] = folder.rglob("offsets.json")
    return path


async def test_a_restarted_member_goes_on_where_it_was(
    name_server: str, topics: Topics, feeder: Feeder, tmp_path: Path
) -> None:
    topic, group = topics(queues=2), unique("group")
    async with broadcasting(name_server, topic, group, tmp_path) as bodies:
        feeder.feed(topic, [b"1", b"2", b"3"], queue_id=1)
        await wait_until(lambda: len(bodies) == 3)
    path = only_file(tmp_path)
    assert path.parent.name == group
    assert path.parent.parent.name.endswith("@DEFAULT"), "the name stays the same over restarts"
    table = java_json.queue_offsets(java_json.loads(path.read_bytes())["offsetTable"])
    assert {queue.queue_id: offset for queue, offset in table.items()}[1] == 3
    feeder.feed(topic, [b"while away"], queue_id=1)
    async with broadcasting(name_server, topic, group, tmp_path) as bodies:
        await wait_until(lambda: bodies)
        feeder.feed(topic, [b"later"], queue_id=0)
        await wait_until(lambda: len(bodies) == 2)
    assert bodies == [b"while away", b"later"]


@pytest.mark.parametrize(
    ("where", "begins", "seen"),
    [
        (ConsumeFromWhere.FIRST_OFFSET, timedelta(), [b"old", b"new"]),
        (ConsumeFromWhere.LAST_OFFSET, timedelta(), [b"new"]),
        (ConsumeFromWhere.TIMESTAMP, timedelta(hours=-1), [b"old", b"new"]),
        (ConsumeFromWhere.TIMESTAMP, timedelta(hours=1), [b"new"]),
    ],
)
async def test_a_new_member_begins_where_it_wants(
    name_server: str,
    topics: Topics,
    feeder: Feeder,
    tmp_path: Path,
    where: ConsumeFromWhere,
    begins: timedelta,
    seen: list[bytes],
) -> None:
    topic = topics(queues=1)
    feeder.feed(topic, [b"old"])
    options = {"from_where": where, "from_time": datetime.now() + begins}
    async with broadcasting(name_server, topic, unique("group"), tmp_path, **options) as bodies:
        feeder.feed(topic, [b"new"])
        await wait_until(lambda: bodies[-1:] == [b"new"])
    assert bodies == seen
