"""The hooks of producers and consumers that make trace records for a dispatcher. Loop thread."""

import uuid
from collections.abc import Callable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.hooks import ConsumeContext, EndTransactionContext, SendContext
from firearrow.client.base.message import Property, SendStatus
from firearrow.client.base.names import Namespace
from firearrow.client.base.service_state import now_ms
from firearrow.client.trace.dispatcher import TraceContext, TraceDispatcher
from firearrow.client.trace.records import (
    EndTransactionRecord,
    MessageKind,
    PubRecord,
    RecallRecord,
    ReturnType,
    SubAfterRecord,
    SubBeforeRecord,
)

DEFAULT_REGION = "DefaultRegion"
START_MS = "firearrow.trace.began_ms"
BEFORE_RECORDS = "firearrow.trace.begun"
_KINDS = {
    "half": MessageKind.HALF,
    "delay": MessageKind.DELAY,
    "order": MessageKind.ORDER,
    "commit": MessageKind.COMMIT,
}


class _Trace:
    """What both hooks need to make records."""

    def __init__(
        self,
        dispatcher: TraceDispatcher,
        namespace: Namespace | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._dispatcher = dispatcher
        self._namespace = namespace or Namespace(None)
        self._clock_ms = clock_ms


class ProduceTrace(_Trace):
    """A SendHook and EndTransactionHook."""

    def before(self, context: SendContext, /) -> None:
        if self._dispatcher.concerns(context.message.topic):
            context.extra[START_MS] = self._clock_ms()

    def after(self, context: SendContext, /) -> None:
        """Record a send that the broker answered, unless the broker switches traces off."""
        start_ms, result = context.extra.get(START_MS), context.result
        if start_ms is None or result is None or not result.trace_on:
            return
        message = context.message
        topic = self._namespace.unwrap(message.topic)
        record = PubRecord(
            time_ms=start_ms,
            region=result.region,
            group=self._namespace.unwrap(context.group),
            topic=topic,
            message_id=result.message_id,
            tags=message.tags,
            keys=" ".join(message.keys) or None,
            store_host=context.broker_address,
            body_bytes=context.body_bytes,
            cost_ms=self._clock_ms() - start_ms,
            kind=_KINDS.get(context.kind, MessageKind.NORMAL),
            offset_message_id=result.offset_message_id,
            success=result.status is SendStatus.SEND_OK,
        )
        self._dispatcher.append(TraceContext(topic, [record]))

    def ended(self, context: EndTransactionContext, /) -> None:
        message = context.message
        if not self._dispatcher.concerns(message.topic):
            return
        topic = self._namespace.unwrap(message.topic)
        record = EndTransactionRecord(
            time_ms=self._clock_ms(),
            region=message.properties.get(Property.REGION) or DEFAULT_REGION,
            group=self._namespace.unwrap(context.group),
            topic=topic,
            message_id=context.message_id,
            tags=message.tags,
            keys=" ".join(message.keys) or None,
            store_host=context.broker_address,
            kind=MessageKind.COMMIT,
            transaction_id=context.transaction_id,
            state=context.state,
            from_check=context.from_check,
        )
        self._dispatcher.append(TraceContext(topic, [record]))

    def recalled(self, group: str, topic: str, message_id: str, answer: RemotingCommand) -> None:
        """Record a recall; brokers that do not answer with their region do not trace recalls."""
        region = answer.ext.get(Property.REGION)
        if region is None or not self._dispatcher.concerns(topic):
            return
        group, topic = self._namespace.unwrap(group), self._namespace.unwrap(topic)
        record = RecallRecord(self._clock_ms(), region, group, topic, message_id, answer.code == 0)
        self._dispatcher.append(TraceContext(topic, [record]))


class ConsumeTrace(_Trace):
    """A ConsumeHook."""

    def before(self, context: ConsumeContext, /) -> None:
        """Record messages, except those whose broker switches traces off or does not report its region."""
        group = self._namespace.unwrap(context.group)
        time_ms, request_id = self._clock_ms(), uuid.uuid4().hex.upper()
        before_records = [
            SubBeforeRecord(
                time_ms,
                region,
                group,
                request_id,
                message.message_id,
                message.reconsume_times,
                " ".join(message.keys) or None,
            )
            for message in context.messages
            if (region := _region(message)) is not None and self._dispatcher.concerns(message.topic)
        ]
        if before_records:
            context.extra[BEFORE_RECORDS] = before_records
            self._dispatcher.append(TraceContext(self._topic(context), before_records))

    def after(self, context: ConsumeContext, /) -> None:
        before_records: list[SubBeforeRecord] = context.extra.get(BEFORE_RECORDS, [])
        if not before_records:
            return
        time_ms = self._clock_ms()
        cost_ms = (time_ms - before_records[0].time_ms) // len(context.messages)
        returned = ReturnType[context.return_type] if context.return_type else ReturnType.SUCCESS
        after_records = [
            SubAfterRecord(
                each.request_id,
                each.message_id,
                cost_ms,
                context.success,
                each.keys,
                returned,
                time_ms,
                each.group,
            )
            for each in before_records
        ]
        self._dispatcher.append(TraceContext(self._topic(context), after_records))

    def _topic(self, context: ConsumeContext) -> str:
        return self._namespace.unwrap(context.messages[0].topic)


def _region(message: ReceivedMessage) -> str | None:
    if message.get_property(Property.TRACE_ON) == "false":
        return None
    return message.get_property(Property.REGION)
