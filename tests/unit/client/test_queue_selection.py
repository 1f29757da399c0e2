"""Which queue is next, which brokers are avoided, and for how long."""

from collections import Counter

from firearrow._native.base.hash import java_hash
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.remoting.routes import PublishInfo
from firearrow.client.send.fault_strategy import LatencyFaultTolerance
from firearrow.client.send.queue_selection import QueueSelector, by_hash, hash_index

QUEUES = tuple(MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(2))
INFO = PublishInfo("t", QUEUES, brokers=frozenset({"a", "b"}))


def test_one_after_the_other_from_anywhere() -> None:
    choice = QueueSelector()
    chosen = [choice.choose(INFO) for _ in range(8)]
    assert Counter(chosen) == dict.fromkeys(QUEUES, 2)
    assert chosen[:4] == chosen[4:]
    assert len({QueueSelector().choose(INFO) for _ in range(200)}) == 4


def test_not_to_the_broker_that_just_failed_unless_it_is_the_only_one() -> None:
    choice = QueueSelector()
    assert {choice.choose(INFO, avoid="a").broker_name for _ in range(8)} == {"b"}
    alone = PublishInfo("t", QUEUES[:2], brokers=frozenset({"a"}))
    assert choice.choose(alone, avoid="a").broker_name == "a"


def test_slow_brokers_rest_as_long_as_the_table_says() -> None:
    now = [100.0]
    faults = LatencyFaultTolerance(lambda: now[0])
    for took_s, rest_s in (
        (0.04, 0),
        (0.1, 0),
        (0.54, 0),
        (0.55, 2),
        (1.8, 5),
        (3, 6),
        (5, 10),
        (15, 30),
        (99, 30),
    ):
        broker = f"after {took_s}"
        faults.update(broker, took_s)
        now[0] += rest_s - 0.001 if rest_s else 0
        assert faults.available(broker) is (rest_s == 0)
        now[0] += 0.002
        assert faults.available(broker)
    faults.update("gone", 0.001, isolate=True)
    faults.update("gone", 0.001)
    assert not faults.available("gone"), "an end is only ever moved later"
    now[0] += 10.01
    assert faults.available("gone")


def test_available_before_reachable_before_any() -> None:
    faults = LatencyFaultTolerance(lambda: 0.0)
    choice = QueueSelector(faults)
    faults.update("a", 0, isolate=True, reachable=True)
    assert {choice.choose(INFO).broker_name for _ in range(8)} == {"b"}
    faults.update("b", 0, isolate=True, reachable=False)
    assert {choice.choose(INFO).broker_name for _ in range(8)} == {"a"}
    faults.update("a", 0, isolate=True, reachable=False)
    assert {choice.choose(INFO).broker_name for _ in range(8)} == {"a", "b"}


async def test_the_detector_finds_brokers_that_are_back_and_forgets_unknown_ones() -> None:
    now, answers = [0.0], {"back": True, "away": False, "unknown": None}
    asked: list[str] = []

    async def probe(broker: str) -> bool | None:
        asked.append(broker)
        return answers[broker]

    faults = LatencyFaultTolerance(lambda: now[0], probe)
    for broker in answers:
        faults.update(broker, 0, isolate=True, reachable=False)
    await faults.detect()
    assert asked == [], "not before its time"
    now[0] = 2.5
    await faults.detect()
    assert sorted(asked) == ["away", "back", "unknown"]
    assert [faults.reachable(broker) for broker in ("back", "away", "unknown")] == [True, False, True]
    await faults.detect()
    assert len(asked) == 3
    now[0] = 5.0
    await faults.detect()
    assert sorted(asked[3:]) == ["away", "back"]


def test_a_key_goes_where_javas_client_sends_it() -> None:
    for key in ("order-1", "", "ключ", "a" * 1000, "polygenelubricants"):
        chosen = by_hash(key)(QUEUES, Message("t", b"x"))
        code = java_hash(key)
        remainder = code - int(code / len(QUEUES)) * len(QUEUES)
        assert chosen == QUEUES[abs(remainder)]
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert hash_index("polygenelubricants", 3) == 2
