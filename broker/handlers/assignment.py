"""Assigns queues to group members, and sets whether a group pulls or pops a topic. Loop thread.

QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE (402). After an answer
without a list the client keeps its queues; after an empty list it gives up all of them.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps, loads_body
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables import allocation, json_fields
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
        """Raises ValueError, which names the invalid member."""
        fields = json_fields.members(loads_body(body, BYTES_MAX), "body")
        model = json_fields.text(fields, "messageModel", CLUSTERING)
        if model not in (CLUSTERING, BROADCASTING):
            raise ValueError(f"messageModel must be CLUSTERING or BROADCASTING, not {model[:64]}")
        return AssignmentRequest(
            topic=json_fields.text(fields, "topic"),
            group=json_fields.text(fields, "consumerGroup"),
            client=json_fields.text(fields, "clientId", ""),
            strategy=json_fields.text(fields, "strategyName", ""),
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
            assignment = AssignmentRequest.of(request.body)
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"assignment request: {error}") from None
        mode = self._mode(assignment)
        queues = await self._queues(assignment, mode)
        if queues is None:
            return request.answer(body=b"{}")
        assignments = [{"messageQueue": queue, "mode": mode.mode} for queue in queues]
        return request.answer(body=dumps({"messageQueueAssignments": assignments}))

    def _mode(self, assignment: AssignmentRequest) -> RequestMode:
        """The mode that was set, else the default; retry topics are pulled."""
        found = self._modes.get(assignment.topic, assignment.group)
        if found is not None:
            return found
        options = self._config.options
        retried = assignment.topic.startswith(name_rules.RETRY_PREFIX)
        mode = PULL if retried else options.default_request_mode
        share = options.pop_share_queues if mode == POP else 0
        return RequestMode(assignment.topic, assignment.group, mode, share)

    async def _queues(self, assignment: AssignmentRequest, mode: RequestMode) -> Queues | None:
        options = self._config.options
        if assignment.model == CLUSTERING and assignment.topic.startswith(name_rules.LMQ_PREFIX):
            queues: Queues | None = [MessageQueue(assignment.topic, options.broker_name, 0)]
        else:
            queues = await self._route(assignment.topic)
        if assignment.model == BROADCASTING or queues is None or not options.server_assigns:
            return queues
        strategy = allocation.STRATEGIES.get(assignment.strategy)
        online = self._clients.consumer_group(assignment.group)
        if online is None or strategy is None or not queues or not assignment.client.strip():
            return None
        members = sorted(set(online.client_ids()))
        if mode.mode == POP:
            return allocation.for_pop(strategy, assignment.client, queues, members, mode.share_queues)
        return list(strategy(assignment.client, queues, members))

    def set_mode(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        try:
            mode = RequestMode.from_object(loads_body(request.body, BYTES_MAX))
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"request mode: {error}") from None
        if mode.topic.startswith(name_rules.RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if mode.topic not in self._topics:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if self._groups.find(mode.group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        try:
            self._modes.set(mode)
        except InvalidRequestMode as refused:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(refused)) from None
        return request.answer()

    def all_modes(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=dumps(self._modes.to_object()))
