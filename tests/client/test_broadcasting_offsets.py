"""Broadcasting consumers keep their offsets in a file: where they begin without one, and that they resume from it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, MessageModel, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.raw_producer import RawProducer
from tests.interop.driver import Driver
from tests.interop.toolchain import java_class_path, need
from tests.support.eventually import eventually_async
from tests.support.fork_server import ForkedCommand

Topics = Callable[..., str]


@asynccontextmanager
async def broadcasting(
    client: ClientOptions | str, topic: str, group: str, folder: Path, **options: object
) -> AsyncIterator[list[bytes]]:
    """The bodies that a consumer is given."""
    bodies: list[bytes] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        bodies.extend(message.body for message in messages)

    chosen = PushConsumerOptions(model=MessageModel.BROADCASTING, local_offsets=folder, **options)  # type: ignore[arg-type]
    where = ClientOptions(name_server=client) if isinstance(client, str) else client
    consumer = PushConsumer(group, client=where, options=chosen)
    consumer.subscribe(topic, handle)
    async with consumer:
        await eventually_async(lambda: consumer.queues)
        yield bodies


def only_file(folder: Path) -> Path:
    [path] = folder.rglob("offsets.json")
    return path


async def test_a_restarted_member_goes_on_where_it_was(
    name_server: str, topics: Topics, feeder: RawProducer, tmp_path: Path
) -> None:
    topic, group = topics(queues=2), unique("group")
    async with broadcasting(name_server, topic, group, tmp_path) as bodies:
        feeder.feed(topic, [b"1", b"2", b"3"], queue_id=1)
        await eventually_async(lambda: len(bodies) == 3)
    path = only_file(tmp_path)
    assert path.parent.name == group
    assert path.parent.parent.name.endswith("@DEFAULT"), "the name stays the same over restarts"
    table = fastjson.queue_offsets(fastjson.loads(path.read_bytes())["offsetTable"])
    assert {queue.queue_id: offset for queue, offset in table.items()}[1] == 3
    feeder.feed(topic, [b"while away"], queue_id=1)
    async with broadcasting(name_server, topic, group, tmp_path) as bodies:
        await eventually_async(lambda: bodies)
        feeder.feed(topic, [b"later"], queue_id=0)
        await eventually_async(lambda: len(bodies) == 2)
    assert bodies == [b"while away", b"later"]


MEMBER = """
import asyncio, sys
from pathlib import Path
from firearrow.client import MessageModel, PushConsumer, PushConsumerOptions

async def main(name_server, topic, group, folder):
    options = PushConsumerOptions(model=MessageModel.BROADCASTING, local_offsets=Path(folder))
    consumer = PushConsumer(group, name_server=name_server, options=options)
    consumer.subscribe(topic, lambda messages: [print(each.body.decode(), flush=True) for each in messages] and None)
    async with consumer:
        while not consumer.queues:
            await asyncio.sleep(0.01)
        print("started", consumer.client_id, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main(*sys.argv[1:]))
"""


class OtherProcess:
    """A broadcasting consumer in a process of its own; the lines are the messages that it is given."""

    def __init__(self, *args: str) -> None:
        command = [sys.executable, "-c", MEMBER, *args]
        self._process = ForkedCommand(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        word, self.client_id = self.line().split()
        assert word == "started"

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        """It stores its offsets."""
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)


async def test_members_of_one_machine_do_not_take_each_other_s_messages(
    name_server: str, topics: Topics, feeder: RawProducer, tmp_path: Path
) -> None:
    """Two processes and a consumer of this one, all with the default name: each goes on where it was itself."""
    topic, group = topics(queues=1), unique("group")
    arguments = (name_server, topic, group, str(tmp_path))
    first = await asyncio.to_thread(OtherProcess, *arguments)
    second = await asyncio.to_thread(OtherProcess, *arguments)
    assert len({first.client_id, second.client_id}) == 2
    async with broadcasting(name_server, topic, group, tmp_path) as bodies:
        feeder.feed(topic, [b"all"])
        assert [await asyncio.to_thread(each.line) for each in (first, second)] == ["all", "all"]
        await eventually_async(lambda: bodies == [b"all"])
    await asyncio.to_thread(second.stop)
    feeder.feed(topic, [b"two are away"])
    assert await asyncio.to_thread(first.line) == "two are away"
    again = await asyncio.to_thread(OtherProcess, *arguments)
    assert again.client_id == second.client_id
    assert await asyncio.to_thread(again.line) == "two are away"
    async with broadcasting(name_server, topic, group, tmp_path) as bodies:
        await eventually_async(lambda: bodies == [b"two are away"])
        await asyncio.to_thread(first.stop)
        await asyncio.to_thread(again.kill)
    assert len(set(tmp_path.rglob("offsets.json"))) == 3  # noqa: ASYNC240 (a folder of the test)


@pytest.mark.interop
async def test_java_and_python_take_turns_on_one_file(
    name_server: str, topics: Topics, feeder: RawProducer, tmp_path: Path
) -> None:
    need(partial(java_class_path, "client5"))
    topic, group, member = topics(queues=1), unique("group"), unique("member")
    java = await asyncio.to_thread(Driver, "java5", name_server, tmp_path)

    async def in_java(what: str, **parameters: object) -> None:
        await asyncio.to_thread(partial(java.ask, what, name=member, **parameters))

    def java_bodies() -> list[bytes]:
        return [bytes.fromhex(event["body"]) for event in java.consumed(member)]

    try:
        await in_java("consume", group=group, topic=topic, model="BROADCASTING")
        feeder.feed(topic, [b"for Java"])
        await eventually_async(lambda: java_bodies() == [b"for Java"])
        await asyncio.sleep(0.5)  # Java reports a message before it counts it, and does not show when it has
        await in_java("stop")
        ip, _, name = only_file(tmp_path).parent.parent.name.partition("@")
        client = ClientOptions(name_server=name_server, client_ip=ip, instance_name=name)
        feeder.feed(topic, [b"for Python"])
        async with broadcasting(client, topic, group, tmp_path / ".rocketmq_offsets") as bodies:
            await eventually_async(lambda: bodies == [b"for Python"])
        feeder.feed(topic, [b"for Java again"])
        await in_java("consume", group=group, topic=topic, model="BROADCASTING")
        await eventually_async(lambda: len(java_bodies()) > 1)
    finally:
        java.stop()
    assert java_bodies() == [b"for Java", b"for Java again"]


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
    feeder: RawProducer,
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
        await eventually_async(lambda: bodies[-1:] == [b"new"])
    assert bodies == seen
