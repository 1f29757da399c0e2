"""What the broker remembers of clients that broadcast, under a told clock."""

from typing import cast

from firearrow._native.store.store import MessageStore
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.clock import ManualClock
from firearrow.broker.config import Config
from firearrow.broker.life.broadcasts import Broadcasts, Puller
from firearrow.broker.options import Options
from firearrow.broker.tables.clients import ClientTable, Member
from firearrow.broker.tables.offsets import ConsumerOffsets
from tests.broker.handlers.room import MadeUpStore
from tests.broker.peers import RecordedPeer


class Square:
    """Group G, whose clients broadcast topic T."""

    def __init__(self, *, offsets_max: int = 100) -> None:
        self.clock = ManualClock()
        self.store = MadeUpStore(times={("T", 0): [1] * 9, ("T", 1): [1] * 9})
        self.offsets = ConsumerOffsets(self.clock)
        self.clients = ClientTable(self.clock)
        self.config = Config(Options(broker_name="b"))
        store = cast(MessageStore, self.store)
        self.broadcasts = Broadcasts(
            store, self.offsets, self.clients, self.config, self.clock, offsets_max=offsets_max
        )

    def join(self, client: str, model: str = "BROADCASTING", kind: str = "CONSUME_PASSIVELY") -> RecordedPeer:
        peer = RecordedPeer()
        member = Member(client, peer, 0, 513, self.clock.monotonic_ms())
        self.clients.begin_consumer("G", member, kind, model, "CONSUME_FROM_FIRST_OFFSET")
        return peer

    def committed(self) -> dict[int, int] | None:
        return self.offsets.of("G@broadcast", "T")


def by(client: str, *, proxy: bool = False) -> Puller:
    return Puller("T", "G", client, proxy)


def test_the_least_offset_of_all_clients_is_committed() -> None:
    square = Square()
    square.join("c1")
    square.join("c2")
    square.broadcasts.note(by("c1"), 0, 7)
    square.broadcasts.note(by("c2"), 0, 3)
    square.broadcasts.note(by("c2"), 1, 5)
    square.broadcasts.note(by("c2"), 1, 4)
    square.broadcasts.sweep()
    assert square.committed() == {0: 3, 1: 5}


def test_who_comes_from_the_broker_begins_where_it_asks() -> None:
    square = Square()
    assert square.broadcasts.begin(by("c1"), 0, 0) == -1
    square.broadcasts.note(by("c1"), 0, 4)
    assert square.broadcasts.begin(by("c1"), 0, 6) == -1
    assert square.broadcasts.begin(by("c2"), 0, 6) == -1


def test_who_changes_sides_goes_on_where_it_was() -> None:
    square = Square()
    square.broadcasts.note(by("c1"), 0, 4)
    assert square.broadcasts.begin(by("c1", proxy=True), 0, 0) == 4
    square.broadcasts.note(by("c1", proxy=True), 0, 4)
    assert square.broadcasts.begin(by("c1", proxy=True), 0, 4) == -1
    assert square.broadcasts.begin(by("c1", proxy=True), 0, -1) == 4
    assert square.broadcasts.begin(by("c1"), 0, 0) == 4


def test_a_new_client_of_a_proxy_begins_with_its_group_or_with_the_queue() -> None:
    square = Square()
    assert square.broadcasts.begin(by("c1", proxy=True), 0, -1) == 0
    square.store.near = False
    assert square.broadcasts.begin(by("c1", proxy=True), 0, -1) == 9
    square.offsets.commit("G@broadcast", "T", 0, 6)
    assert square.broadcasts.begin(by("c1", proxy=True), 0, -1) == 6
    assert square.broadcasts.begin(by("c1", proxy=True), 0, 2) == -1


def test_clients_are_forgotten() -> None:
    """Offline ones after 2 minutes, idle ones after 5; until then they hold the group's offset back."""
    square = Square()
    square.join("online")
    square.broadcasts.note(by("online"), 0, 1)
    square.broadcasts.note(by("gone"), 0, 0)
    square.broadcasts.sweep()
    assert square.committed() == {0: 0}
    square.clock.advance(120_000)
    square.broadcasts.sweep()
    square.broadcasts.sweep()
    assert square.committed() == {0: 1}
    square.clock.advance(180_000)
    square.broadcasts.sweep()
    square.offsets.remove_group("G@broadcast")
    square.broadcasts.sweep()
    assert square.committed() is None


def test_memory_is_bounded() -> None:
    square = Square(offsets_max=2)
    for n in range(5):
        square.broadcasts.note(by(f"c{n}"), 0, 1)
    square.broadcasts.note(by("c0"), 0, 2)
    square.broadcasts.note(by("c0"), 1, 2)
    assert square.broadcasts.begin(by("c0", proxy=True), 0, 0) == 2
    assert square.broadcasts.begin(by("c4", proxy=True), 0, 5) == -1
    square.clock.advance(120_000)
    square.broadcasts.sweep()
    square.broadcasts.note(by("c4"), 0, 1)
    square.broadcasts.sweep()
    assert square.committed() == {0: 1}


def test_only_pushed_broadcasts_are_followed() -> None:
    square = Square()
    request = RemotingCommand(11, {"requestSource": "-1"})
    puller = square.broadcasts.puller
    assert puller("T", "G", request, square.join("c1")) == by("c1")
    assert puller("T", "G", request, RecordedPeer()) is None
    assert puller("T", "G", request, square.join("c2", model="CLUSTERING")) is None
    assert puller("T", "G", request, square.join("c3", kind="CONSUME_ACTIVELY")) is None
    proxy = RemotingCommand(11, {"requestSource": "1", "proxyFrowardClientId": "far"})
    assert puller("T", "G", proxy, RecordedPeer()) == by("far", proxy=True)
    square.config.update({"enableBroadcastOffsetStore": "false"})
    assert puller("T", "G", proxy, RecordedPeer()) is None
