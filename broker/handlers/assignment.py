"""Queues shared out by the broker: QUERY_ASSIGNMENT (400), and SET_MESSAGE_REQUEST_MODE (401), which says whether a
group pulls or pops a topic; GET_ALL_MESSAGE_REQUEST_MODE (402). Loop thread.

An answer without a list tells the client to keep what it has; an empty list, to give up everything.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.fastjson import MessageQueue, dumps, loads_body
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables import allocation, json_fields, name_rules
from firearrow.broker.tables.clients import BROADCASTING, ClientTable
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.request_modes import POP, PULL, InvalidRequestMode, RequestMode, RequestModes
from firearrow.broker.tables.topics import TopicTable

BYTES_MAX = 1 << 16
CLUSTERING = "CLUSTERING"
Queues = list[MessageQueue]


class AssignmentRequest(NamedTuple):
    topic: str
    group: str
    client: str
    strategy: str
    model: str

    @staticmethod
    def of(body: bytes) -> "AssignmentRequest":
        """ValueError names the member that is wrong."""
        of = json_fields.members(loads_body(body, BYTES_MAX), "body")
        model = json_fields.text(of, "messageModel", CLUSTERING)
        if model not in (CLUSTERING, BROADCASTING):
            raise ValueError(f"messageModel must be CLUSTERING or BROADCASTING, not {model[:64]}")
        return AssignmentRequest(
            topic=json_fields.text(of, "topic"),
            group=json_fields.text(of, "consumerGroup"),
            client=json_fields.text(of, "clientId", ""),
            strategy=json_fields.text(of, "strategyName", ""),
            model=model,
        )


class AssignmentHandler:
    """`route(topic)` gives the queues of all brokers, sorted, or None."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        modes: RequestModes,
        config: Config,
        route: Callable[[str], Awaitable[Queues | None]],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._modes = modes
        self._config = config
        self._route = route

    def routes(self) -> Routes:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.assign,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    async def assign(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        try:
            asked = AssignmentRequest.of(request.body)
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"assignment request: {error}") from None
        mode = self._mode(asked)
        queues = await self._queues(asked, mode)
        if queues is None:
            return request.answer(body=b"{}")
        assignments = [{"messageQueue": queue, "mode": mode.mode} for queue in queues]
        return request.answer(body=dumps({"messageQueueAssignments": assignments}))

    def _mode(self, asked: AssignmentRequest) -> RequestMode:
        """As it was set; retry topics are pulled."""
        found = self._modes.get(asked.topic, asked.group)
        if found is not None:
            return found
        options = self._config.options
        retried = asked.topic.startswith(name_rules.RETRY_PREFIX)
        mode = PULL if retried else options.default_request_mode
        share = options.pop_share_queues if mode == POP else 0
        return RequestMode(asked.topic, asked.group, mode, share)

    async def _queues(self, asked: AssignmentRequest, mode: RequestMode) -> Queues | None:
        options = self._config.options
        if asked.model == CLUSTERING and asked.topic.startswith(name_rules.LMQ_PREFIX):
            queues: Queues | None = [MessageQueue(options.broker_name, 0, asked.topic)]
        else:
            queues = await self._route(asked.topic)
        if asked.model == BROADCASTING or queues is None or not options.server_assigns:
            return queues
        strategy = allocation.STRATEGIES.get(asked.strategy)
        online = self._clients.consumer_group(asked.group)
        if online is None or strategy is None or not queues or not asked.client.strip():
            return None
        members = sorted(set(online.client_ids()))
        if mode.mode == POP:
            return allocation.for_pop(strategy, asked.client, queues, members, mode.share_queues)
        return list(strategy(asked.client, queues, members))

    def set_mode(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        try:
            wanted = RequestMode.from_object(loads_body(request.body, BYTES_MAX))
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"request mode: {error}") from None
        if wanted.topic.startswith(name_rules.RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if wanted.topic not in self._topics:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{wanted.topic}] not exist")
        if self._groups.find(wanted.group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        try:
            self._modes.set(wanted)
        except InvalidRequestMode as refused:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(refused)) from None
        return request.answer()

    def all_modes(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=dumps(self._modes.to_object()))
