"""A push consumer for tests that begins at the first message, and a handler that stores what it gets."""

from collections.abc import Callable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique

FIRST = ConsumeFromWhere.FIRST_OFFSET
Topics = Callable[..., str]


class Seen:
    """A coroutine handler that stores what it got."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.batches: list[int] = []

    async def __call__(self, messages: list[ReceivedMessage]) -> None:
        self.messages += messages
        self.batches.append(len(messages))

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def consumer(name_server: str, topic: str, handler: object, **options: object) -> PushConsumer:
    chosen = PushConsumerOptions(**{"from_where": FIRST} | options)  # type: ignore[arg-type]
    made = PushConsumer(unique("group"), name_server=name_server, options=chosen)
    made.subscribe(topic, handler)  # type: ignore[call-overload]
    return made


def again(first: PushConsumer, name_server: str, topic: str, handler: object) -> PushConsumer:
    """Another member of the same group."""
    made = PushConsumer(first.group, name_server=name_server, options=first.options)
    made.subscribe(topic, handler)  # type: ignore[call-overload]
    return made
