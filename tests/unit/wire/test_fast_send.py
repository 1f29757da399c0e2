"""TopicFastSend alone: a send that it does not handle has no side effects."""

import asyncio
from typing import NamedTuple

import pytest

from firearrow._native.wire.fast_send import InFlightLimit, PlainMessages, TopicFastSend
from firearrow._native.wire.send_request import SendFrames
from firearrow.client.base.message import Message
from tests.support.transport import RecordingTransport
from tests.unit.wire.calls_client import CallsClient, asked, run
from tests.unit.wire.test_message_properties import ids


class Sent(NamedTuple):
    status: str
    message_id: str
    offset_message_id: str
    queue: str
    queue_offset: int
    transaction_id: str | None
    recall_handle: str | None
    region: str
    trace_on: bool


ROUTE = object()


def topic_send(
    client: CallsClient, infos: dict[str, object], count_max: int = 9
) -> "tuple[TopicFastSend[Message, str, Sent], InFlightLimit]":
    limit = InFlightLimit(count_max, 1000)
    made: TopicFastSend[Message, str, Sent] = TopicFastSend(
        asyncio.get_running_loop(),
        "t",
        SendFrames("g", "t"),
        ids(),
        limit,
        PlainMessages(frozenset({"S"}), 10, Sent, "stored"),
        infos=infos,
    )
    return made, limit


def slow_path(*outcome: object) -> None:
    raise AssertionError(outcome)


def test_a_fast_send_without_a_connection_does_nothing() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        infos: dict[str, object] = {}
        made, _ = topic_send(client, infos)
        assert made.submit(Message("t", b"x"), 5, slow_path) is None
        with pytest.raises(ValueError, match="at least one queue"):
            made.set_queues(ROUTE, [])
        made.set_queues(ROUTE, [(0, "b", "q0", client)])
        assert (made.has_queues, made.submit(Message("t", b"x"), 5, slow_path)) == (False, None)
        infos["t"] = object()
        assert made.submit(Message("t", b"x"), 5, slow_path) is None
        infos["t"] = ROUTE
        assert made.has_queues
        client.connection_lost(None)
        assert (made.submit(Message("t", b"x"), 5, slow_path), made.has_queues) == (None, False)
        del infos["t"]
        assert made.submit(Message("t", b"x"), 5, slow_path) is None

    run(test)


def test_a_refused_send_takes_no_capacity_and_no_opaque() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        made, limit = topic_send(client, {"t": ROUTE}, count_max=1)
        made.set_queues(ROUTE, [(0, "b", "q0", client)])
        for message in (
            Message("t", b""),
            Message("t", b"x" * 11),
            Message("t", b"x", properties={"S": "1"}),
            Message("t", b"x", sharding_key="k"),
        ):
            assert made.submit(message, 5, slow_path) is None
        with pytest.raises(ValueError, match="property"):
            made.submit(Message("t", b"x", tags="\x01"), 5, slow_path)
        assert (limit.count, limit.bytes, client.pending) == (0, 0, 0)
        first = made.submit(Message("t", b"x"), 5, slow_path)
        assert first is not None
        assert made.submit(Message("t", b"x"), 5, slow_path) is None
        assert (limit.count, client.pending) == (1, 1)
        fields = {"queueId": "0", "queueOffset": "7", "msgId": "ID", "recallHandle": "R"}
        client.feed(asked(transport)[0].answer(0, None, fields).encode())
        result = await first
        assert (type(result), result.status, result.queue, result.queue_offset) == (Sent, "stored", "q0", 7)
        assert (result.offset_message_id, result.recall_handle, limit.count) == ("ID", "R", 0)

    run(test)


def test_all_results_except_success_take_the_slow_path_and_keep_their_capacity() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        outcomes: list[object] = []
        made, limit = topic_send(client, {"t": ROUTE})
        made.set_queues(ROUTE, [(3, "b", "q3", client)])
        message = Message("t", b"xyz")
        futures = [made.submit(message, 5, lambda *outcome: outcomes.append(outcome)) for _ in range(3)]
        await asyncio.sleep(0)
        requests = asked(transport)
        client.feed(requests[0].answer(14, "no", {"queueId": "3"}).encode())
        client.feed(requests[1].answer(0, None, {"queueId": "4"}).encode())
        client.connection_lost(None)
        assert [outcome[:4] for outcome in outcomes] == [(message, "q3", future, 3) for future in futures]  # type: ignore[index]
        assert (limit.count, limit.bytes) == (3, 9)
        assert all(future is not None and not future.done() for future in futures)

    run(test)
