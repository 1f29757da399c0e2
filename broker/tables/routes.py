"""RouteTable: which broker serves which topic, and which brokers are alive. The state of a name server.

Owns no socket and no clock. An address without a host (`:10911`) is our own broker's: each client gets it
with the host by which it reached us. Loop thread.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import NamedTuple

from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer
from firearrow.broker.tables.broker_faults import BrokerFaults, Fault
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.registration import QueueData, Registration

log = logging.getLogger("firearrow.routes")

MASTER_ID = 0
MEMBERS_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Of the topic in whose route brokers find the members of their own name: it shows them as they are."""
TIMEOUT_MS = 120_000
BROKERS_MAX = 1024
IDS_MAX = 64
TOPICS_MAX = 100_000
ROUTES_MAX = 500_000
"""Pairs of topic and broker."""


class Perm(IntFlag):
    INHERIT = 1
    WRITE = 2
    READ = 4


class TopicFlag(IntFlag):
    UNIT = 1
    UNIT_SUBSCRIPTION = 2


@dataclass(slots=True)
class BrokerData:
    """The brokers of one name; the master has id 0."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None


@dataclass(slots=True)
class BrokerLiveInfo:
    """One broker process. `peer` None: our own, which never expires or disconnects. `before`: the connection on which
    it registered before, if it is another one that is still open."""

    broker: str
    broker_id: int
    address: str
    ha_address: str
    version: DataVersion
    seen_ms: int
    timeout_ms: int
    peer: Peer | None
    filter_servers: Sequence[str] = ()
    before: Peer | None = None


class TopicRouteData(NamedTuple):
    """Where a topic is: broker name → its queues, the brokers, and filter servers by broker address."""

    queues: Mapping[str, QueueData]
    brokers: Sequence[BrokerData]
    filter_servers: Mapping[str, Sequence[str]]


class MinBrokerChange(NamedTuple):
    """The smallest id of a broker name changed. `offline`: the address that left, `ha`: where the new one replicates;
    empty if not known. `notify`: the addresses to notify."""

    broker_id: int
    address: str
    offline: str
    ha: str
    notify: Sequence[str]

    def ext(self) -> dict[str, str]:
        """The header of NOTIFY_MIN_BROKER_ID_CHANGE."""
        fields = {
            "minBrokerId": str(self.broker_id),
            "minBrokerAddr": self.address,
            "offlineBrokerAddr": self.offline,
            "haBrokerAddr": self.ha,
        }
        return {key: text for key, text in fields.items() if text}


class RouteTable:
    """`min_changed` is called after each change of a name's smallest id."""

    def __init__(
        self, clock: Clock, min_changed: Callable[[MinBrokerChange], None] = lambda change: None
    ) -> None:
        self._clock = clock
        self.min_changed = min_changed
        self.faults = BrokerFaults(clock)
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._live: dict[tuple[str, str], BrokerLiveInfo] = {}
        self._watched: set[Peer] = set()
        self._routes = 0
        self.outdated: Callable[[int, str], None] | None = None
        """Called if another broker registers with our own broker's id and a newer state: stateVersion and address."""

    # requests of brokers

    def register(
        self, registration: Registration, peer: Peer | None, *, drop_missing: bool = False
    ) -> BrokerLiveInfo | None:
        """Register a broker; returns the live master's entry if `registration` is a slave's.

        `peer` None: our own broker. `drop_missing`: remove the broker's topics that are not in
        `registration`. Refusal when a first registration has only one topic, when it claims the id or address
        of our own broker, or at a limit.
        """
        broker = self._brokers.get(registration.broker)
        try:
            self._check(registration, broker, peer)
        except Refusal as refusal:
            self._add_fault(Fault.REFUSED, registration, reason=refusal.remark)
            raise
        if broker is not None and self._is_older(registration, broker):
            log.info(
                "registration of broker %s %d at %s ignored: its state is older than the known one",
                registration.broker,
                registration.broker_id,
                registration.address,
            )
            return None
        self._note_rival(registration, broker, peer)
        holder = self._live.get((registration.cluster, registration.address))
        if holder is not None and holder.broker != registration.broker:
            self.unregister(registration.cluster, registration.address, own=peer is None)
        first = broker is None or registration.broker_id not in broker.addresses
        smaller = broker is not None and registration.broker_id < min(broker.addresses)
        if broker is None:
            broker = self._brokers[registration.broker] = BrokerData(
                registration.cluster, registration.broker
            )
            log.info(
                "broker %s of cluster %s registered at %s",
                registration.broker,
                registration.cluster,
                registration.address,
            )
        self._set_address(registration, broker)
        lowest = registration.acting_master is not None and registration.broker_id == min(broker.addresses)
        if registration.broker_id == MASTER_ID or lowest:
            self._register_topics(registration, first, drop_missing)
        self._keep_alive(registration, peer)
        self.faults.registered(registration.broker, registration.broker_id, registration.address)
        if smaller:
            self._notify(broker, ha=registration.ha_address)
        if registration.broker_id == MASTER_ID or MASTER_ID not in broker.addresses:
            return None
        return self._live.get((broker.cluster, broker.addresses[MASTER_ID]))

    def unregister(self, cluster: str, address: str, *, own: bool = False) -> None:
        """Remove one broker process, and the topics with the last one of a name. `own`: also our own."""
        live = self._live.get((cluster, address))
        if live is None or (live.peer is None and not own):
            return
        del self._live[cluster, address]
        broker = self._brokers[live.broker]
        was_min = live.broker_id == min(broker.addresses, default=-1)
        if broker.addresses.get(live.broker_id) == address:
            del broker.addresses[live.broker_id]
        if not broker.addresses:
            del self._brokers[live.broker]
            for topic in self.topics_of(live.broker):
                self._drop(topic, live.broker)
        elif broker.acting_master:
            if MASTER_ID not in broker.addresses:
                self.wipe_write(live.broker)
            if was_min:
                self._notify(broker, offline=address)
        log.info("broker %s %d at %s removed", live.broker, live.broker_id, address)

    def touch(self, cluster: str, address: str) -> None:
        """A heartbeat; ignored if the broker is not registered."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.seen_ms = self._clock.monotonic_ms()

    def version(self, cluster: str, address: str) -> DataVersion | None:
        live = self._live.get((cluster, address))
        return None if live is None else live.version

    def slave_hosts(self, name: str) -> set[str]:
        """From where the living slaves of this name registered."""
        return {
            live.peer.remote[0]
            for live in self._live.values()
            if live.broker == name and live.broker_id != MASTER_ID and live.peer is not None
        }

    def expire(self) -> None:
        """Remove brokers whose heartbeats stopped, and disconnect them."""
        now = self._clock.monotonic_ms()
        for (cluster, address), live in list(self._live.items()):
            if live.peer is not None and live.seen_ms + live.timeout_ms < now:
                log.warning(
                    "broker %s %d at %s has sent no heartbeat for too long",
                    live.broker,
                    live.broker_id,
                    address,
                )
                self._lose(cluster, live)
                live.peer.close()

    def _closed(self, peer: Peer) -> None:
        self._watched.discard(peer)
        for (cluster, _), live in list(self._live.items()):
            if live.peer is peer:
                self._lose(cluster, live)

    def _lose(self, cluster: str, live: BrokerLiveInfo) -> None:
        """A broker is away that has not unregistered."""
        self.unregister(cluster, live.address)
        self.faults.add(Fault.LOST, cluster, live.broker, live.broker_id, live.address)

    # changes by administrators

    def put_topic(self, topic: str, queues: Mapping[str, QueueData]) -> None:
        """Set the topic's queues on known brokers; stops at the first unknown one, as Apache does."""
        for name, data in queues.items():
            if name not in self._brokers:
                return
            self._check_capacity({topic: data}, name)
            self._put(topic, name, data)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        for name in list(self._topics.get(topic, ())):
            if cluster is None or self._brokers[name].cluster == cluster:
                self._drop(topic, name)

    def wipe_write(self, broker: str) -> int:
        """Remove write permission of the broker's topics until it registers a change; returns their
        number."""
        return self._change_perms(broker, lambda perm: perm & ~Perm.WRITE)

    def add_write(self, broker: str) -> int:
        return self._change_perms(broker, lambda perm: Perm.READ | Perm.WRITE)

    # look-up

    def route(self, topic: str, *, acting: bool = False) -> TopicRouteData | None:
        """`acting`: supportActingMaster: the smallest slave of a name without a master stands as its master."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues]
        if acting and not topic.startswith(MEMBERS_PREFIX):
            brokers = [
                broker if queues[broker.name].perm & Perm.WRITE else _with_acting_master(broker)
                for broker in brokers
            ]
        filters = {
            address: live.filter_servers
            for broker in brokers
            for address in broker.addresses.values()
            if (live := self._live.get((broker.cluster, address))) is not None and live.filter_servers
        }
        return TopicRouteData(queues, brokers, filters)

    @property
    def topics(self) -> Mapping[str, Mapping[str, QueueData]]:
        return self._topics

    @property
    def brokers(self) -> Mapping[str, BrokerData]:
        return self._brokers

    def own_broker(self) -> BrokerData | None:
        """The broker of this process alone, without the others of its name; None: there is none, or not yet."""
        for live in self._live.values():
            if live.peer is None and live.broker in self._brokers:
                cluster = self._brokers[live.broker].cluster
                return BrokerData(cluster, live.broker, {live.broker_id: live.address})
        return None

    def clusters(self) -> dict[str, list[str]]:
        """Cluster → broker names."""
        names: dict[str, list[str]] = {}
        for broker in self._brokers.values():
            names.setdefault(broker.cluster, []).append(broker.name)
        return names

    def topics_of(self, broker: str) -> list[str]:
        return [topic for topic, queues in self._topics.items() if broker in queues]

    def flagged_topics(self, with_flag: int, without: int = 0) -> Iterator[str]:
        """Topics whose first broker has a flag of `with_flag` and none of `without`."""
        for topic, queues in self._topics.items():
            flag = next(iter(queues.values())).topic_flag
            if flag & with_flag and not flag & without:
                yield topic

    # steps of the above

    def _check(self, registration: Registration, broker: BrokerData | None, peer: Peer | None) -> None:
        known = broker is not None and registration.broker_id in broker.addresses
        if broker is None and len(self._brokers) >= BROKERS_MAX:
            raise _refusal(
                f"brokerName {registration.broker} is refused: "
                f"{BROKERS_MAX} broker names, the maximum, are registered"
            )
        if broker is not None and not known and len(broker.addresses) >= IDS_MAX:
            raise _refusal(
                f"brokerId {registration.broker_id} is refused: "
                f"{IDS_MAX} brokers of this name, the maximum, are registered"
            )
        if broker is not None and broker.cluster != registration.cluster:
            raise _refusal(
                f"brokerName {registration.broker} is registered with the cluster {broker.cluster}"
            )
        if peer is not None and self._is_ours(registration, broker):
            self._compare_with_ours(registration)
            raise _refusal(
                f"brokerName {registration.broker}, brokerId {registration.broker_id} "
                "belongs to the broker of this process"
            )
        if not known and len(registration.topics) == 1:
            raise _refusal("register broker failed")
        self._check_capacity(registration.topics, registration.broker)

    def _add_fault(
        self, fault: Fault, registration: Registration, *, other: str = "", reason: str | None = None
    ) -> None:
        self.faults.add(
            fault,
            registration.cluster,
            registration.broker,
            registration.broker_id,
            registration.address,
            other=other,
            reason=reason or "",
        )

    def _note_rival(self, registration: Registration, broker: BrokerData | None, peer: Peer | None) -> None:
        """Another broker has the id, and is alive; or the same address, on another connection that it used since this
        one did."""
        address = None if broker is None else broker.addresses.get(registration.broker_id)
        if broker is None or address is None:
            return
        live = self._live.get((broker.cluster, address))
        if live is None or live.peer is None or live.peer is peer or live.peer.closed:
            return
        if address != registration.address or live.before is peer:
            self._add_fault(Fault.REPLACED, registration, other=address)

    def _check_capacity(self, topics: Mapping[str, QueueData], broker: str) -> None:
        unknown = sum(topic not in self._topics for topic in topics)
        if unknown and len(self._topics) + unknown > TOPICS_MAX:
            raise _refusal(
                f"the name server can keep at most {TOPICS_MAX} topics: {unknown} more are refused"
            )
        fresh = sum(broker not in self._topics.get(topic, ()) for topic in topics)
        if fresh and self._routes + fresh > ROUTES_MAX:
            raise _refusal(f"the name server can keep at most {ROUTES_MAX} routes: {fresh} more are refused")

    def _is_ours(self, registration: Registration, broker: BrokerData | None) -> bool:
        """Whether the id or the address belongs to the broker of this process."""
        addresses = [
            registration.address,
            "" if broker is None else broker.addresses.get(registration.broker_id, ""),
        ]
        holders = [self._live.get((registration.cluster, address)) for address in addresses]
        return any(holder is not None and holder.peer is None for holder in holders)

    def _compare_with_ours(self, registration: Registration) -> None:
        theirs = registration.version.state_version
        for live in self._live.values():
            is_ours = live.peer is None and live.broker_id == registration.broker_id
            if self.outdated is not None and is_ours and theirs > live.version.state_version:
                self.outdated(theirs, registration.address)

    def _is_older(self, registration: Registration, broker: BrokerData) -> bool:
        """Whether another address has the id, with a newer state."""
        holder = broker.addresses.get(registration.broker_id)
        if holder is None or holder == registration.address:
            return False
        live = self._live.get((broker.cluster, holder))
        return live is not None and live.version.state_version > registration.version.state_version

    def _set_address(self, registration: Registration, broker: BrokerData) -> None:
        """Set the broker's address: an address has one id, an id has one address."""
        for broker_id, address in list(broker.addresses.items()):
            if (address == registration.address) != (broker_id == registration.broker_id):
                del broker.addresses[broker_id]
                self._live.pop((broker.cluster, address), None)
        broker.addresses[registration.broker_id] = registration.address
        broker.acting_master = bool(registration.acting_master)
        broker.zone = registration.zone

    def _register_topics(self, registration: Registration, first: bool, drop_missing: bool) -> None:
        live = self._live.get((registration.cluster, registration.address))
        changed = first or live is None or live.version != registration.version
        if drop_missing:
            for topic in set(self.topics_of(registration.broker)) - registration.topics.keys():
                self._drop(topic, registration.broker)
        acts = registration.broker_id != MASTER_ID and registration.acting_master
        for topic, data in registration.topics.items():
            if changed or registration.broker not in self._topics.get(topic, ()):
                queues = data._replace(perm=data.perm & ~Perm.WRITE) if acts else data
                self._put(topic, registration.broker, queues)

    def _keep_alive(self, registration: Registration, peer: Peer | None) -> None:
        known = self._live.get((registration.cluster, registration.address))
        filters = registration.filter_servers
        if filters is None:
            filters = () if known is None else known.filter_servers
        before = None if known is None else known.before if known.peer is peer else known.peer
        self._live[registration.cluster, registration.address] = BrokerLiveInfo(
            registration.broker,
            registration.broker_id,
            registration.address,
            registration.ha_address,
            registration.version,
            self._clock.monotonic_ms(),
            TIMEOUT_MS if registration.timeout_ms is None else registration.timeout_ms,
            peer,
            filters,
            None if before is None or before.closed else before,
        )
        if peer is not None and peer not in self._watched:
            self._watched.add(peer)
            peer.on_close(self._closed)

    def _notify(self, broker: BrokerData, *, offline: str = "", ha: str = "") -> None:
        """As Apache: all that are left, or those that were there before the one that joined. Our own broker, whose
        address has no host, gets no notice."""
        smallest, members = min(broker.addresses), broker.addresses
        notified = [
            address
            for broker_id, address in members.items()
            if (offline or len(members) == 1 or broker_id != smallest) and not address.startswith(":")
        ]
        self.min_changed(MinBrokerChange(smallest, members[smallest], offline, ha, notified))

    def _put(self, topic: str, broker: str, data: QueueData) -> None:
        queues = self._topics.setdefault(topic, {})
        self._routes += broker not in queues
        queues[broker] = data

    def _drop(self, topic: str, broker: str) -> None:
        queues = self._topics[topic]
        del queues[broker]
        self._routes -= 1
        if not queues:
            del self._topics[topic]

    def _change_perms(self, broker: str, change: Callable[[int], int]) -> int:
        topics = self.topics_of(broker)
        changed: dict[QueueData, QueueData] = {}
        for topic in topics:
            data = self._topics[topic][broker]
            if data not in changed:
                changed[data] = data._replace(perm=change(data.perm))
            self._topics[topic][broker] = changed[data]
        return len(topics)


def _with_acting_master(broker: BrokerData) -> BrokerData:
    if not broker.acting_master or not broker.addresses or MASTER_ID in broker.addresses:
        return broker
    addresses = dict(broker.addresses)
    addresses[MASTER_ID] = addresses.pop(min(addresses))
    return replace(broker, addresses=addresses)


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
