"""How fast a store is verified and copied, one core: `pytest bench/test_maintenance.py --benchmark-enable`.

Bodies of 1 KiB. On a machine with other work, `--benchmark-timer=time.process_time` is more exact.
"""

import os
import shutil
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from firearrow._native.store.message_store import InnerMessage, MessageStore, StoreConfig
from firearrow.broker.maintenance.backup import BackupOptions, backup
from firearrow.broker.maintenance.verify import VerifyOptions, verify

HOST = bytes((127, 0, 0, 1, 0, 0, 1, 1))
MESSAGES = 200_000
SEGMENT_BYTES = 64 << 20
SLOTS = 200_000
TURN = 500


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four segments, 4 topics of 4 queues, each message with a unique key, a key and a tag."""
    folder = tmp_path_factory.mktemp("maintenance") / "store"
    sizes = StoreConfig(segment_bytes=SEGMENT_BYTES, index_slots=SLOTS, index_entries=4 * SLOTS)
    body = bytes(range(256)) * 4
    with MessageStore.open(folder, sizes) as store:
        for number in range(MESSAGES):
            own = (
                f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01key-{number}\x02TAGS\x01tag-{number % 5}\x02".encode()
            )
            store.put(
                InnerMessage(
                    f"topic-{number % 4}",
                    number // 4 % 4,
                    body,
                    own,
                    born_host=HOST,
                    store_host=HOST,
                    born_timestamp=1_700_000_000_000 + number,
                ),
                now_ms=1_700_000_000_000 + number,
            )
            if number % TURN == TURN - 1:
                store.write()
        store.write()
    return folder


def record_rate(benchmark: BenchmarkFixture, size: int) -> None:
    if benchmark.stats is not None:
        benchmark.extra_info["GB/s"] = round(size / benchmark.stats.stats.min / 1e9, 2)


@pytest.mark.parametrize("crc", [True, False], ids=["crc", "heads"])
@pytest.mark.parametrize("index", [True, False], ids=["index", ""])
def test_verify(benchmark: BenchmarkFixture, root: Path, crc: bool, index: bool) -> None:
    checks = VerifyOptions(crc=crc, index=index, index_slots=SLOTS, jobs=1)
    verified = benchmark(lambda: verify(str(root), checks))
    assert verified.clean, verified.findings
    assert verified.seen.numbers["records"] == MESSAGES
    record_rate(benchmark, verified.bytes)


@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
def test_backup(benchmark: BenchmarkFixture, root: Path, tmp_path: Path, links: bool) -> None:
    def made() -> int:
        target = tmp_path / "copy"
        shutil.rmtree(target, ignore_errors=True)
        os.sync()
        return backup(str(root), target, BackupOptions(links=links))[0].log_end

    record_rate(benchmark, benchmark(made))
