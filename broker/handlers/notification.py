"""NOTIFICATION (200054): is there something to pop, or tell me when there is; POLLING_INFO (200055): who waits.

Nothing is taken and no offset moves. Loop thread.
"""

import logging
import random
from typing import NamedTuple

from firearrow._native.path.holds import lightened
from firearrow._native.store.store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.clock import Clock
from firearrow.broker.errors import Refusal
from firearrow.broker.filters.selection import Filters
from firearrow.broker.life.pop.access import Access, Look, turned
from firearrow.broker.life.pop.holds import HeldPop, PopHolds
from firearrow.broker.life.pop.orders import ConsumerOrders
from firearrow.broker.peer import Peer, Routes
from firearrow.broker.tables.subscriptions import Subscription, SubscriptionWrong

log = logging.getLogger("firearrow.notification")

POLL_MS_MAX = 600_000
FILTER_BELOW, FILTER_LOOKS_AT = 64, 32
"""Tags are compared if fewer messages wait, and so many of them."""
REMARK = "not set any response code"
"""Apache's remark, a default that its handlers leave in place."""


class Question(NamedTuple):
    """Times in ms. `tags`: hashes of those that are wanted, None for all."""

    look: Look
    poll_ms: int
    born_ms: int
    ordered: bool
    attempt: str | None
    tags: frozenset[int] | None


class NotificationHandler:
    """`pops` are held pops, `notices` held notifications: an arrival is told to one of each."""

    def __init__(
        self,
        store: MessageStore,
        access: Access,
        orders: ConsumerOrders,
        pops: PopHolds,
        notices: PopHolds,
        filters: Filters,
        clock: Clock,
    ) -> None:
        self._store = store
        self._access = access
        self._orders = orders
        self._pops = pops
        self._notices = notices
        self._filters = filters
        self._clock = clock

    def routes(self) -> Routes:
        return {RequestCode.NOTIFICATION: self.notify, RequestCode.POLLING_INFO: self.polling_info}

    def polling_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        look = self._access.look(request, peer)
        waiting = self._pops.waiting((look.topic.name, look.group, look.queue_id))
        return request.answer(remark=REMARK, ext={"pollingNum": str(waiting)})

    def notify(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        now_ms = self._clock.now_ms()
        return self._answer(request, peer, min(request.integer_or("bornTime", 0) or now_ms, now_ms), False)

    def _answer(
        self, request: RemotingCommand, peer: Peer, born_ms: int, final: bool
    ) -> RemotingCommand | None:
        """None if it waits. It is all checked again when it was woken: topic and group may be gone."""
        question = self._question(request, peer, born_ms)
        count = self._count(question)
        if count > 1:  # there is work for one more
            self._notices.wake_soon(_place(question.look))
        held = None if count else self._held(request, peer, question, final)
        if held:
            return None
        ext = {"hasMsg": _text(count > 0), "pollingFull": _text(held is False)}
        return request.answer(remark=REMARK, ext=ext)

    def _question(self, request: RemotingCommand, peer: Peer, born_ms: int) -> Question:
        look = self._access.look(request, peer)
        return Question(
            look,
            request.integer("pollTime"),
            born_ms,
            request.boolean_or("order", False),
            request.text_or("attemptId", "") or None,
            self._tags(look, request.text_or("exp", ""), request.text_or("expType", "")),
        )

    def _tags(self, look: Look, expression: str, kind: str) -> frozenset[int] | None:
        """Of a request that has a subscription with it; one by SQL is checked, but not applied."""
        if not expression or not kind:
            return None
        try:
            found = Subscription.of_expression(look.topic.name, expression, self._clock.now_ms(), kind)
        except SubscriptionWrong:
            remark = "parse the consumer's subscription failed"
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        return self._filters.select(found, look.group, given=True).tags

    # ---- what is there ----

    def _count(self, question: Question) -> int:
        """Messages to pop in the first queue that has any, else in the retry topics'."""
        look, shift = question.look, random.randrange(100)
        places = [(look.topic.name, queue_id, question.tags) for queue_id in look.queues(shift)]
        for topic in self._access.retried(look):
            places += [(topic.name, queue_id, None) for queue_id in turned(topic, shift)]
        return next(filter(None, (self._count_of(question, *place) for place in places)), 0)

    def _count_of(self, question: Question, topic: str, queue_id: int, tags: frozenset[int] | None) -> int:
        group, name = question.look.group, question.look.topic.name
        if question.ordered and self._orders.blocked(name, group, queue_id, question.attempt, 0):
            return 0
        start = self._access.next_offset(group, topic, queue_id)
        rest = max(self._store.reader.max_offset(topic, queue_id) - start, 0)
        if tags is None or not 0 < rest < FILTER_BELOW:
            return rest
        entries = self._store.reader.entries(topic, queue_id, start, FILTER_LOOKS_AT)
        return sum(entry.tags_code in tags for entry in entries)

    # ---- the hold ----

    def _held(self, request: RemotingCommand, peer: Peer, question: Question, final: bool) -> bool | None:
        """True if the request waits now, False if there is no room for it, None if it may not wait."""
        born_ms = question.born_ms
        deadline_ms = born_ms + min(question.poll_ms, POLL_MS_MAX)
        if final or question.poll_ms <= 0 or deadline_ms <= self._clock.now_ms():
            return None

        def again(last: bool) -> None:  # keeps the request, not the question, whose tags nobody counts
            try:
                answer = self._answer(request, peer, born_ms, last)
            except Refusal as refusal:
                answer = request.answer(refusal.code, refusal.remark, refusal.ext)
            except Exception as error:  # whatever happens, this peer gets an answer and the others their news
                log.exception("a held notification of %s failed", question.look.group)
                answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
            if answer is not None and not request.is_oneway:
                peer.reply(answer)

        held = HeldPop(_place(question.look), peer, deadline_ms, again, lightened(request))
        return self._notices.add(held)


def _place(look: Look) -> tuple[str, str, int]:
    return look.topic.name, look.group, look.queue_id


def _text(value: bool) -> str:
    return "true" if value else "false"
