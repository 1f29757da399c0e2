"""`eventually`: the one way in which a test waits for what another process, thread or task does."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

FIRST_PAUSE_S = 0.002
LAST_PAUSE_S = 0.05
WITHIN_S = 60.0
"""A limit, not a measure: it only has to be longer than a busy machine takes."""


def eventually(condition: Callable[[], T], within_s: float = WITHIN_S, what: object = "") -> T:
    """Calls `condition` until it returns something true, and returns that.

    `what`: shown with the last value if it does not within `within_s`; called first if it can be.
    """
    deadline, pause = time.monotonic() + within_s, FIRST_PAUSE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, _late(within_s, value, what)
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE_S)
    return value


@overload
async def eventually_async(
    condition: Callable[[], Awaitable[T]], within_s: float = WITHIN_S, what: object = ""
) -> T: ...


@overload
async def eventually_async(
    condition: Callable[[], T], within_s: float = WITHIN_S, what: object = ""
) -> T: ...


async def eventually_async(
    condition: Callable[[], object], within_s: float = WITHIN_S, what: object = ""
) -> object:
    """As `eventually`, on the loop: what `condition` returns is awaited if it can be."""
    deadline, pause = time.monotonic() + within_s, FIRST_PAUSE_S
    while not (value := await _awaited(condition())):
        assert time.monotonic() < deadline, _late(within_s, value, what)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE_S)
    return value


async def _awaited(value: object) -> object:
    return await value if isinstance(value, Awaitable) else value


def _late(within_s: float, value: object, what: object) -> str:
    text = what() if callable(what) else what
    return f"not within {within_s:g} s: {text or 'the condition'} (last: {value!r})"
