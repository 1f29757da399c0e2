"""A second broker, `broker-b`, known to the name server of the run's broker; it can be killed and come back."""

import shutil
import signal
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.client.local_broker import LocalBroker
from tests.interop.peers import LIFE, Apache, Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import topic_ext

NAME = "broker-b"


class SecondBroker:
    """Of the same kind as the first. `address` stays the same over restarts."""

    def __init__(self, peer: Peer, store: Path) -> None:
        self._first = peer
        self._store = store
        self._ours: LocalBroker | None = None
        self._apache: Apache | None = None
        self.address = ""
        self.start()

    def start(self) -> None:
        """Return when the name server knows it."""
        if self._first.kind == "apache":
            self._start_apache()
        elif self._ours is None:
            arguments = ("--namesrv", self._first.name_server, "--namesrv-listen", "off")
            self._ours = LocalBroker(self._store, settings=LIFE | {"brokerName": NAME}, arguments=arguments)
            self.address = self._ours.address
        else:
            self._ours.start()
        self._wait_until_known()

    def kill(self) -> None:
        for running in (self._ours, self._apache):
            if running is not None:
                running.kill()

    def add_topic(self, topic: str, queues: int) -> None:
        with ClientSocket(address(self.address)) as connection:
            answer = connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues))
        assert answer.code == 0, answer.remark

    def _wait_until_known(self) -> None:
        """Apache's broker registers a moment after it listens."""
        with ClientSocket(address(self._first.name_server)) as connection:
            eventually(
                lambda: NAME.encode() in connection.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}).body,
                30,
                f"the name server knows {NAME}",
            )

    def _start_apache(self) -> None:
        settings = LIFE | {"brokerName": NAME, "namesrvAddr": self._first.name_server}
        if self._apache is not None:
            shutil.rmtree(self._apache.home)
            settings["listenPort"] = self.address.rpartition(":")[2]
        self._apache = Apache(self._store, settings)
        self.address = self.address or self._apache.address

    def signal(self, number: signal.Signals) -> None:
        """To the process of a FireArrow broker: SIGSTOP is a host that hangs, connected but without an answer."""
        assert self._ours is not None
        self._ours.process.send_signal(number)
