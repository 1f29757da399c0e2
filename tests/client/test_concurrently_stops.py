"""How the concurrent service stops: what waits, what is given up, who may ask for it."""

import asyncio
import threading

import pytest

from firearrow._native.store.received import ReceivedMessage
from tests.client.services import settled
from tests.client.test_concurrently import Gate, Room, answering
from tests.client.waiting import wait_until


async def test_a_stop_waits_for_handlers_that_run_and_leaves_what_has_not_begun() -> None:
    gate = Gate()
    room = Room(gate, batch_size=1, at_a_time=1)
    await room.pulled(10, 11, 12)
    stopping = asyncio.create_task(room.service.stop(30))
    await settled()
    assert not stopping.done()
    await gate.answer(0)
    await stopping
    assert room.offsets.last == 11
    assert len(gate.calls) == 1
    await room.pulled(13)
    assert len(gate.calls) == 1


async def test_a_stop_gives_up_handlers_that_run_too_long() -> None:
    gate, ended = Gate(), threading.Event()
    room = Room(gate)
    await room.pulled(10)
    await room.service.stop(0.01)
    assert gate.calls[0][1].cancelled()
    assert room.offsets.updates == []

    room = Room(lambda messages: ended.wait(30))
    await room.pulled(10)
    await room.service.stop(0.01)
    ended.set()
    assert room.offsets.updates == []


@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_may_stop_the_service_that_called_it(plain: bool) -> None:
    """As it does who closes the consumer; the stop runs in a task of its own, and waits for all others."""
    loop, others, stopped = asyncio.get_running_loop(), asyncio.Event(), list[bool]()

    async def stop() -> None:
        await room.service.stop(30)
        stopped.append(others.is_set())

    async def handler(messages: list[ReceivedMessage]) -> None:
        if messages[0].queue_offset == 0:
            await others.wait()
        else:
            await asyncio.create_task(stop())

    def plain_handler(messages: list[ReceivedMessage]) -> None:
        asyncio.run_coroutine_threadsafe(handler(messages), loop).result(10)

    room = Room(plain_handler if plain else handler, batch_size=1)
    await room.pulled(0, 1)
    await settled()
    assert stopped == []
    others.set()
    await wait_until(lambda: stopped)
    assert stopped == [True]
    await wait_until(lambda: room.process_queue.message_count == 0)


async def test_a_stop_forgets_local_retries() -> None:
    room = Room(answering(False), takes=lambda message: False)
    await room.pulled(10)
    await room.service.stop(1)
    assert room.time.waits == []
