"""Lights: the light queues (%LMQ%…) that a message names, and its places in them: multi-dispatch. Loop thread.

The message is stored once, in its own topic; each light queue gets an entry that points to it. The places stand in
the message's properties, so that recovery can build the queues anew.
"""

from firearrow._native.store.log.dispatcher import is_file_name
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property
from firearrow.broker.tables import name_rules

NOT_DISPATCHED = frozenset((name_rules.SCHEDULE_TOPIC, name_rules.HALF_TOPIC, name_rules.OP_HALF_TOPIC))
NOT_DISPATCHED_PREFIXES = (name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX, name_rules.SYSTEM_TOPIC_PREFIX)
LMQ_QUEUE_ID = 0


class LmqDispatch:
    """At most `lmq_max` light queues are made."""

    def __init__(self, store: MessageStore, lmq_max: int) -> None:
        self._store = store
        self._lmq_max = lmq_max

    def dispatch(self, message: Message, strict: bool) -> list[str]:
        """The light queues that the message goes to, noted with its places in its properties.

        A name that cannot be is refused if `strict`, else left out.
        """
        properties = message.properties
        properties.pop(Property.MULTI_QUEUE_OFFSET, None)
        if message.topic in NOT_DISPATCHED or message.topic.startswith(NOT_DISPATCHED_PREFIXES):
            return []
        wanted = dict.fromkeys(properties[Property.MULTI_DISPATCH].split(","))
        wanted.pop(message.topic, None)
        places = self._places(wanted, strict)
        if places:
            properties[Property.MULTI_DISPATCH] = ",".join(places)
            properties[Property.MULTI_QUEUE_OFFSET] = ",".join(map(str, places.values()))
            properties.pop(Property.WAIT, None)
        return list(places)

    def _places(self, wanted: dict[str, None], strict: bool) -> dict[str, int]:
        places: dict[str, int] = {}
        capacity = self._lmq_max - self._store.lmq_count
        for name in wanted:
            place = self._store.next_offset(name, LMQ_QUEUE_ID)
            fault = _fault(name) or (_full() if place < 0 and capacity <= 0 else None)
            if fault is None:
                capacity -= place < 0
                places[name] = max(place, 0)
            elif strict:
                raise fault
        return places


def _fault(name: str) -> Refusal | None:
    if name.startswith(name_rules.LMQ_PREFIX) and is_file_name(name.encode("utf-8", "replace")):
        return None
    remark = f"INNER_MULTI_DISPATCH names {name[:64]!r}: a light queue is %LMQ% and a name without a slash"
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def _full() -> Refusal:
    remark = "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded."
    return Refusal(ResponseCode.LMQ_QUOTA_EXCEEDED, remark)
