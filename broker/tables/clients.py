"""ClientTable: producers and consumers and their connections, known from heartbeats.

In memory only. Sends nothing: it returns which groups changed, and the caller notifies their members. Loop
thread.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Peer
from firearrow.broker.tables.members import Member, Members
from firearrow.broker.tables.subscriptions import Subscription

BROADCASTING = "BROADCASTING"
PASSIVELY = "CONSUME_PASSIVELY"
MEMBERSHIPS_PER_PEER_MAX = 10_000
GROUPS_MAX = 200_000
MEMBERSHIPS_MAX = 1_000_000
COMPENSATIONS_MAX = 10_000
ASKERS_MAX = 20_000
"""Client ids of users, above which none is kept for a client that has disconnected."""
SUBSCRIPTIONS_WEIGHT_MAX = 3_000_000
"""Memory of the subscriptions of all groups, in units of 100 bytes."""
COMPENSATIONS_WEIGHT_MAX = 1_000_000
"""Memory of the subscriptions known from pulls, in units of 100 bytes."""
DIGESTS_PER_GROUP_MAX = 4
"""Different subscriptions of a group's members whose text is kept."""
DIGEST_WEIGHT = 4
WARNED_MAX = 64
"""Different subscriptions of a group that the log has named already."""
WARN_PAUSE_MS = 10_000
"""Between two warnings about one group."""


class ClientsFull(Exception):
    """A limit is reached; the text names it."""


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """`owners`: topic → the member whose subscription counts. `rivals`: topic → another subscription of a
    member, which counts when the owner leaves. `digests`: the text of its members' digests. `warned`: those that the
    log has named, at `warned_ms`."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: Members = field(default_factory=Members)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    owners: dict[str, Peer] = field(default_factory=dict)
    rivals: dict[str, tuple[Peer, Subscription]] = field(default_factory=dict)
    fingerprint: int | None = None
    digests: dict[int, str] = field(default_factory=dict)
    warned: set[int] = field(default_factory=set)
    warned_ms: int | None = None

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def has_owner(self, topic: str, other_than: Peer) -> bool:
        """Whether the topic's subscription is that of another client that is still a member."""
        owner, member = self.members.get(self.owners[topic]), self.members.get(other_than)
        return owner is not None and (member is None or owner.client_id != member.client_id)

    def replace_peer(self, older: Peer, newer: Peer) -> None:
        """The client has connected again: its subscriptions are those of the newer connection."""
        for topic in [topic for topic, owner in self.owners.items() if owner is older]:
            self.owners[topic] = newer
        for topic, (peer, subscription) in list(self.rivals.items()):
            if peer is older:
                self.rivals[topic] = newer, subscription

    def drop_rival(self, topic: str, peer: Peer) -> int:
        """Forget the rival if it is this member's; returns its weight."""
        rival = self.rivals.get(topic)
        if rival is None or rival[0] is not peer:
            return 0
        del self.rivals[topic]
        return rival[1].weight

    def weight(self, topic: str) -> int:
        rival = self.rivals.get(topic)
        return self.subscriptions[topic].weight + (0 if rival is None else rival[1].weight)

    def differing(self) -> dict[int, list[str]]:
        """Digest → the clients that subscribe so; empty if all that are known subscribe alike."""
        found: dict[int, list[str]] = {}
        for member in self.members.values():
            if member.digest:
                found.setdefault(member.digest, []).append(member.client_id)
        return found if len(found) > 1 else {}

    @property
    def digest_weight(self) -> int:
        return DIGEST_WEIGHT * len(self.digests)

    def member(self, client_id: str) -> Member | None:
        return next((member for member in self.members.values() if member.client_id == client_id), None)


@dataclass(slots=True)
class Compensation:
    """A subscription known from a pull only: its group has sent no heartbeat."""

    subscription: Subscription
    seen_ms: int


class ClientTable:
    def __init__(
        self,
        clock: Clock,
        *,
        channel_expired_ms: int = 120_000,
        subscription_expired_ms: int = 600_000,
        memberships_max: int = MEMBERSHIPS_PER_PEER_MAX,
        weight_max: int = SUBSCRIPTIONS_WEIGHT_MAX,
    ) -> None:
        self._clock = clock
        self._channel_expired_ms = channel_expired_ms
        self._subscription_expired_ms = subscription_expired_ms
        self._memberships_max = memberships_max
        self.weight_max = weight_max
        self._listeners: list[Callable[[], None]] = []
        self._weight = 0
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, Members] = {}
        self._consumes: dict[Peer, set[str]] = {}
        self._produces: dict[Peer, set[str]] = {}
        self.broadcasting: set[str] = set()
        """BROADCASTING groups of push consumers (CONSUME_PASSIVELY)."""
        self._askers: dict[str, Member] = {}
        """Client id → the producer that gets the replies to it."""
        self._asks_as: dict[Peer, str] = {}
        self._compensations: dict[tuple[str, str], Compensation] = {}
        self._compensated = 0
        self._memberships = 0
        self._differing: set[str] = set()

    def listen(self, subscribed: Callable[[], None]) -> None:
        """Call `subscribed` when a group or its subscriptions change."""
        self._listeners.append(subscribed)

    def _announce(self) -> None:
        for listener in self._listeners:
            listener()

    # --- look-up ---

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group; None if it has no members online."""
        return self._consumers.get(name)

    def consumer_groups(self) -> list[ConsumerGroup]:
        return list(self._consumers.values())

    def groups_subscribed(self, topic: str) -> list[str]:
        """The online groups that subscribe to the topic, sorted."""
        return sorted(name for name, group in self._consumers.items() if topic in group.subscriptions)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """The group's subscription to the topic, from a heartbeat, else from a pull; None if unknown."""
        online = self._consumers.get(group)
        found = None if online is None else online.subscriptions.get(topic)
        if found is not None:
            return found
        compensation = self._compensations.get((group, topic))
        return None if compensation is None else compensation.subscription

    def differences(self) -> dict[str, list[tuple[str, list[str]]]]:
        """The groups whose members subscribe differently: what, and the ids of the clients that do."""
        found: dict[str, list[tuple[str, list[str]]]] = {}
        for name in sorted(self._differing):
            group = self._consumers[name]
            pairs = group.differing().items()
            found[name] = [(group.digests.get(digest, "?"), clients) for digest, clients in pairs]
        return found

    def producers(self, group: str) -> list[Member]:
        members = self._producers.get(group)
        return [] if members is None else list(members.values())

    def producer(self, client_id: str) -> Peer | None:
        """The newest connection on which the client, as far as its user announced the id, has sent a producer's
        heartbeat."""
        asker = self._askers.get(client_id)
        return None if asker is None else asker.peer

    def producer_groups(self) -> dict[str, list[Member]]:
        return {name: list(members.values()) for name, members in self._producers.items()}

    def memberships(self, peer: Peer) -> tuple[list[str], list[str]]:
        """The consumer groups and producer groups of a connection, sorted."""
        return sorted(self._consumes.get(peer, ())), sorted(self._produces.get(peer, ()))

    def any_member(self, peer: Peer) -> Member | None:
        """The connection's client as one of its groups knows it; None if it is in no group."""
        for name in self._consumes.get(peer, ()):
            return self._consumers[name].members[peer]
        for name in self._produces.get(peer, ()):
            return self._producers[name][peer]
        return None

    # --- heartbeats ---

    def newer_consumer(self, group: str, member: Member) -> Peer | None:
        """The newer connection of the member's client in the group; None: it has none that is not silent."""
        online = self._consumers.get(group)
        return None if online is None else online.members.newer(member)

    def begin_consumer(
        self, group: str, member: Member, consume_type: str, message_model: str, consume_from_where: str
    ) -> bool:
        """Add a consumer to its group, or update it; True if its connection is new in the group. An older connection of
        the same client is no longer a member. Call it only if `newer_consumer` is None. ClientsFull."""
        self._admit(self._consumes, member.peer, group, len(self._consumers), group in self._consumers)
        online = self._consumers.get(group)
        if online is None or (online.consume_type, online.message_model) != (consume_type, message_model):
            self._announce()
        if online is None:
            online = ConsumerGroup(group, consume_type, message_model, consume_from_where)
            self._consumers[group] = online
        online.consume_type, online.message_model = consume_type, message_model
        online.consume_from_where = consume_from_where
        if online.is_broadcasting and consume_type == PASSIVELY:
            self.broadcasting.add(group)
        else:
            self.broadcasting.discard(group)
        is_known = member.peer in online.members
        replaced = online.members.put(member)
        self._join(self._consumes, member.peer, group)
        if replaced is not None:
            online.replace_peer(replaced, member.peer)
            self._leave(self._consumes, replaced, group)
        return not is_known

    def subscribe(self, group: str, subscription: Subscription, peer: Peer) -> bool:
        """Add or replace a subscription of the member; True if the topic is new. ClientsFull.

        Of different subscriptions of members that are online, the one of the highest version counts, as in
        Apache. Versions are wall clock times of the clients' hosts: one that left, or the client itself
        earlier, does not count against a lower version.
        """
        online = self._consumers.get(group)
        if online is None:
            return False
        topic = subscription.topic
        known = online.subscriptions.get(topic)
        if known is None or subscription.version > known.version:
            self._replace(online, known, subscription, peer)
        elif subscription.expression_type == known.expression_type and (
            (subscription.expression, subscription.codes) == (known.expression, known.codes)
        ):
            self._weight -= online.drop_rival(topic, peer)
            if online.owners[topic] not in online.members:
                online.owners[topic] = peer
        elif online.has_owner(topic, other_than=peer):
            self._add_rival(online, subscription, peer)
        else:  # pulls with the version that was known are still served
            self._replace(online, known, replace(subscription, version=known.version), peer)
        return known is None

    def _replace(
        self, online: ConsumerGroup, known: Subscription | None, subscription: Subscription, peer: Peer
    ) -> None:
        self._weight -= online.drop_rival(subscription.topic, peer)
        self._add_weight(subscription.weight - (0 if known is None else known.weight))
        online.subscriptions[subscription.topic] = subscription
        online.owners[subscription.topic] = peer
        self._announce()

    def _add_rival(self, online: ConsumerGroup, subscription: Subscription, peer: Peer) -> None:
        """Keep the rival of the highest version."""
        before = online.rivals.get(subscription.topic)
        is_other = before is not None and before[0] is not peer and before[0] in online.members
        if before is not None and is_other and before[1].version > subscription.version:
            return
        self._add_weight(subscription.weight - (0 if before is None else before[1].weight))
        online.rivals[subscription.topic] = peer, subscription

    def _add_weight(self, weight: int) -> None:
        if self._weight + weight > self.weight_max:
            raise ClientsFull("the subscriptions of all groups take too much memory")
        self._weight += weight

    def _promote_rivals(self, online: ConsumerGroup, gone: Peer) -> None:
        """The owner left: the subscription of a member that is still there counts."""
        for topic in [topic for topic, owner in online.owners.items() if owner is gone]:
            peer, rival = online.rivals.get(topic, (gone, None))
            if rival is not None and peer in online.members:
                known = online.subscriptions[topic]
                self._replace(online, known, replace(rival, version=known.version), peer)
                online.fingerprint = None if online.fingerprint is None else 0  # all send theirs again

    def unsubscribe_others(self, group: str, topics: set[str]) -> bool:
        """Remove all subscriptions but `topics`, which are all subscribed; True if one was removed."""
        online = self._consumers.get(group)
        if online is None or len(online.subscriptions) == len(topics):
            return False
        gone = [topic for topic in online.subscriptions if topic not in topics]
        for topic in gone:
            self._weight -= online.weight(topic)
            del online.subscriptions[topic], online.owners[topic]
            online.rivals.pop(topic, None)
        self._announce()
        return bool(gone)

    def note_digest(self, group: str, peer: Peer, digest: int, text: str) -> list[tuple[str, list[str]]]:
        """Remember what a member subscribes to. If that differs from another member's, and the log does not know it:
        what the members subscribe to, each with the clients that do; else nothing. ClientsFull."""
        online = self._consumers.get(group)
        member = None if online is None else online.members.get(peer)
        if online is None or member is None:
            return []
        changed, before = member.digest != digest, member.digest
        if changed:
            self._keep_digest(online, digest, text)
            member.digest = digest
        elif group not in self._differing:
            return []
        found = online.differing()
        if not found:
            self._differing.discard(group)
            if before:  # it was changed to agree, it did not only come and go
                online.warned.clear()
            return []
        self._differing.add(group)
        now = self._clock.monotonic_ms()
        if found.keys() <= online.warned or (
            online.warned_ms is not None and now - online.warned_ms < WARN_PAUSE_MS
        ):
            return []
        known = online.warned if len(online.warned) < WARNED_MAX else set()
        online.warned, online.warned_ms = known | found.keys(), now
        return [(online.digests.get(digest, "?"), clients) for digest, clients in found.items()]

    def _keep_digest(self, online: ConsumerGroup, digest: int, text: str) -> None:
        """Keep its text, instead of the oldest one if there are too many."""
        if not digest or digest in online.digests:
            return
        if len(online.digests) >= DIGESTS_PER_GROUP_MAX:
            del online.digests[next(iter(online.digests))]
        else:
            self._add_weight(DIGEST_WEIGHT)
        online.digests[digest] = text

    def set_fingerprint(self, group: str, fingerprint: int) -> bool:
        """Store the fingerprint; True if a different one was stored before."""
        online = self._consumers.get(group)
        if online is None:
            return False
        before, online.fingerprint = online.fingerprint, fingerprint
        return before is not None and before != fingerprint

    def note_producer(self, group: str, member: Member) -> None:
        """Add a producer to its group, or update it; an older connection of the same client is no longer a member.
        ClientsFull."""
        self._admit(self._produces, member.peer, group, len(self._producers), group in self._producers)
        members = self._producers.setdefault(group, Members())
        if members.newer(member) is not None:
            return
        replaced = members.put(member)
        self._join(self._produces, member.peer, group)
        if replaced is not None:
            self._leave(self._produces, replaced, group)
            if replaced not in self._produces:
                self._forget_asker(replaced)
        self._note_asker(member)

    def _note_asker(self, member: Member) -> None:
        """Of users, the first one that announced the id keeps it; of one user, its newest connection counts."""
        owner = self._askers.get(member.client_id)
        if owner is not None and owner.user == member.user and owner.is_newer_than(member):
            return
        self._forget_asker(member.peer)
        owner = self._askers.get(member.client_id)
        if owner is None or owner.user in (None, member.user) or self._is_expired(owner):
            self._asks_as[member.peer] = member.client_id
            self._askers[member.client_id] = member

    def compensate(self, group: str, subscription: Subscription) -> None:
        """Remember the subscription that a pull carried; the group has sent no heartbeat."""
        key = (group, subscription.topic)
        self._forget_compensation(key)
        capacity = COMPENSATIONS_WEIGHT_MAX - subscription.weight
        while self._compensations and (
            len(self._compensations) >= COMPENSATIONS_MAX or self._compensated > capacity
        ):
            self._forget_compensation(next(iter(self._compensations)))
        self._compensations[key] = Compensation(subscription, self._clock.monotonic_ms())
        self._compensated += subscription.weight

    # --- leaving ---

    def leave_consumer(self, group: str, peer: Peer) -> bool:
        """Remove the peer from the group; True if it was a member."""
        online = self._consumers.get(group)
        if online is None or not online.members.remove(peer):
            return False
        if not online.members:
            del self._consumers[group]
            self._announce()
            self.broadcasting.discard(group)
            self._weight -= sum(map(online.weight, online.subscriptions)) + online.digest_weight
            self._differing.discard(group)
        else:
            self._promote_rivals(online, peer)
            if group in self._differing and not online.differing():
                self._differing.discard(group)
        self._leave(self._consumes, peer, group)
        return True

    def leave_producer(self, group: str, peer: Peer) -> bool:
        members = self._producers.get(group)
        if members is None or not members.remove(peer):
            return False
        if not members:
            del self._producers[group]
        self._leave(self._produces, peer, group)
        if peer not in self._produces:
            self._forget_asker(peer)
        return True

    def leave_all(self, peer: Peer) -> list[ConsumerGroup]:
        """The connection is closed: remove it everywhere; returns the consumer groups that it left."""
        for name in list(self._produces.get(peer, ())):
            self.leave_producer(name, peer)
        left = [self._consumers[name] for name in sorted(self._consumes.get(peer, ()))]
        for group in left:
            self.leave_consumer(group.name, peer)
        return left

    def expired(self) -> list[Peer]:
        """Connections with a member whose heartbeats stopped, to be closed; removes old compensations."""
        now = self._clock.monotonic_ms()
        oldest = now - self._channel_expired_ms
        silent: dict[Peer, None] = {}
        member_tables = [group.members for group in self._consumers.values()] + list(self._producers.values())
        for members in member_tables:
            silent.update((peer, None) for peer, member in members.items() if member.seen_ms < oldest)
        oldest = now - self._subscription_expired_ms
        for key in [key for key, entry in self._compensations.items() if entry.seen_ms < oldest]:
            self._forget_compensation(key)
        for client_id in [name for name, asker in self._askers.items() if self._is_expired(asker)]:
            del self._askers[client_id]
        return list(silent)

    def _forget_compensation(self, key: tuple[str, str]) -> None:
        gone = self._compensations.pop(key, None)
        if gone is not None:
            self._compensated -= gone.subscription.weight

    def _forget_asker(self, peer: Peer) -> None:
        """A user's client id is kept for it until its heartbeat has expired: other users wait for that."""
        client_id = self._asks_as.pop(peer, None)
        asker = None if client_id is None else self._askers.get(client_id)
        if client_id is None or asker is None or asker.peer is not peer:
            return
        if asker.user is None or len(self._askers) > ASKERS_MAX:
            del self._askers[client_id]

    def _is_expired(self, member: Member) -> bool:
        return member.seen_ms < self._clock.monotonic_ms() - self._channel_expired_ms

    def _admit(self, by_peer: dict[Peer, set[str]], peer: Peer, group: str, groups: int, known: bool) -> None:
        mine = by_peer.get(peer, set())
        if group not in mine and len(mine) >= self._memberships_max:
            raise ClientsFull(f"a connection can be in at most {self._memberships_max} groups")
        if group not in mine and self._memberships >= MEMBERSHIPS_MAX:
            raise ClientsFull(f"the broker has {self._memberships} memberships in groups, the maximum")
        if not known and groups >= GROUPS_MAX:
            raise ClientsFull(f"{groups} groups are online, at most {GROUPS_MAX}")

    def _join(self, by_peer: dict[Peer, set[str]], peer: Peer, group: str) -> None:
        mine = by_peer.setdefault(peer, set())
        self._memberships += group not in mine
        mine.add(group)

    def _leave(self, by_peer: dict[Peer, set[str]], peer: Peer, group: str) -> None:
        self._memberships -= group in by_peer[peer]
        by_peer[peer].discard(group)
        if not by_peer[peer]:
            del by_peer[peer]
