"""Troubles of brokers and their machine: made at a real broker where a test can, else given as facts."""

import os
import re
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.base import last_backup
from firearrow._native.base import machine as measured
from firearrow._native.base.last_backup import LastBackup
from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.times import now_ms
from firearrow.client.cli.doctor import cluster
from firearrow.client.cli.doctor.facts import Broker, Facts, NameServer
from tests.doctor.running import doctor_of, facts_of, found_in, machine, severities
from tests.faults.small_disk import SmallDisk
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Troubles that end with their test are made here."""
    with BrokerProcess(tmp_path_factory.mktemp("brokers") / "store") as running:
        yield running


def configure(broker: BrokerProcess, **values: object) -> None:
    body = "".join(f"{key}={value}\n" for key, value in values.items()).encode()
    with broker.connect() as connection:
        assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, body).code == 0


def facts_with(changes: dict[str, Any], **members: Any) -> Facts:  # noqa: ANN401
    return facts_of(Broker("b", "10.0.0.1:10911", machine=machine(**changes), **members))


# ---- addresses ----


def test_an_address_that_cannot_be_reached(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with BrokerProcess(tmp_path / "store", "--advertise", f"127.0.0.1:{port}") as running:
            said = doctor_of(running)
    (finding,) = said.of("unreachable-brokers")
    assert finding["severity"] == "CRITICAL"
    assert f"127.0.0.1:{port}" in finding["found"]
    assert said.code == 1


def test_loopback_is_advertised_though_others_can_connect(tmp_path: Path) -> None:
    with BrokerProcess(
        tmp_path / "store", "--listen", "0.0.0.0:0", "--set", "brokerIP1=127.0.0.1"
    ) as running:
        (finding,) = doctor_of(running).of("listen-addresses")
    assert "listens on 0.0.0.0, and advertises 127.0.0.1:" in finding["found"]


@pytest.mark.parametrize(
    ("listen", "advertised", "name_server", "found"),
    [
        ("127.0.0.1:10911", "10.0.0.1:10911", "10.0.0.1:9876", ["CRITICAL"]),
        ("127.0.0.1:10911", "", "10.0.0.1:9876", ["CRITICAL"]),
        ("127.0.0.1:10911", "", "127.0.0.1:9876", []),
        ("[::1]:10911", "", "localhost:9876", []),
        ("10.0.0.1:10911", "10.0.0.1:10911", "10.0.0.1:9876", []),
        ("[::]:10911", "", "10.0.0.1:9876", []),
        ("0.0.0.0:10911", "[::1]:10911", "10.0.0.1:9876", ["WARNING"]),
    ],
)
def test_listen_and_advertised_addresses(
    listen: str, advertised: str, name_server: str, found: list[str]
) -> None:
    facts = facts_with({"listen": [listen], "advertised": advertised})
    facts.name_servers = [NameServer(name_server)]
    assert severities(found_in(facts, "listen-addresses")) == found


def test_a_broker_that_was_taken_out(broker: BrokerProcess) -> None:
    configure(broker, brokerPermission=4)
    try:
        (finding,) = doctor_of(broker).of("broker-permission")
        assert "send to it" in finding["why"]
    finally:
        configure(broker, brokerPermission=6)


# ---- disk ----


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path, 64) as disk:
        yield disk


def test_a_disk_that_is_nearly_full(small: SmallDisk) -> None:
    (small.path / "ballast").write_bytes(bytes(38 << 20))
    with BrokerProcess(small.store, "--set", "mappedFileSizeCommitLog=65536") as running:
        assert not doctor_of(running).of("disk-use")
        configure(running, diskMaxUsedSpaceRatio=60)
        (finding,) = doctor_of(running).of("disk-use")
    assert "limits: 60, 85 and 90 %" in finding["found"]


def test_too_little_room_for_the_next_file(small: SmallDisk) -> None:
    with BrokerProcess(small.store, "--set", f"mappedFileSizeCommitLog={32 << 20}") as running:
        (finding,) = doctor_of(running).of("free-bytes")
    assert finding["severity"] == "CRITICAL"
    assert "whose files have 32.0 MiB" in finding["found"]


@pytest.mark.parametrize(
    ("free_percent", "found"), [(60, []), (24, ["WARNING"]), (14, ["CRITICAL"]), (9, ["CRITICAL"])]
)
def test_levels_of_a_disk(free_percent: int, found: list[str]) -> None:
    disk = machine()["log"] | {"total": 100 << 30, "free": free_percent << 30}
    assert severities(found_in(facts_with({"log": disk, "store": disk}), "disk-use")) == found
    runtime = {"commitLogDiskRatio": str(1 - free_percent / 100), "consumeQueueDiskRatio": "0.1"}
    apache = facts_of(Broker("b", runtime=runtime, unknown="Apache"))
    assert severities(found_in(apache, "disk-use")) == found


def test_a_disk_with_few_inodes_and_one_without(tmp_path: Path) -> None:
    with (
        SmallDisk(tmp_path, 64, inodes=1600) as disk,
        BrokerProcess(disk.store, "--set", "mappedFileSizeCommitLog=65536") as running,
    ):
        assert not doctor_of(running).of("free-bytes")
        left = os.statvfs(disk.path).f_favail
        for number in range(left - 900):
            (disk.path / f"file{number}").touch()
        (few,) = facts_now(running)
        assert few["severity"] == "CRITICAL"
        assert re.fullmatch(r"9\d\d|89\d", few["found"].split(" ")[0])
        for number in range(os.statvfs(disk.path).f_favail):
            (disk.path / f"more{number}").touch()
        (none,) = facts_now(running)
    assert none["found"].startswith("0 inodes of ")


def facts_now(broker: BrokerProcess) -> list[dict[str, str]]:
    """The disk is measured again ten seconds after the last time, or by a new broker: here by a restarted one."""
    broker.running.stop()
    broker.running.start()
    return doctor_of(broker).of("free-bytes")


def test_a_disk_without_inodes() -> None:
    disk = machine()["log"] | {"inodesFree": 999}
    (finding,) = found_in(facts_with({"store": disk}), "free-bytes")
    assert finding.text == "999 inodes of /store are free: 100% are in use"


def test_apaches_free_bytes() -> None:
    runtime = {"commitLogDirCapacity": "Total : 97.6 GiB, Free : 1.9 GiB."}
    (finding,) = found_in(facts_of(Broker("b", runtime=runtime)), "free-bytes")
    assert finding.text == "1.9 GiB are free for the log, whose files have 1.0 GiB"


def test_a_flush_mode_that_loses_much(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", "--set", "flushIntervalCommitLog=60000") as running:
        (finding,) = doctor_of(running).of("flush-mode")
    assert "up to 1m0s" in finding["why"]


def test_a_store_in_memory(tmp_path: Path) -> None:
    with SmallDisk(tmp_path, 64, "tmpfs") as disk, BrokerProcess(disk.store) as running:
        (finding,) = doctor_of(running).of("flush-mode")
    assert finding["severity"] == "CRITICAL"


@pytest.mark.parametrize(
    ("sync_ms", "cache", "found"),
    [(0.01, "write back", ["WARNING"]), (0.01, "write through", []), (0.3, "write back", [])],
)
def test_syncs_that_are_faster_than_any_device(sync_ms: float, cache: str, found: list[str]) -> None:
    log = machine()["log"] | {"writeCache": cache}
    facts = facts_with({"flush": {"mode": "SYNC_FLUSH", "intervalMs": 500}, "log": log, "syncMs": sync_ms})
    assert severities(found_in(facts, "flush-mode")) == found


def test_an_fsync_that_fails(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as running:
        (running.store / measured.PROBE).mkdir()
        (finding,) = doctor_of(running).of("fsync-time")
    assert finding["severity"] == "CRITICAL"
    assert "Is a directory" in finding["found"]


@pytest.mark.parametrize(
    ("mode", "sync_ms", "waited_ms", "found"),
    [
        ("SYNC_FLUSH", 51.0, None, ["WARNING"]),
        ("SYNC_FLUSH", 49.0, None, []),
        ("ASYNC_FLUSH", 51.0, None, []),
        ("ASYNC_FLUSH", 501.0, None, ["WARNING"]),
        ("ASYNC_FLUSH", None, 3000, ["CRITICAL"]),
    ],
)
def test_slow_syncs(mode: str, sync_ms: float | None, waited_ms: int | None, found: list[str]) -> None:
    facts = facts_with(
        {"flush": {"mode": mode, "intervalMs": 500}, "syncMs": sync_ms, "syncWaitedMs": waited_ms}
    )
    assert severities(found_in(facts, "fsync-time")) == found


# ---- the process and its machine ----


def test_few_file_descriptors(broker: BrokerProcess) -> None:
    pid = broker.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 8, before[1]))
    try:
        (finding,) = doctor_of(broker).of("file-descriptors")
        assert f"of {used + 8} file descriptors" in finding["found"]
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert not doctor_of(broker).of("file-descriptors")


def test_no_file_descriptors(broker: BrokerProcess) -> None:
    """So few that the broker cannot look at /proc, and none: then it cannot be reached, and the fix names that."""
    pid = broker.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 2, before[1]))
        (finding,) = doctor_of(broker).of("file-descriptors")
        assert finding["severity"] == "CRITICAL"
        assert finding["found"] == f"{used + 2} of {used + 2} file descriptors are in use"
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1, before[1]))
        (finding,) = doctor_of(broker, "--timeout", "1").of("unreachable-brokers")
        assert "without file descriptors" in finding["fix"]
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def in_cgroup(broker: BrokerProcess, controller: str, limits: dict[str, str]) -> Iterator[Path]:
    """The broker is in a cgroup with these limits, of version 1 or 2."""
    pid, parent = str(broker.process.pid), CGROUPS / controller
    is_first = parent.is_dir()
    group = (parent if is_first else CGROUPS) / f"firearrow-{pid}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs cgroups that can be made: {error.strerror}")
    try:
        try:
            for name, text in limits.items():
                if (group / name).exists():
                    (group / name).write_text(text)
            (group / "cgroup.procs").write_text(pid)
        except OSError as error:
            pytest.skip(f"needs a cgroup with limits for {controller}: {error.strerror}")
        yield group
    finally:
        ((parent if is_first else CGROUPS) / "cgroup.procs").write_text(pid)
        eventually(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_a_cgroup_with_little_memory(broker: BrokerProcess) -> None:
    limit = str(60 << 20)
    with in_cgroup(broker, "memory", {"memory.limit_in_bytes": limit, "memory.max": limit}):
        (finding,) = doctor_of(broker).of("memory-limit")
        assert finding["found"] == "its limit of memory is 60.0 MiB"
    assert not doctor_of(broker).of("memory-limit")


def test_a_cgroup_with_few_threads(broker: BrokerProcess) -> None:
    threads = len(os.listdir(f"/proc/{broker.process.pid}/task"))
    with in_cgroup(broker, "pids", {"pids.max": str(threads + 1)}):
        (finding,) = doctor_of(broker).of("cgroup-tasks")
        assert f"of {threads + 1} tasks of its cgroup" in finding["found"]
    assert not doctor_of(broker).of("cgroup-tasks")


def test_a_cgroup_with_little_cpu(broker: BrokerProcess) -> None:
    limits = {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "1000", "cpu.max": "1000 20000"}
    with in_cgroup(broker, "cpu", limits), broker.connect() as client:

        def throttled() -> list[dict[str, str]]:
            for _ in range(100):
                assert client.ask(RequestCode.GET_BROKER_CONFIG).code == 0
            return doctor_of(broker).of("cgroup-cpu")

        (finding,) = eventually(throttled)
        assert "gives it 0.05 CPUs" in finding["found"]
    assert not doctor_of(broker).of("cgroup-cpu")


@pytest.mark.parametrize(
    ("member", "check", "used", "found"),
    [
        ("mappings", "memory-mappings", 40_000, []),
        ("mappings", "memory-mappings", 50_000, ["WARNING"]),
        ("mappings", "memory-mappings", 65_000, ["CRITICAL"]),
        ("systemFiles", "file-descriptors", 65_000, ["CRITICAL"]),
        ("tasks", "cgroup-tasks", 50_000, ["WARNING"]),
    ],
)
def test_limits_of_the_machine(member: str, check: str, used: int, found: list[str]) -> None:
    facts = facts_with({member: {"used": used, "limit": 65_530}})
    assert severities(found_in(facts, check)) == found


def test_a_clock_that_differs(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clocks on one machine cannot be had otherwise."""
    monkeypatch.setattr(cluster, "now_ms", lambda: now_ms() - 60_000)
    (finding,) = doctor_of(broker).of("machine-clock")
    assert re.search(r"clock is (60\.\d|59\.9)s ahead of the clock here", finding["found"])


@pytest.mark.parametrize(
    ("limit", "used", "found"),
    [
        (None, None, []),
        (48 << 20, 10 << 20, ["WARNING"]),
        (512 << 20, 500 << 20, ["WARNING"]),
        (512 << 20, 200 << 20, []),
    ],
)
def test_memory_limits(limit: int | None, used: int | None, found: list[str]) -> None:
    facts = facts_with({"memory": {"limit": limit, "used": used}})
    assert severities(found_in(facts, "memory-limit")) == found


def test_an_old_backup(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as running:
        last_backup.write(str(running.store), LastBackup(now_ms() - 8 * DAY_MS, "/backup", 0))
        (finding,) = doctor_of(running).of("last-backup")
    assert "8d0h old (/backup)" in finding["found"]
    assert f"firearrow store backup {running.store}" in finding["fix"]


def test_no_backup_of_old_messages() -> None:
    facts = facts_with({}, runtime={"earliestMessageTimeStamp": str(1_000_000_000_000 - 2 * DAY_MS)})
    (finding,) = found_in(facts, "last-backup")
    assert finding.text == "no backup is known, and its messages go back 2d0h"


def test_queues_that_are_behind_the_log() -> None:
    facts = facts_of(Broker("b", runtime={"dispatchBehindBytes": str(100 << 20)}))
    assert severities(found_in(facts, "dispatch-behind")) == ["WARNING"]


@pytest.mark.parametrize(
    ("version", "found"),
    [("V4_9_5", 1), ("V4_9_6", 0), ("V5_0_0", 1), ("V5_1_0", 1), ("V5_1_1", 0), ("V5_5_0", 0), ("", 0)],
)
def test_apaches_versions_with_holes(version: str, found: int) -> None:
    apache = facts_of(Broker("b", runtime={"brokerVersionDesc": version}, unknown="Apache"))
    assert len(found_in(apache, "broker-versions")) == found
    ours = facts_with({}, runtime={"brokerVersionDesc": version})
    assert not found_in(ours, "broker-versions")
