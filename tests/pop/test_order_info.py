"""ConsumerOrderInfo with a manual clock: blocked clients, a queue's progress, and the file that Apache reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.pop.order_info import (
    ATTEMPT_CHARS_MAX,
    EXPIRE_MS,
    ILLEGAL,
    PASSED,
    QUEUES_MAX,
    ConsumerOrderInfo,
    attempt_of,
)
from tests.golden import unpacked_file
from tests.support.clock import ManualClock

NOW = 1_700_000_000_000
INVISIBLE_MS = 60_000
T, G = "T", "G"

APACHE = b"""{
	"orderInfoCount":1,
	"orderedConsumptionLevel":"QUEUE",
	"table":{"T@G":{
		0:{"a":"first","cm":5,"i":60000,"l":1699999999000,"o":[100,1,2],"oc":{101:2},
			"ot":{101:1700000500000},"popTime":1699999999000},
		3:{"cm":0,"i":1000,"l":1699999999000,"o":[7],"popTime":1699999999000}
	}}
}"""


class OrderInfoHarness:
    """Orders of one topic and group."""

    def __init__(self, queues_max: int = QUEUES_MAX) -> None:
        self.clock = ManualClock(NOW)
        self.changes = 0
        self.opens: list[tuple[int, int]] = []
        self.order_info = ConsumerOrderInfo(self.clock, self._changed, self._opens, queues_max=queues_max)

    def _changed(self) -> None:
        self.changes += 1

    def _opens(self, topic: str, group: str, queue_id: int, at_ms: int) -> None:
        self.opens.append((queue_id, at_ms))

    def pop(self, *offsets: int, attempt: str | None = None, queue_id: int = 0, topic: str = T) -> str:
        return self.order_info.update(
            topic, G, queue_id, attempt, self.clock.now_ms(), INVISIBLE_MS, list(offsets)
        )

    def ack(self, offset: int, pop_ms: int = NOW, queue_id: int = 0) -> int:
        return self.order_info.acked(T, G, queue_id, offset, pop_ms)

    def blocked(self, attempt: str | None = None, queue_id: int = 0) -> bool:
        return self.order_info.blocked(T, G, queue_id, attempt, INVISIBLE_MS)


@pytest.fixture
def harness() -> OrderInfoHarness:
    return OrderInfoHarness()


def test_a_queue_is_blocked_until_all_is_acknowledged(harness: OrderInfoHarness) -> None:
    assert not harness.blocked()
    harness.pop(5, 6, 7)
    assert harness.blocked()
    assert not harness.blocked(queue_id=1)
    assert not harness.order_info.blocked(T, "another", 0, None, INVISIBLE_MS)
    assert [harness.ack(5), harness.ack(7), harness.ack(6)] == [6, 6, 8]
    assert not harness.blocked()


def test_the_offset_waits_for_the_first_that_is_missing(harness: OrderInfoHarness) -> None:
    harness.pop(5, 8, 9)  # others were filtered out
    assert [harness.ack(9), harness.ack(8), harness.ack(8), harness.ack(5)] == [5, 5, 5, 10]


def test_a_queue_is_unlocked_when_its_messages_are_visible_again(harness: OrderInfoHarness) -> None:
    harness.pop(5, 6)
    harness.ack(5)
    harness.clock.advance(INVISIBLE_MS - 1)
    assert harness.blocked()
    harness.clock.advance(1)
    assert not harness.blocked()


def test_the_same_attempt_may_pop_again(harness: OrderInfoHarness) -> None:
    harness.pop(5, attempt="a")
    assert not harness.blocked("a")
    assert harness.blocked("b")
    assert harness.blocked(None)
    harness.pop(6)
    assert harness.blocked(None), "no attempt is not the same attempt"


def test_acknowledgements_of_another_pop(harness: OrderInfoHarness) -> None:
    assert harness.ack(41) == 42, "nothing is known of the queue"
    harness.pop(5, 6)
    assert harness.ack(4) == ILLEGAL
    assert harness.ack(7) == ILLEGAL
    assert harness.ack(5, NOW - 1) == PASSED
    assert harness.blocked()


def test_counts_of_deliveries(harness: OrderInfoHarness) -> None:
    assert harness.pop(5, 6, attempt="a") == "0 0 0"
    assert harness.pop(5, 6, attempt="a") == "0 0 0"
    assert harness.pop(5, 6, attempt="b") == "0 qo0%5 1;0 qo0%6 1;0 0 1"
    assert harness.pop(5, 6, attempt="b") == "0 qo0%5 1;0 qo0%6 1;0 0 1"
    assert harness.pop(6, 7) == "0 qo0%6 2;0 0 0"
    assert harness.pop(6, 7) == "0 qo0%6 3;0 qo0%7 1;0 0 1"
    assert harness.pop(8) == "0 0 0"


def test_counts_of_a_retry_topic_carry_its_mark(harness: OrderInfoHarness) -> None:
    for topic, mark in ((f"%RETRY%{G}_{T}", "1"), (f"%RETRY%{G}+{T}", "2")):
        harness.pop(5, topic=topic)
        assert harness.pop(5, topic=topic) == f"{mark} qo0%5 1;{mark} 0 1"


def test_a_changed_time_counts_for_its_message(harness: OrderInfoHarness) -> None:
    harness.pop(5, 6)
    harness.order_info.change_visible(T, G, 0, 5, NOW, NOW + 3 * INVISIBLE_MS)
    harness.order_info.change_visible(T, G, 0, 6, NOW, NOW)
    for offset, pop_ms, queue_id in ((4, NOW, 0), (6, NOW - 1, 0), (6, NOW, 1)):
        harness.order_info.change_visible(T, G, queue_id, offset, pop_ms, NOW + 100 * INVISIBLE_MS)
    harness.clock.advance(3 * INVISIBLE_MS - 1)
    assert harness.blocked()
    harness.ack(5)
    assert not harness.blocked()


def test_the_unlock_time_of_a_queue_is_reported(harness: OrderInfoHarness) -> None:
    harness.pop(5, 6)
    harness.order_info.change_visible(T, G, 0, 6, NOW, NOW + 1000)
    harness.order_info.change_visible(T, G, 0, 5, NOW, NOW + 90_000)
    harness.ack(5)
    assert harness.opens == [
        (0, NOW + INVISIBLE_MS),
        (0, NOW + INVISIBLE_MS),
        (0, NOW + 90_000),
        (0, NOW + 1000),
    ]
    harness.ack(6)
    assert len(harness.opens) == 4, "it is open already"
    assert harness.changes == 5


def test_a_reset_forgets(harness: OrderInfoHarness) -> None:
    harness.pop(5)
    harness.order_info.clear(T, G, 0)
    assert not harness.blocked()
    changes = harness.changes
    harness.order_info.clear(T, G, 0)
    assert harness.changes == changes


def test_stale_entries_are_removed(harness: OrderInfoHarness) -> None:
    harness.pop(1)
    harness.pop(1, topic="gone")
    harness.order_info.sweep({T}, {G})
    assert len(harness.order_info) == 1
    harness.clock.advance(EXPIRE_MS)
    harness.order_info.sweep({T}, {G})
    assert len(harness.order_info) == 1
    harness.clock.advance(1)
    harness.order_info.sweep({T}, {G})
    assert len(harness.order_info) == 0
    harness.pop(1)
    harness.order_info.sweep({T}, set())
    assert len(harness.order_info) == 0


def test_the_least_recently_used_queue_is_dropped() -> None:
    harness = OrderInfoHarness(queues_max=3)
    for queue_id in range(3):
        harness.pop(1, queue_id=queue_id)
    harness.pop(1, queue_id=0)
    harness.pop(1, queue_id=3)
    assert [harness.blocked(queue_id=queue_id) for queue_id in range(4)] == [True, False, True, True]


def test_long_attempts_are_truncated() -> None:
    for length, kept in (
        (0, None),
        (ATTEMPT_CHARS_MAX, "x" * ATTEMPT_CHARS_MAX),
        (10_000, "x" * ATTEMPT_CHARS_MAX),
    ):
        request = RemotingCommand.request(RequestCode.POP_MESSAGE, {"attemptId": "x" * length})
        assert attempt_of(request) == kept


# ---- the file ----


def test_the_file_of_apache_is_loaded(harness: OrderInfoHarness) -> None:
    harness.order_info.load(APACHE)
    assert harness.blocked(), "101 is hidden until 1700000500000"
    assert not harness.blocked("first")
    assert harness.opens == [(0, 1_700_000_500_000), (3, 1_700_000_000_000)]
    assert not harness.blocked(queue_id=3)
    popped_ms = 1_699_999_999_000
    assert harness.ack(101, popped_ms) == 103
    harness.order_info.load(APACHE)
    assert harness.pop(101, 102, attempt="next") == "0 qo0%101 3;0 qo0%102 1;0 0 1"


def test_the_file_of_the_golden_store_is_loaded_and_written_unchanged(harness: OrderInfoHarness) -> None:
    text = unpacked_file("store-apache", "config/consumerOrderInfo.json")
    harness.order_info.load(text)
    assert harness.order_info.to_json().split() == text.split()


def test_the_file_is_written_as_apache_writes_it(harness: OrderInfoHarness) -> None:
    harness.pop(100, 101, 105, attempt="a")
    harness.ack(101)
    harness.order_info.change_visible(T, G, 0, 100, NOW, NOW + 5)
    text = harness.order_info.to_json().replace(b"\n", b"").replace(b"\t", b"")
    assert text == (
        b'{"orderInfoCount":1,"orderedConsumptionLevel":"QUEUE","table":{"T@G":{0:{"a":"a","cm":2,"i":60000,'
        b'"l":1700000000000,"o":[100,1,5],"oc":{},"ot":{100:1700000000005},"popTime":1700000000000}}}}'
    )


@given(
    st.lists(st.integers(0, 1 << 40), min_size=1, max_size=32, unique=True).map(sorted),
    st.sets(st.integers(0, 31)),
    st.one_of(st.none(), st.text(min_size=1, max_size=20)),
)
def test_what_is_written_is_read_back(offsets: list[int], acked: set[int], attempt: str | None) -> None:
    harness, again = OrderInfoHarness(), OrderInfoHarness()
    harness.pop(*offsets, attempt=attempt)
    for index in acked:
        if index < len(offsets):
            harness.ack(offsets[index])
    again.order_info.load(harness.order_info.to_json())
    assert again.order_info.to_json() == harness.order_info.to_json()
    assert again.blocked("other") == harness.blocked("other")
    assert again.ack(offsets[0]) == harness.ack(offsets[0])


@pytest.mark.parametrize(
    "order",
    [
        b"7",
        b"{}",
        b'{"popTime":1,"o":[]}',
        b'{"popTime":1,"o":[1' + b",1" * 64 + b"]}",
        b'{"popTime":-1,"o":[1]}',
        b'{"popTime":1,"o":["x"]}',
        b'{"popTime":1,"o":[1],"cm":1e30}',
        b'{"popTime":1,"o":[1],"ot":[]}',
        b'{"popTime":1,"o":[1],"oc":{"x":1}}',
        b'{"popTime":1,"o":[1],"a":5}',
        b'{"popTime":99999999999999999999,"o":[1]}',
    ],
)
def test_an_invalid_file_is_refused_as_a_whole(harness: OrderInfoHarness, order: bytes) -> None:
    harness.pop(5)
    with pytest.raises(ValueError, match=r"."):
        harness.order_info.load(b'{"table":{"T@G":{0:{"popTime":1,"o":[1]},1:' + order + b"}}}")
    with pytest.raises(ValueError, match="@"):
        harness.order_info.load(b'{"table":{"TG":{}}}')
    assert harness.blocked()
