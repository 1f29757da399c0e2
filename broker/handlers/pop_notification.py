"""NOTIFICATION (200054): waits until there is something to pop. POLLING_INFO (200055): counts held pops. Loop
thread.

They take no messages and move no offset.
"""

import logging
import random
from typing import NamedTuple

from firearrow._native.fastpath.long_polling import weight_without_body
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import HeldAccess, Peer, Routes
from firearrow.broker.pop.long_polling import HeldPop, PopHoldService
from firearrow.broker.pop.order_info import ConsumerOrderInfo, attempt_of
from firearrow.broker.pop.permissions import PopPermissions, PopTarget, rotated
from firearrow.broker.tables.subscription_filter import FilterCache
from firearrow.broker.tables.subscriptions import InvalidSubscription, Subscription

log = logging.getLogger("firearrow.pop_notification")

POLL_MS_MAX = 600_000
FILTER_BELOW, FILTER_ENTRIES = 64, 32
"""With fewer messages than FILTER_BELOW in a queue, the tags of the first FILTER_ENTRIES are compared."""
REMARK = "not set any response code"
"""Apache's remark, a default that its handlers do not replace."""


class NotificationRequest(NamedTuple):
    """Times in ms. `tags`: hashes of the subscribed tags, None for all."""

    target: PopTarget
    poll_ms: int
    born_ms: int
    ordered: bool
    attempt: str | None
    tags: frozenset[int] | None


class NotificationHandler:
    """`pop_holds`: held pops. `notification_holds`: held notifications. An arrival wakes one of each."""

    def __init__(
        self,
        store: MessageStore,
        permissions: PopPermissions,
        order_info: ConsumerOrderInfo,
        pop_holds: PopHoldService,
        notification_holds: PopHoldService,
        filters: FilterCache,
        clock: Clock,
        access: HeldAccess,
    ) -> None:
        self._store = store
        self._permissions = permissions
        self._order_info = order_info
        self._pop_holds = pop_holds
        self._notification_holds = notification_holds
        self._filters = filters
        self._clock = clock
        self._access = access

    def routes(self) -> Routes:
        return {RequestCode.NOTIFICATION: self.notify, RequestCode.POLLING_INFO: self.polling_info}

    def polling_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        target = self._permissions.check_access(request, peer)
        waiting = self._pop_holds.waiting((target.topic.name, target.group, target.queue_id))
        return request.answer(remark=REMARK, ext={"pollingNum": str(waiting)})

    def notify(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        now_ms = self._clock.now_ms()
        return self._answer(request, peer, min(request.integer_or("bornTime", 0) or now_ms, now_ms), False)

    def _answer(
        self, request: RemotingCommand, peer: Peer, born_ms: int, final: bool
    ) -> RemotingCommand | None:
        """The answer, or None if the request is held.

        A woken request is checked again: its topic may be gone.
        """
        notification = self._parse(request, peer, born_ms)
        count = self._count(notification)
        if count > 1:  # enough for another consumer
            self._notification_holds.retry_held_soon(_hold_key(notification.target))
        held = None if count else self._hold(request, peer, notification, final)
        if held:
            return None
        ext = {"hasMsg": _text(count > 0), "pollingFull": _text(held is False)}
        return request.answer(remark=REMARK, ext=ext)

    def _parse(self, request: RemotingCommand, peer: Peer, born_ms: int) -> NotificationRequest:
        target = self._permissions.check_access(request, peer)
        return NotificationRequest(
            target,
            request.integer("pollTime"),
            born_ms,
            request.boolean_or("order", False),
            attempt_of(request),
            self._tags(target, request.text_or("exp", ""), request.text_or("expType", "")),
        )

    def _tags(self, target: PopTarget, expression: str, kind: str) -> frozenset[int] | None:
        """The tags of the request's subscription; an SQL92 one is checked, but not applied."""
        if not expression or not kind:
            return None
        try:
            found = Subscription.of_expression(target.topic.name, expression, self._clock.now_ms(), kind)
        except InvalidSubscription:
            remark = "parse the consumer's subscription failed"
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        return self._filters.select(found, target.group, given=True).tags

    # ---- counting ----

    def _count(self, notification: NotificationRequest) -> int:
        """Messages to pop in the first queue that has any; retry topics are checked last."""
        target, shift = notification.target, random.randrange(100)
        queues = [(target.topic.name, queue_id, notification.tags) for queue_id in target.queues(shift)]
        for topic in self._permissions.retry_topics(target):
            queues += [(topic.name, queue_id, None) for queue_id in rotated(topic, shift)]
        return next(filter(None, (self._count_of(notification, *queue) for queue in queues)), 0)

    def _count_of(
        self, notification: NotificationRequest, topic: str, queue_id: int, tags: frozenset[int] | None
    ) -> int:
        group, name = notification.target.group, notification.target.topic.name
        if notification.ordered and self._order_info.blocked(name, group, queue_id, notification.attempt, 0):
            return 0
        start = self._permissions.next_offset(group, topic, queue_id)
        rest = max(self._store.reader.max_offset(topic, queue_id) - start, 0)
        if tags is None or not 0 < rest < FILTER_BELOW:
            return rest
        entries = self._store.reader.entries(topic, queue_id, start, FILTER_ENTRIES)
        return sum(entry.tags_code in tags for entry in entries)

    # ---- long polling ----

    def _hold(
        self, request: RemotingCommand, peer: Peer, notification: NotificationRequest, final: bool
    ) -> bool | None:
        """True if the request is held, False if too many are held, None if it must not wait."""
        born_ms = notification.born_ms
        deadline_ms = born_ms + min(notification.poll_ms, POLL_MS_MAX)
        if final or notification.poll_ms <= 0 or deadline_ms <= self._clock.now_ms():
            return None

        key, generation = _hold_key(notification.target), self._access.generation

        def again(is_final: bool) -> None:  # keeps only the request: parsed tags do not count as held memory
            try:
                self._access.check(request, peer, generation)
                answer = self._answer(request, peer, born_ms, is_final)
            except Refusal as refusal:
                answer = request.answer(refusal.code, refusal.remark, refusal.ext)
                self._notification_holds.retry_held_soon(key)  # the messages are for the next one
            except Exception as error:  # answer this client; other held requests are not affected
                log.exception("a held notification of %s failed", notification.target.group)
                answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
            if answer is not None and not request.is_oneway:
                peer.reply(answer)

        held = HeldPop(key, peer, deadline_ms, again, weight_without_body(request))
        request.held = self._notification_holds.add(held)
        return request.held


def _hold_key(target: PopTarget) -> tuple[str, str, int]:
    return target.topic.name, target.group, target.queue_id


def _text(value: bool) -> str:
    return "true" if value else "false"
