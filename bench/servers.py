"""Starts servers as processes pinned to CPU 0: FireArrow, Apache's broker (from Maven), redis, floors."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import frames
from bench.ports import free_port
from bench.programs import built
from firearrow._native.base import certificates
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand

Address = tuple[str, int]
SERVER_CPU, LOAD_CPU = 0, 1
AUTH = "org.apache.rocketmq.auth"
APACHE = ("org.apache.rocketmq:rocketmq-broker:5.5.0", "org.apache.rocketmq:rocketmq-namesrv:5.5.0")
APACHE_PROXY = ("org.apache.rocketmq:rocketmq-proxy:5.5.0", *APACHE)


@dataclass
class Server:
    """A running server.

    `ready_s`: from the start of its process to the first response to a stored send. It is stopped (SIGSTOP)
    while others are measured, since it may have background work, and a JVM always has.
    """

    name: str
    address: Address
    ready_s: float
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)
    left: Path | None = None
    """Of a floor: the first file that it wrote; the others have this name and a number."""
    slave: subprocess.Popen[Any] | None = None
    """Of a master: it runs on the load's CPU, and its CPU time and memory do not count."""
    name_server: str = ""
    """Of a broker of FireArrow's: HOST:PORT of the one in its process."""
    grpc_port: int = 0
    """That serves gRPC; 0: the one of `address` does."""

    @property
    def grpc_address(self) -> Address:
        return self.address[0], self.grpc_port or self.address[1]

    @property
    def is_broker(self) -> bool:
        return self.name.startswith(("firearrow", "apache"))

    def anonymous_mb(self) -> float:
        """RssAnon of all its processes, in MB."""
        total = 0
        for process in self.processes:
            status = Path(f"/proc/{process.pid}/status").read_text()
            total += int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])  # type: ignore[index]
        return total * 1024 / 1e6

    def cpu_s(self) -> float:
        """CPU time of all threads of its processes, with nanosecond resolution."""
        return sum(map(_cpu_s, self.processes))

    def slave_cpu_s(self) -> float:
        return 0.0 if self.slave is None else _cpu_s(self.slave)

    @contextmanager
    def awake(self, settle_s: float = 0) -> Iterator[None]:
        """A context in which the server runs; first it may catch up with background work."""
        self._signal(signal.SIGCONT)
        time.sleep(settle_s)
        try:
            yield
        finally:
            self.rest()

    @contextmanager
    def on_all_cpus(self) -> Iterator[None]:
        """A context in which its threads may run on every CPU."""
        self._pin(set(range(os.cpu_count() or 1)))
        try:
            yield
        finally:
            self._pin({SERVER_CPU})

    def rest(self) -> None:
        self._signal(signal.SIGSTOP)

    def tidy(self) -> None:
        """Delete all but a floor's newest file: floors delete none, and brokers drop data on a full disk."""
        if self.left is not None:
            files = self.left.parent.glob(f"{self.left.name}.[0-9]*")
            for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)[:-1]:
                path.unlink()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._all():
            process.send_signal(number)

    def _all(self) -> list[subprocess.Popen[Any]]:
        return self.processes if self.slave is None else [*self.processes, self.slave]

    def _pin(self, cpus: set[int]) -> None:
        for process in self.processes:
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cpus)

    def stop(self) -> None:
        self._signal(signal.SIGCONT)
        for process in reversed(self._all()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _cpu_s(process: subprocess.Popen[Any]) -> float:
    return sum(map(_thread_ns, Path(f"/proc/{process.pid}/task").glob("*/schedstat"))) / 1e9


def _thread_ns(schedstat: Path) -> int:
    """CPU time of a thread; 0: it has just ended."""
    try:
        return int(schedstat.read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def allow_many_files() -> None:
    """Allow thousands of open files, also in servers that are started after this call."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def pinned(
    command: list[str], log: Path, *, cpu: int = SERVER_CPU, **environment: str
) -> subprocess.Popen[bytes]:
    """Start a process pinned to a CPU (`taskset` is part of util-linux)."""
    command = ["taskset", "--cpu-list", str(cpu), *command]
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=os.environ | environment
        )


def firearrow(folder: Path, *settings: str, login: frames.Login | None = None) -> Server:
    """`settings` go into its broker.conf: KEY=VALUE. `login`: of a user who may do everything."""
    started, log = time.monotonic(), folder / "firearrow.log"
    process = pinned([*_broker(folder, *settings), "--namesrv-listen", "127.0.0.1:0"], log)
    address = ("127.0.0.1", _bound(process, log))
    _first_send(process, address, log, login)
    names = re.search(r"name server (\S+:\d+),", log.read_text())
    assert names is not None
    return Server("firearrow", address, time.monotonic() - started, [process], name_server=names[1])


def _broker(folder: Path, *settings: str) -> list[str]:
    """The command of a broker on a free port."""
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{setting}\n" for setting in settings))
    words = [
        sys.executable,
        "-m",
        "firearrow.broker",
        "--store",
        str(folder / "store"),
        "--config",
        str(conf),
    ]
    return [*words, "--listen", "127.0.0.1:0"]


PATIENT = "haHousekeepingInterval=3600000"
"""Master and slave are stopped for longer than the usual silence."""


def master(folder: Path, *settings: str) -> Server:
    """A broker with the least slave (native/slave.c) on the load's CPU."""
    port = free_port()
    made = firearrow(folder, f"haListenPort={port}", PATIENT, *settings)
    least = pinned([str(built("slave")), "127.0.0.1", str(port)], folder / "slave.log", cpu=LOAD_CPU)
    return replace(made, slave=least)


def pair(folder: Path) -> Server:
    """A broker with a slave of FireArrow's on the load's CPU."""
    made = firearrow(folder, f"haListenPort={free_port()}", PATIENT)
    return replace(made, slave=slave_of(made, folder / "slave")[0])


def slave_of(master: Server, folder: Path) -> tuple[subprocess.Popen[bytes], Address]:
    """A slave of FireArrow's in this folder, and its address."""
    folder.mkdir()
    command = [*_broker(folder, "brokerRole=SLAVE", "brokerId=1", PATIENT), "--namesrv", master.name_server]
    log = folder / "slave.log"
    process = pinned([*command, "--namesrv-listen", "off"], log, cpu=LOAD_CPU)
    return process, ("127.0.0.1", _bound(process, log))


def firearrow_with_tls(folder: Path) -> Server:
    """It accepts TLS and plain connections, with a certificate that it has signed itself."""
    made = certificates.self_signed("localhost")
    chain, key = folder / "server.pem", folder / "server.key"
    chain.write_bytes(made.certificate)
    key.write_bytes(made.key)
    return firearrow(folder, f"tls.server.certPath={chain}", f"tls.server.keyPath={key}")


def firearrow_with_users(folder: Path, strategy: str) -> Server:
    """It checks who sends a request and whether he may. `strategy`: Stateful or Stateless."""
    return firearrow(
        folder,
        "authenticationEnabled=true",
        "authorizationEnabled=true",
        f"initAuthenticationUser={json.dumps(frames.ADMIN._asdict())}",
        f"authenticationStrategy={AUTH}.authentication.strategy.{strategy}AuthenticationStrategy",
        f"authorizationStrategy={AUTH}.authorization.strategy.{strategy}AuthorizationStrategy",
        login=frames.ADMIN,
    )


def _bound(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port that the broker reports in its log."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        ready = re.search(r"firearrow ready: broker \S+:(\d+),", log.read_text())
        if ready is not None:
            return int(ready[1])
        if process.poll() is not None:
            raise RuntimeError(f"the server exited with code {process.returncode}: {log.read_text()[-1000:]}")
        time.sleep(0.01)
    raise RuntimeError(f"the broker did not become ready: {log.read_text()[-1000:]}")


def floor(folder: Path, *kind: str, file_mib: int) -> Server:
    """A minimal server (native/floor.c) with files of this size."""
    return _least("floor", kind[0], folder / "floor.data", file_mib, *kind[1:])


def relay(folder: Path, *, file_gib: int) -> Server:
    """The end-to-end floor (native/relay.c); a file must be large enough for a whole load."""
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
    """Without a log, or with one that is synced before each answer.

    RuntimeError: there is none on this machine.
    """
    if shutil.which("redis-server") is None:
        raise RuntimeError("redis-server is not installed")
    port, started = free_port(), time.monotonic()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    if synced:
        command += ["--appendonly", "yes", "--appendfsync", "always"]
    process = pinned(command, folder / "redis.log")
    wait_port(("127.0.0.1", port), process, folder / "redis.log")
    return Server("redis", ("127.0.0.1", port), time.monotonic() - started, [process])


def apache(folder: Path, jars: str, *settings: str) -> Server:
    """A name server and a broker with a heap of 1 GiB; `ready_s` is the broker's alone."""
    home, log, port = folder / "apache", folder / "apache.log", free_port()
    _apache_files(home, port, settings)
    names = _jvm(jars, log, home, "namesrv.NamesrvStartup", "-c", home / "namesrv.conf", heap=("-Xmx128m",))
    wait_port(("127.0.0.1", port + 2), names, log)
    started = time.monotonic()
    broker = _jvm(jars, log, home, "broker.BrokerStartup", "-c", home / "broker.conf")
    _first_send(broker, ("127.0.0.1", port), log)
    return Server("apache", ("127.0.0.1", port), time.monotonic() - started, [names, broker])


def apache_proxy(folder: Path, jars: str) -> Server:
    """As `apache`, the broker in the process of the proxy (LOCAL mode)."""
    home, log, port = folder / "apache", folder / "apache.log", free_port()
    _apache_files(home, port, ())
    grpc_port = port + 4
    proxy = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": f"127.0.0.1:{port + 2}",
        "proxyMode": "local",
        "grpcServerPort": grpc_port,
        "remotingListenPort": port + 6,
    }
    (home / "proxy.json").write_text(json.dumps(proxy))
    names = _jvm(jars, log, home, "namesrv.NamesrvStartup", "-c", home / "namesrv.conf", heap=("-Xmx128m",))
    wait_port(("127.0.0.1", port + 2), names, log)
    started = time.monotonic()
    words = ("-pm", "local", "-bc", home / "broker.conf", "-pc", home / "proxy.json")
    broker = _jvm(jars, log, home, "proxy.ProxyStartup", *words, "-n", f"127.0.0.1:{port + 2}")
    _first_send(broker, ("127.0.0.1", port), log)
    wait_port(("127.0.0.1", grpc_port), broker, log)
    made = Server("apache proxy", ("127.0.0.1", port), time.monotonic() - started, [names, broker])
    return replace(made, grpc_port=grpc_port)


def _apache_files(home: Path, port: int, settings: Iterable[str]) -> None:
    """The configurations of a broker and of a name server, whose port is two above. The broker's send queue is long,
    with a long wait, otherwise it refuses sends under these loads."""
    (home / "conf").mkdir(parents=True)
    conf = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "listenPort": str(port),
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": f"127.0.0.1:{port + 2}",
        "storePathRootDir": str(home / "store"),
        "storePathCommitLog": str(home / "store" / "commitlog"),
        "autoCreateTopicEnable": "true",
        "waitTimeMillsInSendQueue": "100000",
        "osPageCacheBusyTimeOutMills": "100000",
        "sendThreadPoolQueueCapacity": "1000000",
        # until this has passed once, 10 s by default, a thread of 5.5 spins
        "transactionMetricFlushInterval": "1000",
    }
    conf |= dict(setting.split("=", 1) for setting in settings)
    (home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    (home / "namesrv.conf").write_text(f"listenPort={port + 2}\nkvConfigPath={home}/kv.json\n")


def _jvm(
    jars: str,
    log: Path,
    home: Path,
    main: str,
    *words: object,
    heap: Sequence[str] = ("-Xms1g", "-Xmx1g"),
) -> subprocess.Popen[bytes]:
    command = ["java", *heap, f"-Duser.home={home}", "-cp", jars, f"org.apache.rocketmq.{main}"]
    return pinned([*command, *map(str, words)], log, ROCKETMQ_HOME=str(home))


def wait_port(address: Address, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server exited with code {process.returncode}: {log.read_text()[-1000:]}")
        try:
            socket.create_connection(address, 1).close()
        except OSError:
            time.sleep(0.01)
            continue
        return
    raise RuntimeError(f"{address} does not answer")


def _first_send(
    process: subprocess.Popen[bytes], address: Address, log: Path, login: frames.Login | None = None
) -> None:
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
    if login is not None:
        frame = frames.signed(frame, login)
    while time.monotonic() < deadline:
        wait_port(address, process, log)
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
    raise RuntimeError(f"{address} stored no message: {log.read_text()[-1000:]}")
