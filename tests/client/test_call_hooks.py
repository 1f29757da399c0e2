"""Call hooks at a real broker: what a faulty hook does, no call and no handler notices."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from firearrow.client.base.call_hooks import Call, CallKind, add_call_hook, remove_call_hook
from firearrow.client.base.message import Message
from firearrow.client.base.options import ConsumeFromWhere, PopConsumerOptions
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.consumers import Journal, Topics, consumer
from tests.support.eventually import eventually_async


class Faulty:
    def __init__(self, change: Callable[[Call], object]) -> None:
        self._change = change
        self.kinds: list[CallKind] = []

    def before(self, call: Call) -> None:
        self._change(call)

    def after(self, call: Call) -> None:
        self.kinds.append(call.kind)
        self._change(call)


FAULTS: dict[str, Callable[[Call], object]] = {
    "one more": lambda call: call.messages.append(Message("other", b"other")),
    "none left": lambda call: call.messages.clear(),
    "no message": lambda call: call.messages.__setitem__(0, "text"),
    "no list": lambda call: setattr(call, "messages", None),
    "raises": lambda call: 1 / 0,
}


@pytest.fixture(params=FAULTS)
def faulty(request: pytest.FixtureRequest) -> Iterator[Faulty]:
    hook = Faulty(FAULTS[request.param])
    add_call_hook(hook)
    yield hook
    remove_call_hook(hook)


async def test_a_faulty_hook_changes_nothing(name_server: str, topics: Topics, faulty: Faulty) -> None:
    topic = topics(queues=1)
    async with Producer(unique("p"), name_server=name_server) as producer:
        sent = [Message(topic, b"%d" % number) for number in range(5)]
        await producer.send(sent[0])
        await producer.submit(sent[1])
        await producer.send_oneway(sent[2])
        await producer.send_batch(sent[3:])
    assert len({message.unique_id for message in sent}) == 5
    bodies = [message.body for message in sent]
    journal = Journal()
    member = consumer(name_server)
    member.subscribe(topic, journal)
    async with member:
        await eventually_async(lambda: sorted(journal.bodies) == bodies)
    popping = PopConsumer(
        unique("g"),
        name_server=name_server,
        options=PopConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
    )
    popping.subscribe(topic)
    popped: list[bytes] = []
    async with popping, asyncio.timeout(30):
        while len(popped) < 5:
            received = await popping.receive()
            popped += [message.body for message in received]
            await popping.ack_batch(received)
    assert sorted(popped) == bodies
    assert set(faulty.kinds) == {CallKind.SEND, CallKind.PROCESS, CallKind.RECEIVE, CallKind.SETTLE}
