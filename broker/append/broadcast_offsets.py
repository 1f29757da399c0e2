"""BroadcastOffsets: how far each client of a broadcasting group has pulled (Apache: BroadcastOffsetManager).

A client that switches between a proxy and the broker continues at its offset. The offsets are in memory; the
lowest one of a group's clients is committed as `<group>@broadcast`, where a client behind a proxy starts
after a restart. Loop thread.
"""

import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.peer import Peer
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.offsets import ConsumerOffsets, InvalidOffset

log = logging.getLogger("firearrow.broadcast_offsets")

PROXY = "1"
"""`requestSource` of a proxy that pulls for a broadcasting client."""
OFFSETS_MAX = 100_000
"""Most queues, summed over all clients, whose offsets are kept."""
NO_OFFSET = -1


class BroadcastClient(NamedTuple):
    """One client of a broadcasting group and the topic that it pulls."""

    topic: str
    group: str
    client: str
    by_proxy: bool


@dataclass(slots=True)
class BroadcastProgress:
    """`offsets`: queue → the highest offset that the client asked for."""

    by_proxy: bool
    seen_ms: int
    offsets: dict[int, int] = field(default_factory=dict)


class BroadcastOffsets:
    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        config: Config,
        clock: Clock,
        *,
        offsets_max: int = OFFSETS_MAX,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._clients = clients
        self._config = config
        self._clock = clock
        self._offsets_max = offsets_max
        self._table: dict[tuple[str, str], dict[str, BroadcastProgress]] = {}
        self._count = 0

    def puller(self, topic: str, group: str, request: RemotingCommand, peer: Peer) -> BroadcastClient | None:
        """The broadcasting client that sent the request; None if it is not one, or the option is off."""
        if not self._config.options.broadcast_offsets:
            return None
        if request.ext.get("requestSource") == PROXY:
            return BroadcastClient(topic, group, request.text_or("proxyFrowardClientId", ""), True)
        online = self._clients.consumer_group(group) if group in self._clients.broadcasting else None
        member = None if online is None else online.members.get(peer)
        return None if member is None else BroadcastClient(topic, group, member.client_id, False)

    def start_offset(self, client: BroadcastClient, queue_id: int, requested: int) -> int:
        """The offset to start at instead of `requested`; -1: start at `requested`."""
        clients = self._table.get((client.topic, client.group))
        if clients is None:
            return self._known(None, client, queue_id) if client.by_proxy and requested < 0 else NO_OFFSET
        progress = clients.get(client.client)
        by_proxy = client.by_proxy if progress is None else progress.by_proxy
        if by_proxy != client.by_proxy or (by_proxy and requested < 0):
            return self._known(progress, client, queue_id)
        return NO_OFFSET

    def note(self, client: BroadcastClient, queue_id: int, requested: int) -> None:
        """Remember that the client pulls at `requested`; a client's offset never decreases."""
        clients = self._table.get((client.topic, client.group), {})
        progress = clients.get(client.client)
        if progress is None or queue_id not in progress.offsets:
            if self._count >= self._offsets_max:
                return
            self._count += 1
            clients = self._table.setdefault((client.topic, client.group), clients)
            progress = clients.setdefault(client.client, progress or BroadcastProgress(client.by_proxy, 0))
        progress.by_proxy, progress.seen_ms = client.by_proxy, self._clock.monotonic_ms()
        progress.offsets[queue_id] = max(requested, progress.offsets.get(queue_id, requested))

    def expire(self) -> None:
        """Commit the lowest offsets of each group, and forget clients that have disconnected or are idle."""
        for (topic, group), clients in list(self._table.items()):
            lowest = self._lowest(group, clients)
            if not clients:
                del self._table[topic, group]
            for queue_id, queue_offset in lowest.items():
                try:
                    self._offsets.commit(f"{group}@broadcast", topic, queue_id, queue_offset)
                except InvalidOffset as refused:
                    log.info("the broadcast offset of %s@%s cannot be committed: %s", topic, group, refused)

    def _lowest(self, group: str, clients: dict[str, BroadcastProgress]) -> dict[int, int]:
        """Queue → lowest offset of the clients that are online or recent; removes expired clients."""
        options, now = self._config.options, self._clock.monotonic_ms()
        online = self._clients.consumer_group(group)
        ids = set() if online is None else set(online.client_ids())
        lowest: dict[int, int] = {}
        for client, progress in list(clients.items()):
            idle_s = (now - progress.seen_ms) / 1000
            is_recent = idle_s < options.broadcast_expire_s
            if client in ids or is_recent:
                for queue_id, queue_offset in progress.offsets.items():
                    lowest[queue_id] = min(queue_offset, lowest.get(queue_id, queue_offset))
            if not is_recent and (client not in ids or idle_s >= options.broadcast_expire_max_s):
                self._count -= len(clients.pop(client).offsets)
        return lowest

    def _known(self, progress: BroadcastProgress | None, client: BroadcastClient, queue_id: int) -> int:
        """The client's offset, else its group's, else where a new group starts."""
        own = NO_OFFSET if progress is None else progress.offsets.get(queue_id, NO_OFFSET)
        if own < 0:
            own = self._offsets.query(f"{client.group}@broadcast", client.topic, queue_id)
        if own >= 0:
            return own
        first = self._store.reader.entries(client.topic, queue_id, 0, 1)
        if first and self._store.reader.is_near_end(first[0].physical_offset):
            return 0
        return self._store.reader.max_offset(client.topic, queue_id)
