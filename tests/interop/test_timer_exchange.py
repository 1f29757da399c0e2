"""A store with pending timers moves between brokers, after a clean stop or a kill: all are delivered, none twice."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from firearrow._native.store.log.timer_layout import CHECKPOINT
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow._native.wire.codes import RequestCode
from tests.interop.peers import Apache, FireArrow, address
from tests.interop.toolchain import java_class_path, need
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send_ext

pytestmark = pytest.mark.interop

Open = Callable[[Path, dict[str, str]], AbstractContextManager[FireArrow] | AbstractContextManager[Apache]]
SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "mappedFileSizeTimerLog": "10400",
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "brokerName": "broker-a",
    "timerRollWindowSlot": "4",
}
TOPIC, DAY_MS = "Timed", 86_400_000
EARLY, PENDING = 20, 300
"""Delivered before the store moves; due later, all of them rolled before."""
EARLY_MS = 800
DUE_MS, APART_MS = (15_000, 36_000, 90_000), 5
"""The roll window is a third of it: the other broker rolls them, which needs time to start; more on a busy machine."""
ROLL_MARGIN_S = 0.5
MARGIN_MS = 3_000
"""A recall only finds messages that are not due when the other broker enqueues them again."""
FLOOD = 6_000
SETTLED_S = 2
"""More than one second, by which Apache's deliveries may be late."""


def send(client: ClientSocket, body: str, deliver_ms: int) -> str:
    """The recall handle."""
    answer = client.ask(
        RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, i=f"TIMER_DELIVER_MS\x01{deliver_ms}\x02"), body.encode()
    )
    assert answer.code == 0, answer.remark
    return answer.ext["recallHandle"]


def await_checkpoint(store: Path, read_ms: int, queue_offset: int) -> None:
    """Wait for these values in `timercheck`: after a kill, Apache repeats what its checkpoint does not cover."""
    path = store / "config" / "timercheck"

    def covers() -> bool:
        page = path.read_bytes()[: CHECKPOINT.size]
        fields = CHECKPOINT.unpack(page) if len(page) == CHECKPOINT.size else (0,) * 4
        return fields[0] >= read_ms and fields[3] >= queue_offset

    eventually(covers, 60, "the timer lags")


def write(client: ClientSocket, store: Path, due_ms: int) -> set[bytes]:
    """All that must be delivered; messages that are due when the timer reads them come last."""
    early_ms = 0
    for number in range(EARLY):
        early_ms = time.time_ns() // 1_000_000 + EARLY_MS + number * 25
        send(client, f"early {number}", early_ms)
    now_ms = time.time_ns() // 1_000_000
    handles = [send(client, f"pending {number}", due_ms + number * APART_MS) for number in range(PENDING)]
    send(client, "far", now_ms + 2 * DAY_MS)
    recalled = range(0, PENDING, 50)
    for number in recalled:
        ext = {"producerGroup": "PG", "topic": TOPIC, "recallHandle": handles[number]}
        assert client.ask(RequestCode.RECALL_MESSAGE, ext).code == 0
    sent = EARLY + PENDING + 1 + len(recalled)
    await_checkpoint(store, early_ms + 1, sent)
    for number in range(3):
        properties = f"TIMER_OUT_MS\x01{now_ms - 5000}\x02REAL_TOPIC\x01{TOPIC}\x02REAL_QID\x010\x02"
        ext = send_ext("rmq_sys_wheel_timer", i=properties)
        assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"late %d" % number).code == 0
    await_checkpoint(store, 0, sent + 3)
    early = {b"early %d" % number for number in range(EARLY)} | {b"late %d" % number for number in range(3)}
    eventually(lambda: {record.body for record in read_queue(client, TOPIC, 0)} == early, what="the early")
    return early | {b"pending %d" % number for number in range(PENDING) if number not in recalled}


def flood(client: ClientSocket, due_ms: int) -> None:
    ext = send_ext(TOPIC, i=f"TIMER_DELIVER_MS\x01{due_ms}\x02")
    opaques = [
        client.send_request(RequestCode.SEND_MESSAGE_V2, ext, b"flood %d" % number) for number in range(FLOOD)
    ]
    assert {client.answer_to(opaque).code for opaque in opaques} == {0}


def stored(client: ClientSocket) -> int:
    """Messages in the queue."""
    return int(client.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).ext["offset"])


def fire_half(store: Path) -> bool:
    """Stop ours in the middle of a slot; False if it was faster than this process."""
    with FireArrow(store, SETTINGS) as peer, ClientSocket(address(peer.address)) as client:
        flood(client, (time.time_ns() // 1_000_000 // 1000 + 4) * 1000)
        while stored(client) < FLOOD // 20:
            time.sleep(0.001)
        peer.stop()
    sizes = StoreConfig(segment_bytes=1 << 20, queue_file_bytes=20_000, index_slots=500, index_entries=2000)
    with MessageStore.open(store, sizes) as half:
        return FLOOD // 20 <= half.reader.max_offset(TOPIC, 0) < FLOOD


def test_a_half_fired_slot_changes_hands(tmp_path: Path) -> None:
    """Ours is stopped in the middle of a slot; Apache's continues with the rest of it."""
    need(lambda: java_class_path("client5"))
    store = next((path for path in (tmp_path / f"store-{n}" for n in range(5)) if fire_half(path)), None)
    assert store is not None, "the whole slot was delivered before the stop, five times"
    with Apache(store, SETTINGS) as theirs, ClientSocket(address(theirs.address)) as client:
        eventually(lambda: stored(client) >= FLOOD, 30)
        time.sleep(SETTLED_S)
        found = [record.body for record in read_queue(client, TOPIC, 0)]
        assert Counter(found) == Counter(b"flood %d" % number for number in range(FLOOD))
        theirs.stop()


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.long), "kill"])
@pytest.mark.parametrize(
    ("writer", "reader"), [(FireArrow, Apache), (Apache, FireArrow)], ids=["ours", "theirs"]
)
def test_pending_timers_change_hands(writer: Open, reader: Open, end: str, tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    for due_in_ms in DUE_MS:
        store, window_s = tmp_path / f"due-in-{due_in_ms}", due_in_ms // 3000
        settings = SETTINGS | {"timerRollWindowSlot": str(window_s)}
        with writer(store, settings) as peer, ClientSocket(address(peer.address)) as client:
            began_s, due_ms = time.monotonic(), time.time_ns() // 1_000_000 + due_in_ms
            expected = write(client, store, due_ms)
            peer.stop() if end == "stop" else peer.__exit__(None, None, None)
        if time.monotonic() - began_s > window_s - ROLL_MARGIN_S:
            continue  # what it has rolled after its last checkpoint is rolled again
        with reader(store, settings) as peer, ClientSocket(address(peer.address)) as client:
            if time.time_ns() // 1_000_000 > due_ms - MARGIN_MS:
                continue
            found = delivered(client, len(expected), due_ms)
            peer.stop()
        assert set(found) == expected
        assert [body for body, times in found.items() if times > 1] == []
        return
    pytest.fail(f"the brokers took too long, {len(DUE_MS)} times")


def delivered(client: ClientSocket, expected: int, due_ms: int) -> Counter[bytes]:
    """The bodies in the queue, once there are as many as expected, or 30 s after the last was due."""
    last_s = due_ms / 1000 + PENDING * APART_MS / 1000
    with suppress(AssertionError):
        eventually(lambda: stored(client) >= expected, last_s + 30 - time.time())
    time.sleep(SETTLED_S)
    return Counter(record.body for record in read_queue(client, TOPIC, 0))
