"""What clients can make the broker hold follows the memory of its container."""

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from firearrow._native.base import machine
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base import memory_limits
from firearrow.broker.base.memory_limits import LEAST, MOST, MemoryLimits, Shares, shares_of
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull_ext, send

MIB = 1 << 20
ROOTS = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def cgroup(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_the_tightest_limit_of_either_version_counts(tmp_path: Path) -> None:
    own, second = tmp_path / "own", tmp_path / "2"
    own.write_text("0::/pod/broker\n")
    assert machine.memory_limit(str(second), str(own)) is None
    cgroup(second / "pod" / "broker", memory__max="max", memory__high="max")
    assert machine.memory_limit(str(second), str(own)) is None
    cgroup(second / "pod", memory__max=512 * MIB, memory__high="max")
    assert machine.memory_limit(str(second), str(own)) == 512 * MIB
    cgroup(second / "pod" / "broker", memory__max=300 * MIB, memory__high=256 * MIB)
    assert machine.memory_limit(str(second), str(own)) == 256 * MIB
    cgroup(second, memory__max=128 * MIB)  # as a container sees its own
    assert machine.memory_limit(str(second), str(own)) == 128 * MIB

    first, folder = tmp_path / "1", tmp_path / "1" / "memory" / "docker" / "c"
    own.write_text("5:cpu:/\n4:memory:/docker/c\n0::/\n")
    cgroup(folder, memory__limit_in_bytes=(1 << 63) - 4096, memory__stat="cache 7")
    assert machine.memory_limit(str(first), str(own)) is None
    cgroup(folder, memory__stat=f"cache 7\nhierarchical_memory_limit {200 * MIB}\nrss 1")
    assert machine.memory_limit(str(first), str(own)) == 200 * MIB
    cgroup(folder, memory__limit_in_bytes=100 * MIB)
    assert machine.memory_limit(str(first), str(own)) == 100 * MIB
    cgroup(folder, memory__stat="cache 7\n\nhierarchical_memory_limit")
    assert machine.memory_limit(str(first), str(own)) == 100 * MIB
    assert machine.memory_limit(str(second), str(tmp_path / "not there")) == 128 * MIB, (
        "what is mounted counts"
    )


@pytest.mark.parametrize("limit", [0, 64 * MIB, 100 * MIB, 128 * MIB, 256 * MIB, 1 << 30, 3 << 30])
def test_what_clients_hold_leaves_memory_for_the_page_cache(limit: int) -> None:
    shares = asdict(shares_of(limit))
    for name, share in shares.items():
        assert getattr(LEAST, name) <= share <= getattr(MOST, name)
    if limit >= 128 * MIB:
        assert sum(shares.values()) <= limit // 2


def test_a_large_machine_has_the_usual_limits() -> None:
    assert shares_of(32 << 30) == MOST
    assert MOST.connections == 1 << 30


def test_an_option_wins_and_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    granted, explicit, seen = [(256 * MIB, "cgroup")], {"connections": 0}, list[Shares]()
    monkeypatch.setattr(memory_limits, "granted", lambda: granted[0])
    limits = MemoryLimits(lambda: explicit)
    limits.listen(seen.append)
    with caplog.at_level(logging.INFO):
        limits.report()
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "the cgroup grants 268435456 bytes of memory" in caplog.text
        assert limits.connection_bytes() == 42 * MIB
        caplog.clear()
        explicit["connections"] = 40 * MIB
        assert limits.connection_bytes() == 40 * MIB
        assert "WARNING" not in caplog.text
        granted[0] = 128 * MIB, "cgroup"
        assert limits.connection_bytes() == 40 * MIB
        assert "maxConnectionBytes=41943040 is more than the 33554432 bytes" in caplog.text
        caplog.clear()
        limits.look()
        assert not caplog.records  # once for each change
    assert [each.connections >> 20 for each in seen] == [42, 40, 40]


@contextlib.contextmanager
def own_cgroup(mib: int) -> Iterator[tuple[Path, Path]]:
    """A cgroup with this limit, and the file of the limit."""
    root = ROOTS[0] if ROOTS[0].is_dir() else ROOTS[1]
    folder = root / f"firearrow-test-{os.getpid()}"
    limit = folder / ("memory.limit_in_bytes" if root is ROOTS[0] else "memory.max")
    try:
        folder.mkdir()
        limit.write_text(str(mib * MIB))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no cgroup for memory can be made here: {error}")
    try:
        yield folder, limit
    finally:
        deadline = time.monotonic() + 10
        while folder.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # its last process is just ending
                folder.rmdir()
            time.sleep(0.02)


def memory_of(client: ClientSocket) -> dict[str, int]:
    found: dict[str, int] = json.loads(client.ask(RequestCode.GET_STATUS).body)["memory"]
    return found


def wait_until(true: Callable[[], bool], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ask_and_read_nothing(broker: BrokerProcess, stop: threading.Event) -> None:
    with contextlib.suppress(OSError), broker.connect() as client:
        for number in range(200):
            client.send_request(RequestCode.PULL_MESSAGE, pull_ext("big", number % 20))
        stop.wait(60)


def send_half_a_frame(broker: BrokerProcess, stop: threading.Event) -> None:
    with contextlib.suppress(OSError), broker.connect() as client:
        client.send_raw((15 * MIB).to_bytes(4) + b"\0\0\0\x02{}" + bytes(14 * MIB))
        stop.wait(60)


@pytest.mark.parametrize("way", ["engine", "transports"])
def test_a_broker_in_a_small_container_survives(tmp_path: Path, way: str) -> None:
    """Moved into a cgroup while it runs, whose limit then changes."""
    with (
        own_cgroup(512) as (folder, limit),
        BrokerProcess(tmp_path / "store", "--log-level", "info", way=WAYS[way]) as broker,
        broker.connect() as client,
    ):
        assert "clients can make the broker hold at most, in bytes: connections " in broker.log.read_text()
        for _ in range(20):
            assert send(client, "big", os.urandom(1000) * 1000).code == 0
        (folder / "cgroup.procs").write_text(str(broker.process.pid))
        wait_until(lambda: memory_of(client)["limitBytes"] == 512 * MIB)
        limit.write_text(str(160 * MIB))
        wait_until(lambda: memory_of(client)["limitBytes"] == 160 * MIB)
        assert memory_of(client)["clientBytes"] == asdict(shares_of(160 * MIB))
        stop, peak = threading.Event(), 0
        kinds = [ask_and_read_nothing] * 100 + [send_half_a_frame] * 20
        threads = [threading.Thread(target=kind, args=(broker, stop), daemon=True) for kind in kinds]
        for thread in threads:
            thread.start()
        try:
            until = time.monotonic() + 4
            while time.monotonic() < until and broker.process.poll() is None:
                peak = max(peak, broker.anonymous_kib() >> 10)
                time.sleep(0.05)
        finally:
            stop.set()
        assert broker.process.poll() is None
        assert peak < 150
        with broker.connect() as later:
            assert send(later, "big", b"after").code == 0
        assert "the buffers of all hold" in broker.log.read_text()
        assert "Traceback" not in broker.log.read_text()
        body = b"maxConnectionBytes=134217728\n"
        with broker.connect() as later:
            assert later.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == 0
            assert memory_of(later)["clientBytes"]["connections"] == 128 * MIB  # type: ignore[index]
        wait_until(lambda: "maxConnectionBytes=134217728 is more than" in broker.log.read_text())
        assert broker.stop() == 0
