"""LiteAcks: acknowledgements of messages of lite topics: ACK_MESSAGE (200051) and CHANGE_MESSAGE_INVISIBLETIME (200053)
with a `liteTopic`. Loop thread.

They move the group's offset in the lite topic's queue: there is no check point, and nothing is stored.
"""

from collections.abc import Callable

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.lmq import LMQ_QUEUE_ID, lite_topic_of
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.pop.ack import AckService
from firearrow.broker.pop.receipt_handles import InvalidReceiptHandle, ReceiptHandle
from firearrow.broker.tables.groups import GroupTable

CHANGED = "not set any response code"
"""Apache's remark, a default that its handler does not replace."""
NOT_CHANGED = {"invisibleTime": "0", "popTime": "0", "reviveQid": "0"}


class LiteAcks:
    """`acks` has the pops of lite topics. `make_durable()` makes offsets as durable as the flush mode. `suspend(queue,
    group, pop time, visible again)` makes all messages of a pop invisible, without counting that as a delivery."""

    def __init__(
        self,
        store: MessageStore,
        groups: GroupTable,
        config: Config,
        clock: Clock,
        acks: AckService,
        suspend: Callable[[str, str, int, int], None],
        make_durable: Callable[[], None],
    ) -> None:
        self._store = store
        self._groups = groups
        self._config = config
        self._clock = clock
        self._acks = acks
        self._suspend = suspend
        self._make_durable = make_durable

    def ack(self, request: RemotingCommand) -> RemotingCommand:
        group, queue, offset, handle = self._fields(request)
        self._acks.acknowledge_in_order(
            group, queue, LMQ_QUEUE_ID, offset, handle.pop_ms, handle.invisible_ms
        )
        if not request.is_oneway:
            self._make_durable()
        return request.answer()

    def change_invisible(self, request: RemotingCommand) -> RemotingCommand:
        group, queue, offset, handle = self._fields(request)
        invisible_ms = request.integer("invisibleTime")
        check_invisible(invisible_ms, self._config)
        if request.boolean_or("suspend", False):
            visible_ms: int | None = self._clock.now_ms() + invisible_ms
            self._suspend(queue, group, handle.pop_ms, self._clock.now_ms() + invisible_ms)
        else:
            visible_ms = self._acks.change_invisible_in_order(
                group, queue, LMQ_QUEUE_ID, offset, handle, invisible_ms
            )
        if visible_ms is None:  # it is acknowledged already
            return request.answer(remark=CHANGED, ext=NOT_CHANGED)
        return request.answer(remark=CHANGED, ext=changed(visible_ms - handle.pop_ms, handle.pop_ms, handle))

    def _fields(self, request: RemotingCommand) -> tuple[str, str, int, ReceiptHandle]:
        """Group, LMQ, offset and handle. Refusal."""
        group, topic, lite_topic = (
            request.text("consumerGroup"),
            request.text("topic"),
            lite_topic_of(request),
        )
        known = self._groups.get(group)
        if known is None or known.lite_topic != topic:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "group type or bind topic not match.")
        queue, offset = name_rules.lite_queue(topic, lite_topic), request.integer("offset")
        if not 0 <= offset <= max(self._store.next_offset(queue, LMQ_QUEUE_ID), 0):
            raise Refusal(ResponseCode.NO_MESSAGE, "ack offset illegal.")
        try:
            handle = ReceiptHandle.of(request.text("extraInfo"))
        except InvalidReceiptHandle as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if request.integer("queueId", 32) != LMQ_QUEUE_ID or not handle.is_ordered:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "ack queue illegal.")
        return group, queue, offset, handle


def check_invisible(invisible_ms: int, config: Config) -> None:
    """Refusal."""
    longest = config.options.timer_max_delay_s * 1000
    if not 0 <= invisible_ms <= longest:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"invisibleTime must be 0 to {longest}, not {invisible_ms}"
        )


def changed(invisible_ms: int, pop_ms: int, receipt_handle: ReceiptHandle) -> dict[str, str]:
    """The header of the answer."""
    return {
        "invisibleTime": str(invisible_ms),
        "popTime": str(pop_ms),
        "reviveQid": str(receipt_handle.revive_queue),
    }
