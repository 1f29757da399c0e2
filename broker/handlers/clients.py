"""Heartbeats of clients, and the members of groups. Loop thread.

HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38), CHECK_CLIENT_CONFIG (46). If members
or topics of a group changed, its members get NOTIFY_CONSUMER_IDS_CHANGED (40) before the answer is sent.
Large heartbeats are processed one after the other and in slices, so that other requests do not wait for many
of them.
"""

import asyncio
import logging
from collections.abc import Generator

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps, loads_body
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import OF_GRPC
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import GRPC, REMOTING, Answer, Peer, Routes
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.clients import WARN_PAUSE_MS, ClientsFull, ClientTable, ConsumerGroup
from firearrow.broker.tables.groups import GroupConfig, GroupTable
from firearrow.broker.tables.members import Member
from firearrow.broker.tables.subscription_filter import FilterCache
from firearrow.broker.tables.subscriptions import (
    BYTES_MAX,
    ConsumerData,
    HeartbeatData,
    Subscription,
    SubscriptionDigest,
)
from firearrow.broker.tables.topics import InvalidTopic, TopicTable

log = logging.getLogger("firearrow.clients")

LARGE_BYTES = 16 << 10
"""Larger heartbeats are processed one after the other: each may take tenths of a second."""
SLICE_S = 0.002
"""A large heartbeat yields to the event loop after this time."""
STEP = 64
"""Subscriptions or producers between two checks of the clock."""

Work = Generator[None, None, bool]
"""Yields between steps; returns whether the client should send its subscriptions again."""


class ClientsHandler:
    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        filters: FilterCache,
        config: Config,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._filters = filters
        self._config = config
        self._clock = clock
        self._watched: set[Peer] = set()
        self._warn_after_ms = 0
        self._large_heartbeat = asyncio.Lock()

    def routes(self) -> Routes:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heart_beat(self, request: RemotingCommand, peer: Peer) -> Answer:
        if peer.closed:
            return None  # its close was handled already: it would stay in the table
        work = self._register(request, peer)
        if len(request.body) > LARGE_BYTES:
            return self._run_in_slices(work, request, peer)
        try:
            while True:
                next(work)
        except StopIteration as done:
            return _alive(request, done.value)

    def unregister_client(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        producer, consumer = request.text_or("producerGroup", ""), request.text_or("consumerGroup", "")
        if producer:
            self._clients.leave_producer(producer, peer)
        if consumer:
            group = self._clients.consumer_group(consumer)
            if group is not None and self._clients.leave_consumer(consumer, peer):
                self._notify(group)
        return request.answer()

    def consumer_list(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        name = request.text("consumerGroup")
        group = self._clients.consumer_group(name)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return request.answer(body=dumps({"consumerIdList": group.client_ids()}))

    def check_client_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Refuse an invalid filter expression when its consumer starts, and report where it is wrong."""
        try:
            body = json_fields.members_or_none(
                loads_body(request.body, BYTES_MAX) if request.body else None, "body"
            )
            raw = body.get("subscriptionData")
            subscription = None if raw is None else Subscription.from_object(raw)
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"check client config: {error}") from None
        if subscription is not None:
            self._filters.check(subscription)
        return request.answer()

    def sweep(self) -> None:
        """Close connections whose clients send no heartbeats; the close removes them from their groups."""
        for peer in self._clients.expired():
            peer.close()

    def _watch(self, peer: Peer) -> None:
        if peer not in self._watched:
            self._watched.add(peer)
            peer.on_close(self._on_close)

    def _on_close(self, peer: Peer) -> None:
        self._watched.discard(peer)
        for group in self._clients.leave_all(peer):
            self._notify(group)

    def _notify(self, group: ConsumerGroup) -> None:
        config = self._groups.get(group.name)
        notify = config is None or config.notify_changed
        if not notify or group.is_broadcasting or not self._config.options.notify_consumers:
            return
        for member in list(group.members.values()):
            if not member.peer.closed:
                ext = {"consumerGroup": group.name}
                member.peer.oneway(
                    RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext, oneway=True)
                )

    async def _run_in_slices(
        self, work: Work, request: RemotingCommand, peer: Peer
    ) -> RemotingCommand | None:
        loop = asyncio.get_running_loop()
        async with self._large_heartbeat:
            try:
                while not peer.closed:
                    until = loop.time() + SLICE_S
                    next(work)
                    while loop.time() < until:
                        next(work)
                    await asyncio.sleep(0)
            except StopIteration as done:
                return _alive(request, done.value)
        return None

    def _register(self, request: RemotingCommand, peer: Peer) -> Work:
        send_again = False
        now = self._clock.monotonic_ms()
        try:
            heartbeat = HeartbeatData.read(request.body)
            self._watch(peer)
            yield
            for beat in heartbeat.consumers:
                if beat.consume_type == "CONSUME_ACTIVELY" and self._config.options.reject_pull_consumers:
                    continue
                config = self._groups.find(beat.group)
                if config is None:
                    continue
                member = _member(heartbeat, request, peer, now)
                newer = self._clients.newer_consumer(beat.group, member)
                if newer is not None:
                    self._warn_of_namesake(beat.group, member, newer)
                    continue
                send_again |= yield from self._consumer(heartbeat, beat, config, member)
            for n, producer in enumerate(heartbeat.producers, 1):
                self._clients.note_producer(producer, _member(heartbeat, request, peer, now))
                if n % STEP == 0:
                    yield
        except (ValueError, InvalidTopic, ClientsFull) as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"heartbeat: {error}") from None
        return send_again or heartbeat.fingerprint == 0

    def _consumer(
        self, heartbeat: HeartbeatData, beat: ConsumerData, config: GroupConfig, member: Member
    ) -> Generator[None, None, bool]:
        """Register one group; return whether its subscriptions differ from the fingerprint."""
        subscriptions: list[Subscription] = []
        digest = SubscriptionDigest(beat.message_model)
        ordered = False
        for n, subscription in enumerate(beat.subscriptions(), 1):
            subscriptions.append(subscription)
            digest.add(subscription)
            topic = self._topics.get(subscription.topic)
            ordered |= topic is not None and topic.order
            if n % STEP == 0:
                yield
        yield
        unit = name_rules.UNIT_SUB_FLAG if beat.unit_mode else 0
        self._topics.create(
            name_rules.retry_topic(beat.group), config.retry_queues, sys_flag=unit, order=ordered
        )
        changed = self._clients.begin_consumer(
            beat.group, member, beat.consume_type, beat.message_model, beat.consume_from_where
        )
        if not (heartbeat.fingerprint and heartbeat.without_sub):
            changed |= yield from self._subscribe(beat.group, subscriptions, member.peer)
            self._compare(beat.group, digest, member.peer)
        differs = bool(heartbeat.fingerprint) and self._clients.set_fingerprint(
            beat.group, heartbeat.fingerprint
        )
        group = self._clients.consumer_group(beat.group)
        if group is None:
            return differs
        if changed:
            self._notify(group)
        return differs or (heartbeat.without_sub and not group.subscriptions)

    def _warn_of_namesake(self, group: str, member: Member, newer: Peer) -> None:
        now = self._clock.monotonic_ms()
        if now < self._warn_after_ms:
            return
        self._warn_after_ms = now + WARN_PAUSE_MS
        log.warning(
            "client %r of group %s sends heartbeats on two connections, from %s:%d and %s:%d: only the newer one is a "
            "member. Give each process its own instance name",
            member.client_id[:80],
            group,
            *member.peer.remote,
            *newer.remote,
        )

    def _compare(self, group: str, digest: SubscriptionDigest, peer: Peer) -> None:
        """Warn of members that subscribe differently: brokers and clients take them for alike, so a queue's messages
        are read with the filter of one member and lost for the other. The oldest silent loss of RocketMQ's users."""
        different = self._clients.note_digest(group, peer, digest.number, digest.text)
        if different:
            kinds = "; ".join(f"{_clients_text(clients)}: {text[:240]!r}" for text, clients in different[:4])
            log.warning(
                "group %s: its members subscribe differently, so messages are lost for some of them: %s. Give the "
                "members of a group the same subscriptions, or each kind its own group",
                group,
                kinds,
            )

    def _subscribe(
        self, group: str, subscriptions: list[Subscription], peer: Peer
    ) -> Generator[None, None, bool]:
        changed = False
        topics: set[str] = set()
        for n, subscription in enumerate(subscriptions, 1):
            topics.add(subscription.topic)
            changed |= self._clients.subscribe(group, subscription, peer)
            if n % STEP == 0:
                yield
        return self._clients.unsubscribe_others(group, topics) or changed


def _member(heartbeat: HeartbeatData, request: RemotingCommand, peer: Peer, now_ms: int) -> Member:
    protocol = GRPC if request.serializer == OF_GRPC else REMOTING
    return Member(
        heartbeat.client_id,
        peer,
        request.language,
        request.version,
        now_ms,
        user=request.user,
        protocol=protocol,
    )


def _clients_text(client_ids: list[str]) -> str:
    shown = ", ".join(repr(client_id[:80]) for client_id in client_ids[:3])
    return f"{shown} and {len(client_ids) - 3} more" if len(client_ids) > 3 else shown


def _alive(request: RemotingCommand, changed: bool) -> RemotingCommand:
    ext = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if changed else "false"}
    return request.answer(ext=ext)
