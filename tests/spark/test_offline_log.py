"""A log read as it was stored: all of it, in parts, after damage, while a broker writes it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.reader import OfflineReader
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.spark.stores import BROKER, Golden
from tests.support.recorder import Recorder
from tests.support.stores import SEGMENT_BYTES, open_store, put

COUNT = 120


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as store:
        for number in range(COUNT):
            put(store, b"%d " % number * (number % 30), queue_id=number % 3)
        store.write()
    return tmp_path / "store"


def opened(root: Path) -> OfflineReader:
    return StoreSource((f"s={root}",)).open()


def offsets_of(
    reader: OfflineReader,
    start: int = 0,
    end: int | None = None,
    torn: Recorder | None = None,
    *,
    check_crc: bool = False,
    bytes_max: int = 500,
) -> list[int]:
    walked = reader.read_log(
        "s", start, end, Recorder() if torn is None else torn, check_crc=check_crc, bytes_max=bytes_max
    )
    return [spans.base + spans.position(n) for spans in walked for n in range(len(spans))]


def write_at(root: Path, physical: int, data: bytes) -> None:
    base = physical // SEGMENT_BYTES * SEGMENT_BYTES
    with (root / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(physical - base)
        file.write(data)


def test_a_golden_log_is_walked_to_its_end(golden: Golden) -> None:
    expected = {message["physicalOffset"] for _, queue in golden.queues() for message in queue["messages"]}
    torn = Recorder()
    with opened(golden.root) as reader:
        found = offsets_of(reader, torn=torn, check_crc=True)
        assert set(found) == expected
        assert found == sorted(found)
        assert torn == []
        ends = {m["physicalOffset"] + m["storeSize"] for _, q in golden.queues() for m in q["messages"]}
        assert reader.log_end("s") == max(ends)


def test_no_split_of_a_log_loses_or_doubles_a_record(root: Path) -> None:
    with opened(root) as reader:
        end = reader.log_end("s")
        everything = offsets_of(reader)
        assert len(everything) == COUNT
        assert len(reader.segments("s")) > 3
        for cut in [*range(0, end + 50, 7), *everything, *(segment.end for segment in reader.segments("s"))]:
            middle = reader.boundary("s", cut)
            if middle is None:
                assert cut > everything[-1]
                continue
            assert middle == min(offset for offset in everything if offset >= cut)
            assert offsets_of(reader, 0, cut) + offsets_of(reader, middle) == everything


@pytest.mark.parametrize("bytes_max", [1, 700, 1 << 20])
def test_spans_are_as_large_as_asked(root: Path, bytes_max: int) -> None:
    with opened(root) as reader:
        assert len(offsets_of(reader, bytes_max=bytes_max)) == COUNT
        for spans in reader.read_log("s", 0, None, Recorder(), bytes_max=bytes_max):
            assert spans.bytes - spans.size(len(spans) - 1) < bytes_max


def test_what_is_no_record_is_reported_and_skipped(root: Path) -> None:
    with opened(root) as reader:
        everything = offsets_of(reader)
    for number in (11, 12, 50):
        write_at(root, everything[number] + 4, b"\x01")
    torn = Recorder()
    with opened(root) as reader:
        assert offsets_of(reader, torn=torn) == [p for n, p in enumerate(everything) if n not in (11, 12, 50)]
    assert torn == [
        (everything[11], everything[13], "bytes that are not a record"),
        (everything[50], everything[51], "bytes that are not a record"),
    ]


def test_a_wrong_crc_is_reported_when_it_is_checked(root: Path) -> None:
    with opened(root) as reader:
        everything = offsets_of(reader)
    write_at(root, everything[20] + 88, b"#")
    torn = Recorder()
    with opened(root) as reader:
        assert offsets_of(reader, torn=torn) == everything
        assert torn == []
        found = offsets_of(reader, torn=torn, check_crc=True)
        assert found == everything[:20] + everything[21:]
    assert torn == [(everything[20], everything[21], "the body of a record does not match its CRC")]


def test_a_missing_file_is_reported_and_skipped(root: Path) -> None:
    with opened(root) as reader:
        everything, segments = offsets_of(reader), reader.segments("s")
    Path(segments[1].path).unlink()
    torn = Recorder()
    with opened(root) as reader:
        left = [offset for offset in everything if not segments[1].base <= offset < segments[1].end]
        assert offsets_of(reader, torn=torn) == left
        assert reader.missing("s") == [(segments[1].base, segments[1].end)]
        assert reader.boundary("s", segments[1].base + 5) == segments[2].base
        assert reader.window(segments[1]) is None
    assert torn == [(segments[1].base, segments[1].end, "no file of the log has these bytes")]


def test_zeros_in_the_middle_are_reported_and_at_the_end_are_the_end(root: Path) -> None:
    with opened(root) as reader:
        everything, segments = offsets_of(reader), reader.segments("s")
    hole = next(offset for offset in everything if offset > segments[1].base + 1000)
    write_at(root, hole, bytes(segments[1].end - hole))
    torn = Recorder()
    with opened(root) as reader:
        found = offsets_of(reader, torn=torn)
    assert found == [offset for offset in everything if not hole <= offset < segments[1].end]
    assert torn == [(hole, segments[1].end, "nothing was written, but records follow")]


def test_a_torn_tail_is_reported(root: Path) -> None:
    with opened(root) as reader:
        everything = offsets_of(reader)
        end = reader.log_end("s")
    write_at(root, everything[-1] + 20, bytes(end - everything[-1] - 20))
    torn = Recorder()
    with opened(root) as reader:
        assert reader.log_end("s") == everything[-1]
        assert offsets_of(reader, torn=torn) == everything[:-1]
    [(start, _, why)] = torn
    assert (start, why) == (everything[-1], "bytes that are not a record")


def test_an_empty_log_has_nothing(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, StoreConfig(segment_bytes=4096)).close()
    with opened(tmp_path) as reader:
        assert offsets_of(reader) == []
        assert reader.log_end("s") == 0
        assert reader.boundary("s", 0) is None
        assert reader.missing("s") == []


def test_the_first_message_may_come_when_the_log_was_listed(tmp_path: Path) -> None:
    """The queue's entry is in files that were opened after the log was read."""
    queue = MessageQueue("T", "s", 0)
    with open_store(tmp_path / "store") as store, opened(tmp_path / "store") as reader:
        assert reader.bounds([queue])[queue] == (0, 0)
        for number in range(5):
            put(store, b"%d" % number)
        store.write()
        with reader._stores["s"].queue(queue) as found:
            assert found.bounds() == (0, 5)


def test_a_running_broker_is_read_without_loss_or_repeat(
    broker: LocalBroker, topics: Callable[..., str]
) -> None:
    """While it takes messages: each read returns a prefix of the queue, complete to its end."""
    count, looks = 3000, 0
    queue = MessageQueue(topics(1), BROKER, 0)

    def send() -> None:
        with blocking.Producer("g", name_server=broker.name_server) as producer:
            for number in range(0, count, 20):
                batch = [Message(queue.topic, b"%d" % n * 40) for n in range(number, number + 20)]
                producer.send_batch(batch, queue=queue)

    sending = threading.Thread(target=send)
    sending.start()
    bodies: list[bytes] = []

    def lost(part: QueueRange, why: str) -> None:
        raise AssertionError(f"{part}: {why}")

    with StoreSource((f"{BROKER}={broker.store}",)).open() as reader:
        while len(bodies) < count:
            sent_all = not sending.is_alive()
            first, end = reader.bounds([queue])[queue]
            assert first == 0
            assert end >= len(bodies)
            part = QueueRange(queue, len(bodies), end)
            for spans in reader.read(part, MessageFilter(), lost, bytes_max=20_000):
                bodies += [spans[n].body for n in range(len(spans))]
            assert len(bodies) == end
            looks += 1
            assert end == count or not sent_all
        sending.join(30)
        assert looks > 3
    assert bodies == [b"%d" % n * 40 for n in range(count)]
