import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from firearrow._native.wire.calls import Calls
from firearrow._native.wire.outgoing import Outgoing
from firearrow._native.wire.sends import SendAnswer, SendFrames
from firearrow._native.wire.uniqueid import UniqueIds

Sent = TypeVar("Sent", bound=tuple[Any, ...])
Sendable = TypeVar("Sendable", bound=Outgoing)
Queue = TypeVar("Queue")

class Allowance:
    """How many messages, and bytes of bodies, may be on the way at a time. One alone always has room."""

    count_max: int
    bytes_max: int
    count: int
    bytes: int
    crowded: bool
    """Others wait for room: `take` refuses."""
    def __init__(self, count_max: int, bytes_max: int) -> None: ...
    def take(self, size: int) -> bool: ...
    def fits(self, size: int) -> bool: ...
    def give_back(self, size: int) -> None: ...
    def freed(self) -> None:
        """For subclasses: something was given back while it was crowded, or nothing is on the way any more."""

class Lane(Generic[Sendable, Queue, Sent]):
    """Sends ordinary messages of one topic over connections that are open. A result is a `result_type`:

    (stored, unique id, offset message id, queue, queue offset, transaction id, recall handle, region, trace_on).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        topic: str,
        frames: SendFrames,
        ids: UniqueIds,
        allowance: Allowance,
        *,
        infos: Mapping[str, object],
        special: frozenset[str],
        body_bytes_max: int,
        result_type: type[Sent],
        stored: object,
        turn: int = 0,
    ) -> None:
        """`infos` is the route table's own dict, `topic` its key; properties in `special` make a message unordinary."""

    def lay(self, info: object, targets: Sequence[tuple[int, str, Queue, Calls]]) -> None:
        """Send to these queues, in turn, as long as `infos` has this very `info`.

        Each is queue id, broker name, the queue as results name it, the channel; at least one.
        """

    @property
    def laid(self) -> bool: ...
    def submit(
        self,
        message: Sendable,
        timeout_s: float,
        beyond: Callable[
            [Sendable, Queue, asyncio.Future[Sent], int, float, SendAnswer | BaseException], object
        ],
    ) -> asyncio.Future[Sent] | None:
        """The future of the result, or None: not ordinary, not laid, no room; then nothing was done.

        What does not end in success goes to `beyond(message, queue, future, size, deadline, outcome)`, which has to
        end the future and give back `size`. ValueError: the message's properties cannot be written.
        """
