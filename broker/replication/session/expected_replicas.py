"""ExpectedReplicas: the other brokers of our brokerName, connected or not, until an operator removes them;
`config/expectedReplicas.json`.

A master expects each slave that was once in sync for some seconds, and a promoted one also what its old master
expected, and that itself: slaves keep their master's list. A FireArrow slave is known by the id of its store, then by
its brokerId; one of controllers by its number; one of Apache by its host, on which there may be several. A store from
before this file that belongs to a pair expects one slave, of which nothing is known.

Each change is on the disk before the call returns. Loop thread.
"""

import logging
import time
from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import orjson

from firearrow._native.protocol import fastjson
from firearrow.broker.replication.log.pair_identity import HEX, NO_ID, stored_pair
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.replication")

CONFIG_FOLDER, FILE_NAME = "config", "expectedReplicas.json"
REPLICAS_MAX = 64
HOST_CHARS_MAX = 255


class Place(NamedTuple):
    """Which broker it is. `node`: id of its store in hexadecimal, or empty. `broker_id`: its number, 0: not known.
    `host` and `port`: where it serves clients; port 0: not known."""

    node: str
    broker_id: int
    host: str
    port: int


@dataclass(slots=True, eq=False)
class ExpectedReplica:
    """`end`: of its log, as far as it was acknowledged. `seen_ms`: when it was last connected; 0: not known."""

    node: str
    broker_id: int
    host: str
    port: int
    end: int = 0
    seen_ms: int = 0

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else self.host

    def why_missing(self, start_ms: int) -> str:
        if not self.seen_ms:
            return f"it has not been connected since the start of this master at {_time_text(start_ms)}"
        return f"it has not been connected since {_time_text(self.seen_ms)}"


Known = ExpectedReplica | Place


class ExpectedReplicas:
    """StartError: the file cannot be read; a damaged one is set aside."""

    def __init__(self, store_root: str) -> None:
        config_folder = Path(store_root) / CONFIG_FOLDER
        self._file = ConfigFile(config_folder / FILE_NAME)
        self._all: list[ExpectedReplica] = []
        self._connected: dict[Hashable, ExpectedReplica] = {}
        self._beside: set[ExpectedReplica] = set()
        """Those that joined while another one of their number or place was connected: one may be the other, connected
        again after its connection died without a word."""
        self._new: set[ExpectedReplica] = set()
        """Those that are expected only as long as they are connected."""
        self.unknown = 0
        """Slaves that there must be, but of which nothing is known."""
        if not self._file.load(self._read) and stored_pair(config_folder) != NO_ID:
            self.unknown = 1

    @property
    def all(self) -> list[ExpectedReplica]:
        return list(self._all)

    def missing(self) -> list[ExpectedReplica]:
        """Those that are not connected."""
        connected = {id(each) for each in self._connected.values()}
        return [each for each in self._all if id(each) not in connected]

    def name_of(self, replica: ExpectedReplica) -> str:
        """By which operators know it: its address; of several without a port at one host, `HOST`, `HOST#2` and so on;
        or the number that controllers gave it."""
        if not replica.host:
            return str(replica.broker_id)
        same = [each for each in self._all if each.address == replica.address]
        at = next((at for at, each in enumerate(same) if each is replica), 0)
        return f"{replica.address}#{at + 1}" if at else replica.address

    def of(self, connection: Hashable) -> ExpectedReplica | None:
        return self._connected.get(connection)

    # ---- at a master ----

    def connected(self, connection: Hashable, place: Place) -> None:
        """A slave asks for the log: it is no longer missing if it is one that is expected."""
        found = self._find(place)
        if found is not None:
            self._connected[connection] = found
            self._take_place(found, place)

    @property
    def new(self) -> int:
        """How many are expected only as long as they are connected."""
        return len(self._new)

    def in_sync(self, connection: Hashable, place: Place) -> None:
        """It has the whole log: it is expected as long as it is connected."""
        if connection in self._connected:
            return
        if len(self._all) >= REPLICAS_MAX and not self._drop_oldest():
            return log.error(
                "more than %d slaves were in sync: %s is not expected after it has left",
                REPLICAS_MAX,
                place.host,
            )
        found = ExpectedReplica(*place)
        if any(_is_alike(each, found) for each in self._connected.values()):
            self._beside.add(found)
        self._all.append(found)
        self._new.add(found)
        self._connected[connection] = found
        return None

    def stayed(self, connection: Hashable, place: Place) -> None:
        """It has been in sync for a while: it is expected from now on."""
        self.in_sync(connection, place)
        found = self._connected.get(connection)
        if found in self._new:
            self._new.discard(found)
            self.unknown = max(self.unknown - 1, 0)
            self._write()

    def left(self, connection: Hashable, end: int, now_ms: int, later: Iterable[Hashable] = ()) -> None:
        """`later`: if it was silent until it was closed, the connections that were made after its last byte."""
        found = self._connected.pop(connection, None)
        if found is None:
            return
        found.end, found.seen_ms = end, now_ms
        self._beside.discard(found)
        is_known = found in self._connected.values()  # by another connection of the same store
        if found in self._new:
            if not is_known:
                self._new.discard(found)
                self._all.remove(found)
            return
        again = (self._connected.get(each) for each in later)
        same = next((each for each in again if each in self._beside and _is_alike(each, found)), None)
        if same is not None and not is_known:
            self._beside.discard(same)
            self._new.discard(same)
            self._all.remove(found)
            self._write()

    def expect(self, numbers: Iterable[int]) -> None:
        """The controllers report that these brokers are in sync."""
        known = {each.broker_id for each in self._all}
        new = [number for number in numbers if number not in known][: REPLICAS_MAX - len(self._all)]
        self._all += [ExpectedReplica("", number, "", 0) for number in new]
        if new:
            self._write()

    def forget(self, name: str) -> bool:
        """It is not expected any more; False: no such one is missing."""
        for each in self.missing():
            if name == self.name_of(each):
                self._all.remove(each)
                self._write()
                return True
        return False

    def forget_missing(self) -> int:
        """Expect none any more that is not connected, unless an option asks for it; returns how many there were."""
        missing = self.missing()
        if count := len(missing) + self.unknown:
            self._all = [each for each in self._all if each not in missing]
            self.unknown = 0
            self._write()
        return count

    def forget_unknown(self) -> bool:
        was, self.unknown = self.unknown, 0
        if was:
            self._write()
        return was > 0

    def _find(self, place: Place) -> ExpectedReplica | None:
        """The one that it is or whose place it takes."""
        missing = self.missing()
        if place.node:
            for each in self._all:
                if each.node == place.node:
                    return each
        for is_same in RULES:
            found = next((each for each in missing if is_same(each, place)), None)
            if found is not None:
                return found
        return None

    def _take_place(self, replica: ExpectedReplica, place: Place) -> None:
        before = _identity(replica)
        replica.node = place.node or replica.node
        replica.broker_id = place.broker_id or replica.broker_id
        if place.port or replica.host != place.host:
            replica.host, replica.port = place.host, place.port
        if _identity(replica) != before:
            self._write()

    def _drop_oldest(self) -> bool:
        """Make space: one without an id that has been away for the longest time."""
        nameless = [each for each in self.missing() if not each.node and not each.broker_id]
        if nameless:
            self._all.remove(min(nameless, key=lambda each: each.seen_ms))
        return bool(nameless)

    # ---- at a slave ----

    def follow(self, master: Place, others: Iterable[ExpectedReplica] | None = None) -> None:
        """Its master, and what that expects besides this slave; None: it does not report it."""
        if others is None:
            others = [each for each in self._all if each is not self._find(master)]
        new = [ExpectedReplica(*master), *(replace(each, end=0, seen_ms=0) for each in others)][:REPLICAS_MAX]
        if [_identity(each) for each in new] != [_identity(each) for each in self._all] or self.unknown:
            self._all, self.unknown = new, 0
            self._write()

    # ---- the file ----

    def _read(self, text: bytes) -> None:
        """ValueError."""
        of = json_fields.members(fastjson.loads(text), "the file")
        self._all = parsed(of.get("replicas"))
        self.unknown = json_fields.number(of, "unknown", 0, high=REPLICAS_MAX)

    def _write(self) -> None:
        kept = [asdict(each) for each in self._all if each not in self._new]
        body = {"replicas": kept, "unknown": self.unknown}
        try:
            self._file.write(orjson.dumps(body))
        except OSError as error:
            log.error(
                "%s cannot be written, so the next start may expect other slaves: %s", self._file.path, error
            )


def parsed(value: object) -> list[ExpectedReplica]:
    """Of the file, or of a master's answer to GET_BROKER_HA_STATUS. ValueError."""
    found = []
    for entry in json_fields.items(value, "replicas")[:REPLICAS_MAX]:
        of = json_fields.members(entry, "a replica")
        node, host = json_fields.text(of, "node", ""), json_fields.text(of, "host", "")
        if (
            (node and not HEX.fullmatch(node))
            or len(host) > HOST_CHARS_MAX
            or not (host.isascii() and host.isprintable())
        ):
            raise ValueError(f"a replica with node {node[:40]!r} and host {host[:40]!r} is inconsistent")
        found.append(
            ExpectedReplica(
                node,
                json_fields.number(of, "broker_id", 0, high=json_fields.LONG_MAX),
                host,
                json_fields.number(of, "port", 0, high=65_535),
                json_fields.number(of, "end", 0, high=json_fields.LONG_MAX),
                json_fields.number(of, "seen_ms", 0, high=json_fields.LONG_MAX),
            )
        )
    return found


def _is_plain(each: Known) -> bool:
    """Known by its host only."""
    return not each.node and not each.broker_id


def _has_number(one: Known, other: Known) -> bool:
    return one.broker_id == other.broker_id > 0


def _has_address(one: Known, other: Known) -> bool:
    return one.port == other.port > 0 and one.host == other.host


def _has_host(one: Known, other: Known) -> bool:
    """And no more is known of the two."""
    return _is_plain(one) and _is_plain(other) and one.host == other.host


RULES = _has_number, _has_address, _has_host
"""By which one may be the other where no id of its store states it, the best first."""


def _is_alike(one: Known, other: Known) -> bool:
    return any(is_same(one, other) for is_same in RULES)


def _identity(replica: ExpectedReplica) -> tuple[str, int, str, int]:
    return replica.node, replica.broker_id, replica.host, replica.port


def _time_text(time_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time_ms / 1000))
