"""A connection that has not asked for the log is closed in time, whatever it sent of a request before."""

import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.replication.log.epoch_file import EpochFile
from firearrow.broker.replication.log.pair_identity import PairIdentity
from firearrow.broker.replication.master import HAService
from firearrow.broker.replication.session.replica_registry import NEWCOMERS_MAX, ReplicaRegistry
from firearrow.broker.replication.session.timeout_sync import TimeoutSync
from firearrow.broker.replication.wires.firearrow.agreement import OwnLog
from firearrow.broker.replication.wires.firearrow.handshake import MAGIC
from firearrow.broker.replication.wires.firearrow.shipment import ShippedParts

SILENT_S = 20.0


class Loop:
    """Calls the readers when it is asked to, at the time that it is given."""

    def __init__(self) -> None:
        self.now = 100.0
        self._readers: dict[int, Callable[[], None]] = {}

    def time(self) -> float:
        return self.now

    def add_reader(self, descriptor: int, read: Callable[[], None]) -> None:
        self._readers[descriptor] = read

    def remove_reader(self, descriptor: int) -> None:
        self._readers.pop(descriptor, None)

    def create_task(self, coroutine: Coroutine[object, object, object]) -> MagicMock:
        """Its handshake does not begin."""
        coroutine.close()
        return MagicMock()

    def read(self) -> None:
        for read in list(self._readers.values()):
            read()


class Scene:
    """A master without slaves, and the newcomers that it accepts."""

    def __init__(self, folder: Path) -> None:
        self.loop: Any = Loop()
        self.store = MessageStore.open(folder)
        config = Config(replace(Options(), ha_housekeeping_ms=int(1000 * SILENT_S)))
        parts = self.loop, self.store, config
        self.registry = ReplicaRegistry(*parts, Clock(), list, lambda: 0)
        write_batch: Any = None
        tls: Any = SimpleNamespace(listening=None, enforcing=False)
        rule = TimeoutSync(*parts, self.registry)
        self.master = HAService(self.loop, self.store, write_batch, config, tls, self.registry, rule)
        own_log = OwnLog(self.store, PairIdentity(folder / "config"), EpochFile(folder))
        unused: Any = None
        self.master.serve_firearrow(
            ShippedParts(Clock(), unused, own_log, unused, b"", unused, isolated=False)
        )
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []

    def connect(self, first: bytes = b"") -> socket.socket:
        stranger = socket.create_connection(self._listening.getsockname(), 5)
        accepted, _ = self._listening.accept()
        self._sockets += (stranger, accepted)
        self.master._accept(accepted)
        self.send(stranger, first)
        return stranger

    def send(self, stranger: socket.socket, data: bytes) -> None:
        stranger.sendall(data)
        self.loop.read()

    def after(self, seconds: float) -> None:
        self.loop.now += seconds
        self.master._tick()

    def close(self) -> None:
        for each in (*self._sockets, self._listening):
            each.close()
        self.store.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@pytest.mark.parametrize("first", [b"\0", MAGIC[:1]])
def test_a_first_byte_gives_a_newcomer_no_more_time(scene: Scene, first: bytes) -> None:
    stranger = scene.connect()
    scene.after(SILENT_S - 1)
    scene.send(stranger, first)
    assert len(scene.registry.all) == 1
    scene.after(1)
    assert not scene.registry.all


def test_the_oldest_newcomer_of_the_address_that_has_most_leaves_first(scene: Scene) -> None:
    oldest = scene.connect()
    for _ in range(NEWCOMERS_MAX - 1):
        scene.loop.now += 0.01
        scene.connect()
    scene.send(oldest, b"\0")
    scene.connect()
    assert oldest.recv(1) == b""
    assert len(scene.registry.all) == NEWCOMERS_MAX
