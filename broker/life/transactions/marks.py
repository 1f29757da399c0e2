"""Marks: all decisions of a turn as one op message, in the same write as the final messages. Loop thread.

In a store whose marks Apache 4 wrote each is an op message of its own, the only form that it reads. The journal was
told of a commit before, so that a write torn between the final message and its mark is mended at start (`owe`). A
rollback has no record but its mark.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.path.turn import Turn
from firearrow._native.store.store import PutRefused
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.clock import Clock
from firearrow.broker.config import Config
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.transactions.ledger import Ledger
from firearrow.broker.messages import Message, Property
from firearrow.broker.peer import Peer
from firearrow.broker.stats import Stats
from firearrow.broker.tables import names

log = logging.getLogger("firearrow.transactions")

TAG = "d"


class Mark(NamedTuple):
    """`bound`: what it tells of is stored or staged, so it must come; else it may be refused with `answer`."""

    half_offset: int
    bound: bool
    peer: Peer | None = None
    answer: RemotingCommand | None = None


class Marks:
    """`settled()` is called when marks are stored: offsets may have moved. `one_each` is set before the first."""

    one_each = False

    def __init__(
        self,
        turn: Turn,
        appender: Appender,
        ledger: Ledger,
        config: Config,
        clock: Clock,
        stats: Stats,
        settled: Callable[[], None],
    ) -> None:
        self._turn = turn
        self._appender = appender
        self._ledger = ledger
        self._config = config
        self._clock = clock
        self._stats = stats
        self._settled = settled
        self._fresh: list[Mark] = []
        self._owed: list[Mark] = []
        self._planned = False

    def put(self, mark: Mark) -> None:
        """This turn writes it."""
        self._ledger.begin(mark.half_offset)
        self._fresh.append(mark)
        self._plan()

    def owe(self, half_offset: int) -> None:
        """What it tells of is in the log, the mark is not."""
        self._ledger.begin(half_offset)
        self._owed.append(Mark(half_offset, bound=True))

    def settle(self) -> None:
        """Try again what is owed."""
        if self._owed:
            self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._turn.before(self._write)

    def _write(self) -> None:
        self._planned = False
        owed, self._owed = self._owed, []
        fresh, self._fresh = self._fresh, []
        waiting = [*owed, *fresh]
        while waiting:
            try:
                text, count = self._text(waiting)
                self._write_one(text.encode(), waiting[:count], len(owed))
            except (PutRefused, MemoryError) as refused:
                return self._refuse(waiting, refused)
            waiting, owed = waiting[count:], owed[count:]

    def _text(self, waiting: list[Mark]) -> tuple[str, int]:
        """The body of the next op message, and how many of them are in it."""
        if self.one_each:
            return str(waiting[0].half_offset), 1
        text, count = "", 0
        while count < len(waiting) and len(text) < self._config.options.transaction_op_bytes:
            text += f"{waiting[count].half_offset},"
            count += 1
        return text, count

    def _write_one(self, body: bytes, marks: list[Mark], owed: int) -> None:
        """The first `owed` of them stay owed if the disk refuses the write; the others fall with their messages."""

        def stored(well: bool) -> None:
            if well:
                self._ledger.end([mark.half_offset for mark in marks])
                self._ledger.note_op(placed.queue_offset, [mark.half_offset for mark in marks])
                return self._settled()
            self._owed.extend(marks[:owed])
            for mark in marks[owed:]:
                self._ledger.reopen(mark.half_offset)

        properties = {Property.WAIT: "true", Property.TAGS: TAG}
        message = Message(names.OP_HALF_TOPIC, 0, body, properties, born_ms=self._clock.now_ms())
        placed = self._appender.put(message, hooks=False, then=stored)
        self._stats.put(message.topic, 1, placed.end - placed.physical_offset)
        for mark in marks:
            if mark.answer is not None:
                self._turn.park(placed.end, (names.OP_HALF_TOPIC, 0), mark.peer, mark.answer)

    def _refuse(self, marks: list[Mark], refused: Exception) -> None:
        log.warning("%d decided transactions cannot be marked now: %s", len(marks), refused)
        self._owed.extend(mark for mark in marks if mark.bound)
        for mark in marks:
            if mark.bound:
                continue
            self._ledger.reopen(mark.half_offset)
            if mark.peer is not None and mark.answer is not None and not mark.peer.closed:
                remark = "Service not available now."
                mark.peer.reply(mark.answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
