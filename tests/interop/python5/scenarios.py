"""Apache's Python client of 5.x: the scenarios of `java/grpc5/Scenarios.java`, as far as it has them.

`python scenarios.py host:port scenario=topic …` prints `passed scenario` or `failed scenario: why`. Runs in an
environment with the package rocketmq-python-client, without FireArrow.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

WAIT_S = 40


def configuration() -> ClientConfiguration:
    return ClientConfiguration(sys.argv[1], Credentials())


def message(topic: str, body: bytes, **more: object) -> Message:
    made = Message()
    made.topic, made.body = topic, body
    for name, value in more.items():
        setattr(made, name, value)
    return made


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Listener(MessageListener):
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.times: list[float] = []
        self.failing: set[bytes] = set()

    def consume(self, received: Message) -> ConsumeResult:
        if received.body in self.failing:
            self.failing.discard(received.body)
            return ConsumeResult.FAILURE
        self.bodies.append(received.body)
        self.times.append(time.time())
        return ConsumeResult.SUCCESS


class Running:
    """A producer and a push consumer with its listener, or a simple consumer."""

    def __init__(
        self, topic: str, filter: FilterExpression | None = None, *, simple: bool = False, **more: object
    ) -> None:
        self.listener = Listener()
        self.producer = Producer(configuration(), (topic,), **more)
        group, topics = f"{topic}-g", {topic: filter or FilterExpression()}
        if simple:
            self.consumer = SimpleConsumer(configuration(), group, topics, await_duration=5)
        else:
            self.consumer = PushConsumer(configuration(), group, self.listener, topics)

    def __enter__(self) -> "Running":
        self.producer.startup()
        self.consumer.startup()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.shutdown()
        self.producer.shutdown()

    def one(self) -> Message:
        found: list[Message] = []
        until(lambda: found.extend(self.consumer.receive(1, 10) or []) or found, "nothing was received")
        return found[0]


def normal(topic: str) -> None:
    with Running(topic) as running:
        for n in range(10):
            sent = message(topic, b"%d" % n, tag="a", keys=f"k{n}")
            sent.add_property("n", str(n))
            running.producer.send(sent)
        until(lambda: len(running.listener.bodies) == 10, "10 messages")


def simple(topic: str) -> None:
    with Running(topic, simple=True) as running:
        for n in range(5):
            running.producer.send(message(topic, b"%d" % n))
        seen: set[bytes] = set()

        def received() -> bool:
            for each in running.consumer.receive(16, 15) or []:
                seen.add(each.body)
                running.consumer.ack(each)
            return len(seen) == 5

        until(received, f"5 messages, but {seen}")


def invisible(topic: str) -> None:
    with Running(topic, simple=True) as running:
        running.producer.send(message(topic, b"again"))
        first = running.one()
        running.consumer.change_invisible_duration(first, 1)
        second = running.one()
        assert second.message_id == first.message_id
        running.consumer.ack(second)


def fifo(topic: str) -> None:
    with Running(topic) as running:
        running.listener.failing.add(b"3")
        for n in range(6):
            running.producer.send(message(topic, b"%d" % n, message_group="one"))
        until(lambda: len(running.listener.bodies) == 6, "6 messages")
        assert running.listener.bodies == [b"%d" % n for n in range(6)], running.listener.bodies


def delay(topic: str) -> None:
    with Running(topic) as running:
        due = int(time.time()) + 3
        running.producer.send(message(topic, b"later", delivery_timestamp=due))
        until(lambda: running.listener.bodies, "it has not come")
        assert running.listener.times[0] >= due - 0.2


def recall(topic: str) -> None:
    with Running(topic) as running:
        due = int(time.time()) + 4
        receipt = running.producer.send(message(topic, b"never", delivery_timestamp=due))
        running.producer.recall_message(topic, receipt.recall_handle)
        time.sleep(due + 2 - time.time())
        assert not running.listener.bodies


class Checker(TransactionChecker):
    def check(self, message: Message) -> TransactionResolution:
        return TransactionResolution.COMMIT if message.body == b"orphan" else TransactionResolution.UNKNOWN


def transaction(topic: str) -> None:
    with Running(topic, checker=Checker()) as running:
        for n in range(4):
            begun = running.producer.begin_transaction()
            running.producer.send(message(topic, b"%d" % n), begun)
            (begun.rollback if n % 2 else begun.commit)()
        until(lambda: len(running.listener.bodies) == 2, "2 messages")
        time.sleep(1)
        assert sorted(running.listener.bodies) == [b"0", b"2"], running.listener.bodies


def orphan(topic: str) -> None:
    with Running(topic, checker=Checker()) as running:
        running.producer.send(message(topic, b"orphan"), running.producer.begin_transaction())
        until(lambda: running.listener.bodies == [b"orphan"], "the orphan")


def filtered(topic: str, expression: FilterExpression, expected: list[bytes]) -> None:
    with Running(topic, expression) as running:
        for n, tag in enumerate("abc"):
            sent = message(topic, b"%d" % n, tag=tag)
            sent.add_property("n", str(n))
            running.producer.send(sent)
        until(lambda: len(running.listener.bodies) == len(expected), "the messages of the filter")
        assert sorted(running.listener.bodies) == expected


def large(topic: str) -> None:
    body = os.urandom(4 << 20)
    with Running(topic, simple=True) as running:
        running.producer.send(message(topic, body))
        received = running.one()
        assert received.body == body
        running.consumer.ack(received)


def wrong_type(topic: str) -> None:
    with Running(topic) as running:
        try:
            running.producer.send(message(topic, b"normal"))
        except Exception:  # its own kinds
            return
        raise AssertionError("it was sent")


SCENARIOS: dict[str, Callable[[str], None]] = {
    "normal": normal,
    "simple": simple,
    "invisible": invisible,
    "fifo": fifo,
    "delay": delay,
    "recall": recall,
    "transaction": transaction,
    "orphan": orphan,
    "tag": lambda topic: filtered(topic, FilterExpression("a || c"), [b"0", b"2"]),
    "sql": lambda topic: filtered(topic, FilterExpression("n > 0", FilterType.SQL), [b"1", b"2"]),
    "large": large,
    "wrong-type": wrong_type,
}


printing = threading.Lock()


def report(line: str) -> None:
    """`print` writes the end of the line apart, so lines of other threads could come in between."""
    with printing:
        print(line, flush=True)


def run(argument: str) -> None:
    name, topic = argument.split("=")
    try:
        SCENARIOS[name](topic)
        report(f"passed {name}")
    except BaseException as error:  # reported, and the others go on
        report(f"failed {name}: {error!r}")
        traceback.print_exc()


if __name__ == "__main__":
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        list(pool.map(run, sys.argv[2:]))
    threading.Timer(5, lambda: os._exit(0)).start()
    sys.exit(0)
