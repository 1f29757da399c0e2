"""Operations, for operators: message tracks, direct consumption, cloned offsets, request modes, values.

`Operations(admin)` uses a started Admin. Nothing is cached. Loop thread.
"""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from firearrow._native.protocol import fastjson
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api import records
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.message_queries import decode_offset_id
from firearrow.client.admin_api.records import Connection, ConsumerConnections, read
from firearrow.client.base.errors import BrokerError, ClientError, check
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.service_state import Uncopied

DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where brokers move half messages after too many checks without an answer."""


class Track(StrEnum):
    """The state of a message in a group, by Java's names."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    """Skipped: the group does not subscribe its tag."""
    PULL = "PULL"
    """The group pulls; its brokers do not know what it has consumed."""
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    """Each member keeps its own progress."""
    UNKNOWN = "UNKNOWN"


class RequestMode(StrEnum):
    PULL = "PULL"
    POP = "POP"


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """`error`: why nothing is known."""

    group: str
    track: Track
    error: str | None = None


class Operations(Uncopied):
    """Names are the user's, as for Admin. All methods: BrokerError, TransportError, ClientError."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._wrap = admin.namespace.wrap
        self._unwrap, self._has = admin.namespace.unwrap, admin.namespace.has

    # ---- messages ----

    async def message_tracks(self, message: ReceivedMessage) -> list[MessageTrack]:
        """The state of the message in each group of its topic, sorted by group."""
        groups = await self._admin.groups_of(message.topic)
        return [await self.message_track(group, message) for group in groups]

    async def message_track(self, group: str, message: ReceivedMessage) -> MessageTrack:
        """The state of the message in one group."""
        try:
            members = await self._admin.consumers(group)
            return MessageTrack(group, await self._track(group, members, message))
        except ClientError as error:
            offline = error.code == ResponseCode.CONSUMER_NOT_ONLINE
            return MessageTrack(group, Track.NOT_ONLINE if offline else Track.UNKNOWN, str(error))

    async def consume_directly(self, group: str, client_id: str, message: ReceivedMessage) -> dict[str, Any]:
        """Let a member consume a stored message now, regardless of its offsets; the member's result."""
        address, _ = decode_offset_id(message.offset_message_id)
        ext = {
            "consumerGroup": self._wrap(group),
            "clientId": client_id,
            "msgId": message.offset_message_id,
            "topic": self._wrap(message.topic),
            "brokerName": message.broker_name,
        }
        answer = await self._admin.calls.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext)
        return _object(answer)

    async def resume_check(self, topic: str, offset_message_id: str) -> None:
        """Resume the checks of a discarded half message: the id is that of its copy in DISCARDED."""
        address, _ = decode_offset_id(offset_message_id)
        ext = {"topic": self._wrap(topic), "msgId": offset_message_id}
        await self._admin.calls.ask(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, ext)

    # ---- groups ----

    async def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of group `source` in the topic to `target`, whose members should not run."""
        wrapped = self._wrap(topic)
        ext = {
            "srcGroup": self._wrap(source),
            "destGroup": self._wrap(target),
            "topic": wrapped,
            "offline": "true",
        }
        await self._admin.calls.ask_brokers_of(wrapped, RequestCode.CLONE_GROUP_OFFSET, ext)

    async def topics_of(self, group: str) -> list[str]:
        """Topics in which the group has an offset."""
        answers = await self._admin.calls.ask_masters(
            RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": self._wrap(group)}
        )
        return self._names(answers, "topicList")

    async def readable(self, group: str, topic: str, allowed: bool | None = None) -> bool:
        """Whether the group may read the topic; `allowed` changes it first."""
        wrapped = self._wrap(topic)
        ext = {"group": self._wrap(group), "topic": wrapped}
        if allowed is not None:
            ext["readable"] = str(allowed).lower()
        answers = await self._admin.calls.ask_brokers_of(
            wrapped, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, ext
        )
        return all(read(answer.body, lambda r: r.flag("readable")) for answer in answers.values())

    async def set_consuming(self, group: str, enabled: bool) -> list[str]:
        """Allow or forbid the whole group to consume (`consumeEnable`), its other settings unchanged; the brokers.

        Members stay connected; their pulls and pops are refused meanwhile. ClientError: no broker knows the group.
        """
        calls, wrapped = self._admin.calls, self._wrap(group)
        changed: list[str] = []
        for name, address in (await calls.masters()).items():
            answer = await calls.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            table = read(answer.body, lambda r: dict(r.members("subscriptionGroupTable").pairs()))
            config = table.get(wrapped)
            if not isinstance(config, dict):
                continue
            attributes = {f"+{key}": value for key, value in (config.get("attributes") or {}).items()}
            body = fastjson.dumps(
                config | {"consumeEnable": enabled, "attributes": attributes}, is_sorted=False
            )
            await calls.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            changed.append(name)
        if not changed:
            raise ClientError(f"group {group}: no broker knows it")
        return changed

    async def move_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store the offset of a group without members in one queue.

        Brokers from 5.0 on ignore an offset after a reset that no member has seen yet: there it is reset again.
        """
        await self._admin.update_offset(group, queue, offset)
        if await self._admin.offset(group, queue) != offset:
            await self.reset_queue(group, queue, offset)

    async def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Let the group continue there in one queue; a member that has it does so from its next pull on (5.0)."""
        wrapped = replace(queue, topic=self._wrap(queue.topic))
        ext = {
            "topic": wrapped.topic,
            "group": self._wrap(group),
            "timestamp": "-1",
            "isForce": "true",
            "queueId": str(queue.queue_id),
            "offset": str(offset),
        }
        answer = await self._admin.calls.ask_master(wrapped, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        check(answer, queue.broker_name)

    async def unlock_queue(self, group: str, queue: MessageQueue, client_id: str) -> None:
        """Take the lock of this member on a queue that is consumed in order away. A member that is connected locks it
        again, unless another one does so first."""
        wrapped = replace(queue, topic=self._wrap(queue.topic))
        body = {"clientId": client_id, "consumerGroup": self._wrap(group), "mqSet": [wrapped]}
        raw = fastjson.dumps(body | {"onlyThisBroker": False}, is_sorted=False)
        await self._admin.calls.ask_broker(queue.broker_name, RequestCode.UNLOCK_BATCH_MQ, raw)

    async def make_dead_letter(self, group: str, message: ReceivedMessage) -> None:
        """Store a copy of the message among the dead letters of the group."""
        ext = {
            "offset": str(message.physical_offset),
            "group": self._wrap(group),
            "delayLevel": "-1",
            "originMsgId": message.message_id,
            "originTopic": self._wrap(message.topic),
            "unitMode": "false",
            "bname": message.broker_name,
        }
        queue = MessageQueue(ext["originTopic"], message.broker_name, message.queue_id)
        answer = await self._admin.calls.ask_master(queue, RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        check(answer, message.broker_name)

    async def set_request_mode(
        self, topic: str, group: str, mode: RequestMode, pop_share_queues: int = 0
    ) -> None:
        """Whether members whose queues brokers assign pull or pop.

        `pop_share_queues`: how many other members' queues each member pops as well.
        """
        wrapped = self._wrap(topic)
        request = {
            "consumerGroup": self._wrap(group),
            "mode": mode.value,
            "popShareQueueNum": pop_share_queues,
            "topic": wrapped,
        }
        body = json.dumps(request).encode()
        await self._admin.calls.ask_brokers_of(wrapped, RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body)

    # ---- clusters ----

    async def topics_of_cluster(self, cluster: str) -> list[str]:
        ext = {"cluster": cluster}
        answer = await self._admin.calls.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, ext)
        found = read(answer.body, lambda r: r.texts("topicList"))
        return sorted(map(self._unwrap, filter(self._has, found)))

    async def producers(self) -> dict[str, tuple[Connection, ...]]:
        """All connected producers by group."""
        found: dict[str, dict[str, Connection]] = {}
        for answer in await self._admin.calls.ask_masters(RequestCode.GET_ALL_PRODUCER_INFO):
            for group, members in read(answer.body, records.producers).items():
                if self._has(group):
                    found.setdefault(self._unwrap(group), {}).update(
                        {each.client_id: each for each in members}
                    )
        return {group: tuple(members.values()) for group, members in sorted(found.items())}

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        """Store a value at all name servers; they themselves use only the namespace ORDER_TOPIC_CONFIG."""
        ext = {"namespace": namespace, "key": key, "value": value}
        await self._admin.calls.ask_name_servers(RequestCode.PUT_KV_CONFIG, ext)

    async def value(self, namespace: str, key: str) -> str | None:
        ext = {"namespace": namespace, "key": key}
        try:
            answer = await self._admin.calls.ask_name_server(RequestCode.GET_KV_CONFIG, ext)
        except BrokerError as refused:
            if refused.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return answer.ext.get("value")

    async def delete_value(self, namespace: str, key: str) -> None:
        ext = {"namespace": namespace, "key": key}
        await self._admin.calls.ask_name_servers(RequestCode.DELETE_KV_CONFIG, ext)

    # ---- internal ----

    async def _track(self, group: str, members: ConsumerConnections, message: ReceivedMessage) -> Track:
        if members.model == "BROADCASTING":
            return Track.CONSUME_BROADCASTING
        if members.consume_type != "CONSUME_PASSIVELY":
            return Track.PULL
        lag = await self._admin.consumer_lag(group, message.topic)
        progress = [
            each.consumer_offset
            for queue, each in lag.queues.items()
            if queue.queue_id == message.queue_id and queue.broker_name == message.broker_name
        ]
        if not any(offset > message.queue_offset for offset in progress):
            return Track.NOT_CONSUME_YET
        subscription = members.subscriptions.get(message.topic)
        filtered = subscription is not None and subscription.tags and message.tags not in subscription.tags
        return Track.CONSUMED_BUT_FILTERED if filtered else Track.CONSUMED

    def _names(self, answers: list[RemotingCommand], member: str) -> list[str]:
        found = {name for answer in answers for name in read(answer.body, lambda r: r.texts(member))}
        return sorted(map(self._unwrap, found))


def _object(answer: RemotingCommand) -> dict[str, Any]:
    return read(answer.body, lambda members: dict(members.pairs()))
