"""The native checks: nothing is counted twice, nothing outside is read, each finding is reported with its numbers."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.columnar.record_spans import End
from firearrow._native.store_checks.findings import Kind
from firearrow._native.store_checks.log_records import TORN, Survey
from firearrow._native.store_checks.queue_entries import check_entries, count_entries, list_entries
from firearrow._native.store_checks.raw_findings import RawFindings
from tests.support.examples import examples
from tests.support.stores import HOST, HOST_V6, open_store, properties_of, put

HALF, ROLLED_BACK = 0x4, 0xC
BORN_V6, STORE_V6 = 0x10, 0x20
BLANK_ENTRY = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
FAR = 1 << 40


def entry(physical_offset: int, size: int = 100, code: int = 0) -> bytes:
    return struct.pack(">qiq", physical_offset, size, code)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three queues of two topics, records of every kind, in one segment."""
    with open_store(
        tmp_path / "store", segment_bytes=65536, queue_file_bytes=2000, index_slots=10, index_entries=200
    ) as store:
        for number in range(20):
            tags = {"TAGS": f"tag{number % 3}"} if number % 4 else {}
            properties = properties_of(UNIQ_KEY=f"{number:032X}", KEYS=f"k{number}  k{number // 2}", **tags)
            put(
                store,
                b"x" * number,
                "A" if number % 2 else "B",
                number % 4 // 2,
                properties,
                now_ms=1000 + number,
            )
        put(
            store,
            b"six",
            "%RETRY%" + "T" * 130,
            0,
            born_host=HOST_V6,
            store_host=HOST_V6,
            sys_flag=BORN_V6 | STORE_V6,
        )
        put(store, b"half", "A", 0, properties_of(UNIQ_KEY="half"), sys_flag=HALF)
        put(store, b"back", "A", 0, properties_of(UNIQ_KEY="back"), sys_flag=ROLLED_BACK)
        store.write()
    return tmp_path / "store"


@pytest.fixture
def log(folder: Path) -> bytes:
    return (folder / "commitlog" / f"{0:020d}").read_bytes()


def walked(log: bytes, **options: int) -> tuple[Survey, int]:
    survey = Survey(**options)  # type: ignore[arg-type]
    position, end = survey.walk(log, 0, len(log), base=0)
    assert end is End.UNWRITTEN
    return survey, position


# ---- survey ----------------------------------------------------------------------------------------------------------


def test_every_kind_of_record_is_counted_once(log: bytes) -> None:
    survey, end = walked(log)
    assert (survey.records, survey.half, survey.log_bytes) == (23, 2, end)
    queues = {(queue.topic, queue.queue_id): queue for queue in survey.queues()}
    assert {key: queue.messages for key, queue in queues.items()} == {
        (b"A", 0): 7,
        (b"A", 1): 5,
        (b"B", 0): 5,
        (b"B", 1): 5,
        (b"%RETRY%" + b"T" * 130, 0): 1,
    }
    assert (queues[b"A", 0].low, queues[b"A", 0].high) == (0, 4)
    assert (queues[b"B", 1].first_ms, queues[b"B", 1].last_ms) == (1002, 1018)
    assert sum(row[2] for row in survey.tags.items()) == 15
    assert {(row[1], row[2]) for row in survey.hosts.items()} == {(HOST[:4], 22), (HOST_V6[:16], 1)}
    assert [(row[0], row[2]) for row in survey.hours.items()] == [(0, 23)]
    assert len(survey.findings) == 0


def test_entries_that_fit_are_counted_and_the_others_named(folder: Path, log: bytes) -> None:
    survey, _ = walked(log)
    rows = bytearray((folder / "consumequeue" / "A" / "1" / f"{0:020d}").read_bytes())
    rows[20 + 7] ^= 1
    rows[40 + 11] ^= 1
    rows[60 + 19] ^= 1
    rows[80:100] = bytes(20)
    number = next(queue.number for queue in survey.queues() if (queue.topic, queue.queue_id) == (b"A", 1))
    survey.match(number, rows, 0)
    survey.settle(number)
    kinds = [(finding.kind, finding.number) for finding in survey.findings.listed()]
    assert kinds == [
        (Kind.WRONG_ENTRY, 1),
        (Kind.WRONG_ENTRY, 2),
        (Kind.WRONG_TAGS, 3),
        (Kind.NO_ENTRY, 4),
    ]
    assert survey.queues()[number].fitting == 2
    survey.clear()
    survey.settle(number)
    assert len(survey.findings.listed()) == 4


def test_rows_are_matched_in_whichever_file_they_are(folder: Path, log: bytes) -> None:
    survey, _ = walked(log)
    rows = (folder / "consumequeue" / "B" / "0" / f"{0:020d}").read_bytes()
    number = next(queue.number for queue in survey.queues() if (queue.topic, queue.queue_id) == (b"B", 0))
    survey.match(number, rows[40:], 2)
    survey.match(number, rows[:40], 0)
    survey.settle(number)
    assert survey.queues()[number].fitting == 5
    assert not survey.findings.listed()


def test_a_walk_ends_with_its_capacity_and_goes_on(log: bytes) -> None:
    survey, at, stretches = Survey(rows_max=4), 0, 0
    while True:
        at, end = survey.walk(log, at, len(log), base=0)
        if end is not End.LIMIT:
            break
        survey.clear()
        stretches += 1
    assert (survey.records, at) == (23, walked(log)[1])
    assert stretches == 5
    keyed = Survey(keys_max=1)
    assert keyed.walk(log, 0, len(log), base=0)[1] is End.LIMIT
    assert keyed.records == 1


@pytest.mark.parametrize(("position", "why"), [(4, "magic"), (28, "position"), (0, "truncated|lengths")])
def test_what_is_no_record_says_why(log: bytes, position: int, why: str) -> None:
    torn = bytearray(log)
    torn[position] ^= 0x40
    survey = Survey()
    assert survey.walk(torn, 0, len(torn), base=0) == (0, End.TORN)
    assert any(word in TORN[survey.torn] for word in why.split("|"))


def test_indexes_outside_are_refused(log: bytes) -> None:
    survey, _ = walked(log)
    for number in (-1, len(survey.queues())):
        with pytest.raises(IndexError):
            survey.match(number, b"", 0)
        with pytest.raises(IndexError):
            survey.settle(number)
    with pytest.raises(ValueError, match="cannot start at -1"):
        survey.walk(log, -1, 5, base=0)


def test_lmqs_are_recognised_by_properties(tmp_path: Path) -> None:
    with open_store(tmp_path, segment_bytes=65536, lmq=True) as store:
        dispatch = properties_of(
            INNER_MULTI_DISPATCH="%LMQ%one,%LMQ%two", INNER_MULTI_QUEUE_OFFSET="0,0", TAGS="a"
        )
        put(store, b"x", "T", 3, dispatch)
        put(store, b"x", "%RETRY%g", 0, dispatch)
        store.write()
    survey, _ = walked((tmp_path / "commitlog" / f"{0:020d}").read_bytes())
    queues = {
        (queue.topic, queue.queue_id): (queue.messages, queue.is_lmq, queue.low) for queue in survey.queues()
    }
    assert queues == {
        (b"T", 3): (1, False, 0),
        (b"%LMQ%one", 0): (0, True, 0),
        (b"%LMQ%two", 0): (0, True, 0),
        (b"%RETRY%g", 0): (1, False, 0),
    }


def test_delayed_messages_have_their_time_as_code(tmp_path: Path) -> None:
    with open_store(tmp_path, segment_bytes=65536) as store:
        put(store, b"x", "SCHEDULE_TOPIC_XXXX", 2, properties_of(DELAY="3", TAGS="a"), now_ms=5000)
        store.write()
    survey, _ = walked((tmp_path / "commitlog" / f"{0:020d}").read_bytes())
    [queue] = survey.queues()
    size = survey.log_bytes
    survey.match(queue.number, entry(0, size, 15_000), 0)
    survey.settle(queue.number)
    assert not survey.findings.listed()


@given(st.binary(max_size=40), st.data())
@examples(300)
def test_mutated_windows_are_never_read_outside(mutation: bytes, data: st.DataObject) -> None:
    log = bytearray(SMALL_LOG)
    at = data.draw(st.integers(0, len(log) - 1))
    log[at : at + len(mutation)] = mutation
    window = bytes(log[: data.draw(st.integers(0, len(log)))])
    survey, at = Survey(), 0
    for _ in range(100):
        stopped_at, end = survey.walk(window, at, len(window), base=0)
        if end is not End.BLANK or stopped_at == at:
            break
        at = stopped_at
    assert 0 <= stopped_at <= len(window) or end is End.BLANK
    assert survey.log_bytes <= len(window)
    for queue in survey.queues():
        survey.match(queue.number, mutation, 0)
        survey.settle(queue.number)


def small_log() -> bytes:
    """Consecutive records of two queues, made without a store."""
    parts: list[bytes] = []
    for number in range(6):
        body, topic = b"b" * number, b"T%d" % (number % 2)
        properties = properties_of(UNIQ_KEY=f"u{number}", KEYS="a b", TAGS="t")
        rest = (
            struct.pack(">Iiiqqiq", 0, 0, 0, number // 2, sum(map(len, parts)), 0, 5)
            + HOST
            + struct.pack(">q", 6)
            + HOST
        )
        rest += struct.pack(">iqi", 0, 0, len(body)) + body + bytes([len(topic)]) + topic
        rest += struct.pack(">h", len(properties)) + properties
        parts.append(struct.pack(">iI", len(rest) + 8, 0xDAA320A7) + rest)
    return b"".join(parts)


SMALL_LOG = small_log()


def test_bad_crcs_are_gone_over() -> None:
    survey = Survey()
    assert survey.walk(SMALL_LOG, 0, len(SMALL_LOG), base=0) == (len(SMALL_LOG), End.LIMIT)
    findings = survey.findings.listed()
    assert [finding.kind for finding in findings] == [Kind.BAD_CRC] * 5
    assert survey.records == 6
    unchecked = Survey(check_crc=False)
    unchecked.walk(SMALL_LOG, 0, len(SMALL_LOG), base=0)
    assert not unchecked.findings.listed()


# ---- queues ----------------------------------------------------------------------------------------------------------


def test_entries_are_counted_by_where_they_point() -> None:
    rows = BLANK_ENTRY * 2 + entry(10) + entry(200) + entry(300) + entry(FAR) + bytes(40)
    findings = RawFindings()
    seen = count_entries(rows, 50, 100, 1000, findings)
    assert (seen.first, seen.end, seen.written) == (53, 56, 4)
    assert (seen.gone, seen.within, seen.beyond) == (1, 2, 1)
    assert (seen.lowest, seen.highest) == (200, 300)
    assert len(findings) == 0


def test_gaps_and_disorder_are_named_where_they_are() -> None:
    rows = entry(100) + bytes(40) + entry(200) + entry(FAR) + entry(300) + entry(50) + entry(400)
    findings = RawFindings()
    seen = count_entries(rows, 0, 0, 1 << 50, findings)
    assert [(finding.kind, finding.number, finding.times) for finding in findings.listed()] == [
        (Kind.QUEUE_GAP, 1, 2),
        (Kind.QUEUE_ORDER, 4, 1),
        (Kind.QUEUE_ORDER, 6, 1),
    ]
    assert (seen.written, seen.end) == (6, 8)


def test_entries_without_records_are_reported(log: bytes) -> None:
    survey, end = walked(log)
    first = next(queue for queue in survey.queues() if queue.queue_id == 0)
    size = struct.unpack_from(">i", log)[0]
    good = entry(0, size)
    findings = RawFindings()
    judged = check_entries(
        good + entry(1, size) + entry(end, 100) + entry(FAR),
        0,
        log,
        base=0,
        until=len(log),
        topic=first.topic,
        queue_id=0,
        is_lmq=False,
        findings=findings,
    )
    assert judged == 3
    [lost] = findings.listed()
    assert (lost.kind, lost.number, lost.times) == (Kind.LOST_RECORD, 1, 2)
    shifted = RawFindings()
    check_entries(
        good, 1, log, base=0, until=len(log), topic=first.topic, queue_id=0, is_lmq=False, findings=shifted
    )
    check_entries(
        good, 0, log, base=0, until=len(log), topic=b"other", queue_id=0, is_lmq=False, findings=shifted
    )
    assert shifted.totals()[Kind.LOST_RECORD] == 2
    lmq_faults = RawFindings()
    check_entries(
        good, 7, log, base=0, until=len(log), topic=b"other", queue_id=0, is_lmq=True, findings=lmq_faults
    )
    assert len(lmq_faults) == 0


def test_entries_of_a_hole_are_listed() -> None:
    findings = RawFindings()
    rows = entry(10) + entry(100) + entry(199) + entry(200) + bytes(20)
    assert list_entries(rows, 0, offset_from=100, offset_to=200, findings=findings) == 2
    assert [(finding.number, finding.times) for finding in findings.listed()] == [(1, 2)]
