"""PromotedPair: a master and its slave under a name server; when the master has ended, the slave is promoted, and the
old master joins it as a slave. One thread.
"""

import json
import re
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from firearrow.client.local_broker import LocalBroker
from tests.interop.peers import address
from tests.support.client_socket import ClientSocket
from tests.support.command_line import PROGRAM

PAIR = {"brokerName": "broker-a", "inSyncReplicas": "2", "minInSyncReplicas": "2"}
MASTER = PAIR | {"brokerRole": "SYNC_MASTER"}
SLAVE = PAIR | {"brokerRole": "SLAVE", "brokerId": "1"}
READY_S, JOINED_S, PROMOTED_S, STEP_S, KILLED_S = 60.0, 60.0, 10.0, 0.05, 60
LOG_CHARS = 2000
READY = re.compile(r"firearrow ready: name server (?P<address>\S+)")


class PromotedPair:
    """`kill`, `stop` and `start` are those of KilledBroker, of the pair as clients see it."""

    def __init__(self, home: Path, settings: dict[str, str]) -> None:
        for name in "ab":
            (home / name).mkdir(parents=True)
        self._settings = settings
        self._ports: dict[Path, int] = {}
        self._started: list[LocalBroker] = []
        self._names, self.name_server = _start_name_server(home / "namesrv.log")
        try:
            self._master = self._start(home / "a" / "store", MASTER)
            self._slave = self._start(home / "b" / "store", SLAVE)
            self._wait_until_joined()
        except BaseException:
            self.close()
            raise

    def _start(self, store: Path, role: dict[str, str]) -> LocalBroker:
        """On the same ports each time."""
        if store not in self._ports:
            self._ports[store] = free_port()
        port = self._ports[store]
        listen = "--listen", f"127.0.0.1:{port}"
        arguments = ("--namesrv", self.name_server, "--namesrv-listen", "off", *listen)
        settings = self._settings | role | {"haListenPort": str(port + 1)}
        broker = LocalBroker(store, settings=settings, arguments=arguments)
        self._started.append(broker)
        return broker

    @property
    def store(self) -> Path:
        """The master's."""
        return self._master.store

    def connect(self) -> ClientSocket:
        """To the master."""
        return ClientSocket(address(self._master.address))

    def kill(self) -> None:
        """Kill the master."""
        self._master.kill()

    def stop(self, within_s: float) -> int:
        """Stop the master cleanly; its exit code."""
        return self._master.stop(within_s)

    def start_and_kill(self, after_s: float) -> None:
        """Promote the slave, and kill it that many seconds later, at any point of its promotion."""
        promoting = threading.Thread(target=self._promote)
        promoting.start()
        time.sleep(after_s)
        self._slave.kill()
        promoting.join()
        self._slave = self._start(self._slave.store, SLAVE)

    def start(self) -> None:
        """Promote the slave; the old master joins as its slave."""
        deadline = time.monotonic() + READY_S
        while not self._is_master(self._slave):
            self._promote()
            assert time.monotonic() < deadline, f"not promoted: {_tail(self._slave)}"
            time.sleep(STEP_S)
        old, self._master = self._master, self._slave
        self._slave = self._start(old.store, SLAVE)
        self._wait_until_joined()

    def _promote(self) -> None:
        """It may fail, for the slave may be killed meanwhile."""
        words = ["promote", self._slave.address, "--role", "SYNC_MASTER", "--yes"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([*PROGRAM, *words], capture_output=True, timeout=PROMOTED_S, check=False)

    def _is_master(self, broker: LocalBroker) -> bool:
        return self._asked(broker).get("master") is True

    def _wait_until_joined(self) -> None:
        deadline = time.monotonic() + JOINED_S
        while self._asked(self._master).get("inSyncSlaveNums") != 1:
            assert time.monotonic() < deadline, f"not in sync: {_tail(self._master)} {_tail(self._slave)}"
            time.sleep(STEP_S)

    def _asked(self, broker: LocalBroker) -> dict[str, object]:
        """The state of its replication; empty while it starts again."""
        try:
            with ClientSocket(address(broker.address)) as connection:
                answer = connection.ask(RequestCode.GET_BROKER_HA_STATUS)
        except OSError:
            return {}
        status: dict[str, object] = json.loads(answer.body) if answer.code == 0 else {}
        return status

    def close(self) -> None:
        for broker in self._started:
            broker.kill()
        self._names.kill()
        self._names.communicate(timeout=KILLED_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start_name_server(log: Path) -> tuple[subprocess.Popen[str], str]:
    """The process and its address."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*PROGRAM, "namesrv", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    match = READY.match(process.stdout.readline())
    assert match is not None, log.read_text()
    return process, match["address"].rstrip(",")


def _tail(broker: LocalBroker) -> str:
    return broker.log.read_text(errors="replace")[-LOG_CHARS:]
