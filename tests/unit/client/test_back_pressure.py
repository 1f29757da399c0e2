"""The limits of sends in flight: reached, first come first served, released by cancelled sends."""

import asyncio

import pytest

from firearrow.client.base.errors import TooManyRequests
from firearrow.client.send.back_pressure import BackPressure


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_so_many_and_so_many_bytes_but_one_always() -> None:
    pressure = BackPressure(3, 100)
    assert [pressure.try_acquire(10) for _ in range(4)] == [True, True, True, False]
    pressure = BackPressure(10, 100)
    assert [pressure.try_acquire(60), pressure.try_acquire(40), pressure.try_acquire(1)] == [
        True,
        True,
        False,
    ]
    pressure.release(40)
    assert [pressure.try_acquire(41), pressure.try_acquire(40)] == [False, True]
    alone = BackPressure(10, 100)
    assert [alone.try_acquire(5000), alone.try_acquire(0)] == [True, False]


def test_the_error_at_the_limit_says_how_much_is_in_flight() -> None:
    pressure = BackPressure(2, 100)
    pressure.claim(30)
    pressure.claim(30)
    with pytest.raises(TooManyRequests, match="2 messages of 60 bytes"):
        pressure.claim(1)


async def test_it_waits_for_capacity_only_if_configured() -> None:
    pressure = BackPressure(1, 100, waits=False)
    assert await pressure.wait_for_capacity(10, 3.0) == 3.0
    with pytest.raises(TooManyRequests):
        await pressure.wait_for_capacity(10, 3.0)


async def test_waiting_takes_from_the_time_and_ends_with_it() -> None:
    pressure = BackPressure(1, 100)
    await pressure.wait_for_capacity(10, 5)
    waiting = asyncio.create_task(pressure.wait_for_capacity(20, 5))
    await settle()
    assert not waiting.done()
    pressure.release(10)
    assert 0 < await waiting < 5
    assert (pressure.count, pressure.bytes) == (1, 20)
    with pytest.raises(TooManyRequests):
        await pressure.wait_for_capacity(1, 0.01)
    with pytest.raises(TooManyRequests):
        await pressure.wait_for_capacity(1, -1)
    pressure.release(20)
    assert pressure.try_acquire(1), "who gave up holds nothing"


async def test_first_come_first_served() -> None:
    pressure = BackPressure(10, 100)
    pressure.claim(100)
    served: list[int] = []

    async def want(size: int) -> None:
        await pressure.wait_for_capacity(size, 5)
        served.append(size)

    tasks = [asyncio.create_task(want(size)) for size in (90, 5, 20)]
    await settle()
    assert not pressure.try_acquire(0), "others wait"
    pressure.release(100)
    await settle()
    assert served == [90, 5]
    pressure.release(5)
    await settle()
    assert served == [90, 5], "20 more do not fit beside 90"
    pressure.release(90)
    await asyncio.gather(*tasks)
    assert served == [90, 5, 20]


async def test_a_cancelled_waiter_lets_the_next_one_go_on() -> None:
    pressure = BackPressure(10, 100)
    pressure.claim(50)
    large = asyncio.create_task(pressure.wait_for_capacity(80, 5))
    small = asyncio.create_task(pressure.wait_for_capacity(50, 5))
    await settle()
    assert not small.done()
    large.cancel()
    await small
    assert (pressure.count, pressure.bytes) == (2, 100)


async def test_a_waiter_cancelled_when_it_is_served_releases_its_capacity() -> None:
    pressure = BackPressure(1, 100)
    pressure.claim(1)
    waiting = asyncio.create_task(pressure.wait_for_capacity(2, 5))
    await settle()
    pressure.release(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (pressure.count, pressure.bytes) == (0, 0)


async def test_idle_is_when_nothing_is_in_flight_or_waiting() -> None:
    pressure = BackPressure(1, 100)
    await pressure.idle()
    pressure.claim(1)
    waiting = asyncio.create_task(pressure.wait_for_capacity(2, 5))
    idle = asyncio.create_task(pressure.idle())
    await settle()
    pressure.release(1)
    await waiting
    await settle()
    assert not idle.done()
    pressure.release(2)
    async with asyncio.timeout(5):
        await idle
