"""Resets, clones and corrects consumer offsets (222, 314, 308), and asks clients for theirs (223). Loop
thread.

A reset is done in the broker (the group's next pull is redirected), or by the group's clients, which are
notified (220).
"""

import asyncio

from firearrow._native.protocol.fastjson import JsonError, dumps, loads_body
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow._native.protocol.name_rules import group_fault
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import LanguageCode, RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.clients import ClientTable, ConsumerGroup
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.members import Member
from firearrow.broker.tables.offsets import ConsumerOffsets, InvalidOffset, queue_id_fault
from firearrow.broker.tables.topics import TopicConfig, TopicTable

ASK_S = 5.0
CLIENTS_MAX = 1_000
"""Clients of a group that one request asks."""
STATUS_BYTES_MAX, STATUS_LENIENT_BYTES_MAX = 1 << 20, 256 << 10
"""Of a client's answer. The lenient limit is for Java clients, whose JSON has objects as keys."""

SUPPORTING_VERSION = 28
"""V3_0_7_SNAPSHOT: older clients know neither 220 nor 221."""


class ResetsHandler:
    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        config: Config,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._config = config

    def routes(self) -> Routes:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
        }

    def reset(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic, group = request.text("topic"), request.text("group")
        timestamp = request.integer("timestamp")
        config = self._topics.get(topic)
        if not self._config.options.server_side_reset:
            if config is None:
                remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
                raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
            return self._reset_clients(request, config, group, timestamp)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self._groups:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        targets = self._targets(request, config, timestamp)
        try:
            for queue_id, target in targets.items():
                self._offsets.reset(group, topic, queue_id, target)
        except InvalidOffset as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return request.answer(body=_body(self._queues(topic, targets)))

    async def consumer_status(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Ask the group's clients, or one of them, for their offsets.

        Clients that do not answer are left out.
        """
        topic, name = request.text("topic"), request.text("group")
        client_id = request.text_or("clientAddr", "").strip()
        group = self._clients.consumer_group(name)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{name}]"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        members = [member for member in group.members.values() if client_id in ("", member.client_id)]
        self._check_versions(members)
        ext = {"topic": topic, "group": name}
        found = await asyncio.gather(*(self._status_of(member, ext) for member in members[:CLIENTS_MAX]))
        pairs = zip(members, found, strict=False)
        table = {member.client_id: queues for member, queues in pairs if queues is not None}
        return request.answer(body=dumps({"consumerTable": table, "messageQueueTable": {}}))

    def clone(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        source, target = request.text("srcGroup"), request.text("destGroup")
        topic, offline = request.text_or("topic", ""), request.boolean_or("offline", False)
        fault = group_fault(target)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        online = self._clients.consumer_group(source)
        for name in [topic] if topic.strip() else self._offsets.topics_of(source):
            subscribed = online is None or not online.subscriptions or name in online.subscriptions
            if name in self._topics and (offline or subscribed):
                try:
                    self._offsets.clone(source, target, name)
                except InvalidOffset as error:
                    raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return request.answer()

    def correction(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """The smallest offset of each queue over all groups but `filterGroups`.

        Apache also drops the offsets of `filterGroups`.
        """
        topic = request.text("topic")
        excluded = set(request.text_or("filterGroups", "").split(","))
        smallest: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            if group in excluded:
                continue
            for queue_id, at in (self._offsets.of(group, topic) or {}).items():
                if at >= self._store.reader.min_offset(topic, queue_id):
                    smallest[queue_id] = min(at, smallest.get(queue_id, at))
        compared = self._offsets.of(request.text("compareGroup"), topic) or {}
        for queue_id, at in compared.items():
            if smallest.get(queue_id, at + 1) > at:
                smallest[queue_id] = json_fields.LONG_MAX
        return request.answer(body=dumps({"correctionOffsets": smallest}))

    def _targets(self, request: RemotingCommand, config: TopicConfig, timestamp: int) -> dict[int, int]:
        queue_id, offset = request.integer_or("queueId", -1, 32), request.integer_or("offset", -1)
        if queue_id < 0:
            targets = {n: self._by_time(config.name, n, timestamp) for n in range(config.read_queues)}
            if not targets:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
            return targets
        fault = queue_id_fault(queue_id)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if offset == -1:
            return {queue_id: self._by_time(config.name, queue_id, timestamp)}
        low, high = (
            self._store.reader.min_offset(config.name, queue_id),
            self._store.reader.max_offset(config.name, queue_id),
        )
        if offset < max(0, low) or offset > high + 1:
            remark = f"Target offset {offset} not in consume queue range [{low}-{high}]"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return {queue_id: offset}

    def _by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self._store.reader.max_offset(topic, queue_id)
        return self._store.reader.offset_by_time(topic, queue_id, timestamp)

    def _reset_clients(
        self, request: RemotingCommand, config: TopicConfig, group: str, timestamp: int
    ) -> RemotingCommand:
        """Notify all clients of the group; offsets move forward only with `isForce`."""
        topic, force = config.name, request.boolean_or("isForce", False)
        targets: dict[int, int] = {}
        for queue_id in range(config.write_queues):
            current = self._offsets.query(group, topic, queue_id)
            if current == -1:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            by_time = max(0, self._by_time(topic, queue_id, timestamp))
            targets[queue_id] = by_time if force else min(by_time, current)
        online = self._clients.consumer_group(group)
        if online is None:
            what = f"Group: {group} Topic: {topic} Timestamp: {timestamp}"
            remark = f"Consumer not online, so can not reset offset, {what}"
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        self._check_versions(list(online.members.values()))
        queues = self._queues(topic, targets)
        body = _list_body(queues) if request.language == LanguageCode.CPP else _body(queues)
        self._notify(online, topic, timestamp, body)
        return request.answer(body=_body(queues))

    def _notify(self, group: ConsumerGroup, topic: str, timestamp: int, body: bytes) -> None:
        ext = {
            "topic": topic,
            "group": group.name,
            "timestamp": str(timestamp),
            "isForce": "false",
            "queueId": "-1",
        }
        for member in list(group.members.values()):
            command = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext, body, oneway=True
            )
            if not member.peer.closed:
                member.peer.oneway(command)

    async def _status_of(self, member: Member, ext: dict[str, str]) -> object:
        command = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext)
        try:
            answer = await member.peer.ask(command, ASK_S)
            if answer.code != ResponseCode.SUCCESS or not answer.body:
                return None
            body = loads_body(answer.body, STATUS_BYTES_MAX, lenient_bytes_max=STATUS_LENIENT_BYTES_MAX)
        except (TimeoutError, ConnectionError, JsonError):
            return None
        return body.get("messageQueueTable") if isinstance(body, dict) else None

    def _check_versions(self, members: list[Member]) -> None:
        old = next((member for member in members if member.version < SUPPORTING_VERSION), None)
        if old is not None:
            remark = f"the client does not support this feature. version={old.version}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _queues(self, topic: str, targets: dict[int, int]) -> dict[MessageQueue, int]:
        broker = self._config.options.broker_name
        return {MessageQueue(topic, broker, queue_id): target for queue_id, target in targets.items()}


def _body(queues: dict[MessageQueue, int]) -> bytes:
    return dumps({"offsetTable": queues})


def _list_body(queues: dict[MessageQueue, int]) -> bytes:
    """The body in the form for C++ clients."""
    items = [
        {"brokerName": queue.broker_name, "offset": target, "queueId": queue.queue_id, "topic": queue.topic}
        for queue, target in queues.items()
    ]
    return dumps({"offsetTable": items})
