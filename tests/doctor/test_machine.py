"""GET_MACHINE: what the broker says about its machine, compared with what this test sees of the same machine."""

import asyncio
import json
import os
import resource
import time
from pathlib import Path

import pytest

from firearrow._native.base import last_backup, machine
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.maintenance.backup import backup
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.public import Admin
from tests.support.broker_process import BrokerProcess

GIB = 1 << 30


def test_facts_are_those_of_the_process(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", "--set", "flushDiskType=SYNC_FLUSH") as broker,
        broker.connect() as one,
    ):
        facts = json.loads(one.ask(RequestCode.GET_MACHINE).body)
        pid = broker.process.pid
        assert facts["pid"] == pid
        assert abs(facts["nowMs"] - time.time() * 1000) < 5000
        host, port = broker.address
        assert facts["listen"] == [f"{host}:{port}", f"{host}:{port - 2}"]
        assert facts["advertised"] == ""
        assert abs(facts["files"]["used"] - len(os.listdir(f"/proc/{pid}/fd"))) <= 3
        assert facts["files"]["limit"] == resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
        assert facts["flush"] == {"mode": "SYNC_FLUSH", "intervalMs": 500}
        status = os.statvfs(tmp_path)
        for name in ("store", "log"):
            assert abs(facts[name]["free"] - status.f_bavail * status.f_frsize) < GIB
        assert facts["syncMs"] > 0
        assert facts["lastBackup"] is None
        assert not (broker.store / machine.PROBE).exists()


def test_a_disk_is_measured_at_most_once_in_ten_seconds(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as one:
        found = {json.loads(one.ask(RequestCode.GET_MACHINE).body)["syncMs"] for _ in range(20)}
        assert len(found) == 1


def test_a_backup_leaves_its_trace(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        before = int(time.time()) * 1000
        made, _ = backup(str(broker.store), tmp_path / "copy")
        with broker.connect() as one:
            facts = json.loads(one.ask(RequestCode.GET_MACHINE).body)
        assert before <= facts["lastBackup"]["madeMs"] <= time.time() * 1000
        assert facts["lastBackup"]["target"] == str(tmp_path / "copy")
        assert facts["lastBackup"]["logEnd"] == made.log_end
        assert broker.stop() == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"madeMs":"1","target":"x","logEnd":1}', '{"madeMs":1}'])
def test_a_damaged_trace_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / last_backup.NAME).write_text(text)
    assert last_backup.read(str(tmp_path)) is None


def test_the_tightest_memory_limit_of_a_container_counts(tmp_path: Path) -> None:
    """Of both versions of cgroups, also where only their root is visible."""
    own = tmp_path / "cgroup"
    own.write_text("4:memory,cpu:/pod/box\n0::/\n")
    box = tmp_path / "memory" / "pod" / "box"
    box.mkdir(parents=True)
    (box / "memory.limit_in_bytes").write_text("200000000\n")
    (box / "memory.usage_in_bytes").write_text("150000000\n")
    (box / "memory.stat").write_text("cache 7\ntotal_inactive_file 50000000\n")
    (box.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine.memory(str(tmp_path), str(own)) == {"limit": 200_000_000, "used": 100_000_000}
    own.write_text("0::/not/visible\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory(str(tmp_path), str(own)) == {"limit": None, "used": None}
    (tmp_path / "memory.max").write_text("64000000\n")
    (tmp_path / "memory.current").write_text("60000000\n")
    assert machine.memory(str(tmp_path), str(own)) == {"limit": 64_000_000, "used": 60_000_000}


def test_limits_of_threads_and_cpus(tmp_path: Path) -> None:
    """Of both versions of cgroups: the limit of threads that is reached first, and the tightest one of CPUs."""
    own = tmp_path / "cgroup"
    own.write_text("4:pids:/pod/box\n5:cpu,cpuacct:/pod\n0::/\n")
    box = tmp_path / "pids" / "pod" / "box"
    box.mkdir(parents=True)
    (box / "pids.max").write_text("max\n")
    (box.parent / "pids.max").write_text("100\n")
    (box.parent / "pids.current").write_text("98\n")
    assert machine.tasks(str(tmp_path), str(own)) == {"limit": 100, "used": 98}
    pod = tmp_path / "cpu" / "pod"
    pod.mkdir(parents=True)
    (pod / "cpu.cfs_quota_us").write_text("-1\n")
    (pod / "cpu.cfs_period_us").write_text("100000\n")
    none = {"limit": None, "periods": None, "throttled": None}
    assert machine.cpu(str(tmp_path), str(own)) == none
    (pod / "cpu.cfs_quota_us").write_text("150000\n")
    (pod / "cpu.stat").write_text("nr_periods 200\nnr_throttled 50\nthrottled_time 1\n")
    assert machine.cpu(str(tmp_path), str(own)) == {"limit": 1.5, "periods": 200, "throttled": 50}
    own.write_text("0::/not/visible\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cpu(str(tmp_path), str(own)) == none
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 7\nnr_periods 4\nnr_throttled 1\n")
    assert machine.cpu(str(tmp_path), str(own)) == {"limit": 0.5, "periods": 4, "throttled": 1}
    (tmp_path / "pids.max").write_text("7\n")
    (tmp_path / "pids.current").write_text("5\n")
    assert machine.tasks(str(tmp_path), str(own)) == {"limit": 7, "used": 5}


def test_the_client_reads_them(tmp_path: Path) -> None:
    async def asked(name_server: str) -> dict[str, object]:
        async with Admin(name_server=name_server) as admin:
            (name,) = (await admin.cluster_info()).brokers
            return await Extensions(admin).machine(name)

    with BrokerProcess(tmp_path / "store") as broker:
        assert asyncio.run(asked(broker.running.name_server))["pid"] == broker.process.pid
