"""Writers and readers of a soak, each a thread with a separate connection.

A message's body begins with its topic, queue and the number it must have in its queue; a reader therefore detects
every message that it did not get, and accepts only those that the broker reported as deleted.
"""

import random
import threading
import time
from dataclasses import dataclass, field

from firearrow._native.wire.codes import ResponseCode
from tests.soak.fast_broker import FastBroker
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, records, send

TOPICS, QUEUES = 4, 4
BODY_BYTES_MAX = 3000
AGAIN_S = 0.02
NO_NEWS = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


@dataclass
class Tally:
    """What a thread did and what it found wrong."""

    messages: int = 0
    refused: int = 0
    moves: int = 0
    passed_over: int = 0
    """Messages that were deleted before the reader read them."""
    wrong: list[str] = field(default_factory=list)


class Working(threading.Thread):
    """Works until `stopping` is set; an error ends it and is among its findings."""

    def __init__(self, broker: FastBroker, name: str, stopping: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.tally = Tally()
        self.stopping = stopping
        self._broker = broker

    def run(self) -> None:
        try:
            with self._broker.connect() as peer:
                self.work(peer)
        except Exception as error:
            self.tally.wrong.append(f"{self.name}: {type(error).__name__}: {error}")

    def work(self, peer: ClientSocket) -> None:
        raise NotImplementedError


class Writer(Working):
    """Sends to the queues of one topic in random order; a queue's next number is used after the last was stored."""

    def __init__(self, broker: FastBroker, number: int, seed: int, stopping: threading.Event) -> None:
        super().__init__(broker, f"writer {number}", stopping)
        self.topic = topic_of(number)
        self.ends = [0] * QUEUES
        self._random = random.Random(seed * 1000 + number)

    def work(self, peer: ClientSocket) -> None:
        while not self.stopping.is_set():
            queue_id = self._random.randrange(QUEUES)
            body = head(self.topic, queue_id, self.ends[queue_id])
            answer = send(peer, self.topic, body + b"." * self._random.randrange(BODY_BYTES_MAX), queue_id)
            if answer.code == 0:
                if int(answer.ext["queueOffset"]) != self.ends[queue_id]:
                    self.tally.wrong.append(f"{body!r} was stored as number {answer.ext['queueOffset']}")
                    return
                self.ends[queue_id] += 1
                self.tally.messages += 1
            elif answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and "disk is full" in (
                answer.remark or ""
            ):
                self.tally.refused += 1
                time.sleep(AGAIN_S)
            else:
                self.tally.wrong.append(f"{body!r} was refused: {answer.code} {answer.remark}")
                return


class Reader(Working):
    """Reads all queues of one topic in turn and pauses `pause_s` between two pulls."""

    def __init__(
        self, broker: FastBroker, writer: Writer, name: str, pause_s: float, stopping: threading.Event
    ) -> None:
        super().__init__(broker, name, stopping)
        self._writer = writer
        self._pause_s = pause_s
        self.offsets = [0] * QUEUES

    def work(self, peer: ClientSocket) -> None:
        while not self.stopping.is_set():
            news = [self._read(peer, queue_id) for queue_id in range(QUEUES) if not self.stopping.is_set()]
            if self._pause_s or not any(news):
                self.stopping.wait(self._pause_s or AGAIN_S)

    def drain(self, peer: ClientSocket) -> None:
        """Everything that is left; the writers have stopped."""
        for queue_id in range(QUEUES):
            while self._read(peer, queue_id):
                pass
            offset, end = self.offsets[queue_id], self._writer.ends[queue_id]
            if offset != end:
                self.tally.wrong.append(f"{self.name} ended at {offset} of {end} in queue {queue_id}")

    def _read(self, peer: ClientSocket, queue_id: int) -> bool:
        """One pull; returns whether there may be more."""
        offset = self.offsets[queue_id]
        answer = pull(peer, self._writer.topic, offset, queue_id)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._move(queue_id, int(answer.ext["nextBeginOffset"]), int(answer.ext["minOffset"]))
            return self.offsets[queue_id] != offset
        if answer.code in NO_NEWS or answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        if answer.code != 0:
            self.tally.wrong.append(f"{self.name} was refused: {answer.code} {answer.remark}")
            self.stopping.set()
            return False
        for record in records(answer.body):
            wanted = head(self._writer.topic, queue_id, self.offsets[queue_id])
            if record.queue_offset != self.offsets[queue_id] or not record.body.startswith(wanted):
                self.tally.wrong.append(f"{self.name} got {record.body[:40]!r} for {wanted!r}")
                self.stopping.set()
                return False
            self.offsets[queue_id] += 1
            self.tally.messages += 1
        return True

    def _move(self, queue_id: int, to: int, low: int) -> None:
        """Only deleted messages may be skipped."""
        offset = self.offsets[queue_id]
        if to < offset or to > low:
            self.tally.wrong.append(f"{self.name} was moved from {offset} to {to}, the queue begins at {low}")
        self.tally.moves += to > offset
        self.tally.passed_over += to - offset
        self.offsets[queue_id] = to


def topic_of(number: int) -> str:
    return f"Soak{number}"


def head(topic: str, queue_id: int, number: int) -> bytes:
    return b"%s/%d/%d/" % (topic.encode(), queue_id, number)
