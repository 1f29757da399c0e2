"""Consumers looked at: their connections (203), what they subscribe (300, 343, 345), and requests relayed to one of
them (307, 309). The relayed bytes are never parsed. Loop thread.
"""

import orjson

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message_ids import offset_of
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.clients import ClientTable, Member
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import TopicTable

RELAY_VERSION = 62
"""V3_1_8: older clients cannot be asked for their state."""
RELAY_S = 10.0
NOT_FILLED = "not set any response code"
"""What Apache leaves in the remark of a relayed answer; tools never look at it, so it is kept."""


class ConsumersHandler:
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
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connections,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def connections(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        name = request.text("consumerGroup")
        online = self._clients.consumer_group(name)
        if online is None:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        subscriptions = sorted(online.subscriptions.items())
        body = {
            "connectionSet": [member.to_object() for member in online.members.values()],
            "consumeFromWhere": online.consume_from_where,
            "consumeType": online.consume_type,
            "messageModel": online.message_model,
            "subscriptionTable": {topic: subscription.to_object() for topic, subscription in subscriptions},
        }
        return request.answer(body=orjson.dumps(body))

    def groups_of_topic(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic = request.text("topic")
        committed = (group for group in self._offsets.groups_of(topic) if "@" not in group)  # no broadcasters
        groups = dict.fromkeys([*self._clients.groups_subscribed(topic), *committed])
        return request.answer(body=orjson.dumps({"groupList": list(groups)}))

    def topics_of_group(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topics = self._offsets.topics_of(request.text("group"))
        options = self._config.options
        address = f"{options.broker_ip or peer.local[0]}:{options.listen_port or peer.local[1]}"
        return request.answer(body=orjson.dumps({"brokerAddr": address, "topicList": topics}))

    def subscription(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        group, topic = request.text("group"), request.text_or("topic", "")
        body: dict[str, object] = {"group": group, "topic": topic}
        found = self._clients.subscription(group, topic)
        if found is not None:
            body["subscriptionData"] = found.to_object()
        return request.answer(body=orjson.dumps(body))

    async def running_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return await self._relay(request, dict(request.ext), b"")

    async def consume_directly(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """The message that `msgId` names goes to one consumer, which consumes it now and says how it went."""
        ext = dict(request.ext)
        ext["brokerName"] = self._config.options.broker_name
        topic = self._topics.get(request.text_or("topic", ""))
        if topic is not None:
            ext["topicSysFlag"] = str(topic.sys_flag)
        group = self._groups.get(request.text_or("consumerGroup", ""))
        if group is not None:
            ext["groupSysFlag"] = str(group.sys_flag)
        body = b""
        message_id = request.text_or("msgId", "")
        if message_id:
            body = self._record(message_id)
        return await self._relay(request, ext, body)

    def _record(self, message_id: str) -> bytes:
        try:
            offset = offset_of(message_id)
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the field msgId is no message id: {error}") from None
        record = self._store.reader.record_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return record

    async def _relay(self, request: RemotingCommand, ext: dict[str, str], body: bytes) -> RemotingCommand:
        member = self._member(request.text("consumerGroup"), request.text_or("clientId", ""))
        try:
            answer = await member.peer.ask(RemotingCommand.request(request.code, ext, body), RELAY_S)
        except TimeoutError:
            remark = f"consumer <{request.text('consumerGroup')}> <{member.client_id}> Timeout"
            raise Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except ConnectionError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the consumer <{member.client_id}>: {error}") from None
        filled = NOT_FILLED if answer.code == ResponseCode.SUCCESS else answer.remark
        return request.answer(answer.code, filled, answer.ext, answer.body)

    def _member(self, group: str, client_id: str) -> Member:
        online = self._clients.consumer_group(group)
        member = None if online is None else online.member(client_id)
        if member is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if member.version < RELAY_VERSION:
            remark = (
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return member
