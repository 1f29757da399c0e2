"""Forwarding: sends messages of a file or a topic to a topic, so that a run that was killed can be continued.

Each message names its source by REPLAY_* properties. A later run first reads the end of the target, and does not send
again what is there already. At the end the target is read once, and its messages are compared with those of the source,
by their number and the CRCs of their bodies.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import (
    BrokerError,
    ConfigError,
    NoNameServer,
    NoRoute,
    RocketMQError,
    TransportError,
)
from firearrow.client.base.message import Message, MessageQueue, SendResult, SendStatus
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call
from firearrow.client.cli.messages.message_view import body_crc
from firearrow.client.cli.messages.queue_reader import From, Span, Start, TopicReader
from firearrow.client.cli.messages.resending import (
    REPLAY_BROKER,
    REPLAY_JOB,
    REPLAY_OFFSET,
    REPLAY_QUEUE,
    REPLAY_TOPIC,
)
from firearrow.client.cli.messages.send import GROUP, Pace
from firearrow.client.cli.output import Column, Kind
from firearrow.client.cli.transfer.checkpoint import Checkpoint, Positions
from firearrow.client.cli.transfer.ordered_sender import Item, OrderedSender, size_of
from firearrow.client.cli.transfer.reading import key_of
from firearrow.client.send.producer import Producer

SAVE_S = 1.0
RETRY_S, RETRY_EACH_S = 60.0, 1.0
MESSAGE_BYTES_MAX = 128 << 20
"""The broker decides, by its own limit."""
SETTLE_S, SETTLE_EACH_S = 10.0, 0.05
V5_0_0 = 413
"""Ordinal of Apache's MQVersion."""
BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
REFUSED_SHOWN = 3
SUMMARY_COLUMNS = (
    Column("sent", "sent", Kind.COUNT),
    Column("bytes", "bytes", Kind.BYTES),
    Column("verified", "verified", Kind.COUNT),
)


async def until_it_works(call: Call, attempt: Callable[[], Awaitable[None]]) -> None:
    """Call `attempt` again, which continues, while no server answers or all are busy, for at most RETRY_S.
    TransportError, NoNameServer, BrokerError."""
    failing_s: float | None = None
    while True:
        began_s = time.monotonic()
        try:
            return await attempt()
        except (TransportError, NoNameServer, BrokerError) as error:
            if isinstance(error, BrokerError) and error.code not in BUSY:
                raise
            now_s = time.monotonic()
            if failing_s is None or now_s - began_s > RETRY_S / 2:
                failing_s = now_s
                call.output.note(f"{error}; trying again")
            if now_s - failing_s > RETRY_S:
                raise
        await asyncio.sleep(RETRY_EACH_S)


@dataclass(slots=True)
class Target:
    """Where messages go: a topic with its writable queues, and how they get there. `batches`: whether its brokers keep
    the unique ids of messages in a batch: those before 5.0 give all of them that of the batch."""

    admin: Admin
    producer: Producer
    topic: str
    queues: Sequence[MessageQueue]
    batches: bool

    @classmethod
    async def of(
        cls, call: Call, options: ClientOptions, topic: str, new_queues: Callable[[], int]
    ) -> "Target":
        """`new_queues`: how many a topic that is created gets. ConfigError: it does not exist, and is not to be."""
        given = call.arguments
        admin = await call.enter(Admin(client=options, timeout_s=given.timeout))
        try:
            queues = await admin.queues(topic, write=True)
        except NoRoute:
            if not given.create_topics:
                raise ConfigError(f"the target has no topic {topic}: --create-topics creates it") from None
            await admin.create_topic(topic, new_queues())
            queues = await admin.queues(topic, write=True)
        sending = ProducerOptions(
            retries=0, message_bytes_max=MESSAGE_BYTES_MAX, send_timeout_s=given.timeout, topics=(topic,)
        )
        producer = await call.enter(Producer(GROUP, client=options, options=sending))
        masters = await admin.calls.masters_of(admin.namespace.wrap(topic))
        addresses = [masters.get(name, "") for name in {queue.broker_name for queue in queues}]
        versions = map(producer.instance.heartbeats.version, addresses)
        return cls(admin, producer, topic, queues, all(version >= V5_0_0 for version in versions))

    async def ends(self) -> dict[str, int]:
        spans = await TopicReader(self.admin, self.topic).spans(Start(From.END))
        return {key_of(queue): span.end for queue, span in spans.items()}

    async def settle(self, ends: Mapping[str, int]) -> None:
        """Wait until readers see what was stored up to these offsets, and no more comes: Apache's brokers answer a send
        before its queue has the message. TransportError: a broker is away, so that it cannot be seen what it has."""
        before: dict[str, int] = {}
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s:
            now = await self.ends()
            if now == before and all(now.get(key, 0) >= end for key, end in ends.items()):
                return
            before = now
            await asyncio.sleep(SETTLE_EACH_S)
        away = sorted(key.rpartition("/")[0] for key, end in ends.items() if end and key not in before)
        if away:
            raise TransportError(f"broker {away[0]}, which has messages of {self.topic}, is not there now")


@dataclass(slots=True)
class Totals:
    """Of all runs of a job. `crc_sum`: of the CRCs of the bodies; `found`: sent by a run that did not learn it."""

    sent: int = 0
    bytes: int = 0
    crc_sum: int = 0
    refused: int = 0
    found: int = 0
    maybe_twice: int = 0
    less_safely: int = 0


@dataclass(slots=True)
class Forwarding:
    """One job. `positions`: of each source, by `broker/queue`; `first`: where they began; `begin`: the ends of the
    target's queues at its start; `floors`: the offsets after what is known to be there."""

    call: Call
    checkpoint: Checkpoint
    target: Target
    job: str
    source_topic: str
    positions: Mapping[str, Positions]
    first: dict[str, int]
    begin: dict[str, int]
    floors: dict[str, int]
    totals: Totals = field(default_factory=Totals)
    is_new: bool = True
    more_state: Callable[[], dict[str, Any]] = dict
    place: Callable[[str, int], str] = "{}[{}]".format
    """As people read a source and a position."""
    _saved_s: float = 0.0

    @property
    def named(self) -> bool:
        """Whether messages name their source."""
        return bool(self.call.arguments.provenance)

    # ---- the state between runs ----

    def save(self) -> None:
        self.checkpoint.state = {
            "id": self.job,
            "first": self.first,
            "begin": self.begin,
            "floors": self.floors,
            "totals": asdict(self.totals),
            **self.more_state(),
        }
        self.checkpoint.save()
        self._saved_s = time.monotonic()

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved_s > SAVE_S:
            self.save()

    def load(self, state: Mapping[str, Any]) -> None:
        """Of an earlier run."""
        self.first, self.begin, self.floors = (
            dict(state["first"]),
            dict(state["begin"]),
            dict(state["floors"]),
        )
        self.totals, self.is_new = Totals(**state["totals"]), False

    # ---- sending ----

    async def run(
        self, messages: Callable[[], AsyncGenerator[tuple[str, int, Message, MessageQueue], None]]
    ) -> None:
        """Send what is left: `messages` yields source, position, message and queue. ClientError."""
        self.save()
        await until_it_works(self.call, lambda: self._attempt(messages))

    async def _attempt(
        self, messages: Callable[[], AsyncGenerator[tuple[str, int, Message, MessageQueue], None]]
    ) -> None:
        if not self.is_new:
            await self._find()
        self.is_new = False
        given = self.call.arguments
        pace = Pace(given.rate, given.bytes_rate)
        sender = OrderedSender(
            self.target.producer,
            pace,
            self._stored,
            self._refused,
            rate=given.rate,
            batches=self.target.batches,
        )
        try:
            async with contextlib.aclosing(messages()) as found:
                async for source, position, message, queue in found:
                    if self.named:
                        message.properties |= self._names(source, position)
                    await sender.put(queue, Item(message, source, position, size_of(message)))
                    self._save_sometimes()
            await sender.drain()
        finally:
            await sender.close()
            self.save()

    def _names(self, source: str, position: int) -> dict[str, str]:
        broker, _, queue_id = source.rpartition("/")
        return {
            REPLAY_JOB: self.job,
            REPLAY_BROKER: broker,
            REPLAY_TOPIC: self.source_topic,
            REPLAY_QUEUE: queue_id,
            REPLAY_OFFSET: str(position),
        }

    def _stored(self, queue: MessageQueue, batch: Sequence[Item], result: SendResult) -> None:
        for item in batch:
            self._count(item.source, item.position, item.message.body)
        if result.status is not SendStatus.SEND_OK:
            self.totals.less_safely += len(batch)
        key = key_of(queue)
        self.floors[key] = max(self.floors.get(key, 0), result.queue_offset + len(batch))
        self._save_sometimes()

    def _count(self, source: str, position: int, body: bytes) -> None:
        self.positions[source].done(position)
        self.totals.sent += 1
        self.totals.bytes += len(body)
        self.totals.crc_sum += body_crc(body)

    def _refused(self, item: Item, error: RocketMQError) -> None:
        self.refuse(item.source, item.position, str(error))

    def refuse(self, source: str, position: int, reason: str) -> None:
        """This message cannot be sent, and the others go on."""
        self.positions[source].done(position)
        self.totals.refused += 1
        if self.totals.refused <= REFUSED_SHOWN:
            self.call.output.note(f"{self.place(source, position)} was not sent: {reason}")

    # ---- reading the target ----

    async def _find(self) -> None:
        """What an earlier run has sent without learning it."""
        await self.target.settle(self.floors)
        if not self.named:
            waiting = await self._after(self.floors)
            self.totals.maybe_twice += waiting
            return
        async with contextlib.aclosing(self._copies(self.floors)) as copies:
            async for source, position, body in copies:
                positions = self.positions.get(source)
                if positions is not None and not positions.is_done(position):
                    self._count(source, position, body)
                    self.totals.found += 1

    async def _after(self, floors: Mapping[str, int]) -> int:
        """How many messages the target has after these offsets."""
        return sum(max(end - floors.get(key, 0), 0) for key, end in (await self.target.ends()).items())

    async def _copies(self, start: Mapping[str, int]) -> AsyncGenerator[tuple[str, int, bytes], None]:
        """Source, position and body of this job's messages from these offsets on."""
        reader = TopicReader(self.target.admin, self.target.topic)
        spans = {}
        for queue, span in (await reader.spans(Start(From.START))).items():
            first = max(start.get(key_of(queue), 0), span.start)
            spans[queue] = Span(min(first, span.end), span.end)
        async with contextlib.aclosing(reader.stored(spans)) as stored:
            async for message in stored:
                if message.get_property(REPLAY_JOB) != self.job:
                    continue
                source = f"{message.get_property(REPLAY_BROKER)}/{message.get_property(REPLAY_QUEUE)}"
                with contextlib.suppress(ValueError):
                    yield source, int(message.get_property(REPLAY_OFFSET) or ""), message.body

    async def verify(self) -> dict[str, Any]:
        """Read all that the job has sent, and compare it with what it was to send."""
        await self.target.settle(self.floors)
        seen = {source: bytearray() for source in self.positions}
        number = crc_sum = duplicates = 0
        async with contextlib.aclosing(self._copies(self.begin)) as copies:
            async for source, position, body in copies:
                marks, index = seen.get(source), position - self.first.get(source, 0)
                if marks is None or index < 0:
                    continue
                if index >= len(marks):
                    marks.extend(bytes(index + 1 - len(marks)))
                if marks[index]:
                    duplicates += 1
                    continue
                marks[index] = 1
                number, crc_sum = number + 1, crc_sum + body_crc(body)
        facts = {"verified": number, "duplicates": duplicates, "missingAtTarget": self.totals.sent - number}
        if not facts["missingAtTarget"]:
            facts["crc"] = "ok" if crc_sum == self.totals.crc_sum else "differs"  # type: ignore[assignment]
        return facts


def report(forwarding: Forwarding, facts: Mapping[str, Any], more: Mapping[str, Any]) -> int:
    """Print what was sent; the exit code."""
    call, totals = forwarding.call, forwarding.totals
    counts = {
        "refused": totals.refused,
        "foundSent": totals.found,
        "maybeTwice": totals.maybe_twice,
        "lessSafely": totals.less_safely,
    }
    row = {
        "sent": totals.sent,
        "bytes": totals.bytes,
        **{name: count for name, count in counts.items() if count},
    }
    call.output.record({"topic": forwarding.target.topic, **row, **more, **facts}, SUMMARY_COLUMNS)
    if totals.maybe_twice:
        call.output.note(
            f"up to {totals.maybe_twice} messages may be there twice: a run was interrupted, and --no-provenance "
            "leaves out what would show it"
        )
    if totals.less_safely:
        call.output.note(
            f"{totals.less_safely} messages were stored less safely than the broker is configured"
        )
    if facts.get("duplicates"):
        call.output.note(
            f"{facts['duplicates']} messages are there twice: a request was stored, and its answer was lost"
        )
    if facts.get("missingAtTarget"):
        call.output.note(
            f"{facts['missingAtTarget']} messages are missing at the target: expired, trimmed, or lost"
        )
    if facts.get("crc") == "differs":
        call.output.note("bodies at the target differ from those of the source, by the sum of their CRCs")
    wrong = (
        totals.refused or totals.less_safely or facts.get("missingAtTarget") or facts.get("crc") == "differs"
    )
    return FOUND_TROUBLE if wrong else OK
