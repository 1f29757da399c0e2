"""The brokers that clients are tested against: ours, and Apache's with its name server in one JVM. One interface."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import end, java, started
from tests.interop.toolchain import class_data
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket

CLUSTER, BROKER = "DefaultCluster", "broker-a"
LIFE = {
    "messageDelayLevel": "1s 2s 1s 1s 1s 1h",
    "timerWheelEnable": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "reviveInterval": "200",
}
"""Short delays and checks, and what a broker offers only if configured."""
MARKS_AT_ONCE = {"transactionOpBatchInterval": "3600000", "transactionOpMsgMaxSize": "1"}
"""Apache's broker writes op messages of decided transactions after 3 s, and checks them again if it checks sooner. It
writes those larger than the size at once. Once the interval has passed after the last one, a thread of 5.5 spins."""

WITHOUT_TLS = {"tls.server.mode": "disabled"}
"""Each of Apache's servers creates a key of its own otherwise, which takes a second of a young JVM."""

ISOLATING = {"enableControllerMode", "enableSlaveActingMaster"}
"""With these options a broker must not register before it knows its role."""


class Peer(Protocol):
    """`address` and `name_server` as `host:port`; `stop` waits for a clean end."""

    kind: str
    address: str
    name_server: str
    store: Path

    def stop(self) -> None: ...


class FireArrow:
    """`python -m firearrow.broker`. `settings` go to `--set`."""

    kind = "firearrow"

    def __init__(
        self, store: Path, settings: dict[str, str], environment: dict[str, str] | None = None
    ) -> None:
        self.store = store
        words = (word for key, value in settings.items() for word in ("--set", f"{key}={value}"))
        self.broker = BrokerProcess(store, *words, environment=environment)
        assert self.broker.name_server is not None
        self.address = "{}:{}".format(*self.broker.address)
        self.name_server = "{}:{}".format(*self.broker.name_server)

    def stop(self) -> None:
        assert self.broker.stop() == 0

    def __enter__(self) -> Self:
        return self

    def kill(self) -> None:
        self.broker.kill()

    def __exit__(self, *_: object) -> None:
        self.kill()


class Apache:
    """Apache 5.5.0 on a store folder. `settings` are lines of its broker.conf, or system properties (`tls.…`)."""

    kind = "apache"
    program = "client5"
    options: tuple[str, ...] = ()

    def __init__(self, store: Path, settings: dict[str, str], wait_s: float = 90) -> None:
        self.store = store
        self.home = store.parent / f"{store.name}-apache"
        self.home.mkdir(exist_ok=True)
        broker = free_port()
        ha, name_server = broker + 1, broker + 2
        self.address, self.name_server = f"127.0.0.1:{broker}", f"127.0.0.1:{name_server}"
        naming = {"listenPort": str(name_server), "rocketmqHome": str(self.home)}
        all_settings = self._settings(broker, ha) | settings
        tls = {key: text for key, text in settings.items() if key.startswith("tls.")} or WITHOUT_TLS
        properties = [f"-D{key}={text}" for key, text in tls.items()]
        options = ["-Xms256m", f"-Drocketmq.home.dir={self.home}", *self.options, *properties]
        self._class_data = class_data(self.program).with_suffix(f".{broker}")
        if not class_data(self.program).exists():
            options.append(f"-XX:ArchiveClassesAtExit={self._class_data}")
        command = java(self.program, "Apache", self.home, "-Xmx1g", *options)
        confs = [_write(self.home / "namesrv.conf", naming), _write(self.home / "broker.conf", all_settings)]
        self.log = self.home / "out.log"
        self.process = started([*command, *confs], self.log, b"apache ready", wait_s)
        self._await_registration(all_settings["namesrvAddr"], not settings.keys() & ISOLATING, wait_s)

    def _await_registration(self, name_server: str, is_asked: bool, wait_s: float) -> None:
        """The broker is ready before it has registered with its name server. It does so earlier if asked."""
        assert self.process.stdin is not None
        deadline = time.monotonic() + wait_s
        with ClientSocket(address(name_server)) as connection:
            while connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code != 0:
                if time.monotonic() > deadline:
                    self.kill()
                    raise AssertionError("Apache's broker did not register")
                if is_asked:
                    self.process.stdin.write(b"\n")
                    self.process.stdin.flush()
                time.sleep(0.05)

    def _settings(self, port: int, ha_port: int) -> dict[str, str]:
        """Small files, and no refusals while the machine is slow."""
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(port),
            "haListenPort": str(ha_port),
            "namesrvAddr": self.name_server,
            "rocketmqHome": str(self.home),
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "mappedFileSizeCommitLog": "16777216",
            "mappedFileSizeConsumeQueue": "60000",
            "maxHashSlotNum": "1000",
            "maxIndexNum": "10000",
            "diskMaxUsedSpaceRatio": "99",
            "brokerRole": "ASYNC_MASTER",
            "timerWheelEnable": "false",
            "defaultTopicQueueNums": "8",
            "enableRocksDBStore": "false",
            "brokerFastFailureEnable": "false",
            "osPageCacheBusyTimeOutMills": "60000",
            # until this has passed once, a thread of 5.5 spins
            "transactionMetricFlushInterval": "100",
        }

    def copy_tables(self) -> None:
        """As a slave does it, 60 s after its start for the first time."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"t")
        self.process.stdin.flush()

    def stop(self) -> None:
        """Close its input, which makes it shut the broker down."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0, self.log.read_text()[-2000:]
        with suppress(FileNotFoundError):  # it was there at the start
            self._class_data.rename(class_data(self.program))

    def kill(self) -> None:
        end(self.process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Apache4(Apache):
    """Apache 4.9.7, which needs its logging configured, and private parts of the JDK to release mapped files."""

    kind = "apache4"
    program = "broker4"
    options = (
        "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    )

    def _settings(self, port: int, ha_port: int) -> dict[str, str]:
        (self.home / "conf").mkdir(exist_ok=True)
        for program in ("broker", "namesrv"):
            (self.home / "conf" / f"logback_{program}.xml").write_text("<configuration/>")
        return super()._settings(port, ha_port)


def address(text: str) -> tuple[str, int]:
    """`host:port` as Python's sockets expect it."""
    host, port = text.rsplit(":", 1)
    return host, int(port)


def _write(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)
