"""Broadcasts: how far each client of a broadcasting group pulls, so that a client that changes between a proxy and the
broker goes on where it was. Loop thread.

Kept in memory; the least offset of a group's clients is committed as `<group>@broadcast`, from where a client that
comes by a proxy begins after a restart.
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

log = logging.getLogger("firearrow.broadcasts")

PROXY = "1"
"""`requestSource` of a proxy that pulls for a broadcasting client."""
OFFSETS_MAX = 100_000
"""Queues of all clients together; more are not followed."""
NONE = -1


class BroadcastClient(NamedTuple):
    """One client of a broadcasting group and the topic that it pulls."""

    topic: str
    group: str
    client: str
    by_proxy: bool


@dataclass(slots=True)
class BroadcastProgress:
    """Queue → the offset that was asked for last."""

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
        """Who broadcasts; None if it is nobody that we know, or the option is off."""
        if not self._config.options.broadcast_offsets:
            return None
        if request.ext.get("requestSource") == PROXY:
            return BroadcastClient(topic, group, request.text_or("proxyFrowardClientId", ""), True)
        online = self._clients.consumer_group(group) if group in self._clients.broadcasting else None
        member = None if online is None else online.members.get(peer)
        return None if member is None else BroadcastClient(topic, group, member.client_id, False)

    def start_offset(self, who: BroadcastClient, queue_id: int, asked: int) -> int:
        """Where the client shall begin instead of at `asked`; -1: there."""
        clients = self._table.get((who.topic, who.group))
        if clients is None:
            return self._known(None, who, queue_id) if who.by_proxy and asked < 0 else NONE
        progress = clients.get(who.client)
        by_proxy = who.by_proxy if progress is None else progress.by_proxy
        if by_proxy != who.by_proxy or (by_proxy and asked < 0):
            return self._known(progress, who, queue_id)
        return NONE

    def note(self, who: BroadcastClient, queue_id: int, asked: int) -> None:
        """The client pulls from there; an offset never goes back."""
        clients = self._table.get((who.topic, who.group), {})
        progress = clients.get(who.client)
        if progress is None or queue_id not in progress.offsets:
            if self._count >= self._offsets_max:
                return
            self._count += 1
            clients = self._table.setdefault((who.topic, who.group), clients)
            progress = clients.setdefault(who.client, progress or BroadcastProgress(who.by_proxy, 0))
        progress.by_proxy, progress.seen_ms = who.by_proxy, self._clock.monotonic_ms()
        progress.offsets[queue_id] = max(asked, progress.offsets.get(queue_id, asked))

    def expire(self) -> None:
        """Commit the least offsets of each group, and forget the clients that are gone or idle."""
        for (topic, group), clients in list(self._table.items()):
            least = self._least(group, clients)
            if not clients:
                del self._table[topic, group]
            for queue_id, queue_offset in least.items():
                try:
                    self._offsets.commit(f"{group}@broadcast", topic, queue_id, queue_offset)
                except InvalidOffset as refused:
                    log.warning("the offset of %s@%s is not kept: %s", topic, group, refused)

    def _least(self, group: str, clients: dict[str, BroadcastProgress]) -> dict[int, int]:
        """Of the clients that are online or were heard of lately; drops those that are expired."""
        options, now = self._config.options, self._clock.monotonic_ms()
        online = self._clients.consumer_group(group)
        ids = set() if online is None else set(online.client_ids())
        least: dict[int, int] = {}
        for client, progress in list(clients.items()):
            idle_s = (now - progress.seen_ms) / 1000
            lately = idle_s < options.broadcast_expire_s
            if client in ids or lately:
                for queue_id, queue_offset in progress.offsets.items():
                    least[queue_id] = min(queue_offset, least.get(queue_id, queue_offset))
            if not lately and (client not in ids or idle_s >= options.broadcast_expire_max_s):
                self._count -= len(clients.pop(client).offsets)
        return least

    def _known(self, progress: BroadcastProgress | None, who: BroadcastClient, queue_id: int) -> int:
        """The client's own offset, its group's, or where a new group begins."""
        own = NONE if progress is None else progress.offsets.get(queue_id, NONE)
        if own < 0:
            own = self._offsets.query(f"{who.group}@broadcast", who.topic, queue_id)
        if own >= 0:
            return own
        first = self._store.reader.entries(who.topic, queue_id, 0, 1)
        if first and self._store.reader.is_near_end(first[0].physical_offset):
            return 0
        return self._store.reader.max_offset(who.topic, queue_id)
