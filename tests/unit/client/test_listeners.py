"""Listeners: which handlers run in threads, what the caller gets, and what a closed consumer's threads do."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import NotRunning
from firearrow.client.base.hooks import is_coroutine_function
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.listeners import (
    Handler,
    HandlerExit,
    HandlerThreads,
    Listener,
    Listeners,
)
from tests.client.records import received
from tests.support.eventually import eventually_async

MESSAGES = received(MessageQueue("orders", "broker-a", 0), [7])
trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")


def plain(messages: list[ReceivedMessage]) -> str:
    return threading.current_thread().name


async def coroutine(messages: list[ReceivedMessage]) -> str:
    return threading.current_thread().name


class Plain:
    def __call__(self, messages: list[ReceivedMessage]) -> str:
        return plain(messages)

    def method(self, messages: list[ReceivedMessage]) -> str:
        return plain(messages)


class Coroutine:
    async def __call__(self, messages: list[ReceivedMessage]) -> str:
        return await coroutine(messages)

    async def method(self, messages: list[ReceivedMessage]) -> str:
        return await coroutine(messages)


def with_more(more: int, messages: list[ReceivedMessage]) -> str:
    return plain(messages)


async def with_more_awaited(more: int, messages: list[ReceivedMessage]) -> str:
    return await coroutine(messages)


@pytest.mark.parametrize(
    ("handler", "awaited"),
    [
        (plain, False),
        (Plain(), False),
        (Plain().method, False),
        (functools.partial(with_more, 1), False),
        (lambda messages: threading.current_thread().name, False),
        (coroutine, True),
        (Coroutine(), True),
        (Coroutine().method, True),
        (functools.partial(with_more_awaited, 1), True),
    ],
)
async def test_plain_handlers_run_in_threads_and_coroutine_functions_in_the_loop(
    handler: Handler, awaited: bool
) -> None:
    threads = HandlerThreads("worker", 1)
    assert is_coroutine_function(handler) is awaited
    name = await Listener(handler, threads)(MESSAGES)
    assert name == (threading.current_thread().name if awaited else "worker_0")
    threads.close()


async def test_an_awaitable_that_a_plain_function_gives_back_is_awaited() -> None:
    def handler(messages: list[ReceivedMessage]) -> object:
        return coroutine(messages)

    threads = HandlerThreads("worker", 1)
    assert await Listener(handler, threads)(MESSAGES) == "MainThread"
    threads.close()


async def test_context_variables_reach_the_thread_and_stay_there() -> None:
    def handler(messages: list[ReceivedMessage]) -> str:
        found = trace.get()
        trace.set("changed")
        return found

    trace.set("of the caller")
    threads = HandlerThreads("worker", 1)
    assert await Listener(handler, threads)(MESSAGES) == "of the caller"
    assert await Listener(handler, threads)(MESSAGES) == "of the caller"
    assert trace.get() == "of the caller"
    threads.close()


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ValueError("no"), ValueError),
        (SystemExit(2), SystemExit),
        (StopIteration(), HandlerExit),
        (asyncio.CancelledError(), HandlerExit),
        (GeneratorExit(), HandlerExit),
    ],
)
async def test_what_a_handler_raises_in_its_thread_is_raised_to_the_caller(
    error: BaseException, seen: type[BaseException]
) -> None:
    def handler(messages: list[ReceivedMessage]) -> None:
        raise error

    threads = HandlerThreads("worker", 1)
    with pytest.raises(seen):
        await Listener(handler, threads)(MESSAGES)
    assert await Listener(plain, threads)(MESSAGES) == "worker_0"
    threads.close()


async def test_threads_are_begun_when_wanted_and_never_more_than_allowed() -> None:
    threads, two = HandlerThreads("counted", 2), threading.Barrier(2)

    def handler(messages: list[ReceivedMessage]) -> str:
        two.wait(10)
        return plain(messages)

    def count() -> int:
        return sum(thread.name.startswith("counted") for thread in threading.enumerate())

    assert await threads.run(plain, MESSAGES) == "counted_0"
    assert await threads.run(plain, MESSAGES) == "counted_0"
    assert count() == 1
    waiting = [threads.run(handler, MESSAGES) for _ in range(6)]
    assert count() == 2
    assert set(await asyncio.gather(*waiting)) == {"counted_0", "counted_1"}
    threads.close()
    await eventually_async(lambda: count() == 0)


async def test_a_caller_that_stopped_waiting_has_no_effect() -> None:
    threads, going = HandlerThreads("worker", 1), threading.Event()
    first = threads.run(lambda messages: going.wait(10), MESSAGES)
    second = threads.run(plain, MESSAGES)
    first.cancel()
    going.set()
    assert await second == "worker_0"
    threads.close()


async def test_closed_threads_take_nothing_more() -> None:
    threads = HandlerThreads("worker", 1)
    threads.close()
    with pytest.raises(NotRunning):
        threads.run(plain, MESSAGES)


def test_a_handler_that_ends_after_its_loop_was_closed_ends_in_peace() -> None:
    threads, going = HandlerThreads("late", 1), threading.Event()

    async def begin() -> None:
        threads.run(lambda messages: going.wait(10), MESSAGES)

    asyncio.run(begin())
    (worker,) = [thread for thread in threading.enumerate() if thread.name == "late_0"]
    threads.close()
    going.set()
    worker.join(10)
    assert not worker.is_alive()


async def test_a_handler_that_was_replaced_is_called_no_more() -> None:
    handlers: dict[str, Callable[..., Any]] = {"orders": coroutine}
    listeners = Listeners(handlers.get, HandlerThreads("worker", 1))
    first = listeners.of("orders")
    assert first is listeners.of("orders")
    handlers["orders"] = Coroutine()
    second = listeners.of("orders")
    assert second is not None
    assert second.handler is handlers["orders"]
    del handlers["orders"]
    assert listeners.of("orders") is None
