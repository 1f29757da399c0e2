"""Appender: stages messages in the store after Apache's hooks for delays (HookUtils). Loop thread.

A message with a delay level goes to SCHEDULE_TOPIC_XXXX, one with a timer property to the timer's topic; its
properties keep the real topic and queue. A message may also name LMQs that get an entry (multi-dispatch).
Counts nothing in the statistics and answers nothing by itself.
"""

from collections.abc import Callable

from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import InnerMessage, MessageStore, PutResult
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property, properties_text
from firearrow.broker.base.peer import Peer

TRANSACTION_BITS, TRANSACTION_COMMIT = 0xC, 0x8
LEVEL_DIGITS_MAX = 9
TIMER_TOPIC = name_rules.TIMER_TOPIC.encode()
TIMER_REQUESTS = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)


def delay_level(properties: dict[str, str]) -> int:
    """The delay level that a message asks for, 0 if none. Refusal when it is not a number."""
    text = properties.get(Property.DELAY)
    if text is None:
        return 0
    digits = text[1:] if text[:1] in "+-" else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= LEVEL_DIGITS_MAX):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"DELAY must be a whole number, not {text[:32]}")
    return int(text)


def is_timed(message: Message) -> bool:
    """The timer has had the message already."""
    return message.topic == name_rules.TIMER_TOPIC or Property.TIMER_OUT_MS in message.properties


class Appender:
    """`schedule(message)` redirects a timer message to the timer's topic. Refusal. `route(message, group)` redirects a
    message that is due for a queue that is not read any more. PutRefused.

    `multi(message, strict)` adds the message's offsets in LMQs to its properties and returns these LMQs
    (Refusal if `strict`); None: multi-dispatch is off.
    """

    def __init__(
        self,
        store: MessageStore,
        write_batch: WriteBatch,
        clock: Clock,
        store_host: bytes,
        *,
        levels: int,
        schedule: Callable[[Message], None],
        route: Callable[[Message, str], None] = lambda message, group: None,
        multi: Callable[[Message, bool], list[str]] | None = None,
    ) -> None:
        self._store = store
        self._write_batch = write_batch
        self._clock = clock
        self.store_host = store_host
        self._levels = levels
        self._schedule = schedule
        self._route = route
        self._multi = multi
        self.lowered: Callable[[str], None] = lambda topic: None
        """Called for a message whose delay level messageDelayLevel does not have: it gets the last one."""

    def put(
        self,
        message: Message,
        *,
        hooks: bool = True,
        plain: bool = False,
        on_stored: Callable[[bool], None] | None = None,
        peer: Peer | None = None,
        answer: RemotingCommand | None = None,
        waits: bool = True,
        is_send: bool = False,
    ) -> PutResult:
        """Stage `message`; the write batch writes it. PutRefused, or Refusal from a hook: nothing was staged.

        `on_stored(stored)` is called, and `answer` is sent to `peer`, when the message is as durable as flush mode
        and role promise; `is_send`: the answer states it if slaves did not confirm it in time. `hooks=False`: the
        message comes from a delay and still has its properties. `plain`: it has no property for hooks or LMQs. A
        hook changes the message's topic, queue and properties.
        """
        lmqs: list[str] = [] if plain else self._apply_hooks(message, hooks)
        put = self._store.put(
            InnerMessage(
                message.topic,
                message.queue_id,
                message.body,
                properties_text(message.properties),
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_ms,
                born_host=message.born_host or self.store_host,
                store_host=message.store_host or self.store_host,
                reconsume_times=message.reconsume_times,
                prepared_offset=message.prepared_offset,
            ),
            now_ms=self._clock.now_ms(),
        )
        if on_stored is not None:
            self._write_batch.on_durable(put.end, on_stored)
        self._write_batch.reply_after(
            put.end, (message.topic, message.queue_id), peer, answer, waits=waits, is_send=is_send
        )
        for name in lmqs:
            self._write_batch.reply_after(put.end, (name, 0), None, None)
        return put

    def put_due(
        self,
        message: Message,
        *,
        group: str = "",
        hooks: bool = False,
        peer: Peer | None = None,
        answer: RemotingCommand | None = None,
    ) -> PutResult:
        """Like `put`, for a message whose queue was chosen when it was stored before. `group`: the consumer group that
        it is for, if it is for one only."""
        self._route(message, group)
        return self.put(message, hooks=hooks, peer=peer, answer=answer)

    def put_again(
        self,
        physical_offset: int,
        targets: dict[bytes, tuple[str, int]],
        start: bytes,
        without: tuple[bytes, ...],
        added: bytes,
    ) -> tuple[str, int, int] | None:
        """Like `put_due`, for a message of the timer's topic that gets more properties and changes no further, where
        `put_due` has put one: see `MessageStore.put_again`. Returns its topic, the end of the log, and the bytes of its
        record. PutRefused."""
        put = self._store.put_again(
            physical_offset, TIMER_TOPIC, targets, start, without, added, now_ms=self._clock.now_ms()
        )
        if put is None:
            return None
        topic, queue_id, end, size = put
        self._write_batch.reply_after(end, (topic, queue_id), None, None)
        return topic, end, size

    def on_durable(self, end: int, on_stored: Callable[[bool], None]) -> None:
        """Like `on_stored` of `put`, for the last of several messages."""
        self._write_batch.on_durable(end, on_stored)

    def _apply_hooks(self, message: Message, hooks: bool) -> list[str]:
        """Apply the hooks; returns the LMQs that the message is dispatched to. Refusal."""
        if hooks and message.sys_flag & TRANSACTION_BITS in (0, TRANSACTION_COMMIT):
            self._apply_delay_hooks(message)
        if self._multi is None or Property.MULTI_DISPATCH not in message.properties:
            # from the time when LMQs were switched on; a rebuild of queues would put it into them again
            message.properties.pop(Property.MULTI_QUEUE_OFFSET, None)
            return []
        return self._multi(message, hooks)

    def _apply_delay_hooks(self, message: Message) -> None:
        if message.topic == name_rules.HALF_TOPIC:  # Apache loses the delay; here it applies after the commit
            return
        properties = message.properties
        level = delay_level(properties)
        if level > 0:
            for name in TIMER_REQUESTS:
                properties.pop(name, None)
            if level > self._levels:
                self.lowered(message.topic)
            self._delay(message, min(level, self._levels))
        elif not properties.keys().isdisjoint(TIMER_REQUESTS) and not is_timed(message):
            self._schedule(message)

    def _delay(self, message: Message, level: int) -> None:
        message.properties[Property.DELAY] = str(level)
        message.properties[Property.REAL_TOPIC] = message.topic
        message.properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
        message.topic, message.queue_id = name_rules.SCHEDULE_TOPIC, level - 1
