"""DeadLetters: the dead letters of one group, read by choice, and how far all of them were sent again.

The progress of a group is the offset of TOOLS_CONSUMER in its dead letter topic, at the broker: every letter before it
was sent again or dropped, by whichever machine. No group that consumes is changed. Receipts tell of single letters, on
this machine.
"""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace

from firearrow._native.protocol.name_rules import dlq_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.requests import integer_of
from firearrow.client.base.errors import BrokerError, ClientError, NoRoute, check
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import check_group
from firearrow.client.cli.command import Call
from firearrow.client.cli.messages.queue_reader import READER_GROUP, From, Span, Start, TopicReader, last_of
from firearrow.client.cli.messages.resending import origin_topic
from firearrow.client.cli.messages.selection import Selection


class DeadLetters:
    """The dead letters of `group`, which is the user's name of it."""

    def __init__(self, call: Call, admin: Admin, group: str) -> None:
        self.group = group
        self.topic = dlq_topic(check_group(group))
        self._admin = admin
        self._reader = TopicReader(admin, self.topic)
        self._wrapped_group = admin.namespace.wrap(group)
        self._note = call.output.note

    @classmethod
    async def of(cls, call: Call) -> "DeadLetters":
        """Those of the argument `group`. ConfigError."""
        return cls(call, await call.admin(), call.arguments.group)

    async def spans(self, selection: Selection) -> dict[MessageQueue, Span]:
        """What each queue holds of the selection's range. ClientError: the group has none."""
        with self._known():
            spans = await self._reader.spans(selection.start)
            until_ms = selection.wanted.until_ms
            return await self._reader.until(spans, until_ms) if until_ms else spans

    async def read(
        self, spans: Mapping[MessageQueue, Span], start: Start
    ) -> AsyncGenerator[ReceivedMessage, None]:
        """All letters of these spans; of `-10` only the last ten."""
        with self._known():
            async with contextlib.aclosing(self._reader.stored(spans)) as letters:
                if start.kind is From.LAST:
                    for letter in await last_of(letters, start.value):
                        yield letter
                    return
                async for letter in letters:
                    yield letter

    def origin(self, letter: ReceivedMessage) -> str | None:
        """The topic that it was sent to at first, by its user's name; None: unknown."""
        topic = origin_topic(self._wrapped_group, letter.properties)
        return None if topic is None else self._admin.namespace.unwrap(topic)

    def queue_of(self, letter: ReceivedMessage) -> MessageQueue:
        return MessageQueue(self.topic, letter.broker_name, letter.queue_id)

    # ---- progress ----

    async def progress(self, queue: MessageQueue) -> int | None:
        """The offset before which all letters are done; None: none was stored."""
        return await stored_progress(self._admin, queue)

    async def store_progress(self, done: Mapping[MessageQueue, int]) -> None:
        for queue, offset in done.items():
            commit = {"commitOffset": str(offset)}
            answer = await _ask_of_reader(self._admin, queue, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
            check(answer, queue.broker_name)

    @contextlib.contextmanager
    def _known(self) -> Iterator[None]:
        """ClientError: the group has no dead letter topic, and so no dead letters; or it cannot be read."""
        try:
            yield
        except NoRoute:
            raise ClientError(f"group {self.group} has no dead letters") from None
        except BrokerError as refused:
            raise ClientError(f"the dead letters of group {self.group} cannot be read: {refused}") from None


class Progress:
    """How far the letters of each queue are done, one after the other: it stops before the first that is not."""

    def __init__(self, stored: Mapping[MessageQueue, int | None], first: Mapping[MessageQueue, int]) -> None:
        """`first`: of each queue, the first letter that is still there."""
        self.offsets = {queue: max(offset or 0, first[queue]) for queue, offset in stored.items()}
        self._stored = dict(stored)
        self._beyond: dict[MessageQueue, set[int]] = {queue: set() for queue in first}

    def is_before(self, queue: MessageQueue, offset: int) -> bool:
        """Whether the progress that is stored covers the letter."""
        return offset < (self._stored.get(queue) or 0)

    def done(self, queue: MessageQueue, offset: int) -> None:
        beyond = self._beyond.get(queue)
        if beyond is None or offset < self.offsets[queue]:
            return
        beyond.add(offset)
        while self.offsets[queue] in beyond:
            beyond.remove(self.offsets[queue])
            self.offsets[queue] += 1

    def moved(self) -> dict[MessageQueue, int]:
        """What is to be stored."""
        moved = {
            queue: offset for queue, offset in self.offsets.items() if offset > (self._stored.get(queue) or 0)
        }
        self._stored |= moved
        return moved


async def stored_progress(admin: Admin, queue: MessageQueue) -> int | None:
    """The offset of TOOLS_CONSUMER in a queue of a dead letter topic; None: it has none, or one beyond the queue's end.

    Such a one is of letters before: brokers before 5.0 keep offsets of deleted topics, and a store can lose its end.
    """
    answer = await _ask_of_reader(
        admin, queue, RequestCode.QUERY_CONSUMER_OFFSET, {"setZeroIfNotFound": "false"}
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    offset = integer_of(check(answer, queue.broker_name), "offset", queue.broker_name)
    return offset if offset <= await admin.max_offset(queue) else None


async def _ask_of_reader(
    admin: Admin, queue: MessageQueue, code: RequestCode, ext: dict[str, str]
) -> RemotingCommand:
    """The answer with any code. READER_GROUP is the broker's own, so that no namespace is added to its name."""
    wrapped = replace(queue, topic=admin.namespace.wrap(queue.topic))
    named = {"consumerGroup": READER_GROUP, "topic": wrapped.topic, "queueId": str(queue.queue_id)}
    return await admin.calls.ask_master(wrapped, code, named | {"bname": queue.broker_name} | ext)
