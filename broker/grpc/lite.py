"""SyncLiteSubscription, and what a receive of lite topics asks for. Loop thread.

Both are requests of remoting: LITE_SUBSCRIPTION_CTL and POP_LITE_MESSAGE.
"""

import dataclasses
from collections.abc import Iterator

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps
from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.lmq import LMQ_QUEUE_ID, offset_in
from firearrow.broker.base.message import Property
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.call import Call
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.message_codec import number
from firearrow.broker.grpc.messages import ProtoMessage
from firearrow.broker.grpc.settings import check_lite_topic
from firearrow.broker.grpc.statuses import GrpcRefusal, expect, group_name, lite_topic_name, topic_name

ACTIONS = {number: name for name, number in messages.enum("LiteSubscriptionAction").items()}
UNACKNOWLEDGED_MAX = 100
"""A client with more messages of its group, which are renewed, gets no others (Apache: maxLiteRenewNumPerChannel)."""
ADDS_PER_SECOND = 5000
"""PARTIAL_ADD, of all clients together (Apache: maxSyncLiteSubscriptionRate)."""


class LiteMethods:
    def __init__(self, context: GrpcContext) -> None:
        self._context = context
        self._groups = context.tables.groups
        self._second = 0
        self._adds = 0

    def sync(self, call: Call, request: ProtoMessage) -> None:
        topic, group = topic_name(request.topic.name), group_name(request.group.name)
        action = ACTIONS.get(request.action, "")
        entry: dict[str, object] = {
            "action": action,
            "clientId": call.client.client_id,
            "group": group,
            "liteTopicSet": list(request.lite_topic_set),
            "topic": topic,
            "version": request.version,
        }
        if request.HasField("offset_option"):
            kind = request.offset_option.WhichOneof("offset_type")
            if kind is not None:
                value = getattr(request.offset_option, kind)
                entry["offsetOption"] = {"type": kind.upper(), "value": value}
        command = RemotingCommand.request(
            RequestCode.LITE_SUBSCRIPTION_CTL, {}, dumps({"subscriptionSet": [entry]})
        )
        call.check(command)
        config = self._groups.get(group)
        if config is None:
            raise GrpcRefusal("ILLEGAL_CONSUMER_GROUP", f"group not found: {group}")
        for name in request.lite_topic_set:
            lite_topic_name(name)
        if not config.lite_topic:
            raise GrpcRefusal("ILLEGAL_TOPIC", f"group {group} is bound to no topic (lite.bind.topic)")
        check_lite_topic(config, topic)
        if action == "PARTIAL_ADD":
            self._count_add(topic, group, call.client.client_id)

        def done(answer: RemotingCommand) -> None:
            expect(answer)
            call.finish(call.method.response(status=messages.status("OK")))

        call.ask(command, done)

    def _count_add(self, topic: str, group: str, client_id: str) -> None:
        """GrpcRefusal: too many in this second."""
        second = int(self._context.clock.monotonic_ms() // 1000)
        if second != self._second:
            self._second, self._adds = second, 0
        self._adds += 1
        if self._adds > ADDS_PER_SECOND:
            text = (
                f"Too many syncLiteSubscription requests, topic={topic}, group={group}, clientId={client_id}"
            )
            raise GrpcRefusal("TOO_MANY_REQUESTS", text)


def check_unacknowledged(client_id: str, count: int) -> None:
    """GrpcRefusal."""
    if count > UNACKNOWLEDGED_MAX:
        text = f"The client [{client_id}] has too many unacked messages. Unacked count: {count}"
        raise GrpcRefusal("FORBIDDEN", text)


def pop_fields(client_id: str, fields: dict[str, str]) -> dict[str, str]:
    """Of POP_LITE_MESSAGE; `fields`: of a pop of other topics."""
    names = ("consumerGroup", "topic", "invisibleTime", "pollTime", "bornTime", "attemptId")
    return {name: fields[name] for name in names} | {
        "clientId": client_id,
        "maxMsgNum": fields["maxMsgNums"],
    }


def lite_records(found: Iterator[Record], topic: str, counts: str) -> Iterator[tuple[Record, str]]:
    """The records of an answer with their lite topics: as they are in the queues of these, and how often each was
    received before. `counts`: orderCountInfo."""
    received = counts.split(";")
    for n, record in enumerate(found):
        properties = record.properties
        lite_topic = properties.get(Property.LITE_TOPIC, "")
        offset = offset_in(properties, name_rules.lite_queue(topic, lite_topic))
        times = number(received[n]) if n < len(received) else None
        yield (
            dataclasses.replace(
                record,
                queue_id=LMQ_QUEUE_ID,
                queue_offset=record.queue_offset if offset is None else offset,
                reconsume_times=times or 0,
            ),
            lite_topic,
        )
