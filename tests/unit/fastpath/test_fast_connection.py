"""The fast path takes plain requests and leaves the rest; its responses follow the result of their batch, in order."""

import errno
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.fastpath.topic_cache import PlainTopics
from firearrow._native.store.files.segment import fail_next, heal
from firearrow._native.store.log.record import decode
from firearrow._native.store.log.results import PutRefused
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.unique_ids import UniqueIds
from tests.support.fast_path_harness import HOST, FastPathConnection, FastPathHarness
from tests.support.send_frames import delayed, keyless, plain

DISK_TIMEOUT, NOT_AVAILABLE = 10, 14


@pytest.fixture(autouse=True)
def healed() -> Iterator[None]:
    yield
    heal()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[FastPathHarness]:
    made = FastPathHarness(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[FastPathHarness]:
    made = FastPathHarness(tmp_path, sync_flush=True)
    yield made
    made.store.close()


def test_plain_sends_are_taken(harness: FastPathHarness) -> None:
    connection = FastPathConnection(harness)
    connection.feed(*(plain(n, queue_id=n % 2) for n in range(10)))
    assert not connection.output.writes
    harness.timers.run()
    assert not connection.slow
    assert connection.answers() == [(n, 0) for n in range(10)]
    assert len(connection.output.writes) == 1
    assert harness.arrivals == [{("T", 0), ("T", 1)}]
    harness.stats.gather()
    assert (
        harness.stats.put_times,
        harness.store.reader.max_offset("T", 0),
        harness.store.reader.max_offset("T", 1),
    ) == (10, 5, 5)


@pytest.mark.parametrize("chunk_bytes", [64, 511, 7000])
def test_very_many_topics_are_distinguished(harness: FastPathHarness, chunk_bytes: int) -> None:
    """Enough frames that the next one's topic is prefetched: of another length, half received, or missing."""
    for n in range(1500):
        harness.plain_topics.put(f"many-{n}", queues=1, sendable=True)
    topics = [f"many-{n}" for n in range(5, 1500, 7)]
    connection, data = (
        FastPathConnection(harness),
        b"".join(plain(n, topic=topic) for n, topic in enumerate(topics)),
    )
    for at in range(0, len(data), chunk_bytes):
        connection.feed(data[at : at + chunk_bytes])
    harness.timers.run()
    assert not connection.slow
    assert connection.answers() == [(n, 0) for n in range(len(topics))]
    assert [harness.store.reader.max_offset(topic, 0) for topic in topics] == [1] * len(topics)


@pytest.mark.parametrize(
    "frame",
    [
        delayed(1),
        plain(1, topic="Unknown"),
        plain(1, queue_id=2),
        plain(1, queue_id=-1),
        plain(1, TIMER_DELAY_SEC="1"),
        plain(1, TRAN_MSG="true"),
        plain(1, INNER_MULTI_DISPATCH="%LMQ%x"),
        plain(1, _SYS_MSG_PRIORITY_="1"),
        plain(1, UNIQ_KEY=""),
        plain(1, CLUSTER="theirs"),
        RemotingCommand(RequestCode.HEART_BEAT).encode(),
    ],
)
def test_other_requests_are_left_and_not_counted(harness: FastPathHarness, frame: bytes) -> None:
    connection = FastPathConnection(harness)
    connection.feed(frame)
    assert len(connection.slow) == 1
    harness.stats.gather()
    assert harness.stats.put_times == 0


def test_a_queue_that_the_store_cannot_have_is_left(harness: FastPathHarness) -> None:
    harness.plain_topics.put("Big", queues=100_000, sendable=True)
    connection = FastPathConnection(harness)
    connection.feed(plain(1, topic="Big", queue_id=65_535), plain(2, topic="Big", queue_id=65_536))
    assert [command.opaque for command in connection.slow] == [2]


def test_a_send_that_is_left_creates_no_queue(harness: FastPathHarness) -> None:
    FastPathConnection(harness).feed(plain(1, queue_id=1, DELAY="1"), plain(2, queue_id=1, long="x" * 33_000))
    assert ("T", 1) not in harness.store.reader.queues()


def test_a_message_without_a_unique_key_gets_one(harness: FastPathHarness) -> None:
    connection = FastPathConnection(harness)
    connection.feed(plain(1, UNIQ_KEY=""), keyless(2))
    harness.timers.run()
    assert [command.opaque for command in connection.slow] == [1]
    entry = harness.store.reader.entries("T", 0, 1, 1)[0]
    record = harness.store.reader.record_at(entry.physical_offset)
    assert record is not None
    given = UniqueIds(HOST[:-4], 1, b"salt").at(harness.clock.now_ms())
    assert decode(record).properties_bytes == f"K\x01v\x02UNIQ_KEY\x01{given}\x02CLUSTER\x01c\x02".encode()
    assert [answer.ext["transactionId"] for answer in connection.commands() if answer.opaque == 2] == [given]


def test_one_way_sends_are_stored_and_not_answered(harness: FastPathHarness) -> None:
    connection = FastPathConnection(harness)
    connection.feed(plain(1, oneway=True), plain(2))
    harness.timers.run()
    assert connection.answers() == [(2, 0)]
    assert harness.store.reader.max_offset("T", 0) == 2


def test_responses_of_both_paths_keep_their_order(harness: FastPathHarness) -> None:
    connection, other = FastPathConnection(harness), FastPathConnection(harness)
    connection.feed(plain(1), delayed(2), plain(3), plain(4), delayed(5))
    other.feed(plain(6), delayed(7))
    connection.feed(plain(8))
    harness.timers.run()
    assert connection.answers() == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (8, 0)]
    assert other.answers() == [(6, 0), (7, 0)]


def test_a_failed_write_refuses_all_responses_of_the_batch_in_order(harness: FastPathHarness) -> None:
    connection, other = FastPathConnection(harness), FastPathConnection(harness)
    connection.feed(plain(1), delayed(2), plain(3))
    other.feed(plain(4), plain(5, oneway=True))
    fail_next("pwrite", errno.ENOSPC)
    harness.timers.run()
    heal()
    assert connection.answers() == [(1, NOT_AVAILABLE), (2, NOT_AVAILABLE), (3, NOT_AVAILABLE)]
    assert other.answers() == [(4, NOT_AVAILABLE)]
    assert (harness.arrivals, harness.store.reader.max_offset("T", 0)) == ([], 0)
    connection.feed(plain(6))
    harness.timers.run()
    assert connection.answers()[-1] == (6, 0)
    assert harness.store.reader.max_offset("T", 0) == 1


def test_no_space_for_a_queue_refuses_that_message(harness: FastPathHarness) -> None:
    connection = FastPathConnection(harness)
    fail_next("reserve", errno.ENOSPC)
    with pytest.raises(PutRefused):  # by the complete path, which gets it from the store
        connection.feed(plain(1))
    heal()
    assert [command.opaque for command in connection.slow] == [1]


def test_sync_flush_delays_responses_and_arrivals_until_the_sync(synced: FastPathHarness) -> None:
    connection = FastPathConnection(synced)
    connection.feed(plain(1), plain(2, WAIT="false"), delayed(3), plain(4))
    synced.timers.run()
    assert connection.answers() == [(2, 0)]
    assert (synced.syncs, synced.arrivals, synced.store.reader.max_offset("T", 0)) == (1, [], 0)
    synced.write_batch.synced(synced.store.sync())
    synced.timers.run()
    assert connection.answers() == [(2, 0), (1, 0), (3, 0), (4, 0)]
    assert synced.arrivals == [{("T", 0)}]
    assert synced.store.reader.max_offset("T", 0) == 4


def test_under_sync_flush_each_message_is_answered(synced: FastPathHarness) -> None:
    """Also if their headers look the same."""
    connection = FastPathConnection(synced)
    connection.feed(*(plain(n, WAIT="false" if n in {3, 4} else "true") for n in range(1, 7)))
    synced.timers.run()
    assert connection.answers() == [(3, 0), (4, 0)]
    synced.write_batch.synced(synced.store.sync())
    synced.timers.run()
    assert connection.answers() == [(n, 0) for n in (3, 4, 1, 2, 5, 6)]


def test_responses_sent_together_are_one_write_though_others_wait_between(
    harness: FastPathHarness, tmp_path: Path
) -> None:
    frames = [plain(n, WAIT="false" if n in {2, 4} else "true") for n in range(1, 7)]
    connection = FastPathConnection(harness)
    connection.feed(*frames)
    harness.timers.run()
    assert [opaque for opaque, _ in connection.answers()] == [1, 2, 3, 4, 5, 6]
    assert len(connection.output.writes) == 1
    synced = FastPathHarness(tmp_path / "synced", sync_flush=True)
    connection, other = FastPathConnection(synced), FastPathConnection(synced)
    connection.feed(*frames)
    other.feed(*frames)
    synced.timers.run()
    assert [opaque for opaque, _ in connection.answers()] == [2, 4]
    synced.write_batch.synced(synced.store.sync())
    synced.timers.run()
    for each in (connection, other):
        assert [opaque for opaque, _ in each.answers()] == [2, 4, 1, 3, 5, 6]
        assert len(each.output.writes) == 2
    synced.store.close()


def test_a_slow_disk_is_reported_once(synced: FastPathHarness) -> None:
    connection = FastPathConnection(synced)
    connection.feed(plain(1), plain(2))
    synced.timers.run()
    synced.clock.advance(2000)
    synced.write_batch.expire()
    synced.write_batch.expire()
    synced.timers.run()
    assert connection.answers() == [(1, DISK_TIMEOUT), (2, DISK_TIMEOUT)]
    synced.write_batch.synced(synced.store.sync())
    synced.timers.run()
    assert len(connection.answers()) == 2
    assert synced.store.reader.max_offset("T", 0) == 2


def test_the_sync_timeout_can_change(synced: FastPathHarness) -> None:
    connection = FastPathConnection(synced)
    connection.feed(plain(1))
    synced.timers.run()
    synced.clock.advance(2000)
    synced.write_batch.set_sync_timeout(3000)
    synced.write_batch.expire()
    synced.timers.run()
    assert connection.answers() == []
    synced.clock.advance(1000)
    synced.write_batch.expire()
    synced.timers.run()
    assert connection.answers() == [(1, DISK_TIMEOUT)]


def test_a_failed_sync_refuses_waiting_responses(synced: FastPathHarness) -> None:
    connection = FastPathConnection(synced)
    connection.feed(plain(1), plain(2, WAIT="false"), delayed(3))
    synced.timers.run()
    synced.write_batch.sync_failed("the disk")
    synced.timers.run()
    assert connection.answers() == [(2, 0), (1, NOT_AVAILABLE), (3, NOT_AVAILABLE)]


def test_a_closed_connection_gets_no_response(harness: FastPathHarness) -> None:
    connection, other = FastPathConnection(harness), FastPathConnection(harness)
    connection.feed(plain(1))
    other.feed(plain(2))
    connection.connection_lost(None)
    harness.timers.run()
    assert not connection.output.writes
    assert other.answers() == [(2, 0)]


def test_a_batch_keeps_nothing_after_its_responses(harness: FastPathHarness) -> None:
    """The last batch does not keep a closed connection alive."""
    connection = FastPathConnection(harness)
    gone = weakref.ref(connection)
    connection.feed(plain(1))
    harness.timers.run()
    del connection
    assert gone() is None


def test_sends_are_refused_before_the_start_time(harness: FastPathHarness) -> None:
    connection = FastPathConnection(harness)
    harness.sender.configure(b"", {}, harness.clock.now_ms() + 1)
    connection.feed(plain(1))
    harness.timers.run()
    harness.clock.advance(1)
    connection.feed(plain(2))
    assert [command.opaque for command in connection.slow] == [1]


def test_queues_of_a_recreated_topic_are_looked_up_again(harness: FastPathHarness) -> None:
    connection = FastPathConnection(harness)
    connection.feed(plain(1), plain(2))
    harness.timers.run()
    harness.store.drop_topic("T")
    connection.feed(plain(3))
    harness.timers.run()
    assert not connection.slow
    assert harness.store.reader.max_offset("T", 0) == 1


def test_the_topic_table_finds_every_topic_and_no_deleted_one() -> None:
    plain_topics = PlainTopics()
    names = [f"topic-{n}" for n in range(5000)]
    for name in names:
        plain_topics.put(name, queues=4, sendable=True)
    for name in names[::2]:
        plain_topics.drop(name)
    plain_topics.drop("never there")
    for name in names[::4]:
        plain_topics.put(name, queues=4, sendable=True)
    plain_topics.put(names[1], queues=8, sendable=True)
    assert [name in plain_topics for name in names] == [n % 2 == 1 or n % 4 == 0 for n in range(5000)]
    assert len(plain_topics) == 3750


def test_a_topic_table_that_changes_constantly_stays_small() -> None:
    """Slots of deleted topics are reused."""
    plain_topics = PlainTopics()
    for n in range(20_000):
        plain_topics.put(f"t{n}", queues=1, sendable=True)
        plain_topics.drop(f"t{n}")
    assert (len(plain_topics), "t19999" in plain_topics) == (0, False)


def test_a_recreated_topic_is_counted_again(harness: FastPathHarness) -> None:
    connection = FastPathConnection(harness)
    for sent in (3, 2):
        harness.plain_topics.put("T", queues=1, sendable=True, multi_tags=False)
        connection.feed(*(plain(at, topic="T") for at in range(sent)))
        harness.timers.run()
        harness.stats.gather()
        assert harness.stats.counts("T")[0].value == sent
        harness.plain_topics.drop("T")
        harness.stats.forget_topic("T")


def test_each_topic_is_counted(harness: FastPathHarness) -> None:
    for n in range(30):
        harness.plain_topics.put(f"T{n}", queues=1, sendable=True, multi_tags=False)
        connection = FastPathConnection(harness)
        connection.feed(*(plain(at, topic=f"T{n}") for at in range(n)))
        harness.timers.run()
    harness.stats.gather()
    harness.stats.sample(0)
    assert harness.stats.put_times == sum(range(30))
    for n in range(30):
        messages, size = harness.stats.counts(f"T{n}")
        assert (messages.value, messages.times, size.times, size.value > 0) == (n, n, n, n > 0)
