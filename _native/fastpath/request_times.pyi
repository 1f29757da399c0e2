import asyncio

from firearrow._native.base.histogram import Histogram
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.poller import PassListener

BOUNDS_US: tuple[int, ...]
"""Bounds of the latency of a request, in microseconds; Apache's are among them."""
SIZE_BOUNDS: tuple[int, ...]
"""Bounds of a message's size in bytes, as Apache's."""
ANSWERS_MAX: int
"""Combinations of request code and answer that have a histogram of their own; all others share one, of code -1."""

class PutCounts:
    """Messages sent to one topic with one message type, and their bytes in the log."""

    messages: int
    bytes: int
    def add(self, messages: int, size: int) -> None: ...
    def sizes(self) -> list[int]:
        """How many messages have a size up to each of SIZE_BOUNDS, and how many a larger one."""

class RequestTimes(PassListener):
    """Latency of all requests, by their code and the code of their answer."""

    def measure_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        """There is no poller: a turn of the loop counts as a pass."""
    def answer(self, answer: RemotingCommand, is_closed: bool) -> None:
        """An answer of a handler leaves, or is dropped because its connection is closed."""
    def all(self) -> list[tuple[int, int, bool, bool, Histogram]]:
        """Request code, code of the answer, whether the request waited for messages, whether the connection was
        closed; and its latency in microseconds. One combination may be there twice."""
