"""LmqDispatch: multi-dispatch: the LMQs (%LMQ%…) that a message names, and its queue offsets in them.

The message is stored once, in its own topic; each LMQ gets an entry that points to it. The offsets are in the
message's properties, so that recovery can rebuild the LMQs. Loop thread.
"""

from collections.abc import Callable, Iterable

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.batch import items_of
from firearrow._native.store.log.dispatcher import is_file_name, multi_names
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property

NOT_DISPATCHED = frozenset((name_rules.SCHEDULE_TOPIC, name_rules.HALF_TOPIC, name_rules.OP_HALF_TOPIC))
NOT_DISPATCHED_PREFIXES = (name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX, name_rules.SYSTEM_TOPIC_PREFIX)
LMQ_QUEUE_ID = 0
NO_LITE_TOPICS = "lite topics need enableLmq=true and enableMultiDispatch=true in the broker's configuration"


class LmqDispatch:
    """Creates at most `lmq_max()` LMQs."""

    def __init__(self, store: MessageStore, lmq_max: Callable[[], int]) -> None:
        self._store = store
        self._lmq_max = lmq_max

    def dispatch(self, message: Message, strict: bool) -> list[str]:
        """Set the message's LMQs and its offsets in them in its properties; returns the LMQs.

        An invalid name, or an LMQ above the limit, is refused if `strict` (Refusal), else left out.
        """
        properties = message.properties
        properties.pop(Property.MULTI_QUEUE_OFFSET, None)
        if message.topic in NOT_DISPATCHED or message.topic.startswith(NOT_DISPATCHED_PREFIXES):
            return []
        names = dict.fromkeys(properties[Property.MULTI_DISPATCH].split(","))
        names.pop(message.topic, None)
        offsets = self._offsets(names, strict)
        if offsets:
            properties[Property.MULTI_DISPATCH] = ",".join(offsets)
            properties[Property.MULTI_QUEUE_OFFSET] = ",".join(map(str, offsets.values()))
            properties.pop(Property.WAIT, None)
        return list(offsets)

    def _offsets(self, names: Iterable[str], strict: bool) -> dict[str, int]:
        """LMQ → the message's queue offset in it. Refusal."""
        offsets: dict[str, int] = {}
        capacity = self._lmq_max() - self._store.lmq_count
        for name in names:
            queue_offset = self._store.next_offset(name, LMQ_QUEUE_ID)
            is_new = queue_offset < 0
            fault = _fault(name) or (_full() if is_new and capacity <= 0 else None)
            if fault is None:
                capacity -= is_new
                offsets[name] = max(queue_offset, 0)
            elif strict:
                raise fault
        return offsets


def lite_topic_of(request: RemotingCommand) -> str:
    """The lite topic that a request names; empty: none. Refusal."""
    lite_topic = request.text_or("liteTopic", "")
    fault = name_rules.lite_fault(lite_topic) if lite_topic.strip() else None
    if fault is not None:
        raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
    return lite_topic.strip()


def offset_in(properties: dict[str, str], queue: str) -> int | None:
    """The offset of a record with these properties in an LMQ; None: it has none there."""
    names, offsets = (
        properties.get(Property.MULTI_DISPATCH, ""),
        properties.get(Property.MULTI_QUEUE_OFFSET, ""),
    )
    return dict(multi_names(names.encode(), offsets.encode())).get(queue.encode())


def states_offsets(batch: bytes) -> bool:
    """Whether a message of the batch has offsets of LMQs: a batch is stored as it comes, and with them. PutRefused."""
    name = Property.MULTI_QUEUE_OFFSET.encode()
    return name in batch and any(name in properties for _, _, properties in items_of(batch))


def _fault(name: str) -> Refusal | None:
    if name.startswith(name_rules.LMQ_PREFIX) and is_file_name(name.encode("utf-8", "replace")):
        return None
    remark = (
        f"INNER_MULTI_DISPATCH names {name[:64]!r}: the name of an LMQ is %LMQ% and a name without a slash"
    )
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def _full() -> Refusal:
    remark = "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded."
    return Refusal(ResponseCode.LMQ_QUOTA_EXCEEDED, remark)
