"""Jobs that never wait: other tasks of the loop run in between, after a slice that all workers share."""

import asyncio
import time

from firearrow.client.consume.worker_pool import SLICE_S, WorkerPool

WORKERS = 20


async def longest_turn_s(job_s: float, jobs: int) -> tuple[float, int]:
    """The longest time for which another task could not run, and how often it ran."""
    left = jobs

    async def work(_: int) -> None:
        nonlocal left
        left -= 1
        ends = time.thread_time() + job_s
        while time.thread_time() < ends:
            pass

    pool = WorkerPool(WORKERS, work)
    for number in range(jobs):
        pool.add(number)
    longest_s, turns = 0.0, 0
    while left:
        began = time.thread_time()
        await asyncio.sleep(0)
        longest_s, turns = max(longest_s, time.thread_time() - began), turns + 1
    await pool.stop(1)
    return longest_s, turns


async def test_short_jobs_share_a_slice() -> None:
    longest_s, turns = await longest_turn_s(SLICE_S / 50, 5000)
    assert longest_s < 20 * SLICE_S
    assert 10 < turns < 5000 / WORKERS


async def test_long_jobs_let_others_run_after_one_of_each_worker() -> None:
    longest_s, turns = await longest_turn_s(4 * SLICE_S, 3 * WORKERS)
    assert longest_s < 2 * WORKERS * 4 * SLICE_S
    assert turns >= 3


async def test_an_error_ends_neither_the_worker_nor_the_loop() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        if number == 1:
            raise ValueError(number)
        done.append(number)

    pool = WorkerPool(1, work)
    for number in range(4):
        pool.add(number)
    await asyncio.sleep(0.01)
    await pool.stop(1)
    assert done == [0, 2, 3]
