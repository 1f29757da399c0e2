import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from firearrow._native.wire.message_properties import Outgoing
from firearrow._native.wire.pending_calls import PendingCalls
from firearrow._native.wire.send_request import SendAnswer, SendFrames
from firearrow._native.wire.unique_ids import UniqueIds

Sent = TypeVar("Sent", bound=tuple[Any, ...])
Sendable = TypeVar("Sendable", bound=Outgoing)
Queue = TypeVar("Queue")

class InFlightLimit:
    """Limits the messages and the bytes of bodies in flight. A single message always fits."""

    count_max: int
    bytes_max: int
    count: int
    bytes: int
    crowded: bool
    """Other messages wait for capacity: `try_acquire` refuses."""
    def __init__(self, count_max: int, bytes_max: int) -> None: ...
    def try_acquire(self, size: int) -> bool: ...
    def fits(self, size: int) -> bool: ...
    def release(self, size: int) -> None: ...
    def freed(self) -> None:
        """For subclasses: capacity was released while it was crowded, or nothing is in flight anymore."""

class PlainMessages(Generic[Sent]):
    """Plain messages of a producer: bodies of at most `body_bytes_max` bytes, and no property in `special`. A
    result is a `result_type` whose status is `stored`."""

    def __init__(
        self, special: frozenset[str], body_bytes_max: int, result_type: type[Sent], stored: object
    ) -> None: ...

class TopicFastSend(Generic[Sendable, Queue, Sent]):
    """Sends plain messages of one topic over open connections. A result is a `result_type`:

    (stored, unique id, offset message id, queue, queue offset, transaction id, recall handle, region,
    trace_on).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        topic: str,
        frames: SendFrames,
        ids: UniqueIds,
        limit: InFlightLimit,
        plain: PlainMessages[Sent],
        *,
        infos: Mapping[str, object],
        next_queue: int = 0,
    ) -> None:
        """`infos` is the route table's own dict, `topic` its key."""

    def set_queues(
        self,
        info: object,
        targets: Sequence[tuple[int, str, Queue, PendingCalls]],
        attempt_share: float = 1,
    ) -> None:
        """Send to these queues in turn, while `infos` has this `info` object.

        Each is (queue id, broker name, queue as in results, channel); at least one. `attempt_share`: the part of a
        send's time after which `slow_path` gets its failure, with the deadline of the whole.
        """
    def forget_queues(self) -> None:
        """Send nothing more until `set_queues` is called again."""

    @property
    def has_queues(self) -> bool:
        """Whether it has queues of the current route."""
    def submit(
        self,
        message: Sendable,
        timeout_s: float,
        slow_path: Callable[
            [Sendable, Queue, asyncio.Future[Sent], int, float, SendAnswer | BaseException], object
        ],
    ) -> asyncio.Future[Sent] | None:
        """The future of the result; None: not plain, no queues, or no capacity, and nothing was done.

        An outcome other than success goes to `slow_path(message, queue, future, size, deadline, outcome)`,
        which has to complete the future and release `size`. ValueError: the properties cannot be encoded.
        """
