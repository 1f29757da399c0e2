"""Offsets of broadcasting clients that the broker keeps, with a manual clock."""

from typing import cast

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.broadcast_offsets import BroadcastClient, BroadcastOffsets
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.members import Member
from firearrow.broker.tables.offsets import ConsumerOffsets
from tests.support.clock import ManualClock
from tests.support.handler_harness import FakeStore
from tests.support.peers import RecordedPeer


class BroadcastHarness:
    """Group G, whose clients broadcast topic T."""

    def __init__(self, *, offsets_max: int = 100) -> None:
        self.clock = ManualClock()
        self.store = FakeStore(times={("T", 0): [1] * 9, ("T", 1): [1] * 9})
        self.offsets = ConsumerOffsets(self.clock)
        self.clients = ClientTable(self.clock)
        self.config = Config(Options(broker_name="b"))
        store = cast(MessageStore, self.store)
        self.broadcasts = BroadcastOffsets(
            store, self.offsets, self.clients, self.config, self.clock, offsets_max=offsets_max
        )

    def join(self, client: str, model: str = "BROADCASTING", kind: str = "CONSUME_PASSIVELY") -> RecordedPeer:
        peer = RecordedPeer()
        member = Member(client, peer, 0, 513, self.clock.monotonic_ms())
        self.clients.begin_consumer("G", member, kind, model, "CONSUME_FROM_FIRST_OFFSET")
        return peer

    def committed(self) -> dict[int, int] | None:
        return self.offsets.of("G@broadcast", "T")


def by(client: str, *, proxy: bool = False) -> BroadcastClient:
    return BroadcastClient("T", "G", client, proxy)


def test_the_lowest_offset_of_all_clients_is_committed() -> None:
    harness = BroadcastHarness()
    harness.join("c1")
    harness.join("c2")
    harness.broadcasts.note(by("c1"), 0, 7)
    harness.broadcasts.note(by("c2"), 0, 3)
    harness.broadcasts.note(by("c2"), 1, 5)
    harness.broadcasts.note(by("c2"), 1, 4)
    harness.broadcasts.expire()
    assert harness.committed() == {0: 3, 1: 5}


def test_a_client_of_the_broker_starts_where_it_asks() -> None:
    harness = BroadcastHarness()
    assert harness.broadcasts.start_offset(by("c1"), 0, 0) == -1
    harness.broadcasts.note(by("c1"), 0, 4)
    assert harness.broadcasts.start_offset(by("c1"), 0, 6) == -1
    assert harness.broadcasts.start_offset(by("c2"), 0, 6) == -1


def test_a_client_that_moves_continues_where_it_was() -> None:
    harness = BroadcastHarness()
    harness.broadcasts.note(by("c1"), 0, 4)
    assert harness.broadcasts.start_offset(by("c1", proxy=True), 0, 0) == 4
    harness.broadcasts.note(by("c1", proxy=True), 0, 4)
    assert harness.broadcasts.start_offset(by("c1", proxy=True), 0, 4) == -1
    assert harness.broadcasts.start_offset(by("c1", proxy=True), 0, -1) == 4
    assert harness.broadcasts.start_offset(by("c1"), 0, 0) == 4


def test_a_new_client_of_a_proxy_starts_at_its_group_s_offset_or_at_the_queue_s_start() -> None:
    harness = BroadcastHarness()
    assert harness.broadcasts.start_offset(by("c1", proxy=True), 0, -1) == 0
    harness.store.near = False
    assert harness.broadcasts.start_offset(by("c1", proxy=True), 0, -1) == 9
    harness.offsets.commit("G@broadcast", "T", 0, 6)
    assert harness.broadcasts.start_offset(by("c1", proxy=True), 0, -1) == 6
    assert harness.broadcasts.start_offset(by("c1", proxy=True), 0, 2) == -1


def test_clients_expire() -> None:
    """Offline clients after 2 minutes, idle ones after 5; until then the group's offset waits for them."""
    harness = BroadcastHarness()
    harness.join("online")
    harness.broadcasts.note(by("online"), 0, 1)
    harness.broadcasts.note(by("gone"), 0, 0)
    harness.broadcasts.expire()
    assert harness.committed() == {0: 0}
    harness.clock.advance(120_000)
    harness.broadcasts.expire()
    harness.broadcasts.expire()
    assert harness.committed() == {0: 1}
    harness.clock.advance(180_000)
    harness.broadcasts.expire()
    harness.offsets.remove_group("G@broadcast")
    harness.broadcasts.expire()
    assert harness.committed() is None


def test_memory_is_bounded() -> None:
    harness = BroadcastHarness(offsets_max=2)
    for n in range(5):
        harness.broadcasts.note(by(f"c{n}"), 0, 1)
    harness.broadcasts.note(by("c0"), 0, 2)
    harness.broadcasts.note(by("c0"), 1, 2)
    assert harness.broadcasts.start_offset(by("c0", proxy=True), 0, 0) == 2
    assert harness.broadcasts.start_offset(by("c4", proxy=True), 0, 5) == -1
    harness.clock.advance(120_000)
    harness.broadcasts.expire()
    harness.broadcasts.note(by("c4"), 0, 1)
    harness.broadcasts.expire()
    assert harness.committed() == {0: 1}


def test_only_pushed_broadcasts_are_followed() -> None:
    harness = BroadcastHarness()
    request = RemotingCommand(11, {"requestSource": "-1"})
    puller = harness.broadcasts.puller
    assert puller("T", "G", request, harness.join("c1")) == by("c1")
    assert puller("T", "G", request, RecordedPeer()) is None
    assert puller("T", "G", request, harness.join("c2", model="CLUSTERING")) is None
    assert puller("T", "G", request, harness.join("c3", kind="CONSUME_ACTIVELY")) is None
    proxy = RemotingCommand(11, {"requestSource": "1", "proxyFrowardClientId": "far"})
    assert puller("T", "G", proxy, RecordedPeer()) == by("far", proxy=True)
    harness.config.update({"enableBroadcastOffsetStore": "false"})
    assert puller("T", "G", proxy, RecordedPeer()) is None
