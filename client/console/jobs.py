"""Jobs: actions that take long run on after the request that started them, and pages show how far they came.

A job belongs to the visitor who started it and uses this visitor's connection: it ends when the session does. What it
has done has receipts, so that the same action continues. Loop thread.
"""

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from firearrow.client.base.errors import ClientError, ConfigError, RocketMQError
from firearrow.client.base.times import now_ms
from firearrow.client.cli.output import Column, Kind, titled
from firearrow.client.console.questions import Kept, Question

log = logging.getLogger("firearrow.console")

KEPT_MAX, RUNNING_MAX, RUNNING_OF_USER_MAX = 100, 8, 4
COLUMNS = (
    Column("job", "JOB"),
    *titled("title", "state"),
    Column("done", "DONE", Kind.COUNT),
    Column("total", "OF", Kind.COUNT),
    Column("startedMs", "STARTED", Kind.TIME),
    Column("line", "COMMAND"),
)


@dataclass(slots=True)
class Job:
    """`kept`: what the verb has printed until now. `fault`: why it failed."""

    number: int
    user: str
    title: str
    question: Question
    kept: Kept = field(default_factory=Kept)
    started_ms: int = field(default_factory=now_ms)
    ended_ms: int = 0
    fault: str = ""
    task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        if not self.ended_ms:
            return "running"
        return "failed" if self.fault else "done" if self.kept.code == 0 else "done in part"

    def row(self) -> dict[str, Any]:
        done, total = self.kept.reached
        return {
            "job": str(self.number),
            "title": self.title,
            "state": self.state,
            "done": done,
            "total": total,
            "startedMs": self.started_ms,
            "line": self.question.text(),
        }


class Jobs:
    """Those of all visitors; of ended ones the oldest are forgotten."""

    def __init__(self) -> None:
        self._by_number: dict[int, Job] = {}
        self._numbers = itertools.count(1)

    @property
    def running(self) -> int:
        return sum(not job.ended_ms for job in self._by_number.values())

    def of(self, user: str) -> list[Job]:
        """Newest first."""
        return [job for job in reversed(self._by_number.values()) if job.user == user]

    def find(self, user: str, number: str) -> Job:
        """ClientError: this user has no such job."""
        job = self._by_number.get(int(number)) if number.isdecimal() and len(number) < 10 else None
        if job is None or job.user != user:
            raise ClientError(
                f"there is no job {number}; those before the console's last start are forgotten"
            )
        return job

    def start(self, user: str, title: str, question: Question) -> Job:
        """A job without its task. ConfigError: too many run."""
        if self.running >= RUNNING_MAX:
            raise ConfigError(f"{RUNNING_MAX} jobs run now: wait until one has ended")
        if user and sum(not job.ended_ms for job in self.of(user)) >= RUNNING_OF_USER_MAX:
            raise ConfigError(
                f"{RUNNING_OF_USER_MAX} jobs of {user} run now: wait until one has ended, or stop it"
            )
        ended = [number for number, job in self._by_number.items() if job.ended_ms]
        for number in ended[:-KEPT_MAX]:
            del self._by_number[number]
        job = Job(next(self._numbers), user, title, question)
        self._by_number[job.number] = job
        return job

    async def stop(self, job: Job) -> None:
        """Return when it has ended."""
        if job.task is not None and not job.ended_ms:
            job.fault = "it was stopped; the same action continues it"
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)

    async def close(self) -> None:
        tasks = [job.task for job in self._by_number.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run(job: Job, work: Coroutine[Any, Any, Kept], who: str, line: str) -> None:
    """`who` and `line`: for the log."""
    try:
        await work
    except RocketMQError as error:
        job.fault = str(error)
    except asyncio.CancelledError:
        job.fault = job.fault or "the console has ended"
        raise
    except Exception as error:
        log.exception("job %d failed", job.number)
        job.fault = f"{error or type(error).__name__}: the console's log has the reason"
    finally:
        job.ended_ms = now_ms()
        log.info("audit: %s %s: %s", who, job.state, line)
