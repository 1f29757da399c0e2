"""Receipt handles of popped messages: as Apache's client makes them, and always validated."""

import base64
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import BrokerError, ClientError, InvalidReceiptHandle
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.pop.ack import BITS_MAX, AckClient, batch_body
from firearrow.client.pop.pop_request import PopRequest, PopResult, PopStatus, pop_command, pop_result
from firearrow.client.pop.receipt_handles import (
    OrderCounts,
    ReceiptHandle,
    kind_of,
    message_offsets,
    start_offsets,
)
from firearrow.client.rebalance.subscription import Subscription
from tests.client.records import record
from tests.golden import session

POPPED = ReceiptHandle(5, 1000, 60000, 3, "0", "broker-a", 2, 7)


def never(sys_flag: int, stored: bytes) -> bytes:
    raise AssertionError("not compressed")


def asked(ext: dict[str, str]) -> PopRequest:
    return PopRequest(
        group=ext["consumerGroup"],
        queue=MessageQueue(ext["topic"], ext["bname"], int(ext["queueId"])),
        subscription=Subscription.of(ext["topic"]),
        batch=int(ext["maxMsgNums"]),
        invisible_ms=int(ext["invisibleTime"]),
        wait_ms=int(ext["pollTime"]),
        from_first=ext["initMode"] == "0",
    )


def recorded(name: str) -> Iterator[tuple[RemotingCommand, RemotingCommand]]:
    """Requests of the POP family with their answers, of a session of Apache's client with Apache's broker."""
    waiting: dict[tuple[int, int], RemotingCommand] = {}
    for frame in session(name):
        if frame.raw is None:
            continue
        command, key = RemotingCommand.decode(frame.raw), (frame.line["conn"], frame.line["opaque"])
        if not command.is_response and 200050 <= command.code <= 200151:
            waiting[key] = command
        elif command.is_response and key in waiting:
            yield waiting.pop(key), command


@pytest.mark.parametrize("name", ["consumer-pop", "pop-raw"])
async def test_receipts_and_requests_are_those_of_apaches_client(name: str) -> None:
    """Our requests for the same answers equal those that it sent."""
    known: dict[str, str] = {}
    kinds: dict[int, int] = {}
    for request, answer in recorded(name):
        kinds[request.code] = kinds.get(request.code, 0) + 1
        if request.code == RequestCode.POP_MESSAGE:
            pop = asked(request.ext)
            ours = pop_command(pop, int(request.ext["bornTime"]))
            assert ours.ext == request.ext
            result = pop_result(answer, pop, never, pop.queue.topic)
            assert (result.status is PopStatus.FOUND) == (answer.code == 0)
            for message in result.messages:
                assert message.topic == pop.queue.topic
                known[message.properties[Property.POP_CHECK_POINT]] = message.topic
            continue
        if request.code == RequestCode.BATCH_ACK_MESSAGE:
            await compare_batch(request, answer, known)
            continue
        receipt = ReceiptHandle.of(request.ext["extraInfo"])
        topic = known[receipt.text]
        caller = Caller(answer)
        acks = AckClient(caller, request.ext["consumerGroup"], 3)
        if request.code == RequestCode.ACK_MESSAGE:
            await acks.ack(topic, receipt)
        else:
            hidden = await acks.change_invisible(topic, receipt, int(request.ext["invisibleTime"]))
            assert (hidden.start_offset, hidden.pop_ms) == (receipt.queue_offset, answer.integer("popTime"))
            known[hidden.text] = topic
        assert caller.commands[0].ext == request.ext
    assert kinds[RequestCode.POP_MESSAGE] >= 4
    assert kinds[RequestCode.ACK_MESSAGE] >= 3
    assert kinds[RequestCode.CHANGE_MESSAGE_INVISIBLETIME] >= 1


async def compare_batch(request: RemotingCommand, answer: RemotingCommand, known: dict[str, str]) -> None:
    [entry] = json.loads(request.body)["acks"]
    receipts = [ReceiptHandle.of(text) for text in known]
    mine = [receipt for receipt in receipts if receipt.pop_ms == entry["pt"]]
    caller = Caller(answer)
    await AckClient(caller, entry["c"], 3).ack_many((entry["t"], receipt) for receipt in mine)
    assert caller.commands[0].body == request.body


class Caller:
    """Records what is sent; each gets the same answer."""

    def __init__(self, answer: RemotingCommand | None = None) -> None:
        self.commands: list[RemotingCommand] = []
        self.brokers: list[str] = []
        self.answer = answer or RemotingCommand(0)

    async def call_master(
        self, broker_name: str, command: RemotingCommand, timeout_s: float, *, topic: str
    ) -> RemotingCommand:
        self.commands.append(command)
        self.brokers.append(broker_name)
        return self.answer


def test_a_receipt_is_its_text() -> None:
    text = "5 1000 60000 3 0 broker-a 2 7"
    assert ReceiptHandle.of(text) == POPPED
    assert POPPED.text == text
    assert ReceiptHandle.of(text + " more of a newer client") == POPPED
    assert not POPPED.in_order
    assert POPPED._replace(revive_queue=999).in_order
    assert not POPPED.expired(60999)
    assert POPPED.expired(61000)
    assert POPPED.hidden(2000, 9, 4).text == "7 2000 9 4 0 broker-a 2 7"


def test_the_kind_names_the_real_topic() -> None:
    names = {
        "0": "T",
        "1": "%RETRY%G_T",
        "2": "%RETRY%G+T",
    }
    for kind, name in names.items():
        receipt = ReceiptHandle.of(f"5 1000 60000 3 {kind} b 2 7")
        assert receipt.topic("T", "G") == name
        assert kind_of(name) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3",
        "x 1000 60000 3 0 b 2 7",
        "5 -1 60000 3 0 b 2 7",
        "5 1000 60000 3 3 b 2 7",
        "5 1000 60000 3 0 b 2 " + "7" * 19,
        "5 1000 60000 3 0 b 2 7".replace("7", "٧"),
        "5 1000 60000 3 0 b 2 7 " + "x" * 40000,
    ],
)
def test_a_text_that_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(InvalidReceiptHandle, match=r"POP_CK|kind"):
        ReceiptHandle.of(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (ReceiptHandle.of, start_offsets, message_offsets, OrderCounts.of):
        try:
            read(text)
        except InvalidReceiptHandle:
            continue


def test_offset_texts() -> None:
    assert start_offsets("0 0 5;1 0 6;0 3 7") == {("0", 0): 5, ("1", 0): 6, ("0", 3): 7}
    assert message_offsets("0 0 5,7,9;2 1 4") == {("0", 0): [5, 7, 9], ("2", 1): [4]}
    assert start_offsets("") == message_offsets("") == {}
    counts = OrderCounts.of("0 3 2;0 qo3%17 5")
    assert counts.times(("0", 3), 17) == 5
    assert counts.times(("0", 3), 18) == 2
    assert counts.times(("0", 4), 17) == 0
    for wrong in ("0 0", "0 0 5;0 0 6", "0 x 5", "4 0 5", "0 0 5,", "0 0 5;"):
        with pytest.raises(InvalidReceiptHandle):
            message_offsets(wrong)


def popped(
    body: bytes, ext: dict[str, str], *, topic: str = "T", in_order: bool = False, **more: str
) -> PopResult:
    times = {"popTime": "1000", "invisibleTime": "60000", "reviveQid": "3", "restNum": "1"}
    pop = PopRequest(
        group="G",
        queue=MessageQueue(topic, "b", -1),
        subscription=Subscription.of(topic),
        batch=32,
        invisible_ms=60000,
        wait_ms=0,
        in_order=in_order,
    )
    return pop_result(RemotingCommand(0, times | ext, body), pop, never, "user's")


def receipts(result: PopResult) -> list[str]:
    return [message.properties[Property.POP_CHECK_POINT] for message in result.messages]


def test_messages_of_several_queues_have_the_offsets_of_their_queue() -> None:
    """The topic and its retry topics count separately, even for the same queue id."""
    body = b"".join(
        [
            record(b"a", queue_id=1, queue_offset=4),
            record(b"b", queue_id=0, queue_offset=8),
            record(b"c", "%RETRY%G_T", queue_id=0, queue_offset=2),
            record(b"d", queue_id=1, queue_offset=6),
            record(b"e", "%RETRY%G+T", queue_id=0, queue_offset=3),
        ]
    )
    starts, offsets = "0 1 4;0 0 7;1 0 2;2 0 1", "0 1 4,6;0 0 8;1 0 2;2 0 3"
    result = popped(body, {"startOffsetInfo": starts, "msgOffsetInfo": offsets})
    assert receipts(result) == [
        "4 1000 60000 3 0 b 1 4",
        "7 1000 60000 3 0 b 0 8",
        "2 1000 60000 3 1 b 0 2",
        "4 1000 60000 3 0 b 1 6",
        "1 1000 60000 3 2 b 0 3",
    ]
    assert {message.topic for message in result.messages} == {"user's"}
    assert {message.properties[Property.FIRST_POP_TIME] for message in result.messages} == {"1000"}
    assert (result.rest, result.pop_ms, result.invisible_ms) == (1, 1000, 60000)


def test_what_the_broker_gave_stays() -> None:
    given = "2 900 60000 1 1 b 0 2"
    body = record(b"r", queue_offset=2, reconsume_times=1, **{"POP_CK": given, "1ST_POP_TIME": "5"})
    result = popped(body, {"startOffsetInfo": "1 0 2", "msgOffsetInfo": "1 0 2"})
    assert receipts(result) == [given]
    assert result.messages[0].properties[Property.FIRST_POP_TIME] == "5"


def test_brokers_that_report_no_offsets() -> None:
    body = record(b"a", queue_offset=4) + record(b"b", queue_offset=6) + record(b"c", queue_id=1)
    assert receipts(popped(body, {})) == [
        "4 1000 60000 3 0 b 0 4",
        "4 1000 60000 3 0 b 0 6",
        "0 1000 60000 3 0 b 1 0",
    ]


def test_counts_of_pops_in_order() -> None:
    body = record(b"a", queue_offset=4) + record(b"b", queue_offset=5) + record(b"c", queue_id=1)
    info = {
        "startOffsetInfo": "0 0 4;0 1 0",
        "msgOffsetInfo": "0 0 4,5;0 1 0",
        "reviveQid": "999",
        "orderCountInfo": "0 0 2;0 qo0%5 7",
    }
    times = [message.reconsume_times for message in popped(body, info, in_order=True).messages]
    assert times == [2, 7, 0]
    times = [message.reconsume_times for message in popped(body, info).messages]
    assert times == [0, 0, 0]


def test_an_lmq_has_separate_offsets() -> None:
    body = record(
        b"a",
        "parent",
        queue_id=3,
        queue_offset=40,
        INNER_MULTI_DISPATCH="%LMQ%x,%LMQ%y",
        INNER_MULTI_QUEUE_OFFSET="2,9",
    )
    info = {"startOffsetInfo": "0 0 8", "msgOffsetInfo": "0 0 9"}
    assert receipts(popped(body, info, topic="%LMQ%y")) == ["8 1000 60000 3 0 b 0 9"]
    broken = record(b"a", "parent", INNER_MULTI_DISPATCH="%LMQ%x,%LMQ%y", INNER_MULTI_QUEUE_OFFSET="2")
    with pytest.raises(InvalidReceiptHandle, match="INNER_MULTI_QUEUE_OFFSET"):
        popped(broken, info, topic="%LMQ%y")


def test_an_answer_whose_texts_do_not_match_its_messages_is_refused() -> None:
    body = record(b"a", queue_offset=4)
    for info in ({"msgOffsetInfo": "0 1 4"}, {"msgOffsetInfo": ""}, {"msgOffsetInfo": "0 0 4x"}):
        with pytest.raises(InvalidReceiptHandle, match="msgOffsetInfo"):
            popped(body, {"startOffsetInfo": "0 0 4"} | info)


TEXTS = st.text(alphabet="0123456789 ,;%qo-x", max_size=40)


@given(starts=TEXTS, offsets=TEXTS, counts=TEXTS, time=TEXTS, cut=st.integers(0, 200))
def test_any_broker_response_is_read_or_refused(
    starts: str, offsets: str, counts: str, time: str, cut: int
) -> None:
    body = (record(b"a", queue_offset=4) + record(b"b", queue_offset=5))[:cut]
    info = {"startOffsetInfo": starts, "msgOffsetInfo": offsets, "orderCountInfo": counts, "popTime": time}
    try:
        result = popped(body, info, in_order=True)
    except ClientError:
        return
    for text in receipts(result):
        ReceiptHandle.of(text)


def test_an_answer_that_cannot_be_read_is_a_client_error() -> None:
    for body, info in ((b"\x00\x00\x01", {}), (record(b"a"), {"popTime": "soon"})):
        with pytest.raises(ClientError, match="b: an answer that cannot be read"):
            popped(body, info)


async def test_neither_is_one_to_a_change_of_the_invisible_time() -> None:
    with pytest.raises(ClientError, match="broker-a: an answer that cannot be read"):
        await AckClient(Caller(RemotingCommand(0)), "G", 3).change_invisible("T", POPPED, 1000)


def test_an_error_is_the_brokers() -> None:
    pop = PopRequest(
        group="G",
        queue=MessageQueue("T", "b", -1),
        subscription=Subscription.of("T"),
        batch=1,
        invisible_ms=1,
        wait_ms=0,
    )
    with pytest.raises(BrokerError, match=r"b: 26 .*no group") as refused:
        pop_result(RemotingCommand(26, remark="no group"), pop, never, "T")
    assert refused.value.code == 26
    assert (
        pop_result(RemotingCommand(209, {"restNum": "0"}), pop, never, "T").status is PopStatus.POLLING_FULL
    )


def test_acknowledged_together_are_the_messages_of_one_pop() -> None:
    """`b`: a bit for each offset from the beginning, the lowest first."""
    first = [POPPED._replace(queue_offset=offset) for offset in (5, 8, 14)]
    other = POPPED._replace(pop_ms=2000)
    acks = json.loads(batch_body("G", "T", "broker-a", [*first, other]))["acks"]
    assert [(ack["pt"], ack["so"], ack["q"], ack["rq"], ack["r"]) for ack in acks] == [
        (1000, 5, 2, 3, "0"),
        (2000, 5, 2, 3, "0"),
    ]
    assert base64.b64decode(acks[0]["b"]) == bytes([0b00001001, 0b00000010])
    assert base64.b64decode(acks[1]["b"]) == bytes([0b100])


async def test_far_away_or_elsewhere_is_acknowledged_apart() -> None:
    caller = Caller()
    far = POPPED._replace(queue_offset=POPPED.start_offset + BITS_MAX)
    elsewhere = POPPED._replace(broker_name="broker-b")
    together = [POPPED, POPPED._replace(queue_offset=POPPED.start_offset + BITS_MAX - 1)]
    await AckClient(caller, "G", 3).ack_many(("T", one) for one in (far, elsewhere, *together))
    codes = [command.code for command in caller.commands]
    assert codes == [RequestCode.ACK_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE]
    assert caller.brokers == ["broker-a", "broker-b", "broker-a"]


async def test_what_is_done_in_order_keeps_its_receipt() -> None:
    nothing = RemotingCommand(0, {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"})
    assert await AckClient(Caller(nothing), "G", 3).change_invisible("T", POPPED, 1000) == POPPED
