"""QueryRoute and QueryAssignment: the queues of this broker, by the address at which the client reached it.
QueueChoice: the queue of a message that is sent.

Loop thread.
"""

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from firearrow._native.base.hash import java_hash
from firearrow._native.grpc.plain_sends import QueueTurns
from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Address
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.call import Call
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.messages import MESSAGE_TYPES, PERMISSIONS, SCHEMES, ProtoMessage
from firearrow.broker.grpc.statuses import GrpcRefusal, echoed_topic, group_name, known_topic
from firearrow.broker.tables.routes import MASTER_ID
from firearrow.broker.tables.topics import TopicConfig

ALL_QUEUES = -1
ENDPOINTS_BYTES_MAX = 4096
"""Some 60 addresses."""
MULTIPLIER, MASK = 2862933555777941757, (1 << 64) - 1
SCALE = 1 << 31
MIXED = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


class QueueOwner(NamedTuple):
    """The broker whose queues clients use: those of any but a master are left alone by them."""

    broker_id: int
    endpoints: ProtoMessage
    takes_messages: bool


class RouteMethods:
    def __init__(self, context: GrpcContext) -> None:
        self._context = context
        self._topics = context.tables.topics
        self._groups = context.tables.groups

    def query_route(self, call: Call, request: ProtoMessage) -> None:
        name = echoed_topic(request.topic)
        call.check(RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name}))
        topic = known_topic(self._topics, name)
        response = call.method.response(status=messages.status("OK"))
        owner = self._owner(call, request.endpoints)
        types = _types(topic)
        for queue_id, permission in enumerate(self._permissions(topic, owner)):
            queue = response.message_queues.add()
            self._set_queue(queue, request.topic, queue_id, permission, owner)
            queue.accept_message_types.extend(types)
        call.finish(response)

    def query_assignment(self, call: Call, request: ProtoMessage) -> None:
        """All queues at once, by one receive; of a group in order, each queue."""
        name, group = echoed_topic(request.topic), group_name(request.group.name)
        asked = dumps({"consumerGroup": group, "topic": name})
        call.check(RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT, {}, asked))
        topic = known_topic(self._topics, name)
        owner = self._owner(call, request.endpoints)
        permissions = [
            (queue_id, permission)
            for queue_id, permission in enumerate(self._permissions(topic, owner))
            if permission in ("READ", "READ_WRITE")
        ]
        if not permissions or owner.broker_id != MASTER_ID:
            raise GrpcRefusal("FORBIDDEN", "no readable queue")
        config = self._groups.get(group)
        if config is None or not config.consume_orderly or config.lite_topic:
            permissions = [(ALL_QUEUES, permissions[0][1])]
        response = call.method.response(status=messages.status("OK"))
        for queue_id, permission in permissions:
            queue = response.assignments.add().message_queue
            self._set_queue(queue, request.topic, queue_id, permission, owner)
        call.finish(response)

    def _permissions(self, topic: TopicConfig, owner: QueueOwner) -> list[str]:
        """Of each queue by its number: those that are only read first, then those that are only written."""
        perm = topic.perm & self._context.config.options.broker_permission
        reads = topic.read_queues if perm & name_rules.PERM_READ and topic.readable else 0
        writes = topic.write_queues if perm & name_rules.PERM_WRITE and owner.takes_messages else 0
        both = min(reads, writes)
        return ["READ"] * (reads - both) + ["WRITE"] * (writes - both) + ["READ_WRITE"] * both

    def _set_queue(
        self,
        queue: ProtoMessage,
        topic: ProtoMessage,
        queue_id: int,
        permission: str,
        owner: QueueOwner,
    ) -> None:
        queue.topic.CopyFrom(topic)
        queue.id = queue_id
        queue.permission = PERMISSIONS[permission]
        queue.broker.name = self._context.config.options.broker_name
        queue.broker.id = owner.broker_id
        queue.broker.endpoints.CopyFrom(owner.endpoints)

    def _owner(self, call: Call, asked: ProtoMessage) -> QueueOwner:
        """The address that the client knows counts, whatever maps it to ours; without one, ours. A slave names its
        master, which clients then use. GrpcRefusal."""
        size = asked.ByteSize()
        if size > ENDPOINTS_BYTES_MAX:  # each queue has them
            text = f"endpoints of {size} bytes, at most {ENDPOINTS_BYTES_MAX} are allowed"
            raise GrpcRefusal("ILLEGAL_ACCESS_POINT", text)
        own = asked if asked.addresses else endpoints_of(call.peer.local)
        slave = self._context.slave
        if slave is None:
            return QueueOwner(MASTER_ID, own, takes_messages=True)
        if slave.acts():
            return QueueOwner(MASTER_ID, own, takes_messages=False)
        master = slave.master()
        if master is not None:
            return QueueOwner(MASTER_ID, endpoints_of(master), takes_messages=True)
        return QueueOwner(max(self._context.config.options.broker_id, 1), own, takes_messages=False)


def endpoints_of(address: Address) -> ProtoMessage:
    host = address[0].removeprefix("::ffff:")
    try:
        scheme = f"IPv{ipaddress.ip_address(host).version}"
    except ValueError:
        scheme = "DOMAIN_NAME"
    found = messages.Endpoints(scheme=SCHEMES[scheme])
    found.addresses.add(host=host, port=address[1])
    return found


def _types(topic: TopicConfig) -> list[int]:
    """The types of messages that the topic takes."""
    stated = topic.attributes.get("message.type", "NORMAL")
    names = MIXED if stated == "MIXED" else (stated,)
    return [MESSAGE_TYPES.get(name, MESSAGE_TYPES["MESSAGE_TYPE_UNSPECIFIED"]) for name in names]


class QueueChoice:
    """The queue of messages that are sent, which clients leave to the server. Messages of one message group go to one
    queue, by the consistent hash of Apache's proxy, so that they stay in order when both serve a topic; others take
    turns."""

    def __init__(self, context: GrpcContext, turns: QueueTurns) -> None:
        self._context = context
        self._turns = turns

    def writable_queues(self, topic: TopicConfig) -> int:
        """GrpcRefusal: no queue may be written."""
        slave, options = self._context.slave, self._context.config.options
        if slave is not None:
            raise GrpcRefusal("FORBIDDEN", f"no writable queue: {slave.fault()}")
        perm = topic.perm & options.broker_permission
        queues = topic.write_queues if perm & name_rules.PERM_WRITE else 0
        if queues <= 0:
            raise GrpcRefusal("FORBIDDEN", "no writable queue")
        return queues

    def choose(self, topic: TopicConfig, sent: Sequence[ProtoMessage]) -> int:
        """GrpcRefusal: no queue may be written."""
        queues = self.writable_queues(topic)
        keys = {own.message_group or own.lite_topic for own in (each.system_properties for each in sent)}
        if len(keys) == 1 and (key := keys.pop()):
            return consistent_hash(java_hash(key), queues)
        return self._turns.turn(topic.name, queues)


def consistent_hash(state: int, buckets: int) -> int:
    """The bucket of a hash, of 32 bits and signed (Guava: Hashing.consistentHash)."""
    state &= MASK
    candidate = 0
    while True:
        state = (MULTIPLIER * state + 1) & MASK
        drawn = ((state >> 33) + 1) / SCALE
        following = int((candidate + 1) / drawn)
        if not 0 <= following < buckets:
            return candidate
        candidate = following
