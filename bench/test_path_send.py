"""The cost of sends, batches, pulls, wake-ups on the fast path, no sockets: `pytest bench --benchmark-enable`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.frames import BATCH, TOPIC, batch_frame, pull_frame, send_frame
from firearrow._native.base.clock import Clock
from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.fastpath.fast_connection import FastConnection
from firearrow._native.fastpath.fast_dispatch import FastDispatch, RequestCounters
from firearrow._native.fastpath.long_polling import PullHoldService
from firearrow._native.fastpath.pull_message import Puller
from firearrow._native.fastpath.request_times import PutCounts
from firearrow._native.fastpath.send_message import Sender
from firearrow._native.fastpath.topic_cache import Count, PlainTopics
from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.tables.offsets import ConsumerOffsets

HOST = bytes((127, 0, 0, 1, 0, 0, 1, 1))
FRAMES = 64
ROUNDS = 2000


class Loop:
    def call_soon(self, callback: object, *args: object) -> None: ...
    def call_later(self, seconds: float, callback: object) -> None: ...
    def time(self) -> float:
        return 0.0


class CountingTransport:
    """A transport that counts."""

    sent = 0

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.sent += len(data)


class ClientSocket(FastConnection):
    def __init__(self, fast_handler: FastDispatch) -> None:
        super().__init__(Loop())  # type: ignore[arg-type]
        self.wire, self.fast_handler, self.host = CountingTransport(), fast_handler, HOST
        self.connection_made(self.wire)  # type: ignore[arg-type]

    def on_close(self, callback: object) -> None: ...

    def received(self, command: RemotingCommand) -> None:
        raise AssertionError(f"the fast path did not handle {command}")

    def feed(self, data: bytes) -> None:
        buffer = self.get_buffer(-1)
        buffer[: len(data)] = data
        buffer.release()
        self.buffer_updated(len(data))


class StillClock(Clock):
    def now_ms(self) -> int:
        return 1_700_000_000_000

    monotonic_ms = now_ms


class Broker:
    """Store, plain topics, fast path, write batch, offsets, journal; also statistics that count nothing."""

    def __init__(self, folder: Path) -> None:
        self.store = MessageStore.open(
            folder, StoreConfig(segment_bytes=1 << 28, index_slots=1 << 20, index_entries=1 << 24)
        )
        self.journal = Journal(folder / "journal", self.store.run, 0)
        plain_topics = PlainTopics()
        plain_topics.put(TOPIC, queues=4, sendable=True)
        clock = StillClock()
        self.held = hold_service = PullHoldService(Loop(), clock, FRAMES)  # type: ignore[arg-type]
        self.write_batch = WriteBatch(
            Loop(),
            self.store,
            clock,
            sync_timeout_ms=5000,
            arrivals=ArrivalNotifier(hold_service),
            request_sync=self.sync,
            full=str,
            journal=self.journal,
        )
        sender = Sender(
            plain_topics, self.store, self.write_batch, self, clock, UniqueIds(HOST[:-4], 1, b"salt"), HOST
        )
        self.offsets = ConsumerOffsets(clock, on_commit=partial(self.journal.note, Kind.OFFSET))
        puller = Puller(
            self.store,
            hold_service,
            lambda *_: (4, (), 0, 0, 60_000, False, 0, 1),
            self.again,
            self.offsets,
            self.journal.journal_page,
            self,
            clock,
        )
        self.line = ClientSocket(FastDispatch(sender, puller, RequestCounters()))

    def sync(self) -> None: ...
    def put_counts(self, topic: str, message_type: str) -> PutCounts:
        return PutCounts()

    def counts(self, topic: str) -> tuple[Count, Count]:
        return Count(), Count()

    def got(self, group: str, topic: str, messages: int, size: int, requests: int) -> None: ...
    def missed(self, requests: int) -> None: ...
    def again(self, request: RemotingCommand, peer: object, _: int) -> None:
        raise AssertionError(f"the fast path did not answer {request}")

    def say(self, data: bytes) -> None:
        self.line.feed(data)
        self.write_batch.commit()
        self.line.flush()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.journal.close()
    made.store.abandon()


@pytest.mark.parametrize("body_bytes", [128, 1024])
def test_sends(benchmark: BenchmarkFixture, broker: Broker, body_bytes: int) -> None:
    """A pass with 64 messages on one connection."""
    data = b"".join(send_frame(n % 4, bytes(body_bytes), n) for n in range(FRAMES))
    benchmark(broker.say, data)
    assert broker.line.wire.sent > 0
    assert sum(broker.store.reader.max_offset(TOPIC, queue) for queue in range(4)) % FRAMES == 0


def test_batches(benchmark: BenchmarkFixture, broker: Broker) -> None:
    """Two requests of 32 messages."""
    data = b"".join(batch_frame(0, bytes(128), n) for n in range(2))
    benchmark(broker.say, data)
    assert broker.store.reader.max_offset(TOPIC, 0) % (2 * BATCH) == 0


def test_pulls(benchmark: BenchmarkFixture, broker: Broker) -> None:
    """32 messages of 1 KiB."""
    broker.say(b"".join(send_frame(0, bytes(1024), n) for n in range(FRAMES)))
    before = broker.line.wire.sent
    benchmark(broker.say, pull_frame(0, 0, 1))
    assert broker.line.wire.sent - before > 32 * 1024


def test_pulls_that_commit(benchmark: BenchmarkFixture, broker: Broker) -> None:
    """16 messages of 128 bytes; each pull commits another offset than the one before."""
    broker.say(b"".join(send_frame(0, bytes(128), n) for n in range(16)))
    pulls = [committing_frame(n) for n in range(2)]

    def run() -> None:
        for pull in pulls:
            broker.say(pull)

    benchmark(run)
    assert broker.offsets.committed("bench-consumer", TOPIC, 0) == 1


def test_wake_ups(benchmark: BenchmarkFixture, broker: Broker) -> None:
    """Four held pulls, one for each queue; then 64 messages, 16 for each pull."""
    data = b"".join(send_frame(n % 4, bytes(128), n) for n in range(FRAMES))
    broker.say(data)

    def asked() -> tuple[tuple[bytes], dict[str, object]]:
        ends = (broker.store.reader.max_offset(TOPIC, queue_id) for queue_id in range(4))
        return (b"".join(waiting_frame(queue_id, end) for queue_id, end in enumerate(ends)),), {}

    def run(pulls: bytes) -> None:
        broker.say(pulls)
        assert len(broker.held) == 4
        broker.say(data)
        assert len(broker.held) == 0

    before = broker.line.wire.sent
    benchmark.pedantic(run, setup=asked, rounds=ROUNDS)
    assert broker.line.wire.sent - before > FRAMES * 128


def committing_frame(commit_offset: int) -> bytes:
    request = RemotingCommand.decode(pull_frame(0, 0, 1))
    request.ext |= {"sysFlag": "5", "commitOffset": str(commit_offset)}
    return request.encode()


def waiting_frame(queue_id: int, queue_offset: int) -> bytes:
    request = RemotingCommand.decode(pull_frame(queue_id, queue_offset, queue_id))
    request.ext |= {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
    return request.encode()
