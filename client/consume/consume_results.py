"""What a handler may answer, what its answer comes to, and the face of the services that call handlers.

Never calls a handler itself. Values only: any thread.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance.process_queue import ProcessQueue

DELAY_LEVEL_MAX = 1000
ALL = (1 << 31) - 1
DEAD_LETTER = -1


class ConsumeResult(Enum):
    """What a handler answers. None and True are SUCCESS, False and an exception RETRY_LATER.

    Java differs: there nothing returned means once more. A Python function that returns nothing is the ordinary case.
    """

    SUCCESS = "CONSUME_SUCCESS"
    RETRY_LATER = "RECONSUME_LATER"
    """Comes again after the group's delays; an orderly queue rests first and then repeats it."""
    SUSPEND = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    """Orderly only: the same as RETRY_LATER there."""
    COMMIT = "COMMIT"
    """Orderly without auto_commit: done with all since the last COMMIT."""
    ROLLBACK = "ROLLBACK"
    """Orderly without auto_commit: once more from the last COMMIT."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Once more, after a delay of the broker's table; level 0 leaves the choice to the broker. Concurrent only."""

    delay_level: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.delay_level <= DELAY_LEVEL_MAX:
            raise ConfigError(f"delay_level: {self.delay_level} is not within 0..{DELAY_LEVEL_MAX}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Not once more: to the group's dead-letter topic. Concurrent only."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The first `count` messages are done, the others come again (`delay_level` as of Retry). Concurrent only."""

    count: int
    delay_level: int = 0

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ConfigError(f"count: {self.count} is negative")
        if not DEAD_LETTER <= self.delay_level <= DELAY_LEVEL_MAX:
            raise ConfigError(f"delay_level: {self.delay_level} is not within -1..{DELAY_LEVEL_MAX}")


@dataclass(frozen=True, slots=True)
class Suspend:
    """Orderly only: the queue rests so long (10 ms to 30 s are obeyed), then the messages are tried again."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ConfigError(f"seconds: {self.seconds} is not a length of time")


Answer = ConsumeResult | Retry | DeadLetter | Accepted | Suspend | bool | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer comes to. Of a concurrent SUCCESS the first `accepted` messages are done."""

    result: ConsumeResult
    accepted: int = ALL
    delay_level: int = 0
    suspend_s: float | None = None
    error: BaseException | None = None


DONE = Verdict(ConsumeResult.SUCCESS)
AGAIN = Verdict(ConsumeResult.RETRY_LATER, accepted=0)
SUSPENDED = Verdict(ConsumeResult.SUSPEND)


def concurrent_verdict(answer: object) -> Verdict:
    """TypeError: not an answer, or one of orderly consumers."""
    if answer is None or answer is True or answer is ConsumeResult.SUCCESS:
        return DONE
    if answer is False or answer is ConsumeResult.RETRY_LATER:
        return AGAIN
    match answer:
        case Retry(delay_level=level):
            return Verdict(ConsumeResult.RETRY_LATER, accepted=0, delay_level=level)
        case DeadLetter():
            return Verdict(ConsumeResult.RETRY_LATER, accepted=0, delay_level=DEAD_LETTER)
        case Accepted(count=count, delay_level=level):
            return Verdict(ConsumeResult.SUCCESS, accepted=count, delay_level=level)
    raise TypeError(
        f"a handler answered {answer!r}: not a ConsumeResult, Retry, DeadLetter, Accepted, bool or None"
    )


def orderly_verdict(answer: object) -> Verdict:
    """TypeError: not an answer, or one of concurrent consumers."""
    if answer is None or answer is True or answer is ConsumeResult.SUCCESS:
        return DONE
    if answer is False or answer is ConsumeResult.RETRY_LATER or answer is ConsumeResult.SUSPEND:
        return SUSPENDED
    match answer:
        case Suspend(seconds=seconds):
            return Verdict(ConsumeResult.SUSPEND, suspend_s=seconds)
        case ConsumeResult.COMMIT | ConsumeResult.ROLLBACK:
            return Verdict(answer)
    raise TypeError(f"an orderly handler answered {answer!r}: not a ConsumeResult, Suspend, bool or None")


class ConsumeStats(Protocol):
    """Where it is counted how handlers do; `topic` is that of the queue."""

    def consumed(self, topic: str, elapsed_s: float, /) -> None: ...
    def succeeded(self, topic: str, messages: int, /) -> None: ...
    def failed(self, topic: str, messages: int, /) -> None: ...


class Cancellable(Protocol):
    def cancel(self) -> object: ...


Later = Callable[[float, Callable[[], None]], Cancellable]
"""`later(seconds, callback)`: a loop's call_later, or a test's."""

Every = Callable[[float, Callable[[], Awaitable[object]], float], Cancellable]
"""`every(seconds, work, first_s)`: an Instance's, or a test's."""


class OffsetSink(Protocol):
    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None: ...


class ConsumeService(Protocol):
    """Takes what was pulled and sees to it that handlers get it. Event loop only."""

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None:
        """Handlers that run may finish for so long, and their results count; what has not begun stays unfinished."""

    def submit(
        self,
        messages: list[ReceivedMessage],
        process_queue: ProcessQueue,
        queue: MessageQueue,
        dispatch: bool,
    ) -> None:
        """The messages are in the ProcessQueue already; `dispatch` is what its `put` said."""

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> dict[str, object]:
        """An operator wants it handled here and now; offsets stay as they are. The JSON object of the answer."""
