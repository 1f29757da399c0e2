"""What became of renewed messages since `receiptHandles.json` was written, as far as the log has it. Loop thread.

Pops, changes of invisible times and acknowledgements are messages of the timer (`pop/checkpoints`). So after a kill
what a client acknowledged is not renewed any more, and what was renewed has its newest handle. Messages that were
popped in order have none: the group's offset states what is acknowledged.
"""

from collections import defaultdict
from collections.abc import Iterator

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.message import Property
from firearrow.broker.grpc.receipt_table import Key, MessageReceiptHandle, ReceiptHandleTable
from firearrow.broker.pop.checkpoints import ACK, BATCH_ACK, CHECK_POINT, AckMessage, PopCheckPoint
from firearrow.broker.tables.offsets import ConsumerOffsets

INVISIBLE_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""Of a renewal, by how many there were before."""
QUEUE = (name_rules.TIMER_TOPIC, 0)
READ = 32
"""Entries of the queue at once."""


class ReceiptRecovery:
    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsets, table: ReceiptHandleTable, revive_topic: str
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._table = table
        self._revive_topic = revive_topic
        self._handles: defaultdict[Key, list[MessageReceiptHandle]] = defaultdict(list)

    def run(self) -> Iterator[None]:
        """Yields after each entry, so that the caller can pause."""
        for handle in list(self._table):
            self._handles[handle.key].append(handle)
            if handle.receipt.handle.is_ordered:
                self._settle_in_order(handle)
        at = self._first()
        while self._handles and (entries := self._store.reader.entries(*QUEUE, at, READ)):
            for entry in entries:
                raw = self._store.reader.record_at(entry.physical_offset)
                if raw is not None:
                    self._apply(decode(raw, False))
                yield
            at += len(entries)

    def _first(self) -> int:
        """The first entry of what came after the file."""
        reader, since = self._store.reader, self._table.log_offset
        low, high = reader.min_offset(*QUEUE), reader.max_offset(*QUEUE)
        while low < high:
            middle = (low + high) // 2
            entries = reader.entries(*QUEUE, middle, 1)
            if entries and entries[0].physical_offset < since:
                low = middle + 1
            else:
                high = middle
        return max(low, 0)

    def _settle_in_order(self, handle: MessageReceiptHandle) -> None:
        receipt = handle.receipt
        queue, queue_id, offset = receipt.key
        if offset < self._offsets.committed(handle.group, queue, queue_id):
            self._table.remove(handle)

    def _apply(self, record: Record) -> None:
        tag = record.properties.get(Property.TAGS)
        if record.properties.get(Property.REAL_TOPIC) != self._revive_topic:
            return
        try:
            if tag == CHECK_POINT:
                self._popped(PopCheckPoint.of(record.body))
            elif tag in (ACK, BATCH_ACK):
                self._acknowledged(AckMessage.of(record.body, ""))
        except ValueError:
            return  # the revive service logs it

    def _popped(self, checkpoint: PopCheckPoint) -> None:
        """A newer check point of a message: it was renewed, if the broker changes times so, else it is not renewed any
        more."""
        for offset in checkpoint.offsets:
            for handle in self._handles.get(
                (checkpoint.group, checkpoint.topic, checkpoint.queue_id, offset), ()
            ):
                receipt = handle.receipt
                if receipt.handle.pop_ms >= checkpoint.pop_ms:
                    continue
                if not (checkpoint.suspend and checkpoint.invisible_ms in INVISIBLE_MS):
                    self._table.remove(handle)
                    continue
                newer = receipt.handle._replace(
                    start_offset=checkpoint.start_offset,
                    pop_ms=checkpoint.pop_ms,
                    invisible_ms=checkpoint.invisible_ms,
                )
                handle.receipt = receipt._replace(handle=newer)
                handle.times = INVISIBLE_MS.index(checkpoint.invisible_ms) + 1
                if self._table.find(handle.owner, handle.key) is handle:
                    self._table.set_due(handle)

    def _acknowledged(self, acks: AckMessage) -> None:
        for offset in acks.offsets:
            for handle in self._handles.get((acks.group, acks.topic, acks.queue_id, offset), ()):
                if (handle.receipt.handle.pop_ms, handle.receipt.handle.start_offset) == (
                    acks.pop_ms,
                    acks.start_offset,
                ):
                    self._table.remove(handle)
