"""Periodic: a job is repeated after a failure, and its interval may change while it runs."""

import asyncio

from firearrow.broker.services.timers import Periodic


def test_an_interval_is_read_before_each_wait_and_a_failure_ends_nothing() -> None:
    async def run() -> list[float]:
        loop = asyncio.get_running_loop()
        waits = iter([0.01, 0.01, 3600.0])
        asked: list[float] = []
        third = asyncio.Event()

        def seconds() -> float:
            asked.append(next(waits))
            if len(asked) == 3:
                third.set()
            return asked[-1]

        def job() -> None:
            raise ValueError("once more")

        periodic = Periodic(loop)
        periodic.every(seconds, job)
        await asyncio.wait_for(third.wait(), 5)
        periodic.stop()
        return asked

    assert asyncio.run(run()) == [0.01, 0.01, 3600.0]
