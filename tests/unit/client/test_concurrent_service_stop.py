"""How the concurrent service stops: what waits, what is abandoned, which callers may request it."""

import asyncio
import threading

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from tests.client.concurrent_harness import ConcurrentHarness, Gate, answering
from tests.client.services import settled
from tests.support.eventually import eventually_async


async def test_a_stop_waits_for_handlers_that_run_and_leaves_what_has_not_begun() -> None:
    gate = Gate()
    harness = ConcurrentHarness(gate, batch_size=1, at_a_time=1)
    await harness.pulled(10, 11, 12)
    stopping = asyncio.create_task(harness.service.stop(30))
    await settled()
    assert not stopping.done()
    await gate.answer(0)
    await stopping
    assert harness.offsets.last == 11
    assert len(gate.calls) == 1
    await harness.pulled(13)
    assert len(gate.calls) == 1


async def test_a_stop_gives_up_handlers_that_run_too_long() -> None:
    gate, ended = Gate(), threading.Event()
    harness = ConcurrentHarness(gate)
    await harness.pulled(10)
    await harness.service.stop(0.01)
    assert gate.calls[0][1].cancelled()
    assert harness.offsets.updates == []

    harness = ConcurrentHarness(lambda messages: ended.wait(30))
    await harness.pulled(10)
    await harness.service.stop(0.01)
    ended.set()
    assert harness.offsets.updates == []


@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_may_stop_the_service_that_called_it(plain: bool) -> None:
    """As closing the consumer does; the stop runs in a separate task and waits for all others."""
    loop, others, stopped = asyncio.get_running_loop(), asyncio.Event(), list[bool]()

    async def stop() -> None:
        await harness.service.stop(30)
        stopped.append(others.is_set())

    async def handler(messages: list[ReceivedMessage]) -> None:
        if messages[0].queue_offset == 0:
            await others.wait()
        else:
            await asyncio.create_task(stop())

    def plain_handler(messages: list[ReceivedMessage]) -> None:
        asyncio.run_coroutine_threadsafe(handler(messages), loop).result(10)

    harness = ConcurrentHarness(plain_handler if plain else handler, batch_size=1)
    await harness.pulled(0, 1)
    await settled()
    assert stopped == []
    others.set()
    await eventually_async(lambda: stopped)
    assert stopped == [True]
    await eventually_async(lambda: harness.process_queue.message_count == 0)


async def test_a_stop_forgets_local_retries() -> None:
    harness = ConcurrentHarness(answering(False), takes=lambda message: False)
    await harness.pulled(10)
    await harness.service.stop(1)
    assert harness.time.waits == []
