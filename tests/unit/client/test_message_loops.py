"""MessageLoops without a consumer: which loop gets a message, and what becomes of one that no loop takes."""

import asyncio

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.message_loops import MessageLoops
from tests.client.records import received
from tests.support.async_tests import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]

FIRST, SECOND = ([one] for one in received(MessageQueue("orders", "broker-a", 0), [7, 8]))


async def next_of(loops: MessageLoops) -> ReceivedMessage:
    return await anext(loops.messages())


async def test_a_message_that_a_cancelled_loop_was_given_goes_to_the_next_loop() -> None:
    """The task is cancelled in the pass in which it gets the message."""
    loops = MessageLoops()
    waits = asyncio.create_task(next_of(loops))
    await asyncio.sleep(0)
    handled = asyncio.create_task(loops.handle(FIRST))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait((waits,))
    async for message in loops.messages():
        assert [message] == FIRST
        loops.end()
    assert await handled is True


async def test_a_turn_that_is_not_used_goes_to_the_next_call() -> None:
    """The queue of the first call was released while it waited."""
    loops = MessageLoops()
    turns = [asyncio.create_task(loops.turn()) for _ in range(3)]
    await asyncio.sleep(0.001)
    assert not any(turn.done() for turn in turns)
    asks = asyncio.create_task(next_of(loops))
    async with asyncio.timeout(5):
        assert await turns[0] is True
        assert await turns[1] is True, "the first has not called the handler"
        await asyncio.gather(*turns)
    handled = asyncio.create_task(loops.handle(SECOND))
    assert [await asks] == SECOND
    later = asyncio.create_task(loops.turn())
    await asyncio.sleep(0.001)
    assert not later.done(), "no loop asks"
    loops.end()
    assert await later is False
    assert await handled is False, "the loop was left in its body"


async def test_a_handler_call_that_was_cancelled_is_passed_over() -> None:
    loops = MessageLoops()
    early = asyncio.create_task(loops.handle(FIRST))
    await asyncio.sleep(0)
    early.cancel()
    await asyncio.wait((early,))
    asks = asyncio.create_task(next_of(loops))
    await asyncio.sleep(0)
    assert not asks.done()
    handled = asyncio.create_task(loops.handle(SECOND))
    assert [await asks] == SECOND
    loops.end()
    assert await handled is False


@pytest.mark.parametrize("meanwhile", ["end", "handle"])
async def test_a_cancellation_is_kept_while_the_loop_is_passed_over(meanwhile: str) -> None:
    """In the pass in which a waiting loop is cancelled, the consumer stops or a handler looks for a loop."""
    loops = MessageLoops()
    waits = asyncio.create_task(next_of(loops))
    await asyncio.sleep(0)
    handled = asyncio.create_task(loops.handle(FIRST))
    waits.cancel()
    if meanwhile == "end":
        loops.end()
        handled.cancel()
    await asyncio.wait((waits,))
    assert waits.cancelled()
    if meanwhile == "handle":
        assert [await next_of(loops)] == FIRST


async def test_turns_wait_after_a_start_that_was_repeated() -> None:
    """The end of a failed start woke those that waited; the next start must not find them awake."""
    loops = MessageLoops()
    loops.end()
    loops.begin()
    turn = asyncio.create_task(loops.turn())
    await asyncio.sleep(0.001)
    assert not turn.done()
    asks = asyncio.create_task(next_of(loops))
    async with asyncio.timeout(5):
        assert await turn is True
    asks.cancel()
