"""The cost of recovery's scan on real records; and a tiny run of `python -m bench.opening`."""

from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from bench.opening import MIB, fill, killed, stopped
from firearrow._native.store.log.commit_log import CommitLog

SCANNED = 4 * MIB


def test_scan_of_the_log(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Every record checked, with the CRC of its body."""
    written = fill(tmp_path, SCANNED // 1200, 4, 16 * MIB)
    with CommitLog.open_readonly(tmp_path / "commitlog") as log:
        scanned = benchmark(lambda: sum(end - start for start, end in log.walk(0)))
        assert scanned == written


def test_opening_in_a_tiny_form(tmp_path: Path) -> None:
    clean = stopped(tmp_path / "stopped", 64 * MIB, 20, 4 * MIB)
    assert (clean.queues, clean.written > 60 * MIB) == (20, True)
    crashed = killed(tmp_path / "killed", SCANNED, 4, 16 * MIB)
    assert crashed.scanned > SCANNED // 2
