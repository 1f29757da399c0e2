"""The command line: help, version, settings, and one sentence with exit code 2 or 3 for each error."""

import os
import resource
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand, run_forked
from tests.support.requests import send

COMMAND = [str(Path(sys.executable).with_name("firearrow"))]
WRONG_USAGE, CANNOT_START = 2, 3


def run(*args: str, file_bytes_max: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "300", "TERM": "dumb"}
    if file_bytes_max == resource.RLIM_INFINITY and "PYTHONPATH" not in environment:
        return run_forked(*args, environment=environment)
    return subprocess.run(
        [*COMMAND, *args],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max)),
    )


def run_broker(
    store: Path, *args: str, file_bytes_max: int = resource.RLIM_INFINITY
) -> subprocess.CompletedProcess[str]:
    ports = [
        word
        for option in ("--listen", "--namesrv-listen")
        if option not in args
        for word in (option, "127.0.0.1:0")
    ]
    return run("broker", "--store", str(store), *ports, *args, file_bytes_max=file_bytes_max)


def sentence(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line on stderr; nothing on stdout, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    if code == CANNOT_START:
        lines = [line for line in done.stderr.splitlines() if line.startswith("firearrow: ")]
        assert len(lines) == 1, done.stderr
        return lines[0]
    return done.stderr


@pytest.mark.parametrize("args", [("--version",), ("broker", "--version")])
def test_version(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.returncode == 0
    assert done.stdout.startswith("firearrow 0.")


def test_help_names_every_option() -> None:
    done = run("broker", "--help")
    assert done.returncode == 0
    for option in (
        "--store",
        "--listen",
        "--advertise",
        "--namesrv-listen",
        "--namesrv",
        "--config",
        "--set",
        "--log-level",
    ):
        assert option in done.stdout
    assert "namesrv" in run("--help").stdout


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module of another package that adds the command `greet`."""
    metadata = tmp_path / "greetings-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[firearrow.commands]\ngreet = greetings.words:main\n")
    (tmp_path / "greetings").mkdir()
    (tmp_path / "greetings" / "__init__.py").write_text("print('imported')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "greetings" / "words.py"


def test_commands_of_other_packages_are_listed_and_not_imported(package: Path) -> None:
    package.write_text('"""Greet everybody.\n\nAnd nothing else."""\nimport greetings.nowhere\n')
    done = run("--help")
    assert done.returncode == 0
    commands = [line.split() for line in done.stdout.splitlines()]
    assert ["greet", "Greet", "everybody."] in commands
    assert "spark" in [words[0] for words in commands if words]
    assert "imported" not in done.stdout
    assert run("broker", "--help").returncode == 0


def test_a_command_of_another_package_gets_its_arguments(package: Path) -> None:
    package.write_text("def main(arguments):\n    print(*arguments, sep='|')\n    return 7\n")
    done = run("greet", "--loud", "a b", "--", "--help")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (7, "--loud|a b|--|--help")
    assert run("greet", "--help").stdout.splitlines()[-1] == "--help"


def test_a_command_whose_library_is_missing_says_so(package: Path) -> None:
    package.write_text("import no_such_library\n")
    done = run("greet")
    assert done.returncode == CANNOT_START
    assert done.stderr == "firearrow greet: the Python package no_such_library is not installed\n"


def test_name_server_alone(tmp_path: Path) -> None:
    process = ForkedCommand(
        [*COMMAND, "namesrv", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 20)[0]
        line = process.stdout.readline()
        assert line.startswith("firearrow ready: name server 127.0.0.1:")
        address = "127.0.0.1", int(line.split(":")[2].split(",")[0])
        with ClientSocket(address) as connection:
            assert connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
        with BrokerProcess(
            tmp_path / "store", "--namesrv-listen", "off", "--namesrv", f"127.0.0.1:{address[1]}"
        ) as broker:
            with ClientSocket(address) as connection:
                wanted = f":{broker.address[1]}".encode()
                eventually(lambda: wanted in connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
            assert broker.stop() == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(2) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--no-such-option",), "--no-such-option"),
        (("--listen", "10911"), "--listen"),
        (("--listen", "127.0.0.1:70000"), "--listen"),
        (("--namesrv-listen", "127.0.0.1:x"), "--namesrv-listen"),
        (("--listen", "off"), "--listen"),
        (("--advertise", "broker.example"), "--advertise"),
        (("--advertise", "broker.example:0"), "--advertise"),
        (("--advertise", "off"), "--advertise"),
        (("--set", "flushDiskType"), "--set"),
        (("--set", "noSuchKey=1"), "noSuchKey"),
        (("--set", "maxMessageSize=9"), "maxMessageSize"),
        (("--set", "maxMessageSize=many"), "maxMessageSize"),
        (("--set", "flushDiskType=NEVER"), "flushDiskType"),
        (("--set", "brokerId=-1"), "brokerId"),
        (("--set", "brokerRole=SLAVE"), "brokerId"),
        (("--log-level", "loud"), "--log-level"),
        (("--config", "/nowhere/broker.conf"), "/nowhere/broker.conf: No such file or directory"),
    ],
)
def test_wrong_usage(tmp_path: Path, args: tuple[str, ...], named: str) -> None:
    assert named in sentence(run_broker(tmp_path / "store", *args), WRONG_USAGE)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"\xff\xfe\x00", "broker.conf"),
        (b"maxMessageSize=lots", "maxMessageSize"),
        (b"brokerRole=SLAVE", "SLAVE"),
        (b"aclEnable=true", "aclEnable"),
        (b"tls.server.certPath=/missing", "tls.server.certPath"),
    ],
)
def test_bad_config_file(tmp_path: Path, text: bytes, named: str) -> None:
    config = tmp_path / "broker.conf"
    config.write_bytes(text)
    assert named in sentence(run_broker(tmp_path / "store", "--config", str(config)), WRONG_USAGE)


@pytest.mark.parametrize("option", ["--listen", "--namesrv-listen"])
def test_port_taken(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = sentence(run_broker(tmp_path / "store", option, f"127.0.0.1:{port}"), CANNOT_START)
    assert port in text
    assert "in use" in text
    assert text.endswith(f"with {option}")
    assert not (tmp_path / "store" / "abort").exists()


def test_vip_port_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + 2))
            except OSError:
                pytest.skip("the port two above is taken")
        text = sentence(run_broker(tmp_path / "store", "--listen", f"127.0.0.1:{port + 2}"), CANNOT_START)
    assert text == (
        f"firearrow: cannot open the VIP port, 2 below the broker's port {port + 2}: "
        f"port {port} on 127.0.0.1 is in use: stop what listens there, or choose another port with --listen"
    )


def test_address_of_another_machine(tmp_path: Path) -> None:
    assert "192.0.2.1" in sentence(run_broker(tmp_path / "store", "--listen", "192.0.2.1:0"), CANNOT_START)


def test_bad_external_name_server(tmp_path: Path) -> None:
    assert "namesrvAddr" in sentence(run_broker(tmp_path / "store", "--namesrv", "nowhere"), CANNOT_START)


def test_folder_of_another_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        text = sentence(run_broker(tmp_path / "store"), CANNOT_START)
        assert "another broker" in text
        assert str(tmp_path / "store") in text
        assert broker.stop() == 0


def test_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    assert "is not a store" in sentence(run_broker(tmp_path / "photos"), CANNOT_START)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a folder")
    says = f"the store {tmp_path / 'store'} is not a folder: name another one with --store"
    assert says in sentence(run_broker(tmp_path / "store"), CANNOT_START)


def test_other_file_sizes(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", "--set", "mappedFileSizeCommitLog=1048576") as broker:
        with broker.connect() as connection:
            assert send(connection, "Sized", b"x").code == 0
        assert broker.stop() == 0
    text = sentence(run_broker(tmp_path / "store", "--set", "mappedFileSizeCommitLog=2097152"), CANNOT_START)
    assert "mappedFileSizeCommitLog" in text or "size" in text


def test_read_only_folder(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root is not refused by permissions")
    (tmp_path / "store").mkdir(mode=0o500)
    assert "permissions" in sentence(run_broker(tmp_path / "store"), CANNOT_START)


@pytest.mark.parametrize("file_bytes_max", [0, 3, 100, 1500])
def test_disk_full(tmp_path: Path, file_bytes_max: int) -> None:
    """A file size limit simulates the full disk: the lock, the abort file, the tables do not fit."""
    text = sentence(run_broker(tmp_path / "store", file_bytes_max=file_bytes_max), CANNOT_START)
    assert "free disk space" in text
    assert str(tmp_path / "store") in text


CONF = """
# of Apache's distribution
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
warmMapedFileEnable = true
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
maxMessageSize = 70000
noSuchKeyAnywhere = 1
"""


def test_an_apache_config_is_accepted_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(CONF)
    args = ("--config", str(config), "--set", "maxMessageSize=80000", "--log-level", "info")
    with BrokerProcess(tmp_path / "store", *args) as broker, broker.connect() as connection:
        in_force = connection.ask(RequestCode.GET_BROKER_CONFIG).body.decode().splitlines()
        assert "brokerName=broker-a" in in_force
        assert "maxMessageSize=80000" in in_force
        assert "fileReservedTime=48" in in_force
        log = broker.log.read_text()
        for key in ("warmMapedFileEnable", "noSuchKeyAnywhere"):
            assert log.count(key) == 1, key
        assert "brokerClusterName" not in log


def test_a_port_that_two_options_need(tmp_path: Path) -> None:
    words = ("--listen", "127.0.0.1:23702", "--namesrv-listen", "127.0.0.1:23700")
    text = sentence(run_broker(tmp_path / "store", *words), CANNOT_START)
    assert text == (
        "firearrow: port 23700 is needed twice, by the VIP port, two below --listen and by --namesrv-listen: "
        "give one of them another port"
    )
