"""Acknowledges popped messages and changes how long they are invisible. Loop thread.

Each acknowledgement becomes a message of the revive topic, where `revive` joins it with its check point.
Messages that were popped in order have no check point: their acknowledgements go to ConsumerOrderInfo
instead.
"""

from collections.abc import Callable

from firearrow._native.fastpath.ack_templates import AckTemplates
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.event_counts import PUT_OK, REVIVE_IN, TYPE_ACK, TYPE_CHECK_POINT
from firearrow.broker.base.options import INT_MAX
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.pop.checkpoints import AckMessage, PopCheckPoint, revive_topic
from firearrow.broker.pop.long_polling import HoldKey
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.pop.receipt_handles import ReceiptHandle


class AckService:
    """`retry_held_soon(key)` is called when a queue may have messages again for the pops held on it. `templates`: how
    further acknowledgements of a check point are stored."""

    def __init__(
        self,
        context: BrokerContext,
        appender: Appender,
        order_info: ConsumerOrderInfo,
        retry_held_soon: Callable[[HoldKey], None],
    ) -> None:
        self._appender = appender
        self._offsets = context.tables.offsets
        self._order_info = order_info
        self._config = context.config
        self._clock = context.clock
        self._events = context.stats.events
        self._retry_held_soon = retry_held_soon
        self._revive_topic = revive_topic(context.config.options.cluster_name)
        self.templates = AckTemplates(
            context.store, context.write_batch, context.clock, appender.store_host, self._stored
        )
        context.config.listen(lambda options: self.templates.forget())
        context.tables.topics.listen(lambda names: self.templates.forget())
        context.quotas.listen(self.templates.limit)

    def ack(self, acks: AckMessage, revive_queue: int, invisible_ms: int, key: bytes | None = None) -> int:
        """Stage the acknowledgement; returns the end of the log. `key`: of its check point, for further ones. Raises
        PutRefused, Refusal."""
        visible_ms, now_ms = acks.pop_ms + invisible_ms, self._clock.now_ms()
        self._check(revive_queue, visible_ms)
        message = acks.message(self._revive_topic, revive_queue, visible_ms, now_ms)
        end = self._appender.put(message).end
        self._events.add(REVIVE_IN, (acks.group, acks.topic, TYPE_ACK, PUT_OK))
        if visible_ms > now_ms:  # else they were given back already, or will be
            self._events.settled(acks.group, acks.topic, len(acks.offsets))
            if key is not None and self._is_unlimited:
                queue, texts = (message.topic, message.queue_id), acks.around_offset(message)
                self.templates.add(key, acks.group, acks.topic, acks.queue_id, queue, *texts, visible_ms)
        return end

    @property
    def _is_unlimited(self) -> bool:
        """Whether a slot of the timer may have any number of messages: else each of them is asked about."""
        return self._config.options.timer_slot_messages == INT_MAX

    def _stored(self, group: str, topic: str, count: int) -> None:
        """By a template: messages that are not visible yet."""
        self._events.add(REVIVE_IN, (group, topic, TYPE_ACK, PUT_OK), count)
        self._events.settled(group, topic, count)

    def acknowledge_in_order(
        self, group: str, topic: str, queue_id: int, offset: int, receipt_pop_ms: int, invisible_ms: int
    ) -> None:
        """Acknowledge one message popped in order, move the group's offset, and retry held pops. Of a pop that is not
        known any more, only the first message counts, unlike in Apache, which skips those before.

        Raises Refusal.
        """
        committed = self._offsets.committed(group, topic, queue_id)
        if offset < committed:
            return
        if offset > committed and not self._order_info.knows(topic, group, queue_id):
            return  # a kill has lost the pop: those before it may not be acknowledged, and all come again
        next_offset = self._order_info.acked(topic, group, queue_id, offset, receipt_pop_ms)
        if next_offset == -1:
            remark = f"offset is illegal, key:{topic}@{group}@{queue_id}, commit:{offset}, next:{next_offset}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if next_offset < 0:
            return
        if not self._offsets.has_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, next_offset)
        if not self._order_info.blocked(topic, group, queue_id, None, invisible_ms):
            self._retry_held_soon((topic, group, queue_id))

    def change_invisible(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        receipt_handle: ReceiptHandle,
        invisible_ms: int,
        suspend: bool,
    ) -> tuple[int, int]:
        """Stage a new check point for the one message and acknowledge it in the old one.

        Returns the new pop time in ms and the end of the log. Raises PutRefused, Refusal.
        """
        self._check(receipt_handle.revive_queue, receipt_handle.pop_ms + receipt_handle.invisible_ms)
        now = self._clock.now_ms()
        # later than the old one, also within 1 ms: with the same key it would be acknowledged together with it
        pop_ms = max(now, receipt_handle.pop_ms + 1)
        checkpoint = PopCheckPoint(
            topic,
            group,
            queue_id,
            offset,
            pop_ms,
            invisible_ms,
            [offset],
            receipt_handle.broker,
            suspend=suspend,
        )
        self._appender.put(checkpoint.message(self._revive_topic, receipt_handle.revive_queue, now))
        self._events.add(REVIVE_IN, (group, topic, TYPE_CHECK_POINT, PUT_OK))
        self._events.popped(group, topic, 1)
        acks = AckMessage.of_one(group, topic, queue_id, offset, receipt_handle)
        return pop_ms, self.ack(acks, receipt_handle.revive_queue, receipt_handle.invisible_ms)

    def change_invisible_in_order(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        receipt_handle: ReceiptHandle,
        invisible_ms: int,
    ) -> int | None:
        """Return when the message is visible again, in ms; None if it is acknowledged already."""
        if offset < self._offsets.committed(group, topic, queue_id):
            return None
        visible_ms = self._clock.now_ms() + invisible_ms
        self._order_info.change_visible(topic, group, queue_id, offset, receipt_handle.pop_ms, visible_ms)
        return visible_ms

    def _check(self, revive_queue: int, visible_ms: int) -> None:
        """Refuse a receipt handle whose revive queue or time no pop can have written."""
        latest_ms = self._clock.now_ms() + self._config.options.timer_max_delay_s * 1000
        if visible_ms > latest_ms:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"the receipt handle ends at {visible_ms}, after the longest invisible time",
            )
        count = self._config.options.revive_queues
        if not 0 <= revive_queue < count:
            remark = f"the receipt handle's revive queue must be 0 to {count - 1}, not {revive_queue}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
