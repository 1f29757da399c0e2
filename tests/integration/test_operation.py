"""What operators do with running servers: check a configuration, read and rotate logs, reload by SIGHUP, stop."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base import properties
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand, run_forked
from tests.support.killing import killing
from tests.support.requests import send

COMMAND = str(Path(sys.executable).with_name("firearrow"))
Address = tuple[str, int]


# ---- --check-config ----


def check(config: Path, *args: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of stdout, complaints."""
    environment = os.environ | {"HOME": str(config.parent)}
    done = run_forked("broker", "--check-config", str(config), *args, environment=environment)
    prefix = f"{config}: "
    complaints = done.stderr.splitlines()
    assert all(line.startswith(prefix) for line in complaints), done.stderr
    return done.returncode, done.stdout.splitlines(), [line.removeprefix(prefix) for line in complaints]


def test_a_good_file_is_shown_with_all_options(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("maxMessageSize=70000\nfileReservedTime=48\nhaListenPort=10912\n")
    code, lines, complaints = check(config, "--set", "fileReservedTime=24", "--listen", "127.0.0.1:20911")
    assert (code, complaints) == (0, [])
    assert {"maxMessageSize=70000", "fileReservedTime=24", "listenPort=20911", "traceOn=true"} <= set(lines)
    assert f"storePathRootDir={tmp_path}/firearrow/store" in lines
    assert lines == sorted(lines)
    assert not (tmp_path / "firearrow").exists()


def test_every_complaint_about_a_file_is_shown(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(
        "maxMessageSize=lots\nflushDiskType=NEVER\naclEnable=true\nsslCert=/c\nbrokerRole=SLAVE\n"
        "fileReserveTime=1\nwarmMapedFileEnable=true\nnamesrvAddr=nowhere\nlistenPort=1\nregionId=here\n"
    )
    code, lines, complaints = check(config)
    assert code == 2
    named = "sslCert fileReserveTime warmMapedFileEnable maxMessageSize flushDiskType aclEnable SLAVE namesrvAddr port"
    assert len(complaints) == len(named.split())
    for word, complaint in zip(named.split(), complaints, strict=True):
        assert word in complaint, complaints
    assert "did you mean fileReservedTime?" in complaints[1]
    assert {"regionId=here", "maxMessageSize=4194304"} <= set(lines)


def test_a_broker_may_run_with_the_file_that_is_checked(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={tmp_path}/store\nregionId=r\n")
    with BrokerProcess(tmp_path / "store", "--config", str(config)) as broker:
        assert check(config)[0] == 0
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--check-config", "/nowhere/broker.conf"), "/nowhere/broker.conf"),
        (("--check-config", "/dev/null", "--config", "/dev/null"), "instead of --config"),
        (("--log-file-size", "64M"), "--log-file"),
        (("--log-files", "3"), "--log-file"),
        (("--log-file", "/nowhere/log"), "--log-file /nowhere/log: No such file"),
        (("--log-file", "/dev/null", "--log-file-size", "1T"), "--log-file-size"),
        (("--log-file", "/dev/null", "--log-file-size", "1023"), "at least 1K"),
        (("--log-file", "/dev/null", "--log-files", "0"), "--log-files"),
        (("--log-format", "xml"), "--log-format"),
    ],
)
def test_wrong_usage(tmp_path: Path, args: tuple[str, ...], named: str) -> None:
    done = run_forked("broker", "--store", str(tmp_path / "store"), "--listen", "127.0.0.1:0", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert named in done.stderr
    assert not (tmp_path / "store").exists()


# ---- logs ----


def test_the_log_file_has_what_stderr_would_have(tmp_path: Path) -> None:
    path = tmp_path / "broker-log"
    with BrokerProcess(tmp_path / "store", "--log-file", str(path)) as broker:
        assert broker.stop() == 0
        assert broker.log.read_text() == ""
    line = r"\S+ \S+ INFO firearrow.app: listening on loopback only; .*"
    assert any(re.fullmatch(line, each) for each in path.read_text().splitlines())


def test_a_start_that_fails_is_in_the_log_file_too(tmp_path: Path) -> None:
    path, store = tmp_path / "broker-log", tmp_path / "store"
    store.write_text("not a folder")
    done = run_forked("broker", "--store", str(store), "--listen", "127.0.0.1:0", "--log-file", str(path))
    assert (done.returncode, done.stdout) == (3, "")
    reason = done.stderr.strip().removeprefix("firearrow: ")
    assert str(store) in reason
    assert path.read_text().endswith(f" ERROR firearrow.app: {reason}\n")


def test_a_log_file_is_rotated_and_loses_no_line(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"unknown{number}=1\n" for number in range(400)))
    path = tmp_path / "logs" / "broker"
    path.parent.mkdir()
    args = "--config", str(config), "--log-file", str(path), "--log-file-size", "4k", "--log-files", "30"
    with BrokerProcess(tmp_path / "store", *args) as broker:
        assert broker.stop() == 0
    files = sorted(path.parent.iterdir(), key=lambda file: -int(file.suffix[1:] or 0))
    assert [file.name for file in files[-3:]] == ["broker.2", "broker.1", "broker"]
    assert len(files) > 10
    assert all(3900 < file.stat().st_size <= 4096 for file in files[:-1])
    lines = "".join(file.read_text() for file in files).splitlines()
    assert [line.rpartition("unknown key ")[2] for line in lines[:400]] == [f"unknown{n}" for n in range(400)]


def test_only_so_many_log_files_are_kept(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"unknown{number}=1\n" for number in range(400)))
    path = tmp_path / "logs" / "broker"
    path.parent.mkdir()
    args = "--config", str(config), "--log-file", str(path), "--log-file-size", "1K", "--log-files", "3"
    with BrokerProcess(tmp_path / "store", *args) as broker:
        assert broker.stop() == 0
    assert {file.name for file in path.parent.iterdir()} == {"broker", "broker.1", "broker.2"}
    assert "unknown399" in "".join(file.read_text() for file in path.parent.iterdir())


@pytest.mark.parametrize("to_file", [True, False])
def test_a_json_log_has_one_object_a_line(tmp_path: Path, to_file: bool) -> None:
    config, path = tmp_path / "broker.conf", tmp_path / "broker-log"
    config.write_text("warmMapedFileEnable=true\n")
    args = ("--config", str(config), "--log-format", "json", "--log-level", "INFO")
    with BrokerProcess(tmp_path / "store", *args, *(("--log-file", str(path)) if to_file else ())) as broker:
        assert broker.stop() == 0
        text = (path if to_file else broker.log).read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert {"level": "WARNING", "logger": "firearrow.config"}.items() <= records[0].items()
    assert records[0]["message"] == "warmMapedFileEnable has no effect here (Apache's default: false)"
    assert {record["level"] for record in records} == {"INFO", "WARNING"}
    for record in records:
        assert set(record) == {"ts", "level", "logger", "message"}
        when = datetime.fromisoformat(record["ts"])
        assert when.utcoffset() is not None
        assert abs(datetime.now(when.tzinfo) - when) < timedelta(minutes=5)


@contextmanager
def full_pipe(folder: Path) -> Iterator[Path]:
    """A FIFO whose reader reads nothing and whose buffer is full."""
    path = folder / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    try:
        os.write(writer, bytes(4096))
        yield path
    finally:
        os.close(writer)
        os.close(reader)


@contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    yield Path("/dev/full")


@pytest.mark.parametrize("place", [full_pipe, full_disk])
def test_a_log_file_that_cannot_be_written_stops_nothing(
    tmp_path: Path, place: Callable[[Path], "contextmanager[Path]"]
) -> None:
    with place(tmp_path) as path, BrokerProcess(tmp_path / "store", "--log-file", str(path)) as broker:
        with broker.connect() as connection:
            assert send(connection, "Orders", b"x").code == 0
        broker.process.send_signal(signal.SIGHUP)
        with broker.connect() as connection:
            assert send(connection, "Orders", b"x").code == 0
        assert broker.stop() == 0
    assert not (tmp_path / "store" / "abort").exists()


# ---- SIGHUP ----


def in_force(address: Address, code: int = RequestCode.GET_BROKER_CONFIG) -> dict[str, str]:
    with ClientSocket(address) as connection:
        return properties.parse(connection.ask(code).body)


def test_sighup_opens_the_log_file_again(tmp_path: Path) -> None:
    path, moved = tmp_path / "broker-log", tmp_path / "moved"
    with BrokerProcess(tmp_path / "store", "--log-file", str(path)) as broker:
        eventually(lambda: "listening on loopback only" in path.read_text())  # a thread writes it
        path.rename(moved)
        broker.process.send_signal(signal.SIGHUP)
        eventually(path.exists)
        with broker.connect() as connection:
            connection.socket.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            eventually(lambda: "closed 127.0.0.1" in path.read_text())
        assert broker.stop() == 0
    assert "closed 127.0.0.1" not in moved.read_text()


def test_sighup_during_the_start_is_kept(tmp_path: Path) -> None:
    """It would kill the process. The log file is opened before anything else is done."""
    path = tmp_path / "log"
    ports = "--listen", "127.0.0.1:0", "--namesrv-listen", "off"
    command = [COMMAND, "broker", "--store", str(tmp_path / "store"), "--log-file", str(path), *ports]
    with killing(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        eventually(path.exists, 30)
        path.unlink()
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("firearrow ready")
        eventually(path.exists)
        process.terminate()
        assert process.wait(10) == 0


def test_sighup_reads_the_config_file_again(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("regionId=one\nfileReservedTime=48\nmaxMessageSize=70000\nbrokerName=b\n")
    args = "--config", str(config), "--set", "maxMessageSize=80000", "--log-level", "info"
    with BrokerProcess(tmp_path / "store", *args) as broker:
        config.write_text(
            "regionId=two\nmaxMessageSize=90000\nbrokerName=c\nlistenPort=1234\ndeleteWhen=05\n"
        )
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: in_force(broker.address)["regionId"] == "two")
        with broker.connect() as connection:
            assert send(connection, "Regions", b"x").ext["MSG_REGION"] == "two"
            assert send(connection, "Regions", bytes(80_001)).code != 0
        now = in_force(broker.address)
        assert [now[key] for key in ("fileReservedTime", "maxMessageSize", "brokerName", "deleteWhen")] == [
            "72", "80000", "b", "05",
        ]  # fmt: skip
        log = broker.log.read_text()
        assert "INFO firearrow.config: regionId=two, it was one\n" in log
        assert "INFO firearrow.config: fileReservedTime=72, it was 48\n" in log
        assert "INFO firearrow.config: maxMessageSize" not in log
        assert "WARNING firearrow.config: restart the broker to change brokerName\n" in log
        assert broker.stop() == 0


def test_an_error_in_the_file_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("regionId=one\n")
    with BrokerProcess(tmp_path / "store", "--config", str(config)) as broker:
        before, begun = in_force(broker.address), broker.log.read_text()
        for text, named in (("regionId=two\ntraceOn=perhaps\n", "traceOn"), ("a=\\u12\n", str(config))):
            config.write_text(text)
            broker.process.send_signal(signal.SIGHUP)
            eventually(lambda named=named: named in broker.log.read_text())  # type: ignore[misc]
        config.unlink()
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: "No such file" in broker.log.read_text())
        warnings = broker.log.read_text().removeprefix(begun).splitlines()
        assert len(warnings) == 3
        assert all("the configuration was not read again, nothing has changed: " in line for line in warnings)
        assert in_force(broker.address) == before
        assert broker.stop() == 0


def test_a_change_by_a_client_is_kept(tmp_path: Path) -> None:
    """It is in the file."""
    config = tmp_path / "broker.conf"
    config.write_text("regionId=one\n")
    with BrokerProcess(tmp_path / "store", "--config", str(config)) as broker:
        with broker.connect() as connection:
            assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=12\n").code == 0
        with config.open("a") as file:
            file.write("regionId=two\n")
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: in_force(broker.address)["regionId"] == "two")
        assert in_force(broker.address)["fileReservedTime"] == "12"
        assert broker.stop() == 0


@contextmanager
def name_server(folder: Path, *args: str) -> Iterator["subprocess.Popen[str]"]:
    process = ForkedCommand(
        [COMMAND, "namesrv", "--listen", "127.0.0.1:0", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HOME": str(folder)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_sighup_of_a_name_server(tmp_path: Path) -> None:
    config, path, moved = tmp_path / "namesrv.conf", tmp_path / "log", tmp_path / "moved"
    config.write_text("enableTopicList=true\nlistenPort=1\n")
    args = "--config", str(config), "--log-file", str(path), "--log-level", "info", "--log-format", "json"
    with name_server(tmp_path, *args) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = "127.0.0.1", int(line.split(":")[2].split(",")[0])
        path.rename(moved)
        config.write_text("enableTopicList=false\nlistenPort=2\n")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: in_force(address, RequestCode.GET_NAMESRV_CONFIG)["enableTopicList"] == "false")
        config.write_text("enableTopicList=perhaps\n")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: path.exists() and len(path.read_text().splitlines()) == 3)
        process.terminate()
        assert process.wait(10) == 0
        assert process.stdout.read() == f"firearrow stopped: name server 127.0.0.1:{address[1]}\n"
    changed, restart, wrong = (json.loads(line)["message"] for line in path.read_text().splitlines())
    assert changed == "enableTopicList=false, it was true"
    assert restart == "restart the name server to change listenPort"
    assert wrong.startswith("the configuration was not read again, nothing has changed: ")


def test_sighup_of_a_name_server_with_its_certificate_in_arguments(tmp_path: Path) -> None:
    """Lines of the file need it."""
    files, config = CertificateFiles(tmp_path / "certificates"), tmp_path / "namesrv.conf"
    lines = "tls.server.need.client.auth=optional\ntls.server.authClient=true\nenableTopicList={}\n"
    config.write_text(lines.format("true"))
    with name_server(tmp_path, "--config", str(config), *files.arguments) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = "127.0.0.1", int(line.split(":")[2].split(",")[0])
        config.write_text(lines.format("false"))
        process.send_signal(signal.SIGHUP)
        eventually(lambda: in_force(address, RequestCode.GET_NAMESRV_CONFIG)["enableTopicList"] == "false")


# ---- stopping ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_clean_stop_is_announced(tmp_path: Path, number: int) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        broker.process.send_signal(number)
        assert broker.process.wait(10) == 0
        assert broker.process.stdout is not None
        address = f"{broker.address[0]}:{broker.address[1]}"
        assert broker.process.stdout.read() == (
            f"firearrow stopped: broker {address}, store {tmp_path / 'store'}\n"
        )
