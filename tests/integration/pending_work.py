"""Work that is pending when the broker is killed, of each kind, and what must have happened to it afterwards.

`load` runs in a separate thread until the broker is killed; `begin` and `settle` use the broker that was restarted:
`begin` sends a last message of the round, after which nothing earlier can still be delivered.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from tests.integration import test_pop as pops
from tests.integration import test_transactions as transactions
from tests.integration.test_send_back import RETRY, back, offset_in
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.messages import read_messages
from tests.support.requests import pull, send, send_ext

PAUSE_S = 0.01
SETTLED_S = 40


class Work(ABC):
    """`acknowledged`: bodies that the broker has acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self._number = 0

    def __str__(self) -> str:
        return f"{len(self.acknowledged)} {type(self).__name__}"

    def load(self, connection: ClientSocket, over: threading.Event) -> None:
        while not over.wait(PAUSE_S):
            self.add(connection)

    def body(self) -> bytes:
        self._number += 1
        return b"%08d" % self._number

    @abstractmethod
    def add(self, connection: ClientSocket) -> None: ...

    def begin(self, connection: ClientSocket) -> None:  # noqa: B027
        """Nothing, unless something can be put after all that is pending."""

    @abstractmethod
    def settle(self, connection: ClientSocket) -> None: ...


class Later(Work):
    """Messages that are delivered to queue 0 of `topic` later, once each, whatever happens between."""

    topic: str
    together = 5
    _last = b""

    @abstractmethod
    def put(self, connection: ClientSocket, body: bytes) -> None: ...

    def add(self, connection: ClientSocket) -> None:
        for _ in range(self.together):
            body = self.body()
            self.put(connection, body)
            self.acknowledged.add(body)

    def begin(self, connection: ClientSocket) -> None:
        self._last = self.body()
        self.put(connection, self._last)
        self.acknowledged.add(self._last)

    def settle(self, connection: ClientSocket) -> None:
        def bodies() -> Counter[bytes]:
            return Counter(record.body for record in read_messages(connection, self.topic))

        eventually(lambda: self._last in bodies(), SETTLED_S, f"the last one of {self.topic}")
        found = bodies()
        lost = self.acknowledged - found.keys()
        assert not lost, f"{self.topic}: {len(lost)} of {len(self.acknowledged)} lost: {sorted(lost)[:3]}"
        twice = sorted(body for body, count in found.items() if count > 1)
        assert not twice, f"{self.topic}: {len(twice)} of {len(found)} were delivered twice: {twice[:3]}"


class Delays(Later):
    topic = "Delayed"

    def put(self, connection: ClientSocket, body: bytes) -> None:
        answer = connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(self.topic, i="DELAY\x011\x02"), body)
        assert answer.code == 0, answer.remark


class Timers(Later):
    topic = "Timed"

    def put(self, connection: ClientSocket, body: bytes) -> None:
        ext = send_ext(self.topic, i="TIMER_DELAY_MS\x011000\x02")
        answer = connection.ask(RequestCode.SEND_MESSAGE_V2, ext, body)
        assert answer.code == 0, answer.remark


class SentBack(Later):
    topic = RETRY

    def put(self, connection: ClientSocket, body: bytes) -> None:
        sent = send(connection, "Work", body)
        answer = back(connection, offset_in(sent.ext["msgId"]), level=1)
        assert answer.code == 0, answer.remark


class Commits(Work):
    """Offsets that a group commits; `_answered` and `_asked` bound what may be kept."""

    _answered = _asked = 0

    def add(self, connection: ClientSocket) -> None:
        body = self.body()
        assert send(connection, "Read", body).code == 0
        if not self._asked:  # which creates the group
            pull(connection, "Read", consumerGroup="Readers")
        self._asked += 1
        ext = {"consumerGroup": "Readers", "topic": "Read", "queueId": "0", "commitOffset": str(self._asked)}
        answer = connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        assert answer.code == 0, answer.remark
        self._answered = self._asked
        self.acknowledged.add(body)

    def settle(self, connection: ClientSocket) -> None:
        ext = {"consumerGroup": "Readers", "topic": "Read", "queueId": "0"}
        answer = connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        if self._answered:
            assert answer.code == 0, answer.remark
            assert self._answered <= int(answer.ext["offset"]) <= self._asked


class Transactions(Work):
    """A third is committed, a third rolled back, a third is left to be checked and then committed."""

    topic = "Paid"

    def __init__(self) -> None:
        super().__init__()
        self._decided: set[bytes] = set()
        self._maybe_gone: set[bytes] = set()

    def add(self, connection: ClientSocket) -> None:
        body = self.body()
        half = transactions.prepare(connection, self.topic, body)
        way = self._number % 3
        if way == 1:
            self._maybe_gone.add(body)
            assert transactions.end(connection, half, transactions.ROLLBACK).code == 0
            self._decided.add(body)
            return
        self.acknowledged.add(body)
        if way == 0:
            assert transactions.end(connection, half, transactions.COMMIT).code == 0
            self._decided.add(body)

    def settle(self, connection: ClientSocket) -> None:
        transactions.join(connection)

        def decided() -> bool:
            if not self.acknowledged - {record.body for record in self._committed(connection)}:
                return True
            self._answer_checks(connection)
            return False

        eventually(decided, SETTLED_S, "all transactions are checked")
        found = Counter(record.body for record in self._committed(connection))
        twice = sorted(body for body, count in found.items() if count > 1)
        assert not twice, f"{len(twice)} were committed twice: {twice[:3]}"
        gone = found.keys() & (self._maybe_gone & self._decided)
        assert not gone, f"{len(gone)} were rolled back and are visible: {sorted(gone)[:3]}"
        self._decided |= self.acknowledged

    def _committed(self, connection: ClientSocket) -> list[Record]:
        return read_messages(connection, self.topic, 1)

    def _answer_checks(self, connection: ClientSocket) -> None:
        """Undecided ones are committed; the connection keeps checks that arrive during other requests."""
        checks, connection.requests[:] = list(connection.requests), []
        for request in checks:
            half, record = transactions.of_check(request)
            assert record.body not in self._decided, f"checked {record.body!r}, which was decided"
            rolls_back = record.body in self._maybe_gone
            what = transactions.ROLLBACK if rolls_back else transactions.COMMIT
            transactions.end(connection, half, what, checked=True)
            self._decided.add(record.body)


class Pops(Work):
    """Ten sent, as many popped, every other one acknowledged; the rest is redelivered when it is visible again."""

    topic = "Taken"

    def __init__(self) -> None:
        super().__init__()
        self._acked: set[bytes] = set()
        self._maybe_acked: set[bytes] = set()

    def add(self, connection: ClientSocket) -> None:
        for _ in range(10):
            body = self.body()
            assert send(connection, self.topic, body).code == 0
            self.acknowledged.add(body)
        self._take(connection, every=2)

    def settle(self, connection: ClientSocket) -> None:
        def left() -> set[bytes]:
            return self.acknowledged - self._acked - self._maybe_acked

        def settled() -> bool:
            while left() and self._take(connection, every=1):
                pass
            return not left()

        eventually(settled, SETTLED_S, lambda: f"{len(left())} do not come back: {sorted(left())[:3]}")

    def _take(self, connection: ClientSocket, every: int) -> bool:
        answer = pops.pop(connection, self.topic, invisibleTime="1000")
        popped = pops.records(answer) if answer.code == 0 else []
        for number, record in enumerate(popped):
            assert record.body not in self._acked, f"{record.body!r} was acknowledged and is redelivered"
            if number % every == 0:
                self._maybe_acked.add(record.body)
                assert pops.ack(connection, answer, record).code == 0
                self._acked.add(record.body)
        return bool(popped)
