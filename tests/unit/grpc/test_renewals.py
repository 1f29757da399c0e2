"""ReceiptHandleManager with a manual clock and a real store: when messages are renewed and given back, in slices, and
what a restart and a kill leave of that."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from firearrow._native.protocol.fastjson import dumps, loads
from firearrow._native.protocol.name_rules import TIMER_TOPIC
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Peer
from firearrow.broker.grpc.receipt_table import (
    CLIENT_PARTS,
    HANDLE_BYTES,
    ROWS,
    MessageReceiptHandle,
    ReceiptHandleTable,
)
from firearrow.broker.grpc.receipts import Receipt
from firearrow.broker.grpc.renewals import SLICE, BackgroundPeer, ReceiptHandleManager, RenewalParts
from firearrow.broker.pop.checkpoints import AckMessage, PopCheckPoint, revive_topic
from firearrow.broker.tables.offsets import ConsumerOffsets
from tests.support.harness import Harness

REVIVE = revive_topic("DefaultCluster")
LITE_QUEUE = "%LMQ%$T$a"


class Client(NamedTuple):
    client_id: str
    user: str = ""


ONE, OTHER = Client("one@1"), Client("other@2", "ü\n")


class Renewing:
    """`asked`: the requests that came of renewals, as (queue offset, invisible ms), which all succeed."""

    def __init__(self, folder: Path, file: bytes | None = None, now_ms: int = 1_700_000_000_000) -> None:
        self.folder = folder
        self.harness = Harness(folder, now_ms=now_ms)
        self.clock, self.loop = self.harness.clock, self.harness.timers
        self.changes = 0
        self.online: set[Client] = {ONE, OTHER}
        self.works = True
        self.asked: list[tuple[int, int]] = []
        self.code = ResponseCode.SUCCESS
        self.answers: list[Callable[[], None]] | None = None
        """What waits for the disk; None: nothing does."""
        self.offsets = ConsumerOffsets(self.clock)
        self.table = ReceiptHandleTable(self.clock, self._changed)
        if file is not None:
            self.table.load(file)
        self.requests = BackgroundPeer(self._dispatch, ("127.0.0.1", 1))
        parts = RenewalParts(
            self.loop,  # type: ignore[arg-type]
            self.clock,
            self.harness.store,
            self.offsets,
            self.table,
            self.requests,
            REVIVE,
            lambda: self.works,
        )
        self.manager = ReceiptHandleManager(parts)
        self.manager.is_online = lambda client_id, user: Client(client_id, user) in self.online

    def _changed(self) -> None:
        self.changes += 1

    def _dispatch(self, request: RemotingCommand, peer: Peer) -> None:
        assert request.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        assert request.text("suspend") == "true"
        invisible_ms = request.integer("invisibleTime")
        self.asked.append((request.integer("offset"), invisible_ms))
        ext = {"popTime": str(self.clock.now_ms()), "invisibleTime": str(invisible_ms), "reviveQid": "0"}
        answer = request.answer(self.code, ext=ext)
        if self.answers is None:
            peer.reply(answer)
        else:
            self.answers.append(lambda: peer.reply(answer))

    def receipt(self, offset: int, topic: str = "T", revive_queue: int = 0) -> Receipt:
        """Of a message that is received now."""
        kind = "1" if topic.startswith("%RETRY%") else "0"
        text = f"{offset} {self.clock.now_ms()} 60000 {revive_queue} {kind} b 0 {offset} 7"
        return Receipt.of(text, "T", "G")

    def receive(self, *offsets: int, client: Client = ONE, topic: str = "T") -> None:
        for offset in offsets:
            self.manager.begin(client, "G", self.receipt(offset, topic))

    def end(self, receipt: Receipt) -> None:
        """The client is done with the message."""
        self.manager.resume(self.manager.pause(ONE, "G", receipt), is_done=True)

    def run(self, seconds: float) -> list[tuple[int, int]]:
        """What was asked within that time."""
        self.asked.clear()
        self.loop.run(int(seconds * 1000))
        return list(self.asked)

    def put(self, body: bytes, tag: str, topic: str = REVIVE) -> None:
        """As AckService and PopService do: a message of the timer."""
        self.harness.put(TIMER_TOPIC, body, TAGS=tag, REAL_TOPIC=topic)
        self.loop.run()

    def ack(self, receipt: Receipt, topic: str = REVIVE) -> None:
        handle = receipt.handle
        acks = AckMessage(
            receipt.topic, "G", 0, handle.start_offset, handle.pop_ms, "b", (receipt.queue_offset,)
        )
        self.put(acks.message(REVIVE, 0, 0, 0).body, "ack", topic)

    def check_point(self, offset: int, invisible_ms: int, *, suspend: bool) -> None:
        point = PopCheckPoint(
            "T", "G", 0, offset, self.clock.now_ms(), invisible_ms, [offset], "b", suspend=suspend
        )
        self.put(point.message(REVIVE, 0, 0).body, "ck")

    def again(self, file: bytes, online: set[Client] | None = None) -> "Renewing":
        """The broker after a kill, with this file."""
        self.harness.kill()
        found = Renewing(self.folder, file, self.clock.now_ms())
        found.online = set() if online is None else online
        return found


@pytest.fixture
def renewing(tmp_path: Path) -> Renewing:
    return Renewing(tmp_path)


def test_a_message_is_renewed_ten_seconds_before_it_is_visible(renewing: Renewing) -> None:
    renewing.receive(5)
    assert renewing.run(49) == []
    assert renewing.run(3) == [(5, 60_000)]
    assert renewing.run(45) == []
    assert renewing.run(7) == [(5, 180_000)]
    assert renewing.run(600) == [(5, 300_000), (5, 600_000)]
    first = renewing.receipt(5)
    assert renewing.manager.newest(ONE, "G", first).handle.invisible_ms == 600_000
    assert renewing.manager.newest(OTHER, "G", first) == first
    renewing.end(first)
    assert (len(renewing.table), renewing.table.bytes, renewing.run(3600)) == (0, 0, [])


def test_it_is_renewed_for_three_hours_and_not_after_three_failures(renewing: Renewing) -> None:
    renewing.receive(5)
    renewing.run(4 * 3600)
    assert len(renewing.table) == 0
    renewing.receive(6)
    renewing.code = ResponseCode.SYSTEM_ERROR
    assert renewing.run(120) == [(6, 60_000)] * 2
    assert len(renewing.table) == 0, "it is visible by then"


def test_a_request_of_the_client_waits_for_a_renewal(renewing: Renewing) -> None:
    """With an older handle it would leave the renewed message as it is, which then comes again."""
    renewing.receive(1)
    receipt = renewing.receipt(1)
    renewing.answers, done = [], list[int]()
    assert renewing.run(51) == [(1, 60_000)]
    renewing.manager.when_settled(
        ONE, "G", receipt, lambda: done.append(renewing.manager.newest(ONE, "G", receipt).handle.pop_ms)
    )
    assert done == []
    [answer] = renewing.answers
    answer()
    assert done == [receipt.handle.pop_ms + 50_000]
    renewing.manager.when_settled(ONE, "G", receipt, lambda: done.append(0))
    assert done[1:] == [0], "at once"


def test_no_message_is_renewed_that_its_client_may_be_done_with(renewing: Renewing) -> None:
    renewing.receive(1, 2)
    first, second = (renewing.manager.pause(ONE, "G", renewing.receipt(offset)) for offset in (1, 2))
    assert renewing.run(52) == []
    renewing.manager.resume(first, is_done=True)
    renewing.manager.resume(second, is_done=False)
    assert renewing.run(5) == [(2, 60_000)], "the other one is acknowledged"


def test_what_an_ended_client_may_be_done_with_is_given_back_if_it_is_not(renewing: Renewing) -> None:
    renewing.receive(1, 2, 3)
    first, second = (renewing.manager.pause(ONE, "G", renewing.receipt(offset)) for offset in (1, 2))
    renewing.manager.give_back(ONE)
    assert renewing.run(1) == [(3, 1000)]
    renewing.manager.resume(first, is_done=True)
    renewing.manager.resume(second, is_done=False)
    assert renewing.run(1) == [(2, 1000)]


def test_many_are_renewed_in_slices(renewing: Renewing) -> None:
    renewing.receive(*range(3 * SLICE + 1))
    renewing.loop.run(48_000)
    most = 0
    while len(renewing.asked) <= 3 * SLICE:
        before = len(renewing.asked)
        renewing.loop.step()
        most = max(most, len(renewing.asked) - before)
    assert most == SLICE
    assert sorted(offset for offset, _ in renewing.asked) == [*range(3 * SLICE + 1)]


def test_what_an_ended_client_had_is_given_back_at_once_in_slices(renewing: Renewing) -> None:
    renewing.receive(*range(SLICE + 1))
    renewing.receive(7, client=OTHER)
    renewing.manager.give_back(ONE)
    assert renewing.run(0) == [(offset, 1000) for offset in range(SLICE + 1)]
    assert len(renewing.table) == 1


def test_what_a_lost_client_had_waits_for_it(renewing: Renewing) -> None:
    renewing.receive(1)
    renewing.receive(2, client=OTHER)
    for client in (ONE, OTHER):
        renewing.online.discard(client)
        renewing.manager.lost(client)
    renewing.loop.run(10_000)
    renewing.online.add(OTHER)
    assert renewing.run(25) == [(1, 1000)]
    assert renewing.run(30) == [(2, 60_000)]
    renewing.online.discard(OTHER)
    renewing.manager.lost(OTHER)
    assert renewing.run(28) == []
    assert renewing.run(4) == [(2, 1000)]


def test_memory_is_bounded(renewing: Renewing) -> None:
    """A limit: beyond it messages are not renewed. One client gets a part of it."""
    renewing.table.bytes_max = CLIENT_PARTS * (3 * HANDLE_BYTES + 200)
    renewing.receive(1, 2, 3)
    assert (len(renewing.table), renewing.table.dropped) == (2, 1)
    for number in range(CLIENT_PARTS):
        renewing.receive(10 + number, client=Client(f"c{number}", ""))
        renewing.receive(20 + number, client=Client(f"c{number}", ""))
    assert (len(renewing.table), renewing.table.dropped) == (2 * CLIENT_PARTS, 3)
    first = renewing.table.find(ONE, ("G", "T", 0, 2))
    renewing.clock.advance(1000)
    renewing.receive(2)
    assert first is not renewing.table.find(ONE, ("G", "T", 0, 2)), (
        "a newer handle takes the place of the older one"
    )
    renewing.end(renewing.receipt(1))
    renewing.receive(3)
    assert sorted(handle.receipt.queue_offset for handle in renewing.table)[:2] == [2, 3]
    for client in [ONE, *(Client(f"c{number}", "") for number in range(CLIENT_PARTS))]:
        renewing.manager.give_back(client)
    assert (len(renewing.table), renewing.table.bytes) == (0, 0)


def test_a_row_of_the_file_is_shorter_than_what_its_handle_counts_for(renewing: Renewing) -> None:
    words = ["9" * 18] * 4 + ["0", "b" * 255, "2147483647"] + ["9" * 18] * 2
    receipt = Receipt.of(" ".join(words), "T" * 127, "G" * 255)
    handle = MessageReceiptHandle(("c", ""), "G" * 255, receipt, (1 << 63) - 1)
    assert len(dumps(handle.row())) < handle.weight
    renewing.receive(1, client=Client("\x01" * 255, "\x02" * 64))
    assert len(renewing.table.to_json()) < renewing.table.bytes


# ---- the file ----


def test_after_a_restart_it_goes_on_for_clients_that_come_back(renewing: Renewing) -> None:
    renewing.receive(1)
    renewing.receive(2, client=OTHER, topic="%RETRY%G_T")
    renewing.loop.run(51_000)
    first, newest = renewing.receipt(1), renewing.manager.newest(ONE, "G", renewing.receipt(1))
    renewing.receive(*range(10, 20 + ROWS))
    after = renewing.again(renewing.table.to_json())
    assert len(after.table) == len(renewing.table)
    assert after.table.bytes == renewing.table.bytes
    assert after.manager.newest(ONE, "G", first) == newest
    after.loop.run(20_000)
    after.online.add(ONE)
    assert after.run(15) == [(2, 1000)], "the other client did not come back"
    assert {offset for offset, _ in after.run(60)} == {1, *range(10, 20 + ROWS)}


def test_nothing_runs_once_it_has_stopped(renewing: Renewing) -> None:
    """Connections are closed after that; the loop may go on with the broker in another role."""
    renewing.receive(1)
    renewing.manager.stop()
    renewing.receive(2)
    renewing.manager.return_messages(ONE, "G", [renewing.receipt(3)])
    renewing.manager.give_back(ONE)
    assert renewing.run(60) == []
    assert renewing.loop.take_callbacks() == []


def test_it_waits_until_the_broker_works(renewing: Renewing) -> None:
    renewing.receive(1)
    after = renewing.again(renewing.table.to_json())
    after.works = False
    assert after.run(40) == []
    after.works = True
    assert after.run(25) == [(1, 60_000)]
    assert after.run(10) == [(1, 1000)]


def test_after_a_kill_the_log_has_what_the_file_lacks(renewing: Renewing) -> None:
    """Acknowledged, renewed and changed by its client, since the file was written; and by another pop, a timer
    message that only looks so, and before the file."""
    renewing.receive(*range(6))
    receipts = [renewing.receipt(offset) for offset in range(6)]
    file = renewing.table.to_json()
    renewing.loop.run(30_000)
    renewing.ack(receipts[0])
    renewing.check_point(1, 60_000, suspend=True)
    newest_ms = renewing.clock.now_ms()
    renewing.ack(receipts[1])  # as each change does
    renewing.check_point(2, 60_000, suspend=False)
    renewing.check_point(3, 10_000, suspend=True)
    renewing.ack(receipts[4], topic="T")
    renewing.put(b"{", "ack")
    after = renewing.again(file, {ONE})
    after.loop.run(1000)
    assert sorted(handle.receipt.queue_offset for handle in after.table) == [1, 4, 5]
    newest = after.manager.newest(ONE, "G", receipts[1])
    assert (newest.handle.pop_ms, newest.handle.invisible_ms) == (newest_ms, 60_000)
    assert sorted(after.run(20)) == [(4, 60_000), (5, 60_000)]
    assert after.run(30) == [(1, 180_000)]


def test_the_file_states_where_the_log_was_some_seconds_before_it(renewing: Renewing) -> None:
    """An acknowledgement is in the log before the table learns of it."""
    renewing.harness.put("T", b"before")
    renewing.loop.run()
    begun = renewing.harness.store.written
    renewing.receive(1, 2)
    assert loads(renewing.table.to_json())["logOffset"] == begun
    for _ in range(10):
        renewing.harness.put("T", b"more")
        renewing.loop.run(2000)
    file = renewing.table.to_json()
    assert begun < loads(file)["logOffset"] < renewing.harness.store.written
    renewing.ack(
        renewing.receipt(1)._replace(handle=renewing.manager.newest(ONE, "G", renewing.receipt(1)).handle)
    )
    after = renewing.again(file)
    after.loop.run(1000)
    assert [handle.receipt.queue_offset for handle in after.table] == [2]


def test_messages_popped_in_order_are_settled_by_the_offset(renewing: Renewing) -> None:
    for lite_topic in ("", "a"):
        for offset in (3, 4):
            receipt = renewing.receipt(offset, revive_queue=999)._replace(lite_topic=lite_topic)
            renewing.manager.begin(ONE, "G", receipt)
    after = renewing.again(renewing.table.to_json(), {ONE})
    after.offsets.commit("G", "T", 0, 4)
    after.loop.run(1000)
    assert [handle.receipt.key[::2] for handle in after.table] == [("T", 4), (LITE_QUEUE, 3), (LITE_QUEUE, 4)]
    later = after.again(after.table.to_json(), {ONE})
    later.offsets.commit("G", LITE_QUEUE, 0, 4)
    later.loop.run(1000)
    assert [handle.receipt.key[::2] for handle in later.table] == [("T", 4), (LITE_QUEUE, 4)]


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"clients":{}}',
        b'{"clients":[7]}',
        b'{"clients":[{"handles":[]}]}',
        b'{"clients":[{"clientId":"c","handles":[["G","T"]]}]}',
        b'{"clients":[{"clientId":"c","handles":[["G","T",7,1,1]]}]}',
        b'{"clients":[{"clientId":"c","handles":[["G","T","1 2 3",1,1]]}]}',
        b'{"clients":[{"clientId":"c","handles":[["G","T","1 2 3 0 0 b 0 1 2",-1,1]]}]}',
        b'{"clients":[{"clientId":"c","handles":[["G","T","1 2 3 0 0 b 0 1 2",1,"x"]]}]}',
        b'{"logOffset":-1}',
    ],
)
def test_a_damaged_file_changes_nothing(renewing: Renewing, text: bytes) -> None:
    renewing.receive(1)
    with pytest.raises(ValueError, match=r"."):
        renewing.table.load(text)
    assert len(renewing.table) == 1
