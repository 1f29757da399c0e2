"""PendingCalls: every call ends once, with its response, its timeout or the loss of the connection."""

import asyncio
import threading

import pytest

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.pending_calls import TICK_S, Failure
from tests.support.eventually import eventually_async
from tests.support.transport import RecordingTransport
from tests.unit.wire.calls_client import CallsClient, Failed, asked, run


def test_responses_go_to_their_callers_in_any_order() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        calls = [client.call(RemotingCommand.request(10 + n), 5) for n in range(3)]
        await asyncio.sleep(0)
        assert len(transport.writes) == 2, "the first leaves at once, the others together"
        requests = asked(transport)
        assert [request.code for request in requests] == [10, 11, 12]
        assert len({request.opaque for request in requests}) == 3
        for number in (2, 0, 1):
            client.feed(requests[number].answer(0, f"to {number}").encode())
        assert [(await call).remark for call in calls] == ["to 0", "to 1", "to 2"]
        assert client.pending == 0

    run(test)


def test_requests_of_the_peer_are_passed_on() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        call = client.call(RemotingCommand.request(10), 5)
        client.feed(RemotingCommand.request(40, {"k": "v"}).encode())
        client.feed(RemotingCommand(0, opaque=999, flag=1).encode())
        assert [(request.code, request.ext) for request in client.requests] == [(40, {"k": "v"})]
        assert not call.done()
        call.cancel()

    run(test)


def test_a_call_times_out_and_its_late_response_is_dropped() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        slow, fast = client.call(RemotingCommand.request(10), 30), client.call(RemotingCommand.request(11), 0)
        with pytest.raises(Failed) as error:
            await fast
        assert error.value.args == (Failure.LATE, None)
        late = asked(transport)[1]
        client.feed(late.answer().encode())
        assert (client.pending, slow.done(), client.faults) == (1, False, [])
        slow.cancel()

    run(test)


def test_timeouts_expire_while_others_wait_longer() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        calls = [client.call(RemotingCommand.request(10), seconds) for seconds in (30, 0.15, 0.05)]
        for call, least in ((calls[2], 0.05), (calls[1], 0.15)):
            with pytest.raises(Failed):
                await call
            assert least <= loop.time() - began < least + 10 * TICK_S
        assert not calls[0].done()
        calls[0].cancel()

    run(test)


def test_a_cancelled_call_does_not_affect_others() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        call, other = (client.call(RemotingCommand.request(10), 5) for _ in range(2))
        call.cancel()
        await asyncio.sleep(0)
        for request in asked(transport):
            client.feed(request.answer(0, "late").encode())
        assert (await other).remark == "late"

    run(test)


def test_all_pending_calls_fail_when_the_connection_is_lost() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        calls = [client.call(RemotingCommand.request(10), 5) for _ in range(3)]
        reason = OSError("reset")
        client.connection_lost(reason)
        for call in (*calls, client.call(RemotingCommand.request(10), 5)):
            with pytest.raises(Failed) as error:
                await call
            assert error.value.args in ((Failure.LOST, reason), (Failure.CLOSED, None))
        assert (client.gone, client.pending) == (1, 0)

    run(test)


def test_pending_calls_are_bounded() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        calls = [client.call(RemotingCommand.request(10), 5) for _ in range(3)]
        with pytest.raises(Failed) as error:
            await calls[2]
        assert error.value.args == (Failure.FULL, None)
        await asyncio.sleep(0)
        client.feed(asked(transport)[0].answer().encode())
        assert not client.call(RemotingCommand.request(10), 5).done()
        client.connection_lost(None)
        await asyncio.gather(*calls, return_exceptions=True)

    run(test, pending_max=2)


def test_a_retired_connection_closes_after_the_last_response() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        call = client.call(RemotingCommand.request(10), 5)
        await asyncio.sleep(0)
        client.retire()
        assert not transport.closing
        client.feed(asked(transport)[0].answer().encode())
        assert transport.closing
        await call

    run(test)


def test_a_retired_connection_does_not_wait_for_cancelled_calls() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        client.call(RemotingCommand.request(10), 30).cancel()
        client.retire()
        await eventually_async(lambda: transport.closing)

    run(test)


def test_a_broken_answer_ends_all_calls() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        call = client.call(RemotingCommand.request(10), 5)
        await asyncio.sleep(0)
        opaque = asked(transport)[0].opaque
        header = b'{"code":0,"flag":1,"opaque":%d,"remark":"\\ux"}' % opaque
        client.feed((4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header)
        assert (client.faults, transport.closing) == (["the header is not JSON"], True)
        client.connection_lost(None)
        with pytest.raises(Failed):
            await call

    run(test)


def test_a_client_keeps_reading_while_writes_are_paused() -> None:
    async def test(client: CallsClient, transport: RecordingTransport) -> None:
        call = client.call(RemotingCommand.request(10), 5)
        await asyncio.sleep(0)
        client.pause_writing()
        assert transport.reading
        client.feed(asked(transport)[0].answer().encode())
        await call

    run(test)


def test_each_thread_has_a_separate_receive_window() -> None:
    windows: list[memoryview] = []

    def thread() -> None:
        loop = asyncio.new_event_loop()
        windows.append(CallsClient(loop).get_buffer(-1))
        loop.close()

    threads = [threading.Thread(target=thread) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    windows[0][:4] = b"mine"
    assert windows[1][:4] != b"mine"
