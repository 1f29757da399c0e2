"""How the members of a group split the queues of a topic: Java's six strategies, with the same results.

A strategy is any callable `(group, client_id, queues, client_ids) -> queues`. Both lists come in Java's
order, and every member must compute the same split, so that each queue has exactly one owner. Pure functions;
any thread.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from firearrow._native.protocol import message_queue
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import MessageQueue, java_order

Queues = Sequence[MessageQueue]


class Strategy(Protocol):
    def __call__(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str], /) -> Queues:
        """The queues of the member `client_id`. ValueError: they cannot be split; then nothing changes."""


def averagely(group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
    """Each member gets adjacent queues. Java's `AVG`."""
    _check(client_id, queues, client_ids)
    return message_queue.averagely(client_id, queues, client_ids)


def by_circle(group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
    """Each of n members gets every n-th queue. Java's `AVG_BY_CIRCLE`."""
    _check(client_id, queues, client_ids)
    return message_queue.by_circle(client_id, queues, client_ids)


class FixedQueues:
    """Always the queues of the constructor, regardless of other members. Java's `CONFIG`."""

    name = "CONFIG"

    def __init__(self, queues: Queues) -> None:
        self._queues = tuple(queues)

    def __call__(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        return self._queues


class MachineRoom:
    """Splits the queues of brokers named `room@name` whose room is configured: equal blocks, then the rest
    singly.
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def __call__(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        if not _is_member(client_id, queues, client_ids):
            return []
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        index, members = client_ids.index(client_id), len(client_ids)
        block, rest = divmod(len(near), members)
        mine = near[block * index : block * (index + 1)]
        return mine + near[block * members + index : block * members + index + 1] if index < rest else mine

    def _is_near(self, broker_name: str) -> bool:
        fields = broker_name.rstrip("@").split("@")  # Java's split drops empty strings at the end
        return len(fields) == 2 and fields[0] in self._rooms


class MachineRoomNearby:
    """Members of a room share its queues; all members share those of a room without members.

    `inner` splits both.
    """

    def __init__(
        self,
        inner: "Strategy | str",
        room_of_queue: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self._inner = strategy_of(inner)
        self._room_of_queue, self._room_of_client = room_of_queue, room_of_client
        self.name = f"MACHINE_ROOM_NEARBY-{name_of(self._inner)}"

    def __call__(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        if not _is_member(client_id, queues, client_ids):
            return []
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            rooms.setdefault(_named(self._room_of_queue(queue), queue), []).append(queue)
        members_of: dict[str, list[str]] = {}
        for member in client_ids:
            members_of.setdefault(_named(self._room_of_client(member), member), []).append(member)
        own_room = self._room_of_client(client_id)
        splits = [(rooms.pop(own_room, []), members_of[own_room])]
        splits += [
            (rooms[room], list(client_ids))
            for room in sorted(rooms, key=java_order)
            if room not in members_of
        ]
        return [
            queue
            for split, members in splits
            if split
            for queue in self._inner(group, client_id, split, members)
        ]


class ConsistentHash:
    """Members and queues on a hash ring: few queues move when a member joins or leaves."""

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10) -> None:
        if not 0 <= virtual_nodes <= 10_000:
            raise ConfigError(f"virtual_nodes: {virtual_nodes} is not within 0..10000")
        self._virtual_nodes = virtual_nodes

    def __call__(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        if not _is_member(client_id, queues, client_ids):
            return []
        ring = {_hash(f"{member}-{n}"): member for member in client_ids for n in range(self._virtual_nodes)}
        nodes = sorted(ring)
        return [queue for queue in queues if nodes and ring[_owner(nodes, queue)] == client_id]


def _owner(nodes: Sequence[int], queue: MessageQueue) -> int:
    key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
    return nodes[bisect_left(nodes, _hash(key)) % len(nodes)]


def _hash(key: str) -> int:
    return int.from_bytes(
        hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big"
    )


def _named(room: str, owner: object) -> str:
    if not room:
        raise ValueError(f"no machine room is known for {owner}")
    return room


def _is_member(client_id: str, queues: Queues, client_ids: Sequence[str]) -> bool:
    """False if the broker does not list this member (yet): then it owns no queue. ValueError."""
    _check(client_id, queues, client_ids)
    return client_id in client_ids


def _check(client_id: str, queues: Queues, client_ids: Sequence[str]) -> None:
    if not client_id or not queues or not client_ids:
        raise ValueError("a split needs a client id, queues and members")


BY_NAME: dict[str, Strategy] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": by_circle,
    "CONSISTENT_HASH": ConsistentHash(),
}


def strategy_of(allocate: Strategy | Callable[..., Queues] | str) -> Strategy:
    """The strategy that an option names or is. ConfigError."""
    if not isinstance(allocate, str):
        return allocate
    if allocate not in BY_NAME:
        raise ConfigError(
            f"allocate {allocate!r} is unknown: use {', '.join(BY_NAME)}, or a strategy object or callable"
        )
    return BY_NAME[allocate]


def name_of(strategy: Strategy) -> str:
    """Java's name of the strategy, which a broker gets when it assigns the queues."""
    for name, known in BY_NAME.items():
        if strategy is known:
            return name
    return str(getattr(strategy, "name", None) or getattr(strategy, "__name__", "CUSTOM"))
