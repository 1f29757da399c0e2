"""Send request frames, byte for byte as Java's client writes them, and the brokers' responses."""

import asyncio
import base64
from collections.abc import Iterator

import pytest

from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow._native.wire.send_request import SendAnswer, SendFields, SendFrames, post
from tests.golden import Recorded, session
from tests.support.transport import RecordingTransport
from tests.unit.wire.calls_client import CallsClient, Failed, asked, run

SESSIONS = (
    "producer-sync",
    "producer-batch",
    "producer-delay",
    "producer-errors",
    "header-rocketmq",
    "query",
)


def recorded_sends() -> Iterator[Recorded]:
    for name in SESSIONS:
        for recorded in session(name):
            line = recorded.line
            if (
                line["kind"] in ("request", "oneway")
                and line["code"] in (310, 320)
                and recorded.raw is not None
            ):
                yield recorded


def written_again(line: dict[str, object], body: bytes) -> bytes:
    ext = line["extFields"]
    assert isinstance(ext, dict)
    frames = SendFrames(
        ext["a"],
        ext["b"],
        default_topic=ext["c"],
        default_queues=int(ext["d"]),
        unit_mode=ext["k"] == "true",
        binary=line["serializer"] == "ROCKETMQ",
    )
    return frames.frame(
        int(str(line["opaque"])),
        int(ext["e"]),
        int(ext["g"]),
        ext.get("i", "").encode(),
        body,
        SendFields(
            code=int(str(line["code"])),
            sys_flag=int(ext["f"]),
            flag=int(ext["h"]),
            reconsume_times=int(ext["j"]),
            max_reconsume_times=int(ext.get("l", "-1")),
        ),
        broker_name=ext.get("n"),
        oneway=line["kind"] == "oneway",
    )


def test_frames_equal_java_s() -> None:
    count = 0
    for recorded in recorded_sends():
        line, raw = recorded.line, recorded.raw
        assert raw is not None
        frame = written_again(line, base64.b64decode(line["body64"]))
        if line["serializer"] == "JSON":
            assert frame[8:] == raw.replace(b'"language":"JAVA"', b'"language":"PYTHON"')[8:]
        ours, theirs = RemotingCommand.decode(frame), RemotingCommand.decode(raw)
        assert (ours.code, ours.opaque, ours.flag) == (theirs.code, theirs.opaque, theirs.flag)
        assert (ours.ext, ours.body, ours.serializer) == (theirs.ext, theirs.body, theirs.serializer)
        count += 1
    assert count >= 30


@pytest.mark.parametrize("binary", [False, True])
def test_every_field_of_a_frame_is_read_back(binary: bool) -> None:
    frames = SendFrames('g"\\', "tö\x01", default_topic="D", default_queues=9, unit_mode=True, binary=binary)
    for body in (b"", bytes(range(256)) * 100):
        frame = frames.frame(
            7,
            3,
            -5,
            b'a\x01"\x02',
            body,
            SendFields(code=320, sys_flag=1, flag=-2, reconsume_times=4, max_reconsume_times=16),
            broker_name="b\n",
            oneway=True,
        )
        command = RemotingCommand.decode(frame)
        assert command.ext == {
            "a": 'g"\\',
            "b": "tö\x01",
            "c": "D",
            "d": "9",
            "e": "3",
            "f": "1",
            "g": "-5",
            "h": "-2",
            "i": 'a\x01"\x02',
            "j": "4",
            "k": "true",
            "l": "16",
            "m": "true",
            "n": "b\n",
        }
        assert (command.code, command.opaque, command.flag, command.body) == (320, 7, 2, body)
        assert command.serializer == binary


@pytest.mark.parametrize("binary", [False, True])
def test_numbers_of_any_length_are_read_back(binary: bool) -> None:
    ends = [10**digits + near for digits in range(19) for near in (-1, 0, 1)]
    for number in (*ends, *(-end for end in ends), (1 << 63) - 1, -(1 << 63)):
        frames = SendFrames("g", "t", binary=binary)
        frame = frames.frame(1, 0, number, b"", b"")
        assert RemotingCommand.decode(frame).ext["g"] == str(number)


def test_frames_stay_within_the_limits_of_the_wire() -> None:
    frames = SendFrames("g", "t")
    with pytest.raises(ValueError, match="frame of"):
        frames.frame(1, 0, 0, b"", bytes(16 << 20))
    with pytest.raises(ValueError, match="header of"):
        frames.frame(1, 0, 0, bytes(1 << 18), b"")
    assert frames.frame(1, 0, 0, b"", b"x")


def outcomes_of(
    ext: dict[str, str], *, code: int = 0, remark: str | None = None
) -> list[SendAnswer | BaseException]:
    outcomes: list[SendAnswer | BaseException] = []

    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        frames, opaque = SendFrames("g", "t"), client.next_opaque()
        post(client, opaque, frames.frame(opaque, 0, 0, b"", b"x"), outcomes.append, 5)
        await asyncio.sleep(0)
        client.feed(asked(transport)[0].answer(code, remark, ext).encode())

    run(test)
    return outcomes


def test_an_answer_is_read_whole() -> None:
    ext = {
        "msgId": "ID",
        "queueId": "3",
        "queueOffset": "12345678901234",
        "transactionId": "T",
        "MSG_REGION": "r",
        "TRACE_ON": "false",
        "batchUniqId": "B",
        "recallHandle": "H",
        "other": "x",
    }
    (answer,) = outcomes_of(ext, remark="so")
    assert isinstance(answer, SendAnswer)
    assert (answer.code, answer.remark, answer.queue_id, answer.queue_offset) == (0, "so", 3, 12345678901234)
    assert (answer.offset_message_id, answer.transaction_id, answer.batch_unique_id) == ("ID", "T", "B")
    assert (answer.recall_handle, answer.region, answer.trace_on) == ("H", "r", False)


def test_a_response_may_be_empty() -> None:
    (answer,) = outcomes_of({}, code=2)
    assert isinstance(answer, SendAnswer)
    assert (answer.code, answer.remark, answer.queue_id, answer.queue_offset) == (2, None, -1, -1)
    assert (answer.region, answer.trace_on, answer.recall_handle) == ("DefaultRegion", True, None)


@pytest.mark.parametrize(
    "ext",
    [{"queueId": "x"}, {"queueId": ""}, {"queueOffset": "12345678901234567890"}, {"queueId": "2147483648"}],
)
def test_an_answer_with_a_wrong_number_is_an_error_that_names_it(ext: dict[str, str]) -> None:
    (error,) = outcomes_of(ext)
    assert isinstance(error, FieldError)
    assert next(iter(ext)) in str(error)


def test_waiters_are_notified_of_the_loss_and_of_the_timeout() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        outcomes: list[SendAnswer | BaseException] = []
        loop = asyncio.get_running_loop()
        late = loop.create_future()
        post(client, client.next_opaque(), b"one", late.set_result, 0)
        post(client, client.next_opaque(), b"two", outcomes.append, 5)
        assert isinstance(await late, Failed)
        client.connection_lost(None)
        assert [type(outcome) for outcome in outcomes] == [Failed]
        with pytest.raises(Failed):
            post(client, client.next_opaque(), b"three", outcomes.append, 5)
        assert len(outcomes) == 1

    run(test)


def test_a_failing_callback_does_not_affect_others() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        reports: list[object] = []
        outcomes: list[SendAnswer | BaseException] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: reports.append(context["exception"])
        )
        frames = SendFrames("g", "t")

        def bad(outcome: SendAnswer | BaseException) -> None:
            raise KeyError("mine")

        for done in (bad, outcomes.append):
            opaque = client.next_opaque()
            post(client, opaque, frames.frame(opaque, 0, 0, b"", b"x"), done, 5)
        await asyncio.sleep(0)
        client.feed(b"".join(request.answer().encode() for request in asked(transport)))
        assert len(outcomes) == 1
        assert [type(report) for report in reports] == [KeyError]

    run(test)
