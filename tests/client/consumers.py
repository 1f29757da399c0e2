"""Push consumers for tests, and a handler that records what it was given."""

from collections.abc import Callable

from firearrow._native.protocol.name_rules import dlq_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consume.consume_results import Answer
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.messages import read_messages
from tests.support.requests import pull

Topics = Callable[..., str]


def consumer(name_server: str, group: str | None = None, **options: object) -> PushConsumer:
    first: dict[str, object] = {"from_where": ConsumeFromWhere.FIRST_OFFSET}
    wanted = PushConsumerOptions(**(first | options))  # type: ignore[arg-type]
    return PushConsumer(group or unique("group"), name_server=name_server, options=wanted)


def numbers(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


def dead_letters(peer: Peer, group: str) -> list[Record]:
    """None while there is no such topic."""
    with ClientSocket(address(peer.address)) as connection:
        if pull(connection, dlq_topic(group)).code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        return read_messages(connection, dlq_topic(group))


class Journal:
    """What handlers were given, in order: (body, topic, number of redeliveries)."""

    def __init__(self, answer: Callable[[ReceivedMessage], Answer] = lambda message: None) -> None:
        self.seen: list[tuple[bytes, str, int]] = []
        self.batches: list[int] = []
        self._answer = answer

    async def __call__(self, messages: list[ReceivedMessage]) -> Answer:
        self.batches.append(len(messages))
        answer: Answer = None
        for message in messages:
            self.seen.append((message.body, message.topic, message.reconsume_times))
            answer = self._answer(message)
        return answer

    @property
    def bodies(self) -> list[bytes]:
        return [body for body, _, _ in self.seen]
