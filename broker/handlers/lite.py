"""Consumers of lite topics. Loop thread.

LITE_SUBSCRIPTION_CTL (200071), POP_LITE_MESSAGE (200070).
"""

from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import loads_body
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.lmq import NO_LITE_TOPICS
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.lite.events import hold_key
from firearrow.broker.lite.pops import LitePops
from firearrow.broker.lite.service import LiteService, StartAt, SubscriptionsFull
from firearrow.broker.lite.subscriptions import LiteClient
from firearrow.broker.pop.long_polling import PopHoldService
from firearrow.broker.pop.order_info import attempt_of
from firearrow.broker.pop.permissions import MESSAGES_MAX, check_pop
from firearrow.broker.pop.pop import PopQuery, PopResult
from firearrow.broker.pop.receipt_handles import ORDER_REVIVE_QUEUE
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.groups import GroupConfig, GroupTable
from firearrow.broker.tables.offsets import InvalidOffset
from firearrow.broker.tables.subscription_filter import EntryFilter
from firearrow.broker.tables.subscriptions import CLIENT_ID_CHARS_MAX

ENTRIES_MAX = 64
"""Subscriptions of one LITE_SUBSCRIPTION_CTL."""
PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE = (
    "PARTIAL_ADD",
    "PARTIAL_REMOVE",
    "COMPLETE_ADD",
    "COMPLETE_REMOVE",
)
ACTIONS = (PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE)
NO_RESULT = "NO_MESSAGE_IN_QUEUE"


class Entry(NamedTuple):
    """One subscription of LITE_SUBSCRIPTION_CTL. `queues`: the LMQs of its lite topics."""

    action: str
    client_id: str
    group: str
    topic: str
    queues: list[str]
    start: StartAt | None

    @staticmethod
    def of(value: object) -> "Entry":
        """ValueError."""
        fields = json_fields.members(value, "subscriptionSet")
        action, topic = json_fields.text(fields, "action"), json_fields.text(fields, "topic", "")
        client_id, names = json_fields.text(fields, "clientId", ""), fields.get("liteTopicSet")
        if action not in ACTIONS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}, not {action[:32]}")
        if len(client_id) > CLIENT_ID_CHARS_MAX:
            raise ValueError(f"a clientId has at most {CLIENT_ID_CHARS_MAX} characters")
        lite_topics = json_fields.items(names, "liteTopicSet")
        queues: dict[str, None] = {}
        for name in lite_topics:
            fault = name_rules.lite_fault(name) if isinstance(name, str) else "a lite topic is a text"
            if fault is not None:
                raise ValueError(fault)
            queues[name_rules.lite_queue(topic, name)] = None
        start = fields.get("offsetOption")
        return Entry(
            action,
            client_id,
            json_fields.text(fields, "group", ""),
            topic,
            list(queues),
            None if start is None else _start_at(json_fields.members(start, "offsetOption")),
        )


def _start_at(fields: json_fields.Members) -> StartAt:
    low, high = -json_fields.LONG_MAX, json_fields.LONG_MAX
    return StartAt(
        json_fields.text(fields, "type"), json_fields.number(fields, "value", 0, low=low, high=high)
    )


def bound_group(groups: GroupTable, name: str, topic: str) -> GroupConfig:
    """A group of the topic's lite topics. Refusal."""
    group = groups.get(name)
    if group is None:
        remark = f"subscription group [{name}] not exist, "
        raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, with_faq(remark))
    if group.lite_topic != topic:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"subscription bind topic not match, {name}")
    return group


class LiteSubscriptionsHandler:
    def __init__(self, context: BrokerContext, service: LiteService) -> None:
        self._groups = context.tables.groups
        self._config = context.config
        self._service = service

    def routes(self) -> Routes:
        return {RequestCode.LITE_SUBSCRIPTION_CTL: self.control}

    def control(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """The entries count one after the other: what comes before one that is refused has been done."""
        if not request.body:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "Request body is null.")
        if not self._config.options.multi_dispatch:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, NO_LITE_TOPICS)
        try:
            raw = json_fields.items(
                json_fields.members(loads_body(request.body), "body").get("subscriptionSet"),
                "subscriptionSet",
            )
            if len(raw) > ENTRIES_MAX:
                raise ValueError(f"{len(raw)} entries in one request, at most {ENTRIES_MAX} are allowed")
            entries = [Entry.of(value) for value in raw]
        except ValueError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if not entries:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty.")
        for entry in entries:
            if entry.client_id.strip() and entry.group.strip() and entry.topic.strip():
                self._do(entry)
        return request.answer()

    def _do(self, entry: Entry) -> None:
        """Refusal."""
        if entry.action == COMPLETE_REMOVE:
            return self._service.drop(LiteClient(entry.group, entry.client_id))
        group = bound_group(self._groups, entry.group, entry.topic)
        if entry.action == PARTIAL_REMOVE:
            return self._service.remove(group, entry.client_id, entry.queues)
        if not group.consume_enable:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "Consumer group is not allowed to consume.")
        try:
            if entry.action == PARTIAL_ADD:
                self._service.add(group, entry.client_id, entry.topic, entry.queues, entry.start)
            else:
                self._service.replace(group, entry.client_id, entry.topic, entry.queues)
        except SubscriptionsFull as full:
            raise Refusal(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, str(full)) from None
        except InvalidOffset as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return None


class LitePopRequest(NamedTuple):
    """The fields of a request, checked for their types. Times in ms."""

    client: LiteClient
    topic: str
    count_max: int
    invisible_ms: int
    poll_ms: int
    born_ms: int
    attempt: str | None

    @staticmethod
    def of(request: RemotingCommand, now_ms: int) -> "LitePopRequest":
        return LitePopRequest(
            LiteClient(request.text("consumerGroup"), request.text("clientId")),
            topic=request.text("topic"),
            count_max=request.integer("maxMsgNum", 32),
            invisible_ms=request.integer("invisibleTime"),
            poll_ms=request.integer("pollTime"),
            born_ms=min(request.integer_or("bornTime", 0) or now_ms, now_ms),
            attempt=attempt_of(request),
        )


class LitePopHandler:
    def __init__(self, context: BrokerContext, pops: LitePops, holds: PopHoldService) -> None:
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._config = context.config
        self._clock = context.clock
        self._quotas = context.quotas
        self._access = context.held_access
        self._pops = pops
        self._holds = holds

    def routes(self) -> Routes:
        return {RequestCode.POP_LITE_MESSAGE: self.pop}

    def pop(self, request: RemotingCommand, peer: Peer) -> None:
        self._run(request, peer, LitePopRequest.of(request, self._clock.now_ms()), final=False)

    def _run(self, request: RemotingCommand, peer: Peer, pop: LitePopRequest, *, final: bool) -> None:
        """Pop once; hold the request if it found nothing and may wait."""
        self._check(peer, pop, final)
        query = PopQuery(
            pop.client.group,
            pop.topic,
            pop.count_max,
            pop.invisible_ms,
            False,
            True,
            pop.attempt,
            EntryFilter(None, None),
        )
        popped = PopResult(self._clock.now_ms(), ORDER_REVIVE_QUEUE)
        self._pops.pop(query, pop.client, popped)
        code: int | None = ResponseCode.SUCCESS if popped.count else ResponseCode.POLLING_TIMEOUT
        if not popped.count and not final:
            code = self._holds.hold(
                request,
                peer,
                hold_key(pop.client),
                pop.born_ms,
                pop.poll_ms,
                self._access,
                lambda is_final: self._run(request, peer, pop, final=is_final),
            )
        if code is None or request.is_oneway:
            return
        body = b"".join(popped.bodies)
        if popped.count:
            self._quotas.read(request, pop.client.group, pop.topic, popped.count, len(body))
        ext = {
            "popTime": str(popped.pop_ms),
            "invisibleTime": str(pop.invisible_ms),
            "reviveQid": str(popped.revive_queue),
            "orderCountInfo": ";".join(popped.order_counts),
        }
        peer.reply(request.answer(code, "FOUND" if popped.count else NO_RESULT, ext, body))

    def _check(self, peer: Peer, pop: LitePopRequest, final: bool) -> None:
        options = self._config.options
        late_ms = self._clock.now_ms() - pop.born_ms - pop.poll_ms
        check_pop(options, peer, late_ms, pop.count_max, final=final)
        longest = options.timer_max_delay_s * 1000
        if pop.count_max < 1 or not 0 < pop.invisible_ms <= longest:
            remark = f"maxMsgNum must be 1 to {MESSAGES_MAX}, invisibleTime 1 to {longest}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        topic = self._topics.get(pop.topic)
        if topic is None:
            remark = f"topic [{pop.topic}] not exist, apply first please! "
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(remark))
        if not topic.readable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic [{pop.topic}] peeking message is forbidden")
        if not topic.is_lite:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"the topic [{pop.topic}] message type not match")
        if not options.multi_dispatch:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, NO_LITE_TOPICS)
        if not bound_group(self._groups, pop.client.group, pop.topic).consume_enable:
            remark = f"subscription group no permission, {pop.client.group}"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
