"""Redrive: sends dead letters to their topics again, each with a receipt, so that none is sent twice unnoticed.

Letters go in blocks. A block is noted in the receipts before its first letter is sent, and each letter after it was;
nothing is sent a second time by itself. After a kill, or when an answer is missing, the letters that are noted only as
`sending` are looked up in the topics where they would be: their REPLAY_* properties name the dead letter.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from firearrow._native.protocol.name_rules import retry_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.message_queries import MessageQueries
from firearrow.client.base.compression import BodyUnreadable
from firearrow.client.base.errors import (
    BrokerError,
    ConfigError,
    ConnectFailed,
    MessageRefused,
    NoRoute,
    RocketMQError,
    TransportError,
)
from firearrow.client.base.message import Message, MessageQueue, SendStatus
from firearrow.client.base.names import topic_table
from firearrow.client.base.options import ProducerOptions
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call
from firearrow.client.cli.groups.dead_letters import DeadLetters, Progress
from firearrow.client.cli.groups.edits import Edits, Skipped
from firearrow.client.cli.groups.receipts import Fate, Receipts
from firearrow.client.cli.messages.queue_reader import From, Span, Start
from firearrow.client.cli.messages.resending import (
    REPLAY_JOB,
    came_from,
    message_again,
    provenance,
    retry_again,
)
from firearrow.client.cli.messages.selection import Selection, Unfound
from firearrow.client.cli.messages.send import GROUP, Pace
from firearrow.client.cli.output import Column, Kind
from firearrow.client.send.producer import Producer

BLOCK = 32
"""Letters that are noted at once: of as many it may be unknown after a crash whether they were sent."""
BODY_BYTES_MAX = 4 << 20
JOB = "redrive"
PLAN_COLUMNS = (Column("topic", "TOPIC"), Column("messages", "MESSAGES", Kind.COUNT))


@dataclass(slots=True)
class Counts:
    """`skipped`: were sent again or dropped before. `found`: a command that was interrupted had sent them.
    `maybe_twice`: it may have sent them, and they could not be found."""

    sent: int = 0
    failed: int = 0
    without_topic: int = 0
    skipped: int = 0
    found: int = 0
    maybe_twice: int = 0
    left_out: int = 0
    statuses: Counter[str] = field(default_factory=Counter)

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"sent": self.sent, "withoutTopic": self.without_topic}
        more = {
            "failed": self.failed,
            "sentBefore": self.skipped,
            "foundSent": self.found,
            "maybeTwice": self.maybe_twice,
            "leftOut": self.left_out,
            "statuses": dict(self.statuses),
        }
        return row | {name: number for name, number in more.items() if number}


@dataclass(slots=True)
class Redrive:
    """One run for one group. `again`: also letters that are done."""

    call: Call
    letters: DeadLetters
    selection: Selection
    edits: Edits
    receipts: Receipts
    spans: Mapping[MessageQueue, Span]
    progress: Progress
    again: bool
    unfound: Unfound
    counts: Counts = field(default_factory=Counts)
    planned: int = 0
    _brokers: dict[str, list[str]] = field(default_factory=dict)
    """Of each topic that letters go to."""

    @classmethod
    async def of(cls, call: Call, edits: Edits, receipts: Receipts) -> "Redrive":
        """What the arguments select now. ClientError, ConfigError."""
        given, selection = call.arguments, Selection.of(call.arguments)
        letters = await DeadLetters.of(call)
        whole = await letters.spans(Selection(Start(From.START), selection.wanted, None))
        stored = {queue: await letters.progress(queue) for queue in whole}
        progress = Progress(stored, {queue: span.start for queue, span in whole.items()})
        if selection.is_by_choice or given.again:
            spans: Mapping[MessageQueue, Span] = await letters.spans(selection)
        else:  # from where the last one ended
            spans = {
                queue: Span(min(progress.offsets[queue], span.end), span.end) for queue, span in whole.items()
            }
        unfound = Unfound(selection.wanted)
        return cls(call, letters, selection, edits, receipts, spans, progress, given.again, unfound)

    # ---- what is to be sent ----

    async def plan(self) -> dict[str, int]:
        """How many letters would go to which topic; their number is `planned`."""
        by_topic: Counter[str] = Counter()
        async with contextlib.aclosing(self._chosen(Counts())) as chosen:
            async for letter in chosen:
                by_topic[self._goal(letter) or "unknown"] += 1
        self.planned = by_topic.total()
        return dict(by_topic)

    async def check_edits(self) -> None:
        """Edit each letter, for a dry run. RocketMQError: one cannot be."""
        async with contextlib.aclosing(self._chosen(Counts())) as chosen:
            async for letter in chosen:
                goal = self._goal(letter)
                if goal is not None:
                    await self.edits.apply(self._message(letter, goal))

    async def _chosen(self, counts: Counts) -> AsyncGenerator[ReceivedMessage, None]:
        """The letters to be sent. Those that are done move the progress on, and are counted if they were chosen."""
        left = self.selection.limit
        async with contextlib.aclosing(self.letters.read(self.spans, self.selection.start)) as letters:
            async for letter in letters:
                queue, offset = self.letters.queue_of(letter), letter.queue_offset
                done = self.receipts.is_done(letter) or self.progress.is_before(queue, offset)
                if done:
                    self.progress.done(queue, offset)
                if not self.selection.wanted(letter):
                    continue
                self.unfound.saw(letter)
                if done and not self.again:
                    counts.skipped += 1
                    continue
                yield letter
                if left is not None:
                    left -= 1
                    if not left:
                        return

    def _goal(self, letter: ReceivedMessage) -> str | None:
        """The topic that it goes to; None: unknown."""
        origin = self.letters.origin(letter)
        if self.call.arguments.retry_topic:
            return None if origin is None else retry_topic(self.letters.group)
        table = topic_table(self.call.arguments.to_topic)
        return table.get(origin, table.get(None, origin))

    def _message(self, letter: ReceivedMessage, goal: str) -> Message:
        """BodyUnreadable."""
        if self.call.arguments.retry_topic:
            message = retry_again(letter, self.letters.origin(letter) or "", goal)
        else:
            message = message_again(letter, goal)
        message.unique_id = letter.message_id  # by which the copy is found
        return message

    # ---- sending ----

    async def run(self) -> int:
        """Send the letters; the exit code. Prints what was done."""
        given, trouble = self.call.arguments, None
        options = ProducerOptions(retries=0, message_bytes_max=BODY_BYTES_MAX, send_timeout_s=given.timeout)
        producer = await self.call.enter(Producer(GROUP, client=self.call.options, options=options))
        pace = Pace(given.rate)
        try:
            async with contextlib.aclosing(self._blocks()) as blocks:
                async for block in blocks:
                    await self._send(producer, pace, block)
                    self._progress()
                    await self.letters.store_progress(self.progress.moved())
            await self.letters.store_progress(self.progress.moved())
        except RocketMQError as error:
            if isinstance(error, ConfigError):
                raise
            trouble = error
        row = {"group": self.letters.group, **self.counts.row(), "receipts": str(self.receipts.path)}
        self.call.output.record(row)
        if trouble is not None:
            self.call.output.note(f"stopped: {trouble}; the next redrive continues here")
        counts = self.counts
        if counts.maybe_twice:
            self.call.output.note(
                f"{counts.maybe_twice} letters may have been sent twice: an interrupted redrive had begun to send "
                f"them, and they were not found in their topics; {self.receipts.path} names them"
            )
        stored_less_safely = set(counts.statuses) - {SendStatus.SEND_OK.name}
        wrong = trouble is not None or counts.failed or counts.without_topic or stored_less_safely
        return FOUND_TROUBLE if wrong else OK

    def _progress(self) -> None:
        counts = self.counts
        done = counts.sent + counts.failed + counts.without_topic + counts.found + counts.left_out
        self.call.output.progress(done, self.planned)

    async def _blocks(self) -> AsyncGenerator[list[ReceivedMessage], None]:
        block: list[ReceivedMessage] = []
        async with contextlib.aclosing(self._chosen(self.counts)) as chosen:
            async for letter in chosen:
                block.append(letter)
                if len(block) == BLOCK:
                    yield block
                    block = []
        if block:
            yield block

    async def _send(self, producer: Producer, pace: Pace, block: list[ReceivedMessage]) -> None:
        """RocketMQError: this letter and those after it were not sent."""
        ready = [pair for letter in block if (pair := await self._prepared(letter)) is not None]
        facts = [await self._where(message.topic) for _, message in ready]
        letters = (letter for letter, _ in ready)
        self.receipts.note_each(zip(letters, facts, strict=True), Fate.SENDING)
        for number, (letter, message) in enumerate(ready):
            self._progress()
            await pace.wait()
            try:
                result = await producer.send(message)
            except RocketMQError as error:
                if _is_of_letter(error):
                    self._fail(letter, error)
                    continue
                unsent = ready[number + 1 :] if _may_be_stored(error) else ready[number:]
                self.receipts.note(
                    (each for each, _ in unsent), Fate.FAILED, reason=f"not sent: {error}"[:200]
                )
                raise
            self.counts.sent += 1
            self.counts.statuses[result.status.name] += 1
            self._sent(letter, message.topic, result.queue, result.queue_offset, status=result.status.name)

    async def _prepared(self, letter: ReceivedMessage) -> tuple[ReceivedMessage, Message] | None:
        """None: it is not to be sent. RocketMQError: it is not known whether it was sent."""
        goal = self._goal(letter)
        if goal is None:
            self.call.output.note(f"{letter.message_id}: its topic is unknown; --to-topic TOPIC sends it")
            self.counts.without_topic += 1
            return None
        if await self._was_sent(letter) and not self.again:
            return None
        try:
            message = self._message(letter, goal)
            await self.edits.apply(message)
            if self.call.arguments.provenance:  # after the edits: they must not hide what finds the copy
                message.properties |= provenance(JOB, letter, self.letters.topic)
        except Skipped:
            self.counts.left_out += 1
            return None
        except (BodyUnreadable, MessageRefused) as error:
            self._fail(letter, error)
            return None
        return letter, message

    async def _where(self, topic: str) -> dict[str, Any]:
        """What the receipt of a letter has before it is sent to this topic: where its copy will be looked for."""
        if topic not in self._brokers:
            self._brokers[topic] = sorted(await self._masters(topic))
        named = self.call.arguments.provenance
        return {"topic": topic, "brokers": self._brokers[topic], "provenance": named}

    async def _masters(self, topic: str) -> dict[str, str]:
        """Those that serve the topic now."""
        admin = await self.call.admin()
        try:
            return await admin.calls.masters_of(admin.namespace.wrap(topic))
        except NoRoute:  # the first message creates it
            return {}

    async def _was_sent(self, letter: ReceivedMessage) -> bool:
        """Whether an interrupted redrive has sent it. RocketMQError: that cannot be asked."""
        receipt = self.receipts.of(letter)
        if receipt is None or receipt.fate is not Fate.SENDING:
            return False
        goal = receipt.facts.get("topic") or self._goal(letter) or ""
        admin = await self.call.admin()
        queries = MessageQueries(admin.calls.instance, self.call.arguments.timeout)
        masters = await self._masters(goal)
        for copy in await queries.copies(goal, letter.message_id, masters, all_answer=True):
            if came_from(copy, letter, self.letters.topic) and copy.get_property(REPLAY_JOB) == JOB:
                queue = MessageQueue(goal, copy.broker_name, copy.queue_id)
                self._sent(letter, goal, queue, copy.queue_offset, status="found")
                self.counts.found += 1
                return True
        # what the key index has of the letter itself shows that it would have the copy
        here = await self._masters(self.letters.topic)
        known = await queries.copies(self.letters.topic, letter.message_id, here, all_answer=True)
        all_asked = masters.keys() >= set(receipt.facts.get("brokers", ()))
        if not (known and all_asked and receipt.facts.get("provenance")):
            self.counts.maybe_twice += 1
        return False

    def _sent(
        self, letter: ReceivedMessage, topic: str, queue: MessageQueue, offset: int, *, status: str
    ) -> None:
        where = {"toBroker": queue.broker_name, "toQueueId": queue.queue_id, "toOffset": offset}
        self.receipts.note([letter], Fate.SENT, topic=topic, **where, status=status)
        self.progress.done(self.letters.queue_of(letter), letter.queue_offset)

    def _fail(self, letter: ReceivedMessage, error: RocketMQError) -> None:
        self.counts.failed += 1
        self.receipts.note([letter], Fate.FAILED, reason=str(error)[:200])
        self.call.output.note(f"{letter.message_id} was not sent: {error}")


def _is_of_letter(error: RocketMQError) -> bool:
    """Whether the next letter may be taken all the same: this one, or its topic, is refused."""
    codes = (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION)
    refused = isinstance(error, BrokerError) and error.code in codes
    return refused or isinstance(error, MessageRefused | NoRoute)


def _may_be_stored(error: RocketMQError) -> bool:
    """Whether the broker may have stored the message all the same."""
    return isinstance(error, TransportError) and not isinstance(error, ConnectFailed)
