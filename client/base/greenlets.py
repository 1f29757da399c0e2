"""Where gevent has put greenlets in the place of threads: threads and locks of the system, and how a greenlet waits.

The client's loop, handlers and listeners have threads of the system: as greenlets of one thread they would stop each
other. What two of them share has locks of the system: at one of gevent's, the loop would wait for a hub.
"""

import _thread
import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def of_system(module: str, name: str) -> Any:  # noqa: ANN401
    """A function or class of the standard library, also where gevent has replaced it."""
    monkey = sys.modules.get("gevent.monkey")
    return getattr(sys.modules[module], name) if monkey is None else monkey.get_original(module, name)


def are_threads() -> bool:
    """Whether a new thread is a greenlet."""
    return of_system("_thread", "start_new_thread") is not _thread.start_new_thread


def start_thread(work: Callable[[], None], name: str) -> threading.Thread | None:
    """A daemon of the system. None: it has no name and cannot be joined. RuntimeError: there are too many."""
    if are_threads():
        of_system("_thread", "start_new_thread")(_work_with_hub, (work,))
        return None
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _work_with_hub(work: Callable[[], None]) -> None:
    """The thread gets a hub when it first waits, with descriptors of its own."""
    from gevent import get_hub  # noqa: PLC0415 (only where its threads are greenlets)

    try:
        work()
    finally:
        get_hub().destroy(destroy_loop=True)


def run_in_loop(coroutine: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> Result:
    """Run it in the loop of another thread; other greenlets of this thread run meanwhile.

    An interrupt cancels it. asyncio.CancelledError: also if the loop is closed.
    """
    from gevent import get_hub  # noqa: PLC0415 (only where its threads are greenlets)
    from gevent.event import Event  # noqa: PLC0415

    done, wake = Event(), get_hub().loop.async_()
    wake.start(done.set)  # the hub has to know that another thread will wake it
    lock, is_waiting = of_system("_thread", "allocate_lock")(), True
    tasks: list[asyncio.Task[Result]] = []

    def begin() -> None:
        task = loop.create_task(coroutine)
        tasks.append(task)
        task.add_done_callback(send)

    def send(task: asyncio.Task[Result]) -> None:
        with lock:
            if is_waiting:
                wake.send()
            elif not task.cancelled():
                task.exception()  # no caller reads it

    try:
        try:
            loop.call_soon_threadsafe(begin)
        except RuntimeError:
            coroutine.close()
            raise asyncio.CancelledError from None
        done.wait()
        return tasks[0].result()
    finally:
        with lock:
            is_waiting = False
            wake.close()
        if not done.is_set():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
