"""ReviveHarness: a Harness with a ReviveService, and messages that were popped and not acknowledged."""

from pathlib import Path

from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base.message import Message, Property
from firearrow.broker.base.options import Options
from firearrow.broker.pop.ack import AckService
from firearrow.broker.pop.checkpoints import AckMessage, PopCheckPoint, revive_topic
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.pop.receipt_handles import ReceiptHandle
from firearrow.broker.pop.revive import ReviveService
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import TopicTable
from tests.support.harness import Harness

REVIVE = revive_topic("DefaultCluster")
RETRY = "%RETRY%G_T"
INVISIBLE_MS = 10_000


class ReviveHarness(Harness):
    """One revive queue; check points and acknowledgements are put into it by the test, as the timer would."""

    def __init__(self, folder: Path, offsets: bytes | None = None, now_ms: int = 1_700_000_000_000) -> None:
        super().__init__(folder, now_ms=now_ms)
        self.topics, self.groups = TopicTable(self.clock), GroupTable(self.clock)
        self.topics.create("T", 4)
        self.groups.find("G")
        self.offsets = ConsumerOffsets(
            self.clock, on_commit=lambda *entry: self.journal.note(Kind.OFFSET, *entry)
        )
        if offsets is not None:
            self.offsets.load(offsets)
        self.behind = False
        context = self.context(
            Options(revive_queues=1), topics=self.topics, groups=self.groups, offsets=self.offsets
        )
        self.revive = ReviveService(context, self.appender, lambda: self.behind)
        self.acks = AckService(context, self.appender, ConsumerOrderInfo(self.clock), lambda key: None)
        restorers = {Kind.OFFSET: self.offsets.restore, Kind.REVIVE: self.revive.restore}
        for entry in self.journal.recover_entries():
            restorers[Kind(entry.kind)](entry.name, entry.number, entry.value)
        self.revive.start()

    def pop(self, *offsets: int, topic: str = "T", group: str = "G", by_timer: bool = False) -> PopCheckPoint:
        """As a pop at this moment; `by_timer`: its check point has waited in the timer."""
        point = PopCheckPoint(
            topic, group, 0, offsets[0], self.clock.now_ms(), INVISIBLE_MS, list(offsets), "b"
        )
        message = point.message(REVIVE, 0, self.clock.now_ms())
        if by_timer:
            message.properties[Property.TIMER_OUT_MS] = str(self.clock.now_ms())
        self.appender.put(message, hooks=False)
        return point

    def ack(self, point: PopCheckPoint, *offsets: int) -> None:
        acks = AckMessage(
            *point.key[:2], point.queue_id, point.start_offset, point.pop_ms, "b", offsets, len(offsets) == 1
        )
        message = acks.message(REVIVE, 0, point.revive_ms, self.clock.now_ms())
        self.appender.put(message, hooks=False)

    def change_invisible(self, point: PopCheckPoint, offset: int, invisible_ms: int) -> None:
        handle = ReceiptHandle(point.start_offset, point.pop_ms, point.invisible_ms, 0, "", "b")
        self.acks.change_invisible(
            point.group, point.topic, point.queue_id, offset, handle, invisible_ms, suspend=False
        )

    @staticmethod
    def _schedule(message: Message) -> None:
        """The message reaches its topic at once."""

    def revived(self) -> list[bytes]:
        return self.bodies(RETRY)


def filled(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.put("T", b"%d" % number, KEYS=f"k{number}", TAGS="t")
    harness.timers.run()
