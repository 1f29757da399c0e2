"""What a handler may return, the verdict it leads to, and the Protocols of the services that call handlers.

Calls no handler itself. Values only: any thread.
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
    """What a handler returns. None and True mean SUCCESS; False and an exception mean RETRY_LATER.

    In Java null means RETRY_LATER, but most Python functions return None.
    """

    SUCCESS = "CONSUME_SUCCESS"
    RETRY_LATER = "RECONSUME_LATER"
    """Redeliver after the group's delays; an orderly queue pauses and repeats the messages."""
    SUSPEND = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    """Orderly only, where it means the same as RETRY_LATER."""
    COMMIT = "COMMIT"
    """Orderly without auto_commit: all messages since the last COMMIT are done."""
    ROLLBACK = "ROLLBACK"
    """Orderly without auto_commit: repeat all messages since the last COMMIT."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Redeliver after a delay of the broker's table; at level 0 the broker chooses it. Concurrent only."""

    delay_level: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.delay_level <= DELAY_LEVEL_MAX:
            raise ConfigError(f"delay_level: {self.delay_level} is not within 0..{DELAY_LEVEL_MAX}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Do not redeliver: send the message to the group's dead-letter topic. Concurrent only."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The first `count` messages are done; redeliver the others as Retry does. Concurrent only."""

    count: int
    delay_level: int = 0

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ConfigError(f"count: {self.count} is negative")
        if not DEAD_LETTER <= self.delay_level <= DELAY_LEVEL_MAX:
            raise ConfigError(f"delay_level: {self.delay_level} is not within -1..{DELAY_LEVEL_MAX}")


@dataclass(frozen=True, slots=True)
class Suspend:
    """Orderly only: the queue pauses for `seconds` (limited to 10 ms to 30 s) and repeats the messages."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ConfigError(f"seconds must be at least 0, not {self.seconds}")


Answer = ConsumeResult | Retry | DeadLetter | Accepted | Suspend | bool | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do after a handler's answer. Of a concurrent SUCCESS the first `accepted` messages are done."""

    result: ConsumeResult
    accepted: int = ALL
    delay_level: int = 0
    suspend_s: float | None = None
    error: BaseException | None = None


DONE = Verdict(ConsumeResult.SUCCESS)
FAILED = Verdict(ConsumeResult.RETRY_LATER, accepted=0)
SUSPENDED = Verdict(ConsumeResult.SUSPEND)


def concurrent_verdict(answer: object) -> Verdict:
    """TypeError: not an answer, or one for orderly consumers only."""
    if answer is None or answer is True or answer is ConsumeResult.SUCCESS:
        return DONE
    if answer is False or answer is ConsumeResult.RETRY_LATER:
        return FAILED
    match answer:
        case Retry(delay_level=level):
            return Verdict(ConsumeResult.RETRY_LATER, accepted=0, delay_level=level)
        case DeadLetter():
            return Verdict(ConsumeResult.RETRY_LATER, accepted=0, delay_level=DEAD_LETTER)
        case Accepted(count=count, delay_level=level):
            return Verdict(ConsumeResult.SUCCESS, accepted=count, delay_level=level)
    raise TypeError(
        f"a handler must return a ConsumeResult, Retry, DeadLetter, Accepted, bool or None, not {answer!r}"
    )


def orderly_verdict(answer: object) -> Verdict:
    """TypeError: not an answer, or one for concurrent consumers only."""
    if answer is None or answer is True or answer is ConsumeResult.SUCCESS:
        return DONE
    if answer is False or answer is ConsumeResult.RETRY_LATER or answer is ConsumeResult.SUSPEND:
        return SUSPENDED
    match answer:
        case Suspend(seconds=seconds):
            return Verdict(ConsumeResult.SUSPEND, suspend_s=seconds)
        case ConsumeResult.COMMIT | ConsumeResult.ROLLBACK:
            return Verdict(answer)
    raise TypeError(f"an orderly handler must return a ConsumeResult, Suspend, bool or None, not {answer!r}")


class ConsumeStats(Protocol):
    """Counts the results of handlers; `topic` is that of the queue."""

    def consumed(self, topic: str, elapsed_s: float, /) -> None: ...
    def succeeded(self, topic: str, messages: int, /) -> None: ...
    def failed(self, topic: str, messages: int, /) -> None: ...


class Cancellable(Protocol):
    def cancel(self) -> object: ...


Later = Callable[[float, Callable[[], None]], Cancellable]
"""`later(seconds, callback)`: `call_later` of a loop, or a test's."""

Every = Callable[[float, Callable[[], Awaitable[object]], float], Cancellable]
"""`every(seconds, work, first_s)`: that of a ClientInstance, or a test's."""


class OffsetSink(Protocol):
    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None: ...


class ConsumeService(Protocol):
    """Passes pulled messages to handlers. Event loop only."""

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None:
        """Running handlers may finish within `within_s`; other messages stay unfinished."""

    def submit(
        self,
        messages: list[ReceivedMessage],
        process_queue: ProcessQueue,
        queue: MessageQueue,
        dispatch: bool,
    ) -> None:
        """The messages are in the ProcessQueue already; `dispatch` is the result of its `put`."""

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> dict[str, object]:
        """Consume a message at once for an operator without moving offsets. Returns the answer's object."""
