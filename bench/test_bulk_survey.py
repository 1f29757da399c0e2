"""How fast the log is checked in bulk, per core: `pytest bench/test_bulk_survey.py --benchmark-enable`.

Bodies of 1 KiB. On a machine with other work, `--benchmark-timer=time.process_time` is more exact.
"""

import mmap
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from firearrow._native.columnar.record_spans import End
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.message_store import InnerMessage, MessageStore, StoreConfig
from firearrow._native.store_checks.audit import SerialExecutor, StoreAudit
from firearrow._native.store_checks.index_entries import check_chains
from firearrow._native.store_checks.log_records import Survey
from firearrow._native.store_checks.queue_entries import count_entries
from firearrow._native.store_checks.raw_findings import RawFindings

HOST = bytes((127, 0, 0, 1, 0, 0, 1, 1))
MESSAGES = 200_000
SEGMENT_BYTES = 256 << 20
SLOTS = 200_000
TURN = 500


@dataclass(frozen=True)
class Written:
    root: Path
    log: mmap.mmap
    bytes: int


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """One segment, 4 topics of 4 queues, each message with a unique key, a key and a tag."""
    root = tmp_path_factory.mktemp("survey")
    body = bytes(range(256)) * 4
    with MessageStore.open(
        root,
        StoreConfig(
            segment_bytes=SEGMENT_BYTES,
            queue_file_bytes=6_000_000,
            index_slots=SLOTS,
            index_entries=4 * SLOTS,
        ),
    ) as store:
        for number in range(MESSAGES):
            properties = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01key-{number}\x02TAGS\x01tag-{number % 5}\x02"
            store.put(
                InnerMessage(
                    f"topic-{number % 4}",
                    number // 4 % 4,
                    body,
                    properties.encode(),
                    born_host=HOST,
                    store_host=HOST,
                    born_timestamp=1_700_000_000_000 + number,
                ),
                now_ms=1_700_000_000_000 + number,
            )
            if number % TURN == TURN - 1:
                store.write()
        store.write()
    log = mapped(root / "commitlog" / f"{0:020d}")
    survey = Survey(check_crc=False, with_keys=False)
    size, end = survey.walk(log, 0, len(log), base=0)
    assert (survey.records, end) == (MESSAGES, End.UNWRITTEN)
    return Written(root, log, size)


def record_rates(benchmark: BenchmarkFixture, size: int, count: int, what: str) -> None:
    if benchmark.stats is not None:
        seconds = benchmark.stats.stats.min
        benchmark.extra_info |= {
            "GB/s": round(size / seconds / 1e9, 2),
            f"M {what}/s": round(count / seconds / 1e6, 1),
        }


@pytest.mark.parametrize("check_crc", [False, True], ids=["heads", "crc"])
@pytest.mark.parametrize("with_keys", [False, True], ids=["", "keys"])
def test_walk(benchmark: BenchmarkFixture, written: Written, check_crc: bool, with_keys: bool) -> None:
    def walk() -> Survey:
        survey = Survey(check_crc=check_crc, with_keys=with_keys)
        survey.walk(written.log, 0, written.bytes, base=0)
        return survey

    assert benchmark(walk).records == MESSAGES
    record_rates(benchmark, written.bytes, MESSAGES, "records")


def test_count_entries(benchmark: BenchmarkFixture, written: Written) -> None:
    window = mapped(written.root / "consumequeue" / "topic-0" / "0" / f"{0:020d}")
    seen = benchmark(lambda: count_entries(window, 0, 0, written.bytes, RawFindings()))
    assert seen.within == MESSAGES // 16
    record_rates(benchmark, len(window), len(window) // 20, "entries")


def test_check_chains(benchmark: BenchmarkFixture, written: Written) -> None:
    window = mapped(next((written.root / "index").iterdir()))
    findings = RawFindings()
    entries = benchmark(lambda: check_chains(window, SLOTS, growing=False, findings=findings))
    assert entries == 3 * MESSAGES
    assert len(findings) == 0
    record_rates(benchmark, len(window), entries, "entries")


@pytest.mark.parametrize("check_crc", [False, True], ids=["heads", "crc"])
def test_whole_audit(benchmark: BenchmarkFixture, written: Written, check_crc: bool) -> None:
    store = StoreFolder("survey", str(written.root))
    seen = benchmark(
        lambda: StoreAudit(store, SerialExecutor(), check_crc=check_crc, index_slots=SLOTS).run()
    )
    assert not seen.findings
    assert seen.numbers["keys_found"] == 2 * MESSAGES
    record_rates(benchmark, written.bytes, MESSAGES, "records")
