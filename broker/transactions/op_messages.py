"""Writes all decisions of a write batch as one op message, together with the final messages. Loop thread.

In a store whose op messages Apache 4 wrote, each decision gets its own op message, the only form that Apache
4 reads. The progress journal has each commit before it is written: if the write is torn between the final
message and the op message, the start writes the op message again (`queue_op`). A rollback has no other record
than its op message.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import PutRefused
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.peer import Peer
from firearrow.broker.base.stats import Stats
from firearrow.broker.transactions.open_halves import OpenHalfMessages

log = logging.getLogger("firearrow.transactions")

TAG = "d"


class OpEntry(NamedTuple):
    """One decision.

    `required`: its final message is stored or staged, so it must be written; if not, it may be refused with
    `answer`.
    """

    half_offset: int
    required: bool
    peer: Peer | None = None
    answer: RemotingCommand | None = None


class OpMessageWriter:
    """`advanced()` is called when op messages are stored, when offsets may have moved. `single_offsets`, one
    decision per op message, is set before the first `put`.
    """

    single_offsets = False

    def __init__(
        self,
        write_batch: WriteBatch,
        appender: Appender,
        open_halves: OpenHalfMessages,
        config: Config,
        clock: Clock,
        stats: Stats,
        advanced: Callable[[], None],
    ) -> None:
        self._write_batch = write_batch
        self._appender = appender
        self._open_halves = open_halves
        self._config = config
        self._clock = clock
        self._stats = stats
        self._advanced = advanced
        self._new: list[OpEntry] = []
        self._retry: list[OpEntry] = []
        self._planned = False

    def put(self, entry: OpEntry) -> None:
        """Write the decision with the current write batch."""
        self._open_halves.begin(entry.half_offset)
        self._new.append(entry)
        self._plan()

    def queue_op(self, half_offset: int) -> None:
        """Queue a decision whose op message is missing although its effect is in the log."""
        self._open_halves.begin(half_offset)
        self._retry.append(OpEntry(half_offset, required=True))

    def write_queued(self) -> None:
        """Write queued and failed decisions with the current write batch."""
        if self._retry:
            self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._write_batch.before_write(self._write)

    def _write(self) -> None:
        self._planned = False
        retried, self._retry = self._retry, []
        new, self._new = self._new, []
        entries = [*retried, *new]
        while entries:
            try:
                text, count = self._text(entries)
                self._write_one(text.encode(), entries[:count], len(retried))
            except (PutRefused, MemoryError) as refused:
                return self._refuse(entries, refused)
            entries, retried = entries[count:], retried[count:]

    def _text(self, entries: list[OpEntry]) -> tuple[str, int]:
        """The body of the next op message, and how many entries are in it."""
        if self.single_offsets:
            return str(entries[0].half_offset), 1
        text, count = "", 0
        while count < len(entries) and len(text) < self._config.options.transaction_op_bytes:
            text += f"{entries[count].half_offset},"
            count += 1
        return text, count

    def _write_one(self, body: bytes, entries: list[OpEntry], retried: int) -> None:
        """Stage one op message. If its write fails, the first `retried` entries are queued again, and the
        half messages of the others are open again, because their final messages failed as well.
        """

        def on_stored(stored: bool) -> None:
            if stored:
                self._open_halves.end([entry.half_offset for entry in entries])
                self._open_halves.note_op(put_result.queue_offset, [entry.half_offset for entry in entries])
                return self._advanced()
            self._retry.extend(entries[:retried])
            for entry in entries[retried:]:
                self._open_halves.reopen(entry.half_offset)

        properties = {Property.WAIT: "true", Property.TAGS: TAG}
        message = Message(name_rules.OP_HALF_TOPIC, 0, body, properties, born_ms=self._clock.now_ms())
        put_result = self._appender.put(message, hooks=False, on_stored=on_stored)
        self._stats.put(message.topic, 1, put_result.end - put_result.physical_offset)
        for entry in entries:
            if entry.answer is not None:
                self._write_batch.reply_after(
                    put_result.end, (name_rules.OP_HALF_TOPIC, 0), entry.peer, entry.answer
                )

    def _refuse(self, entries: list[OpEntry], refused: Exception) -> None:
        log.info("the op message of %d ended transactions cannot be written now: %s", len(entries), refused)
        self._retry.extend(entry for entry in entries if entry.required)
        for entry in entries:
            if entry.required:
                continue
            self._open_halves.reopen(entry.half_offset)
            if entry.peer is not None and entry.answer is not None and not entry.peer.closed:
                remark = "Service not available now."
                entry.peer.reply(entry.answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
