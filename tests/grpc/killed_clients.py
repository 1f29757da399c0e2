"""Clients of gRPC whose broker may be killed at any moment, and what must hold of what they saw.

Each worker is a thread with clients of its own: when a call fails, it goes on with a new one. `History` notes what they
sent, received and acknowledged, and finds what must not be:

- a message that was acknowledged comes again;
- a message comes again before its invisible time is over;
- a message comes that was not sent, or whose transaction was rolled back;
- a message that was sent, or whose transaction was committed, never comes;
- a transaction cannot be ended by the id that the broker gave before it was killed.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import grpc

from firearrow.broker.grpc import messages
from firearrow.broker.grpc.messages import ProtoMessage
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic

TOPIC, HALVES, GROUP = "Killed", "KilledHalves", "Killed-g"
FIFO, FIFO_GROUP = "KilledFifo", "KilledFifo-g"
INVISIBLE_S, SHORT_S = 10, 1
CLOCK_S = 0.05
"""How much the clocks of broker and client may be read apart."""
ACK_AHEAD_S = 3.0
"""What becomes visible within this time is not acknowledged any more."""
AGAIN_S = 0.05
OK = messages.CODES["OK"]
Address = Callable[[], tuple[str, int]]


class History:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since_s = time.monotonic()
        self.tried: set[bytes] = set()
        self.sent: set[bytes] = set()
        self.rolled_back: set[bytes] = set()
        self.deliveries: dict[bytes, int] = {}
        self.acknowledged: dict[bytes, float] = {}
        self.unanswered: set[bytes] = set()
        """Acknowledged without an answer: they may come again."""
        self.visible_s: dict[bytes, float] = {}
        """When a message that was received may come again."""
        self.expected_again: set[bytes] = set()
        """Made visible soon by its consumer, and not received since."""
        self.faults: list[str] = []

    def fault(self, text: str) -> None:
        self.faults.append(f"{time.monotonic() - self._since_s:.2f} s: {text}")

    def received(self, body: bytes, asked_s: float, invisible_s: float) -> None:
        """By a call that was made then."""
        came_s = time.monotonic()
        with self._lock:
            self.deliveries[body] = self.deliveries.get(body, 0) + 1
            self.expected_again.discard(body)
            if body not in self.tried:
                self.fault(f"{body!r} came, and was not sent")
            if body in self.rolled_back:
                self.fault(f"{body!r} came, and was rolled back")
            if self.acknowledged.get(body, asked_s) < asked_s:
                ago_s = asked_s - self.acknowledged[body]
                self.fault(f"{body!r} came again {ago_s:.2f} s after it was acknowledged")
            early_s = self.visible_s.get(body, 0) - came_s
            if early_s > CLOCK_S:
                self.fault(f"{body!r} came again {early_s:.2f} s before its invisible time was over")
            self.visible_s[body] = asked_s + invisible_s

    def shown_soon(self, body: bytes, within_s: float) -> None:
        """Its consumer makes it visible again; whether the broker does, its answer states (`expected_again`)."""
        with self._lock:
            self.visible_s[body] = min(self.visible_s[body], time.monotonic() + within_s)

    def unsettled(self) -> set[bytes]:
        """What was sent and is still to come, or to be acknowledged."""
        return self.sent - self.acknowledged.keys() - self.unanswered


class Worker(threading.Thread):
    """`work(caller)` is repeated until `stop`; a failed call ends the caller, as the broker was killed."""

    def __init__(self, address: Address, history: History, seed: int) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.history = history
        self.draw = random.Random(seed)
        self._address = address
        self.stopping = threading.Event()
        self._caller: GrpcCaller | None = None

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with GrpcCaller(self._address(), client_id=self.client_id) as self._caller:
                    self.begin(self._caller)
                    while not self.stopping.is_set():
                        self.work(self._caller)
            except (grpc.RpcError, ValueError, AssertionError, StopIteration):
                self.stopping.wait(AGAIN_S)  # killed, stopped, or not the master yet

    @property
    def client_id(self) -> str:
        return f"{self.name}@{id(self)}"

    def stop(self) -> None:
        self.stopping.set()
        if self._caller is not None:
            self._caller.channel.close()
        self.join(20)
        assert not self.is_alive()

    def begin(self, caller: GrpcCaller) -> None:
        """Register."""

    def work(self, caller: GrpcCaller) -> None:
        raise NotImplementedError


class Producer(Worker):
    def __init__(self, address: Address, history: History, seed: int) -> None:
        super().__init__(address, history, seed)
        self._numbers = itertools.count(1)

    def begin(self, caller: GrpcCaller) -> None:
        caller.produce(TOPIC)

    def work(self, caller: GrpcCaller) -> None:
        count = self.draw.choice((1, 1, 1, 4))
        bodies = [b"n %d-%d" % (id(self), next(self._numbers)) for _ in range(count)]
        self.history.tried.update(bodies)
        answer = caller.send(TOPIC, *bodies)
        for body, entry in zip(bodies, answer.entries, strict=False):
            if entry.status.code == OK:
                self.history.sent.add(body)
        self.stopping.wait(self.draw.random() * 0.01)


class Consumer(Worker):
    """Acknowledges at once, later, after a kill as well, or never; makes some of it visible again soon."""

    def __init__(self, address: Address, history: History, seed: int, topic: str) -> None:
        super().__init__(address, history, seed)
        self._topic = topic
        self._held: list[tuple[ProtoMessage, float]] = []
        """Received, and until when it may be acknowledged."""
        self.hurries = False
        """From now on all is acknowledged at once."""

    def begin(self, caller: GrpcCaller) -> None:
        caller.consume(GROUP, self._topic)

    def work(self, caller: GrpcCaller) -> None:
        asked_s = time.monotonic()
        received = caller.receive(GROUP, self._topic, 8, 20, invisible_duration={"seconds": INVISIBLE_S})
        for message in received:
            self.history.received(bytes(message.body), asked_s, INVISIBLE_S)
        if not received and not self._held:
            self.stopping.wait(AGAIN_S)
        now: list[ProtoMessage] = []
        for message in received:
            kind = 1.0 if self.hurries else self.draw.random()
            if kind < 0.2:
                self._show_soon(caller, message)
            elif kind < 0.4:
                self._held.append((message, asked_s + INVISIBLE_S - ACK_AHEAD_S))
            else:
                now.append(message)
        if self.hurries or self.draw.random() < 0.3:
            until_s = time.monotonic()
            now += [message for message, last_s in self._held if last_s > until_s]
            self._held.clear()
        if now:
            self._acknowledge(caller, now)

    def _acknowledge(self, caller: GrpcCaller, received: list[ProtoMessage]) -> None:
        bodies = {bytes(message.body) for message in received}
        self.history.unanswered |= bodies
        answer = caller.ack(GROUP, self._topic, *received)
        self.history.unanswered -= bodies
        for message, entry in zip(received, answer.entries, strict=True):
            if entry.status.code == OK:
                self.history.acknowledged.setdefault(bytes(message.body), time.monotonic())
            elif time.monotonic() < self.history.visible_s[bytes(message.body)] - CLOCK_S:
                self.history.fault(f"{bytes(message.body)!r} was not acknowledged: {entry.status.message}")

    def _show_soon(self, caller: GrpcCaller, message: ProtoMessage) -> None:
        self.history.shown_soon(bytes(message.body), SHORT_S)
        answer = caller.call(
            "ChangeInvisibleDuration",
            group={"name": GROUP},
            topic={"name": self._topic},
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
            invisible_duration={"seconds": SHORT_S},
        )
        if answer.status.code == OK:
            self.history.expected_again.add(bytes(message.body))


class Transactions(Worker):
    """Half messages: some are ended at once, some by their id after the next kill, some when the broker asks."""

    COMMITTED, ROLLED_BACK, LATER, ASKED = range(4)

    def __init__(self, address: Address, history: History, seed: int) -> None:
        super().__init__(address, history, seed)
        self._numbers = itertools.count(1)
        self.open: dict[bytes, tuple[str, str]] = {}
        """Transaction and message ids of those that have not been ended."""
        self.refused: dict[bytes, str] = {}
        self.checked: set[bytes] = set()
        self.is_done = False
        """No more are sent, but the broker may still ask."""

    def begin(self, caller: GrpcCaller) -> None:
        stream = caller.produce(HALVES)
        threading.Thread(target=self._answer_checks, args=(caller, stream), daemon=True).start()
        for body, ids in list(self.open.items()):
            self._end(caller, body, *ids, source="SOURCE_CLIENT")

    def work(self, caller: GrpcCaller) -> None:
        if self.is_done:
            self.stopping.wait(AGAIN_S)
            return
        number = next(self._numbers)
        kind = number % 4
        body = b"t %d-%d" % (id(self), number)
        self.history.tried.add(body)
        if kind == self.ROLLED_BACK:
            self.history.rolled_back.add(body)
        system = {"orphaned_transaction_recovery_duration": {"seconds": 60}} if kind == self.LATER else {}
        answer = caller.send(HALVES, body, kind="TRANSACTION", **system)
        [entry] = answer.entries
        if entry.status.code != OK:
            raise AssertionError(entry.status.message)
        if kind != self.ROLLED_BACK:
            self.history.sent.add(body)
        if kind != self.ASKED:
            self.open[body] = entry.transaction_id, entry.message_id
        if kind in (self.COMMITTED, self.ROLLED_BACK):
            self._end(caller, body, *self.open[body], source="SOURCE_CLIENT")
        self.stopping.wait(0.02)

    def end_all(self) -> None:
        """All that is open, once the broker serves for good."""
        with GrpcCaller(self._address()) as caller:
            for body, ids in list(self.open.items()):
                self._end(caller, body, *ids, source="SOURCE_CLIENT")
        for body in self.open:
            self.history.fault(f"the transaction of {body!r} cannot be ended: {self.refused.get(body)}")

    def _end(
        self, caller: GrpcCaller, body: bytes, transaction_id: str, message_id: str, source: str
    ) -> None:
        rolls_back = body in self.history.rolled_back
        answer = caller.call(
            "EndTransaction",
            topic={"name": HALVES},
            transaction_id=transaction_id,
            message_id=message_id,
            resolution="ROLLBACK" if rolls_back else "COMMIT",
            source=source,
        )
        if answer.status.code == OK:
            self.open.pop(body, None)
        else:
            self.refused[body] = answer.status.message

    def _answer_checks(self, caller: GrpcCaller, stream: Any) -> None:  # noqa: ANN401
        try:
            while True:
                asked = stream.receive().recover_orphaned_transaction_command
                body = bytes(asked.message.body)
                if not body:
                    continue
                ids = asked.transaction_id, asked.message.system_properties.message_id
                self._end(caller, body, *ids, source="SOURCE_SERVER_CHECK")
                self.checked.add(body)
        except (grpc.RpcError, ValueError, StopIteration):
            return  # the caller has ended


class Load:
    """All workers, on a broker whose address may change."""

    def __init__(self, address: Address, seed: int) -> None:
        self.history = History()
        self.transactions = Transactions(address, self.history, seed)
        self._producer = Producer(address, self.history, seed + 1)
        self._consumers = [
            Consumer(address, self.history, seed + 2 + number, topic)
            for number, topic in enumerate((TOPIC, TOPIC, HALVES))
        ]
        self._workers: list[Worker] = [self._producer, self.transactions, *self._consumers]

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.is_alive():
                worker.stop()

    def stop_sending(self) -> None:
        """Once the broker has asked about each half message that nothing else ends; others are ended by their ids."""
        self.transactions.is_done = True
        self._producer.stop()
        eventually(lambda: not self._unasked(), 30, self._unasked)
        self.transactions.stop()
        self.transactions.end_all()

    def hurry(self) -> None:
        """Acknowledge all that comes."""
        for consumer in self._consumers:
            consumer.hurries = True

    def _unasked(self) -> set[bytes]:
        orphans = {body for body in list(self.history.sent) if _kind(body) == Transactions.ASKED}
        return orphans - self.transactions.checked


def _kind(body: bytes) -> int:
    return int(body.rpartition(b"-")[2]) % 4 if body.startswith(b"t ") else -1


def prepare(connection: ClientSocket) -> None:
    create_topic(connection, TOPIC)
    create_topic(connection, HALVES, "TRANSACTION")
    create_group(connection, GROUP)
    create_topic(connection, FIFO, "FIFO")
    create_group(connection, FIFO_GROUP, consumeMessageOrderly=True)
