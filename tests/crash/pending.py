"""Pending work as workload: a whole broker with pending delays, timers, transactions and pops, then a clean stop.

The client marks what the broker has acknowledged (tests.crash.promises defines what follows from it). A mark is made
before a request that changes the state of a message, and after its response.
"""

import random
import time
from pathlib import Path

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.crash.marks import Marks
from tests.crash.recorded_broker import serve
from tests.integration import test_pop as pops
from tests.integration import test_transactions as transactions
from tests.support.client_socket import ClientSocket
from tests.support.requests import send_ext, topic_ext

SETTINGS = {
    "messageDelayLevel": "1s 2s",
    "timerPrecisionMs": "100",
    "timerRollWindowSlot": "12",
    "mappedFileSizeTimerLog": "1100",
    "transactionTimeOut": "300",
    "transactionCheckInterval": "150",
    "transactionCheckMax": "1000",
    "reviveInterval": "50",
    "reviveQueueNum": "2",
    "brokerName": "b",
    "recallMessageEnable": "true",
}
STEPS, STEP_S = 160, 0.02
INVISIBLE_MS = 1200
TAKEN, ORDERED = "Taken", "Ordered"


def pending_work(root: Path, mark: Marks, draw: random.Random) -> None:
    """Either flush mode: work of every kind is begun, some of it ended, and some comes due during the run."""
    sync_flush = draw.random() < 0.7
    serve(
        root,
        mark,
        SETTINGS,
        lambda connection: Work(connection, mark, draw, "acknowledged" if sync_flush else "stored").run(),
        sync_flush=sync_flush,
    )


class Work:
    """Bodies are unique numbers. `kept`: the mark that says what a response guarantees of the record."""

    def __init__(self, connection: ClientSocket, mark: Marks, draw: random.Random, kept: str) -> None:
        self._connection = connection
        self._mark = mark
        self._draw = draw
        self._kept = kept
        self._number = 0

    def run(self) -> None:
        for topic in ("Delayed", "Timed", "Paid", TAKEN, ORDERED):
            made = self._connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 2))
            assert made.code == 0, made.remark
        kinds = (self._delay, self._time, self._time, self._transact, self._take, self._take_in_order)
        for number in range(STEPS):
            began = time.monotonic()
            kinds[number % len(kinds)]()
            time.sleep(max(STEP_S + began - time.monotonic(), 0))

    def _body(self) -> bytes:
        self._number += 1
        return b"%08d" % self._number

    def _send(self, topic: str, body: bytes, **properties: str) -> RemotingCommand:
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        answer = self._connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, i=text), body)
        assert answer.code == 0, answer.remark
        return answer

    def _mark_of(self, what: str, topic: str, body: bytes, answer: RemotingCommand) -> None:
        at = int(answer.ext["msgId"][-16:], 16)
        self._mark(self._kept, at=at)
        self._mark(what, topic=topic, body=body.decode(), at=at, entry=int(answer.ext["queueOffset"]))

    def _delay(self) -> None:
        body = self._body()
        self._mark_of("later", "Delayed", body, self._send("Delayed", body, DELAY=self._draw.choice("12")))

    def _time(self) -> None:
        """Some roll (more than 1.2 s ahead), some are recalled."""
        body = self._body()
        delay_ms = str(self._draw.choice((200, 500, 1000, 2500, 60_000)))
        answer = self._send("Timed", body, TIMER_DELAY_MS=delay_ms, UNIQ_KEY=f"K{body.decode()}")
        self._mark_of("later", "Timed", body, answer)
        if self._draw.random() < 0.2:
            self._mark("recalling", topic="Timed", body=body.decode())
            ext = {"producerGroup": "PG", "topic": "Timed", "recallHandle": answer.ext["recallHandle"]}
            self._connection.ask(RequestCode.RECALL_MESSAGE, ext)

    def _transact(self) -> None:
        """Committed, rolled back or left to be checked."""
        body = self._body()
        ext = transactions.half_ext("Paid", f"K{body.decode()}")
        answer = self._connection.ask(RequestCode.SEND_MESSAGE_V2, ext, body)
        half = transactions.half_of(answer)
        self._mark_of("half", "Paid", body, answer)
        what = self._draw.choice((transactions.COMMIT, transactions.ROLLBACK, None))
        if what is not None:
            decision = {"topic": "Paid", "body": body.decode(), "commit": what == transactions.COMMIT}
            self._mark("deciding", **decision)
            assert transactions.end(self._connection, half, what).code == 0
            self._mark("decided", **decision)

    def _take(self) -> None:
        for _ in range(3):
            body = self._body()
            self._mark_of("sent", TAKEN, body, self._send(TAKEN, body))
        answer = pops.pop(self._connection, TAKEN, invisibleTime=str(INVISIBLE_MS), initMode="0")
        for record in pops.records(answer) if answer.code == 0 else []:
            if self._draw.random() < 0.6:
                self._ack(answer, record)

    def _take_in_order(self) -> None:
        for _ in range(2):
            body = self._body()
            self._mark_of("sent", ORDERED, body, self._send(ORDERED, body))
        more = {"invisibleTime": str(INVISIBLE_MS), "order": "true", "queueId": "0", "maxMsgNums": "3"}
        answer = pops.pop(self._connection, ORDERED, **more)
        for record in pops.records(answer) if answer.code == 0 else []:
            if self._draw.random() < 0.1:
                break
            self._ack(answer, record)

    def _ack(self, answer: RemotingCommand, record: Record) -> None:
        """What is acknowledged after its invisible time may have been redelivered already."""
        values = {"topic": record.topic, "body": record.body.decode()}
        self._mark("acking", **values)
        code = pops.ack(self._connection, answer, record).code
        now_ms = time.time_ns() // 1_000_000
        if code == 0 and now_ms < int(answer.ext["popTime"]) + INVISIBLE_MS:
            self._mark("acked", **values)
