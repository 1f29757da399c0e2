"""POP_MESSAGE (200050) and PEEK_MESSAGE (200052). Loop thread.

A pop is checked in Apache's order, takes messages from the topic's queues and the retry topic, and is held if
it finds none. A peek returns the messages that a group would pop next, without taking them.
"""

import logging
import random
from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import GetStatus, MessageStore, PutRefused
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.pop.long_polling import PopHoldService
from firearrow.broker.pop.order_info import attempt_of
from firearrow.broker.pop.permissions import (
    MESSAGES_MAX,
    NO_POP,
    PopPermissions,
    PopTarget,
    check_pop,
    rotated,
)
from firearrow.broker.pop.pop import PopQuery, PopResult, PopService
from firearrow.broker.pop.receipt_handles import ORDER_REVIVE_QUEUE, retry_topic
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.subscription_filter import FilterCache
from firearrow.broker.tables.subscriptions import InvalidSubscription, Subscription
from firearrow.broker.tables.topics import TopicConfig

log = logging.getLogger("firearrow.pop")

FROM_START = 0


class PopRequest(NamedTuple):
    """The fields of a request, checked for their types. `queue_id` -1: all queues. Times in ms."""

    group: str
    topic: str
    queue_id: int
    count_max: int
    invisible_ms: int
    poll_ms: int
    born_ms: int
    init_mode: int
    expression: str
    expression_type: str
    ordered: bool
    attempt: str | None

    @staticmethod
    def of(request: RemotingCommand, now_ms: int) -> "PopRequest":
        return PopRequest(
            group=request.text("consumerGroup"),
            topic=request.text("topic"),
            queue_id=request.integer("queueId", 32),
            count_max=request.integer("maxMsgNums", 32),
            invisible_ms=request.integer("invisibleTime"),
            poll_ms=request.integer("pollTime"),
            born_ms=min(request.integer_or("bornTime", 0) or now_ms, now_ms),
            init_mode=request.integer("initMode", 32),
            expression=request.text_or("exp", ""),
            expression_type=request.text_or("expType", ""),
            ordered=request.boolean_or("order", False),
            attempt=attempt_of(request),
        )


class PopHandler:
    def __init__(
        self,
        context: BrokerContext,
        pop_service: PopService,
        hold_service: PopHoldService,
        filters: FilterCache,
    ) -> None:
        self._pop_service = pop_service
        self._hold_service = hold_service
        self._write_batch = context.write_batch
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._clients = context.tables.clients
        self._filters = filters
        self._config = context.config
        self._clock = context.clock
        self._quotas = context.quotas
        self._access = context.held_access
        self._next_revive_queue = 0

    def routes(self) -> Routes:
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(self, request: RemotingCommand, peer: Peer) -> None:
        self._run(request, peer, PopRequest.of(request, self._clock.now_ms()), final=False)

    def _run(self, request: RemotingCommand, peer: Peer, pop: PopRequest, *, final: bool) -> None:
        """Pop once; hold the request if it found nothing and may wait."""
        group, topic = self._check(peer, pop, final)
        query = self._query(pop)
        popped = PopResult(self._clock.now_ms(), self._revive_queue(pop))
        try:
            self._pop_queues(pop, query, popped, group, topic)
        except (PutRefused, Refusal) as refused:
            if not popped.count:
                raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"check point: {refused}") from None
            log.info(
                "a check point cannot be stored now; the pop returns %d messages: %s", popped.count, refused
            )
        code: int | None = ResponseCode.SUCCESS if popped.count else ResponseCode.POLLING_TIMEOUT
        if not popped.count and not final:
            code = self._hold_service.hold(
                request,
                peer,
                (pop.topic, pop.group, max(pop.queue_id, -1)),
                pop.born_ms,
                pop.poll_ms,
                self._access,
                lambda is_final: self._run(request, peer, pop, final=is_final),
            )
        if popped.rest > 0 and (popped.count or popped.skipped):
            self._hold_service.retry_held_soon((pop.topic, pop.group, max(pop.queue_id, -1)))
        if code is None:
            return
        body = b"".join(popped.bodies)
        if popped.count:
            self._quotas.read(request, pop.group, pop.topic, popped.count, len(body))
        answer = request.answer(code, _status(popped), _header(pop, popped), body)
        if popped.last is not None:
            self._write_batch.reply_after(popped.last.end, (name_rules.TIMER_TOPIC, 0), peer, answer)
        elif not request.is_oneway:
            peer.reply(answer)

    # ---- checks ----

    def _check(self, peer: Peer, pop: PopRequest, final: bool) -> tuple[GroupConfig, TopicConfig]:
        options = self._config.options
        late_ms = self._clock.now_ms() - pop.born_ms - pop.poll_ms
        check_pop(options, peer, late_ms, pop.count_max, final=final)
        if not options.timer_topic:
            ip = options.broker_ip or peer.local[0]
            remark = f"the broker[{ip}] pop message is forbidden because timerWheelEnable is false"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        topic = self._topics.get(pop.topic)
        if topic is None:
            remark = f"topic[{pop.topic}] not exist, apply first please! "
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(remark))
        if not topic.readable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{pop.topic}] peeking message is forbidden")
        if topic.has_batch_queues:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{pop.topic}] {NO_POP}")
        self._check_numbers(peer, pop, topic)
        group = self._groups.find(pop.group)
        if group is None:
            remark = f"subscription group [{pop.group}] does not exist, "
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, with_faq(remark))
        if not group.consume_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {pop.group}")
        return group, topic

    def _check_numbers(self, peer: Peer, pop: PopRequest, topic: TopicConfig) -> None:
        if pop.queue_id >= topic.read_queues:
            remark = (
                f"queueId[{pop.queue_id}] is illegal, topic:[{pop.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queues}] consumer:[{peer.remote[0]}:{peer.remote[1]}]"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        longest = self._config.options.timer_max_delay_s * 1000
        if pop.count_max < 1 or not 0 < pop.invisible_ms <= longest:
            remark = f"maxMsgNums must be 1 to {MESSAGES_MAX}, invisibleTime 1 to {longest}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)

    def _query(self, pop: PopRequest) -> PopQuery:
        """Build the query and register the request's subscription for the topic and its retry topic."""
        try:
            found = Subscription.of_expression(
                pop.topic, pop.expression or "*", self._clock.now_ms(), pop.expression_type or "TAG"
            )
        except InvalidSubscription:
            remark = "parse the consumer's subscription failed"
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        retried = retry_topic(pop.topic, pop.group, self._config.options.pop_retry_v2)
        self._clients.compensate(pop.group, found)
        self._clients.compensate(pop.group, Subscription(retried, version=found.version))
        return PopQuery(
            pop.group,
            pop.topic,
            pop.count_max,
            pop.invisible_ms,
            pop.init_mode == FROM_START,
            pop.ordered,
            pop.attempt,
            self._filters.select(found, pop.group, given=True),
        )

    # ---- the queues ----

    def _pop_queues(
        self, pop: PopRequest, query: PopQuery, popped: PopResult, group: GroupConfig, topic: TopicConfig
    ) -> None:
        """Pop the topic and the retry topic: at random first, else last if messages are still wanted."""
        options = self._config.options
        random_number = random.randrange(100)
        by_priority = (
            topic.attributes.get("message.type") == "PRIORITY"
            and not pop.ordered
            and random_number < int(group.attributes.get("priority.factor", "100"))
        )
        chance = options.pop_retry_probability_priority if by_priority else options.pop_retry_probability
        v1 = options.pop_retry_v2 and options.pop_retry_v1_too and random_number % 2 == 0
        retried = self._topics.get(retry_topic(pop.topic, pop.group, options.pop_retry_v2 and not v1))
        first_queue = 0 if by_priority else random_number
        retry_first = random_number < chance
        if retry_first and not pop.ordered:
            self._all_queues(query, popped, retried, first_queue)
        if pop.queue_id < 0:
            self._all_queues(query, popped, topic, first_queue)
        else:
            self._pop_service.pop(query, popped, pop.topic, pop.queue_id)
        if not retry_first and not pop.ordered and popped.count < pop.count_max:
            self._all_queues(query, popped, retried, first_queue)

    def _all_queues(
        self, query: PopQuery, popped: PopResult, topic: TopicConfig | None, first_queue: int
    ) -> None:
        queues = 0 if topic is None else topic.read_queues
        for n in range(queues):
            index = (queues - 1 - n if self._config.options.priority_ascending else n) + first_queue
            self._pop_service.pop(query, popped, topic.name, index % queues)  # type: ignore[union-attr]

    def _revive_queue(self, pop: PopRequest) -> int:
        if pop.ordered:
            return ORDER_REVIVE_QUEUE
        number = self._next_revive_queue
        self._next_revive_queue = (number + 1) % self._config.options.revive_queues
        return number

    # ---- long polling ----


def _status(popped: PopResult) -> str:
    return "FOUND" if popped.count else "NO_MESSAGE_IN_QUEUE"


def _header(pop: PopRequest, popped: PopResult) -> dict[str, str]:
    ext = {
        "popTime": str(popped.pop_ms),
        "invisibleTime": str(pop.invisible_ms),
        "reviveQid": str(popped.revive_queue),
        "restNum": str(popped.rest),
        "startOffsetInfo": ";".join(popped.start_offsets),
        "msgOffsetInfo": ";".join(popped.message_offsets),
    }
    if pop.ordered:
        ext["orderCountInfo"] = ";".join(filter(None, popped.order_counts))
    return ext


RETRY_FIRST_PERCENT = 20
WRONG_OFFSET = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)


class PeekHandler:
    def __init__(
        self, store: MessageStore, permissions: PopPermissions, stats: Stats, quotas: QuotaCheck
    ) -> None:
        self._store = store
        self._quotas = quotas
        self._permissions = permissions
        self._stats = stats

    def routes(self) -> Routes:
        return {RequestCode.PEEK_MESSAGE: self.peek}

    def peek(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        target = self._permissions.check_access(request, peer)
        count_max = request.integer("maxMsgNums", 32)
        if count_max < 0:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"maxMsgNums must not be negative: {count_max}")
        bodies: list[bytes] = []
        count, rest = 0, 0
        for topic, queue_id in self._queue_order(target):
            start = self._permissions.next_offset(target.group, topic, queue_id)
            rest += max(self._store.reader.max_offset(topic, queue_id) - start, 0)
            if count < min(count_max, MESSAGES_MAX):
                found, body = self._read(topic, queue_id, start, min(count_max, MESSAGES_MAX) - count)
                count += found
                bodies.append(body)
        body = b"".join(bodies)
        if count:
            self._stats.got(target.group, target.topic.name, count, len(body))
            self._quotas.read(request, target.group, target.topic.name, count, len(body))
        ext = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": str(rest)}
        if not count:
            return request.answer(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", ext)
        return request.answer(ResponseCode.SUCCESS, "FOUND", ext, body)

    def _queue_order(self, target: PopTarget) -> list[tuple[str, int]]:
        """The (topic, queue) pairs in reading order: the retry topic at random first, else last."""
        random_number = random.randrange(100)
        own = [(target.topic.name, queue_id) for queue_id in target.queues(random_number)]
        retried = [
            (topic.name, queue_id)
            for topic in self._permissions.retry_topics(target)[:1]
            for queue_id in rotated(topic, random_number)
        ]
        return retried + own if random_number < RETRY_FIRST_PERCENT else own + retried

    def _read(self, topic: str, queue_id: int, start: int, capacity: int) -> tuple[int, bytes]:
        got = self._store.reader.get(topic, queue_id, start, capacity)
        if got.status in WRONG_OFFSET:
            got = self._store.reader.get(topic, queue_id, got.next_offset, capacity)
        return got.count, got.body
