"""Service threads that end by a fault of the broker: it refuses messages, is not ready, and reports it everywhere."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client.cli.cluster.status import main as status_command
from tests.doctor.running import doctor_of
from tests.faults.acknowledged_messages import AcknowledgedMessages
from tests.faults.shim import Call, Shim
from tests.metrics.scrapes import WatchedBroker
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.startup import ThreadFault

QUICK = (
    *("--set", "flushIntervalCommitLog=20"),
    *("--set", "flushIntervalConsumeQueue=50"),
)
SWEEP = "firearrow.broker.services.flusher:Flusher._flush_queues"
COMMAND = str(Path(sys.executable).with_name("firearrow"))
JOB = "concurrent.futures.thread:_WorkItem.run"
COLLECT = "firearrow.broker.services.flusher:GroupCommit.collect_synced"


@pytest.mark.parametrize(
    ("flush", "method", "error", "thread"),
    [
        ("ASYNC_FLUSH", SWEEP, "RuntimeError", "flusher"),
        pytest.param("SYNC_FLUSH", SWEEP, "RuntimeError", "flusher", marks=pytest.mark.long),
        ("SYNC_FLUSH", COLLECT, "RuntimeError", "group-commit"),
    ],
)
def test_a_thread_that_ended_stops_the_broker(
    tmp_path: Path, flush: str, method: str, error: str, thread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    acknowledged, fault = AcknowledgedMessages(), ThreadFault(method, error, tmp_path / "now")
    arguments = (*QUICK, "--set", f"flushDiskType={flush}")
    with (
        WatchedBroker(tmp_path / "store", *arguments, environment=fault.environment) as broker,
        broker.connect() as connection,
    ):
        assert acknowledged.send(connection, "T") == 0
        assert broker.get("/readyz")[0] == 200
        fault.when.touch()
        eventually(lambda: acknowledged.send(connection, "T") == ResponseCode.SERVICE_NOT_AVAILABLE)
        for _ in range(3):
            assert acknowledged.send(connection, "T") == ResponseCode.SERVICE_NOT_AVAILABLE
        reason = f"the {thread} thread has ended ({error}: injected by a test): restart the broker"
        assert reason in acknowledged.refusals[-1][1]
        code, _, body = broker.get("/readyz")
        assert (code, reason in body.decode()) == (503, True)
        status = json.loads(broker.get("/status")[2])
        assert (status["ready"], status["store"]["writable"]) == (False, False)
        assert [each["name"] for each in status["threads"] if each["fault"]] == [thread]
        metrics = broker.scrape()
        assert metrics["firearrow_ready"][1][frozenset()] == 0
        up = {dict(labels)["thread"]: value for labels, value in metrics["firearrow_thread_up"][1].items()}
        assert [name for name, value in up.items() if value == 0] == [thread]
        assert broker.log.read_text().count("CRITICAL") == 1
        said = doctor_of(broker)
        assert [each["severity"] for each in said.of("service-threads")] == ["CRITICAL"]
        capsys.readouterr()
        assert status_command(["-n", broker.running.name_server]) == 1
        assert f"the {thread} thread has ended" in capsys.readouterr().out
        assert broker.stop() == 0  # what was acknowledged is synced
    with WatchedBroker(tmp_path / "store") as broker, broker.connect() as connection:
        acknowledged.check(connection)


@pytest.mark.parametrize(
    ("flush", "method"),
    [
        ("ASYNC_FLUSH", SWEEP),
        pytest.param("SYNC_FLUSH", SWEEP, marks=pytest.mark.long),
        ("SYNC_FLUSH", COLLECT),
    ],
)
def test_without_memory_the_threads_go_on(tmp_path: Path, flush: str, method: str) -> None:
    acknowledged, fault = AcknowledgedMessages(), ThreadFault(method, "MemoryError", tmp_path / "now")
    arguments = (*QUICK, "--set", f"flushDiskType={flush}")
    with (
        WatchedBroker(tmp_path / "store", *arguments, environment=fault.environment) as broker,
        broker.connect() as connection,
    ):
        fault.when.touch()
        assert acknowledged.send(connection, "T") == 0  # under SYNC_FLUSH the other thread syncs, too
        eventually(lambda: "will try again" in broker.log.read_text())
        fault.when.unlink()
        assert acknowledged.send(connection, "T") == 0
        eventually(lambda: flushed(broker))
        assert broker.get("/readyz")[0] == 200
        assert broker.stop() == 0


def flushed(broker: WatchedBroker) -> bool:
    found = json.loads(broker.get("/status")[2])["store"]
    return bool(found["flushedOffset"] >= found["maxOffset"])


@pytest.mark.long
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_disk_that_hangs_stops_the_broker_until_it_goes_on(tmp_path: Path, flush: str) -> None:
    acknowledged, shim = AcknowledgedMessages(), Shim(tmp_path)
    arguments = (*QUICK, "--set", f"flushDiskType={flush}", "--set", "syncFlushTimeout=100")
    with (
        WatchedBroker(tmp_path / "store", *arguments, environment=shim.environment) as broker,
        broker.connect() as connection,
    ):
        assert acknowledged.send(connection, "T") == 0
        shim.slow(Call.SYNC, 60_000, "/commitlog/", times=1)
        eventually(
            lambda: acknowledged.send(connection, "T") == ResponseCode.SERVICE_NOT_AVAILABLE, within_s=50
        )
        assert "the sync of the log hangs" in acknowledged.refusals[-1][1]
        code, _, body = broker.get("/readyz")
        assert (code, b"the sync of the log hangs" in body) == (503, True)
        assert doctor_of(broker).of("service-threads")
        eventually(lambda: acknowledged.send(connection, "T") == 0, within_s=60)
        eventually(lambda: broker.get("/readyz")[0] == 200)
        assert broker.stop() == 0


@contextmanager
def name_server(
    folder: Path, environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], ClientSocket]]:
    """With a connection. Its log is `log`, its KV entries are in `kvConfig.json`."""
    config = folder / "namesrv.conf"
    config.write_text(f"kvConfigPath={folder}/kvConfig.json\n")
    command = [COMMAND, "namesrv", "--listen", "127.0.0.1:0", "--config", str(config)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **environment}
        ) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.search(r"name server ([\d.]+):(\d+)", process.stdout.readline())
            assert found
            with ClientSocket((found[1], int(found[2]))) as connection:
                yield process, connection
        finally:
            process.kill()


def test_a_name_server_without_its_saver_refuses_changes(tmp_path: Path) -> None:
    fault = ThreadFault(JOB, "RuntimeError", tmp_path / "now")
    with name_server(tmp_path, fault.environment) as (process, connection):

        def put(key: str) -> tuple[int, str]:
            answer = connection.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": key, "value": "v"})
            return answer.code, answer.remark or ""

        assert put("a") == (0, "")
        assert '"a":"v"' in (tmp_path / "kvConfig.json").read_text()  # before the answer
        fault.when.touch()
        code, remark = put("b")  # the thread ends with it
        assert (code, "the change is in effect, but" in remark) == (ResponseCode.SYSTEM_ERROR, True)
        refused = (
            ResponseCode.SYSTEM_ERROR,
            "nothing was changed, as the saver thread has ended: restart the server",
        )
        assert put("c") == refused
        assert connection.ask(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "c"}).code != 0
        assert connection.ask(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "a"}).code == 0
        critical = [line for line in (tmp_path / "log").read_text().splitlines() if "CRITICAL" in line]
        reason = (
            "the saver thread has ended: restart the name server. No more changes of KV entries and users are"
        )
        assert [reason in line for line in critical if "firearrow.threads" in line] == [True]
        process.terminate()
        assert process.wait(10) == 0
        assert '"b":"v"' in (tmp_path / "kvConfig.json").read_text()
