"""Files that are read again while a server runs: a FIFO or a disk that hangs holds up neither loop nor stop."""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base import file_reads
from firearrow.broker.base.file_reads import FileReader, read_regular
from firearrow.broker.base.tls import fault_of
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.eventually import eventually


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    path, fifo = tmp_path / "file", tmp_path / "fifo"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        read_regular(path, 4)
    os.mkfifo(fifo)
    for other in (fifo, tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match=r"regular file|directory"):
            read_regular(other, 5)


def test_a_read_that_hangs_is_reported_once_and_its_result_used(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reads, "LATE_S", 0.2)
    release, calls = threading.Event(), [0]
    results: list[int] = []

    def read() -> int:
        calls[0] += 1
        release.wait(20)
        return calls[0]

    async def run() -> None:
        loop, taken = asyncio.get_running_loop(), asyncio.Event()

        def done(result: int) -> None:
            results.append(result)
            taken.set()

        reader = FileReader("the files", read, done)
        for _ in range(3):
            reader.start(loop)
            await asyncio.sleep(0.1)
        assert (calls, results) == ([1], [])
        release.set()
        await asyncio.wait_for(taken.wait(), 10)
        taken.clear()
        reader.start(loop)
        await asyncio.wait_for(taken.wait(), 10)

    asyncio.run(run())
    assert results == [1, 2]
    assert [record.getMessage() for record in caplog.records] == [
        "the files cannot be read, for 0 s now: what was read before stays in use",
        "the files can be read again",
    ]


@pytest.mark.parametrize("name", ["server.pem", "server.key", "authority.pem"])
def test_a_fifo_does_not_start(tmp_path: Path, name: str) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    pairs = {
        "tls.server.certPath": files.path("server.pem"),
        "tls.server.keyPath": files.path("server.key"),
        "tls.server.need.client.auth": "optional",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": files.path("authority.pem"),
    }
    assert fault_of(pairs) is None
    replace_by_fifo(Path(files.path(name)))
    assert "it is not a regular file" in str(fault_of(pairs))
    config = tmp_path / "tls.properties"
    os.mkfifo(config)
    assert "it is not a regular file" in str(fault_of({"tls.config.file": str(config)}))


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def test_files_that_become_fifos_hold_up_nothing(tmp_path: Path) -> None:
    """Certificate, authorities and options of TLS, accounts, and the configuration."""
    files = CertificateFiles(tmp_path / "certificates")
    tls, accounts, config = tmp_path / "tls.properties", tmp_path / "plain_acl.yml", tmp_path / "broker.conf"
    tls.write_text(
        "tls.server.need.client.auth=optional\ntls.server.authClient=true\n"
        f"tls.server.trustCertPath={files.path('authority.pem')}\n"
    )
    accounts.write_text("globalWhiteRemoteAddresses:\n- 127.0.0.1\naccounts: []\n")
    config.write_text(f"aclEnable=true\nrocketmq.acl.plain.file={accounts}\ntls.config.file={tls}\n")
    arguments = "--config", str(config), *files.arguments, "--set", "fastSockets=true"
    with BrokerProcess(tmp_path / "store", *arguments) as broker, broker.connect() as client:

        def works() -> None:
            began = time.monotonic()
            assert client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
            assert time.monotonic() - began < 2

        for path in (files.path("server.key"), files.path("authority.pem"), tls, accounts):
            before = Path(path).read_bytes()
            replace_by_fifo(Path(path))
            eventually(lambda path=path: f"{path}: it is not a regular file" in logged(broker))  # type: ignore[misc]
            works()
            Path(path).unlink()
            Path(path).write_bytes(before)
        replace_by_fifo(config)
        broker.process.send_signal(signal.SIGHUP)
        works()
        assert broker.stop() == 0


def logged(broker: BrokerProcess) -> str:
    """With the words of all files in one form."""
    return broker.log.read_text().replace(" was not loaded, its accounts stay as they are", "")
