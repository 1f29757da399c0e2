"""SIGTERM and SIGINT: the first requests a clean end; a second SIGINT has its default effect, a second SIGTERM none."""

import asyncio
import os
import signal
import threading

import pytest

from firearrow.client.consume.signals import SIGNALS, on_stop_signals, stopped_by_signals
from tests.support.eventually import eventually_async


@pytest.fixture(autouse=True)
def _harmless() -> object:
    """The signal handlers before and after."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, _note)
    _noted.clear()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


_noted: list[int] = []


def _note(number: int, frame: object) -> None:
    _noted.append(number)


@pytest.mark.parametrize("number", SIGNALS)
async def test_the_first_signal_notifies_all_waiters(number: signal.Signals) -> None:
    called: list[str] = []
    with on_stop_signals(lambda: called.append("one")), on_stop_signals(lambda: called.append("two")):
        os.kill(os.getpid(), number)
        await eventually_async(lambda: called == ["one", "two"])
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        await eventually_async(lambda: _noted == [signal.SIGINT])
    assert called == ["one", "two"]
    os.kill(os.getpid(), signal.SIGTERM)
    assert _noted == [signal.SIGINT, signal.SIGTERM]


def test_without_a_loop_a_second_sigterm_changes_nothing() -> None:
    called: list[str] = []
    with stopped_by_signals(lambda: called.append("stop")):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert (called, _noted) == (["stop"], [signal.SIGINT])


async def test_a_removed_waiter_is_not_notified_and_the_last_restores_the_handlers() -> None:
    called: list[str] = []
    with on_stop_signals(lambda: called.append("stays")):
        with on_stop_signals(lambda: called.append("left")):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually_async(lambda: called)
    assert called == ["stays"]
    with on_stop_signals(lambda: called.append("unused")):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    assert _noted == [signal.SIGTERM]


async def test_the_next_one_is_called_again() -> None:
    for _ in range(2):
        called = asyncio.Event()
        with on_stop_signals(called.set):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(called.wait(), 5)


def test_in_other_threads_signals_stay_as_they_are() -> None:
    entered = []

    async def within() -> None:
        with on_stop_signals(lambda: entered.append("called")):
            entered.append(signal.getsignal(signal.SIGTERM) is _note)

    thread = threading.Thread(target=lambda: asyncio.run(within()))
    thread.start()
    thread.join(5)
    assert entered == [True]
