"""Servers as processes, each pinned to CPU 0: FireArrow, Apache's broker from Maven's repository, redis, the floors."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.ports import free_port
from bench.programs import built
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand

Address = tuple[str, int]
SERVER_CPU = 0
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>apache</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-broker</artifactId><version>5.5.0</version></dependency>
<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-namesrv</artifactId><version>5.5.0</version></dependency>
</dependencies></project>
"""


@dataclass
class Server:
    """A running broker. `ready_s`: from the start of its process to its first answer to a stored send. It stands still
    (SIGSTOP) whenever others are measured: it may have something left to do, and a JVM always has."""

    name: str
    address: Address
    ready_s: float
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    left: Path | None = None
    """Of a floor: beside it, with numbers, lie the files that it wrote."""

    @property
    def is_broker(self) -> bool:
        return self.name.startswith(("firearrow", "apache"))

    def anonymous_mb(self) -> float:
        """RssAnon of all its processes, in millions of bytes."""
        total = 0
        for process in self.processes:
            status = Path(f"/proc/{process.pid}/status").read_text()
            total += int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])  # type: ignore[index]
        return total * 1024 / 1e6

    def cpu_s(self) -> float:
        """CPU time that the threads of its processes have used, exact to the nanosecond."""
        return (
            sum(
                _thread_ns(each)
                for process in self.processes
                for each in Path(f"/proc/{process.pid}/task").glob("*/schedstat")
            )
            / 1e9
        )

    @contextmanager
    def awake(self, settle_s: float = 0) -> Iterator[None]:
        """For as long as something is asked of it; first it may catch up with what it could not do."""
        self._signal(signal.SIGCONT)
        time.sleep(settle_s)
        try:
            yield
        finally:
            self.rest()

    def rest(self) -> None:
        self._signal(signal.SIGSTOP)

    def tidy(self) -> None:
        """All but a floor's newest file go: it deletes nothing, and brokers give up messages on a disk that fills."""
        if self.left is not None:
            files = self.left.parent.glob(f"{self.left.name}.[0-9]*")
            for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)[:-1]:
                path.unlink()

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            process.send_signal(number)

    def stop(self) -> None:
        self._signal(signal.SIGCONT)
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _thread_ns(schedstat: Path) -> int:
    """Of a thread that ends just now nothing is counted any more."""
    try:
        return int(schedstat.read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def allow_many_files() -> None:
    """Thousands of connections, also of the servers that are started from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def pinned(command: list[str], log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start it on the servers' CPU alone (`taskset` is of util-linux)."""
    command = ["taskset", "--cpu-list", str(SERVER_CPU), *command]
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=os.environ | environment
        )


def firearrow(folder: Path, *settings: str) -> Server:
    """`settings` go into its broker.conf: KEY=VALUE."""
    started, conf, log = time.monotonic(), folder / "broker.conf", folder / "firearrow.log"
    conf.write_text("".join(f"{setting}\n" for setting in settings))
    command = [
        sys.executable,
        "-m",
        "firearrow.broker",
        "--store",
        str(folder / "store"),
        "--config",
        str(conf),
    ]
    command += ["--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"]
    process = pinned(command, log)
    address = ("127.0.0.1", _bound(process, log))
    _first_send(process, address, log)
    return Server("firearrow", address, time.monotonic() - started, [process])


def _bound(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port that the broker says it has."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        said = re.search(r"firearrow ready: broker \S+:(\d+),", log.read_text())
        if said is not None:
            return int(said[1])
        if process.poll() is not None:
            raise RuntimeError(f"exit {process.returncode}: {log.read_text()[-1000:]}")
        time.sleep(0.01)
    raise RuntimeError(f"no broker is ready: {log.read_text()[-1000:]}")


def floor(folder: Path, *kind: str, file_mib: int) -> Server:
    """The least that a server can do (native/floor.c), over files of this size."""
    return _least("floor", kind[0], folder / "floor.data", file_mib, *kind[1:])


def relay(folder: Path, *, file_gib: int) -> Server:
    """The least between producers and consumers (native/relay.c), over files that hold all of one load each."""
    return _least("relay", folder / "relay.data", file_gib)


def _least(program: str, *words: object) -> Server:
    started = time.monotonic()
    command = ["taskset", "--cpu-list", str(SERVER_CPU), str(built(program)), *map(str, words)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    [file] = (word for word in words if isinstance(word, Path))
    return Server("floor", ("127.0.0.1", port), time.monotonic() - started, [process], left=file)


def redis(folder: Path, *, synced: bool) -> Server:
    """Without a log, or with one that is synced before each answer. RuntimeError: there is none on this machine."""
    if shutil.which("redis-server") is None:
        raise RuntimeError("redis-server is not installed")
    port, started = free_port(), time.monotonic()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    if synced:
        command += ["--appendonly", "yes", "--appendfsync", "always"]
    process = pinned(command, folder / "redis.log")
    _wait_port(("127.0.0.1", port), process, folder / "redis.log")
    return Server("redis", ("127.0.0.1", port), time.monotonic() - started, [process])


def class_path(folder: Path) -> str:
    """Of Apache's broker and name server. RuntimeError when Maven or Java is missing or fails."""
    listing = folder / "classpath.txt"
    if not listing.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(POM)
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(folder / "pom.xml"),
            "dependency:build-classpath",
            f"-Dmdep.outputFile={listing}",
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=600)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"Apache's broker needs Java 17 and Maven: {error}") from None
    return listing.read_text().strip()


def apache(folder: Path, jars: str, *settings: str) -> Server:
    """A name server and a broker with a heap of 1 GiB; `ready_s` is the broker's alone. Its send queue may be long and
    wait long, else it refuses under these loads."""
    home = folder / "apache"
    port = free_port(-2, 1, 2)  # the VIP port is two below, that for replication one above
    naming = port + 2
    (home / "conf").mkdir(parents=True)
    conf = {
        "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "listenPort": str(port),
        "brokerIP1": "127.0.0.1", "namesrvAddr": f"127.0.0.1:{naming}", "storePathRootDir": str(home / "store"),
        "storePathCommitLog": str(home / "store" / "commitlog"), "autoCreateTopicEnable": "true",
        "waitTimeMillsInSendQueue": "100000", "osPageCacheBusyTimeOutMills": "100000",
        "sendThreadPoolQueueCapacity": "1000000",
    }  # fmt: skip
    conf |= dict(setting.split("=", 1) for setting in settings)
    (home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    (home / "namesrv.conf").write_text(f"listenPort={naming}\nkvConfigPath={home}/kv.json\n")
    startup, log = "org.apache.rocketmq.{}Startup", folder / "apache.log"

    def jvm(main: str, conf: str, *heap: str) -> subprocess.Popen[bytes]:
        command = [
            "java",
            *heap,
            f"-Duser.home={home}",
            "-cp",
            jars,
            startup.format(main),
            "-c",
            str(home / conf),
        ]
        return pinned(command, log, ROCKETMQ_HOME=str(home))

    names = jvm("namesrv.Namesrv", "namesrv.conf", "-Xmx128m")
    _wait_port(("127.0.0.1", naming), names, log)
    started = time.monotonic()
    broker = jvm("broker.Broker", "broker.conf", "-Xms1g", "-Xmx1g")
    _first_send(broker, ("127.0.0.1", port), log)
    return Server("apache", ("127.0.0.1", port), time.monotonic() - started, [names, broker])


def _wait_port(address: Address, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"exit {process.returncode}: {log.read_text()[-1000:]}")
        try:
            socket.create_connection(address, 1).close()
        except OSError:
            time.sleep(0.01)
            continue
        return
    raise RuntimeError(f"{address} does not answer")


def _first_send(process: subprocess.Popen[bytes], address: Address, log: Path) -> None:
    """Return when a message was stored."""
    deadline = time.monotonic() + 90
    ext = dict(
        zip(
            "abcdefghijkm",
            ("p", "first", "TBW102", "4", "0", "0", "0", "0", "", "0", "false", "false"),
            strict=True,
        )
    )
    frame = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, b"x").encode()
    while time.monotonic() < deadline:
        _wait_port(address, process, log)
        try:
            with socket.create_connection(address, 5) as connection:
                connection.sendall(frame)
                head = connection.recv(4)
                answer = head + connection.recv(int.from_bytes(head), socket.MSG_WAITALL)
        except OSError:
            continue
        if RemotingCommand.decode(answer).code == 0:
            return
        time.sleep(0.02)
    raise RuntimeError(f"{address} stores nothing: {log.read_text()[-1000:]}")
