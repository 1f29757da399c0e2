"""Traces: the text that Apache's clients write and read, and that tracing never blocks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from firearrow._native.protocol.name_rules import GROUP_CHARS_MAX
from firearrow.client.base.errors import ConnectionLost
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions
from firearrow.client.trace.dispatcher import (
    BODY_BYTES_MAX,
    KEYS_BYTES_MAX,
    WAITING_MAX,
    TraceContext,
    TraceDispatcher,
    TraceSide,
    sender_client,
    sender_group,
    trace_messages,
)
from firearrow.client.trace.records import (
    EndTransactionRecord,
    InvalidTrace,
    MessageKind,
    PubRecord,
    RecallRecord,
    ReturnType,
    SubAfterRecord,
    SubBeforeRecord,
    TraceRecord,
    decode,
    searchable,
)
from tests.support.eventually import eventually_async

SENT = PubRecord(
    1700000000000,
    "DefaultRegion",
    "PG",
    "T",
    "ID1",
    None,
    "k1 k2",
    "127.0.0.1:10911",
    11,
    3,
    MessageKind.NORMAL,
    "OFF1",
    True,
)
BEGUN = SubBeforeRecord(1700000000001, "DefaultRegion", "CG", "REQ", "ID1", 2, None)
ENDED = SubAfterRecord("REQ", "ID1", 5, False, "k1", ReturnType.FAILED, 1700000000006, "CG")
TRANSACTION = EndTransactionRecord(
    1700000000002,
    "DefaultRegion",
    "PG",
    "T",
    "ID1",
    "tag",
    None,
    "127.0.0.1:10911",
    MessageKind.COMMIT,
    "TX",
    "COMMIT_MESSAGE",
    False,
)
RECALLED = RecallRecord(1700000000003, "DefaultRegion", "PG", "T", "ID1", True)
TEXTS: list[tuple[TraceRecord, str]] = [
    (SENT, "Pub 1700000000000 DefaultRegion PG T ID1 null k1+k2 127.0.0.1:10911 11 3 0 OFF1 true"),
    (BEGUN, "SubBefore 1700000000001 DefaultRegion CG REQ ID1 2 null"),
    (ENDED, "SubAfter REQ ID1 5 false k1 4 1700000000006 CG"),
    (
        TRANSACTION,
        "EndTransaction 1700000000002 DefaultRegion PG T ID1 tag null 127.0.0.1:10911 2 TX COMMIT_MESSAGE false",
    ),
    (RECALLED, "Recall 1700000000003 DefaultRegion PG T ID1 true"),
]


def on_the_wire(text: str) -> str:
    """Blanks stand for byte 1, `+` for a blank; byte 2 ends it."""
    return text.replace(" ", "\x01").replace("+", " ") + "\x02"


@pytest.mark.parametrize(("record", "text"), TEXTS)
def test_a_record_is_written_as_java_does_and_read_again(record: TraceRecord, text: str) -> None:
    assert record.encode() == on_the_wire(text)
    assert decode(on_the_wire(text)) == [record]


def test_many_records_follow_each_other_and_unknown_kinds_are_left_out() -> None:
    text = "".join(record.encode() for record, _ in TEXTS) + "Later\x01what\x02"
    assert decode(text) == [record for record, _ in TEXTS]
    assert decode("") == []


def test_records_of_old_clients_are_read() -> None:
    oldest = on_the_wire("Pub 1 R PG T ID tag keys host 11 3 0")
    older = on_the_wire("Pub 1 R PG T ID tag keys host 11 3 0 false")
    newer = on_the_wire("Pub 1 R PG T ID tag keys host 11 3 0 OFF false 10.0.0.1")
    (first,), (second,), (third,) = decode(oldest), decode(older), decode(newer)
    assert isinstance(first, PubRecord)
    assert isinstance(second, PubRecord)
    assert isinstance(third, PubRecord)
    assert (first.offset_message_id, first.success) == (None, True)
    assert (second.offset_message_id, second.success) == (None, False)
    assert (third.offset_message_id, third.success) == ("OFF", False)
    (brief,) = decode(on_the_wire("SubAfter REQ ID 5 true null"))
    (cloud,) = decode(on_the_wire("SubAfter REQ ID 5 true null 1 "))
    assert brief == SubAfterRecord("REQ", "ID", 5, True, None, ReturnType.SUCCESS, 0, None)
    assert cloud == SubAfterRecord("REQ", "ID", 5, True, None, ReturnType.TIME_OUT, 0, None)


@pytest.mark.parametrize(
    ("text", "field_name"),
    [
        ("Pub 1", "region"),
        ("Pub x R PG T ID tag keys host 11 3 0", "time_ms"),
        ("Pub 1 R PG T ID tag keys host 11 3 9", "kind"),
        ("Pub 1 R PG T ID tag keys host 99999999999999999999 3 0", "body_bytes"),
        ("SubAfter REQ ID 5 true k 7", "returned"),
        ("SubAfter REQ ID ٣ true k 1", "cost_ms"),
        ("Recall 1 R", "group"),
    ],
)
def test_an_invalid_record_is_refused_by_its_field(text: str, field_name: str) -> None:
    with pytest.raises(InvalidTrace, match=field_name):
        decode(on_the_wire(text))


def test_records_are_found_by_ids_and_keys() -> None:
    assert list(searchable(SENT)) == ["ID1", "k1", "k2"]
    assert list(searchable(BEGUN)) == ["ID1"]
    assert list(searchable(RECALLED)) == ["ID1"]


def contexts(count: int, keys: str = "", group: str = "PG") -> list[TraceContext]:
    return [
        TraceContext("T", [RecallRecord(n, "R", group, "T", f"ID{n}", True) if not keys else sent(n, keys)])
        for n in range(count)
    ]


def sent(number: int, keys: str) -> PubRecord:
    return PubRecord(
        number, "R", "PG", "T", f"ID{number}", None, keys, "h:1", 1, 1, MessageKind.NORMAL, None, True
    )


def test_records_of_a_topic_travel_together_and_others_apart() -> None:
    other = TraceContext("U", [RecallRecord(9, "R", "PG", "U", "ID9", True)])
    first, second = trace_messages([*contexts(2), other, *contexts(1)])
    assert [record.message_id for record in decode(first.body.decode())] == ["ID0", "ID1", "ID0"]
    assert first.keys == ("ID0", "ID1")
    assert [record.message_id for record in decode(second.body.decode())] == ["ID9"]


def test_a_trace_is_cut_between_records_before_the_limit() -> None:
    made = list(trace_messages(contexts(100, group="g" * 5000)))
    assert len(made) > 1
    assert all(len(package.body) <= BODY_BYTES_MAX for package in made)
    found = [record.message_id for package in made for record in decode(package.body.decode())]
    assert found == [f"ID{n}" for n in range(100)]


def test_keys_of_a_trace_stay_below_what_properties_can_carry() -> None:
    made = list(trace_messages(contexts(40, keys=" ".join(f"{n:0200d}" for n in range(10)))))
    assert len(made) > 1
    assert all(len(" ".join(package.keys)) <= KEYS_BYTES_MAX for package in made)
    (alone,) = trace_messages(contexts(1, keys=" ".join(f"{n:01000d}" for n in range(100))))
    assert len(" ".join(alone.keys)) <= KEYS_BYTES_MAX
    assert alone.keys, "what fits is there"


def test_a_record_over_the_limit_alone_is_dropped_and_the_others_are_not() -> None:
    too_large = TraceContext("T", [sent(7, "k" * (BODY_BYTES_MAX + 1))])
    (package,) = trace_messages([*contexts(1), too_large, *contexts(1)])
    assert [record.message_id for record in decode(package.body.decode())] == ["ID0", "ID0"]


@dataclass
class Sender:
    """A fake of the producer that sends traces; `gate` delays it."""

    gate: asyncio.Event | None = None
    failure: Exception | None = None
    messages: list[Message] = field(default_factory=list)
    closed: bool = False

    async def start(self) -> None:
        self.closed = False

    async def send(self, message: Message, /) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.messages.append(message)

    async def close(self) -> None:
        self.closed = True

    def ids(self) -> list[str]:
        return [record.message_id for message in self.messages for record in decode(message.body.decode())]


async def test_a_full_batch_leaves_at_once() -> None:
    sender = Sender()
    dispatcher = TraceDispatcher(sender, "TRACE", batch=3, flush_s=3600)
    await dispatcher.start()
    append_all(dispatcher, contexts(3))
    await eventually_async(lambda: sender.messages)
    assert sender.messages[0].topic == "TRACE"
    assert list(sender.messages[0].keys) == ["ID0", "ID1", "ID2"]
    append_all(dispatcher, contexts(1))
    await dispatcher.close()
    assert sender.ids() == ["ID0", "ID1", "ID2", "ID0"], "what waits leaves at the close"
    assert sender.closed
    assert not dispatcher.append(contexts(1)[0])


async def test_less_than_a_batch_leaves_after_a_while() -> None:
    sender = Sender()
    dispatcher = TraceDispatcher(sender, "TRACE", batch=20, flush_s=0.01)
    await dispatcher.start()
    append_all(dispatcher, contexts(2))
    await eventually_async(lambda: sender.ids() == ["ID0", "ID1"])
    await dispatcher.close()


async def test_a_stuck_broker_never_blocks_a_traced_client() -> None:
    sender = Sender(gate=asyncio.Event())
    dispatcher = TraceDispatcher(sender, "TRACE", batch=10, flush_s=3600)
    await dispatcher.start()
    taken = 0
    for context in contexts(3 * WAITING_MAX):
        taken += dispatcher.append(context)
    assert taken == WAITING_MAX
    assert dispatcher.dropped == 2 * WAITING_MAX
    assert sender.gate is not None
    sender.gate.set()
    await dispatcher.close()
    assert len(sender.ids()) == taken


async def test_a_trace_that_fails_is_lost_and_the_next_is_not() -> None:
    sender = Sender(failure=ConnectionLost("gone"))
    dispatcher = TraceDispatcher(sender, "TRACE", batch=1, flush_s=3600)
    await dispatcher.start()
    append_all(dispatcher, contexts(1))
    await eventually_async(lambda: not dispatcher._waiting and not dispatcher._tasks)
    sender.failure = None
    append_all(dispatcher, contexts(1))
    await eventually_async(lambda: sender.messages)
    await dispatcher.close()


def append_all(dispatcher: TraceDispatcher, them: Sequence[TraceContext]) -> None:
    assert all(dispatcher.append(context) for context in them)


def test_the_trace_topic_is_not_traced() -> None:
    dispatcher = TraceDispatcher(Sender(), "TRACE", 10)
    assert dispatcher.concerns("orders")
    assert not dispatcher.concerns("TRACE")
    assert not dispatcher.concerns("TRACE_OF_OTHERS"), "as Java compares"


def test_the_sender_is_known_by_its_names() -> None:
    name = sender_group("orders", TraceSide.PRODUCE)
    assert name.startswith("_INNER_TRACE_PRODUCER-orders-PRODUCE-")
    assert sender_group("orders", TraceSide.PRODUCE) != name
    assert len(sender_group("g" * GROUP_CHARS_MAX, TraceSide.CONSUME)) <= GROUP_CHARS_MAX
    client = sender_client(ClientOptions(name_server="h:1", namespace="ns"))
    assert client.instance_name == "PID_CLIENT_INNER_TRACE_PRODUCER_h:1"
    assert client.namespace is None
