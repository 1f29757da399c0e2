"""Marks: all decisions of a turn as one op message, in the same write as the final messages. Loop thread.

In a store whose marks Apache 4 wrote each is an op message of its own, the only form that it reads. The journal was
told of a commit before, so that a write torn between the final message and its mark is mended at start (`queue_mark`). A
rollback has no record but its mark.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.message_store import PutRefused
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.peer import Peer
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables import name_rules
from firearrow.broker.transactions.open_halves import OpenHalfMessages

log = logging.getLogger("firearrow.transactions")

TAG = "d"


class OpEntry(NamedTuple):
    """`bound`: what it tells of is stored or staged, so it must come; else it may be refused with `answer`."""

    half_offset: int
    bound: bool
    peer: Peer | None = None
    answer: RemotingCommand | None = None


class OpMessageWriter:
    """`settled()` is called when marks are stored: offsets may have moved. `one_each` is set before the first."""

    one_each = False

    def __init__(
        self,
        write_batch: WriteBatch,
        appender: Appender,
        open_halves: OpenHalfMessages,
        config: Config,
        clock: Clock,
        stats: Stats,
        settled: Callable[[], None],
    ) -> None:
        self._write_batch = write_batch
        self._appender = appender
        self._open_halves = open_halves
        self._config = config
        self._clock = clock
        self._stats = stats
        self._settled = settled
        self._new: list[OpEntry] = []
        self._retry: list[OpEntry] = []
        self._planned = False

    def put(self, entry: OpEntry) -> None:
        """This turn writes it."""
        self._open_halves.begin(entry.half_offset)
        self._new.append(entry)
        self._plan()

    def queue_mark(self, half_offset: int) -> None:
        """What it tells of is in the log, the mark is not."""
        self._open_halves.begin(half_offset)
        self._retry.append(OpEntry(half_offset, bound=True))

    def write_queued(self) -> None:
        """Try again what is owed."""
        if self._retry:
            self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._write_batch.before_write(self._write)

    def _write(self) -> None:
        self._planned = False
        retried, self._retry = self._retry, []
        fresh, self._new = self._new, []
        waiting = [*retried, *fresh]
        while waiting:
            try:
                text, count = self._text(waiting)
                self._write_one(text.encode(), waiting[:count], len(retried))
            except (PutRefused, MemoryError) as refused:
                return self._refuse(waiting, refused)
            waiting, retried = waiting[count:], retried[count:]

    def _text(self, waiting: list[OpEntry]) -> tuple[str, int]:
        """The body of the next op message, and how many of them are in it."""
        if self.one_each:
            return str(waiting[0].half_offset), 1
        text, count = "", 0
        while count < len(waiting) and len(text) < self._config.options.transaction_op_bytes:
            text += f"{waiting[count].half_offset},"
            count += 1
        return text, count

    def _write_one(self, body: bytes, entries: list[OpEntry], retried: int) -> None:
        """The first `retried` of them stay owed if the disk refuses the write; the others fall with their messages."""

        def stored(well: bool) -> None:
            if well:
                self._open_halves.end([entry.half_offset for entry in entries])
                self._open_halves.note_op(placed.queue_offset, [entry.half_offset for entry in entries])
                return self._settled()
            self._retry.extend(entries[:retried])
            for entry in entries[retried:]:
                self._open_halves.reopen(entry.half_offset)

        properties = {Property.WAIT: "true", Property.TAGS: TAG}
        message = Message(name_rules.OP_HALF_TOPIC, 0, body, properties, born_ms=self._clock.now_ms())
        placed = self._appender.put(message, hooks=False, on_stored=stored)
        self._stats.put(message.topic, 1, placed.end - placed.physical_offset)
        for entry in entries:
            if entry.answer is not None:
                self._write_batch.reply_after(
                    placed.end, (name_rules.OP_HALF_TOPIC, 0), entry.peer, entry.answer
                )

    def _refuse(self, entries: list[OpEntry], refused: Exception) -> None:
        log.warning("%d decided transactions cannot be marked now: %s", len(entries), refused)
        self._retry.extend(entry for entry in entries if entry.bound)
        for entry in entries:
            if entry.bound:
                continue
            self._open_halves.reopen(entry.half_offset)
            if entry.peer is not None and entry.answer is not None and not entry.peer.closed:
                remark = "Service not available now."
                entry.peer.reply(entry.answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
