"""A lane alone: what it does not do leaves no trace."""

import asyncio
from typing import NamedTuple

import pytest

from firearrow._native.wire.lane import Allowance, Lane
from firearrow._native.wire.sends import SendFrames
from firearrow.client.message import Message
from tests.support.transport import RecordingTransport
from tests.wire.calls_client import CallsClient, asked, run
from tests.wire.test_outgoing import ids


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


def lane(
    client: CallsClient, infos: dict[str, object], count_max: int = 9
) -> "tuple[Lane[Message, str, Sent], Allowance]":
    allowance = Allowance(count_max, 1000)
    made: Lane[Message, str, Sent] = Lane(
        asyncio.get_running_loop(), "t", SendFrames("g", "t"), ids(), allowance,
        infos=infos, special=frozenset({"S"}), body_bytes_max=10, result_type=Sent, stored="stored",
    )  # fmt: skip
    return made, allowance


def beyond(*outcome: object) -> None:
    raise AssertionError(outcome)


def test_a_lane_that_leads_nowhere_does_nothing() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        infos: dict[str, object] = {}
        made, _ = lane(client, infos)
        assert made.submit(Message("t", b"x"), 5, beyond) is None
        with pytest.raises(ValueError, match="at least one queue"):
            made.lay(ROUTE, [])
        made.lay(ROUTE, [(0, "b", "q0", client)])
        assert (made.laid, made.submit(Message("t", b"x"), 5, beyond)) == (False, None)
        infos["t"] = object()
        assert made.submit(Message("t", b"x"), 5, beyond) is None
        infos["t"] = ROUTE
        assert made.laid
        client.connection_lost(None)
        assert (made.submit(Message("t", b"x"), 5, beyond), made.laid) == (None, False)
        del infos["t"]
        assert made.submit(Message("t", b"x"), 5, beyond) is None

    run(test)


def test_what_is_refused_takes_no_room_and_no_number() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        made, allowance = lane(client, {"t": ROUTE}, count_max=1)
        made.lay(ROUTE, [(0, "b", "q0", client)])
        for message in (
            Message("t", b""),
            Message("t", b"x" * 11),
            Message("t", b"x", properties={"S": "1"}),
            Message("t", b"x", sharding_key="k"),
        ):
            assert made.submit(message, 5, beyond) is None
        with pytest.raises(ValueError, match="property"):
            made.submit(Message("t", b"x", tags="\x01"), 5, beyond)
        assert (allowance.count, allowance.bytes, client.pending) == (0, 0, 0)
        first = made.submit(Message("t", b"x"), 5, beyond)
        assert first is not None
        assert made.submit(Message("t", b"x"), 5, beyond) is None
        assert (allowance.count, client.pending) == (1, 1)
        place = {"queueId": "0", "queueOffset": "7", "msgId": "ID", "recallHandle": "R"}
        client.feed(asked(transport)[0].answer(0, None, place).encode())
        result = await first
        assert (type(result), result.status, result.queue, result.queue_offset) == (Sent, "stored", "q0", 7)
        assert (result.offset_message_id, result.recall_handle, allowance.count) == ("ID", "R", 0)

    run(test)


def test_all_but_success_goes_beyond_and_keeps_its_room() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        outcomes: list[object] = []
        made, allowance = lane(client, {"t": ROUTE})
        made.lay(ROUTE, [(3, "b", "q3", client)])
        message = Message("t", b"xyz")
        futures = [made.submit(message, 5, lambda *outcome: outcomes.append(outcome)) for _ in range(3)]
        await asyncio.sleep(0)
        requests = asked(transport)
        client.feed(requests[0].answer(14, "no", {"queueId": "3"}).encode())
        client.feed(requests[1].answer(0, None, {"queueId": "4"}).encode())
        client.connection_lost(None)
        assert [outcome[:4] for outcome in outcomes] == [(message, "q3", future, 3) for future in futures]  # type: ignore[index]
        assert (allowance.count, allowance.bytes) == (3, 9)
        assert all(future is not None and not future.done() for future in futures)

    run(test)
