"""What producers and consumers record of their messages when they are traced."""

from collections.abc import Sequence

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ConnectionLost
from firearrow.client.base.hooks import ConsumeContext, EndTransactionContext, SendContext
from firearrow.client.base.message import Message, MessageQueue, SendResult, SendStatus
from firearrow.client.base.names import Namespace
from firearrow.client.send.request_reply import reply_of
from firearrow.client.trace.dispatcher import TraceContext, TraceDispatcher
from firearrow.client.trace.hooks import ConsumeTrace, ProduceTrace
from firearrow.client.trace.records import (
    EndTransactionRecord,
    MessageKind,
    PubRecord,
    RecallRecord,
    ReturnType,
    SubAfterRecord,
    SubBeforeRecord,
)
from tests.client.test_request_reply import push
from tests.support.clock import ManualClock
from tests.unit.client.test_trace_dispatcher import Sender

QUEUE = MessageQueue("ns%t", "b", 0)
RESULT = SendResult(SendStatus.SEND_OK, "ID", "OFF", QUEUE, 5, region="R1")


class Noting(TraceDispatcher):
    """Records what it is given."""

    def __init__(self) -> None:
        super().__init__(Sender(), "TRACE", 10)
        self.noted: list[TraceContext] = []

    def append(self, context: TraceContext) -> bool:
        self.noted.append(context)
        return True


@pytest.fixture
def noting() -> Noting:
    return Noting()


@pytest.fixture
def produce(noting: Noting) -> ProduceTrace:
    return ProduceTrace(noting, Namespace("ns"), ManualClock(1000, step_ms=10).now_ms)


@pytest.fixture
def consume(noting: Noting) -> ConsumeTrace:
    return ConsumeTrace(noting, Namespace("ns"), ManualClock(1000, step_ms=10).now_ms)


def sending(topic: str = "ns%t", kind: str = "normal", result: SendResult | None = RESULT) -> SendContext:
    message = Message(topic, b"body", tags="tag", keys=["k1", "k2"])
    context = SendContext("ns%PG", message, [message], QUEUE, "10.0.0.1:10911", "sync", kind, 3)
    context.result = result
    return context


def test_a_send_is_noted_with_how_long_it_took(produce: ProduceTrace, noting: Noting) -> None:
    context = sending()
    produce.before(context)
    produce.after(context)
    record = PubRecord(
        1010, "R1", "PG", "t", "ID", "tag", "k1 k2", "10.0.0.1:10911", 3, 10, MessageKind.NORMAL, "OFF", True
    )
    assert noting.noted == [TraceContext("t", [record])]


@pytest.mark.parametrize(
    ("kind", "noted"),
    [("half", MessageKind.HALF), ("delay", MessageKind.DELAY), ("order", MessageKind.ORDER)],
)
def test_kinds_of_messages(produce: ProduceTrace, noting: Noting, kind: str, noted: MessageKind) -> None:
    context = sending(kind=kind)
    produce.before(context)
    produce.after(context)
    (record,) = noting.noted[0].records
    assert isinstance(record, PubRecord)
    assert record.kind is noted


def test_a_send_that_is_stored_less_safely_is_no_success(produce: ProduceTrace, noting: Noting) -> None:
    status = SendStatus.FLUSH_DISK_TIMEOUT
    context = sending(result=SendResult(status, "ID", "OFF", QUEUE, 5))
    produce.before(context)
    produce.after(context)
    (record,) = noting.noted[0].records
    assert isinstance(record, PubRecord)
    assert not record.success


@pytest.mark.parametrize(
    "context",
    [
        sending(topic="TRACE"),
        sending(result=None),
        sending(result=SendResult(SendStatus.SEND_OK, "ID", "OFF", QUEUE, 5, trace_on=False)),
    ],
    ids=["the trace topic", "no answer", "the broker wants none"],
)
def test_what_is_not_noted(produce: ProduceTrace, noting: Noting, context: SendContext) -> None:
    context.error = ConnectionLost("gone")
    produce.before(context)
    produce.after(context)
    assert noting.noted == []


def test_the_end_of_a_transaction_is_noted(produce: ProduceTrace, noting: Noting) -> None:
    message = Message("ns%t", b"", tags="tag", keys=["k"])
    produce.ended(EndTransactionContext("ns%PG", message, "h:1", "ID", "TX", "COMMIT_MESSAGE", True))
    produce.ended(EndTransactionContext("ns%PG", Message("TRACE", b""), "h:1", "ID", "TX", "UNKNOW", True))
    record = EndTransactionRecord(
        1010,
        "DefaultRegion",
        "PG",
        "t",
        "ID",
        "tag",
        "k",
        "h:1",
        MessageKind.COMMIT,
        "TX",
        "COMMIT_MESSAGE",
        True,
    )
    assert noting.noted == [TraceContext("t", [record])]


def test_a_recall_is_noted_if_the_broker_says_its_region(produce: ProduceTrace, noting: Noting) -> None:
    asked = RemotingCommand.request(RequestCode.RECALL_MESSAGE)
    produce.recalled("ns%PG", "ns%t", "ID", asked.answer(13, "too late", {"MSG_REGION": "R"}))
    produce.recalled("ns%PG", "ns%t", "ID", asked.answer())
    assert noting.noted == [TraceContext("t", [RecallRecord(1010, "R", "PG", "t", "ID", False)])]


def received(message_id: str, **properties: str) -> ReceivedMessage:
    more = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return reply_of(push(topic="ns%t", properties=f"UNIQ_KEY\x01{message_id}\x02{more}"), 0)


def consuming(messages: Sequence[ReceivedMessage]) -> ConsumeContext:
    return ConsumeContext("ns%CG", QUEUE, messages)


def test_a_handlers_call_is_noted_before_and_after(consume: ConsumeTrace, noting: Noting) -> None:
    context = consuming(
        [
            received("A", MSG_REGION="R", KEYS="k"),
            received("B", MSG_REGION="R", TRACE_ON="true"),
            received("C", MSG_REGION="R", TRACE_ON="false"),
            received("D"),
        ]
    )
    consume.before(context)
    context.success, context.return_type = False, "EXCEPTION"
    consume.after(context)
    begun, ended = noting.noted
    request_id = begun.records[0].request_id  # type: ignore[union-attr]
    assert begun == TraceContext(
        "t",
        [
            SubBeforeRecord(1010, "R", "CG", request_id, "A", 1, "k"),
            SubBeforeRecord(1010, "R", "CG", request_id, "B", 1, None),
        ],
    )
    assert ended == TraceContext(
        "t",
        [
            SubAfterRecord(request_id, "A", 2, False, "k", ReturnType.EXCEPTION, 1020, "CG"),
            SubAfterRecord(request_id, "B", 2, False, None, ReturnType.EXCEPTION, 1020, "CG"),
        ],
    )


def test_calls_have_separate_ids(consume: ConsumeTrace, noting: Noting) -> None:
    for _ in range(2):
        consume.before(consuming([received("A", MSG_REGION="R")]))
    first, second = (context.records[0].request_id for context in noting.noted)  # type: ignore[union-attr]
    assert first != second


def test_a_call_of_which_nothing_is_noted_has_no_end_either(consume: ConsumeTrace, noting: Noting) -> None:
    context = consuming([received("A")])
    consume.before(context)
    consume.after(context)
    assert noting.noted == []
