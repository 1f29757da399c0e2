"""OnewayWrites: which one-way messages the kernel has not taken yet. Loop thread.

A one-way message has no answer: all that can be known is that its bytes left this process.
"""

from collections import deque

from firearrow.client.remoting.channel import Channel

FRAMES_MAX = 16384
"""More than the buffer of a connection holds: a one-way send waits while it is full."""


class OnewayWrites:
    def __init__(self) -> None:
        self._sizes: dict[Channel, deque[int]] = {}

    def written(self, channel: Channel, size: int) -> None:
        sizes = self._sizes.get(channel)
        if sizes is None:
            self._forget_closed()
            sizes = self._sizes[channel] = deque(maxlen=FRAMES_MAX)
        sizes.append(size)

    def unsent(self) -> int:
        """How many messages are in buffers of connections, in part or whole."""
        self._forget_closed()
        return sum(_last(sizes, channel.unsent_bytes) for channel, sizes in self._sizes.items())

    def _forget_closed(self) -> None:
        self._sizes = {channel: sizes for channel, sizes in self._sizes.items() if not channel.closed}


def _last(sizes: deque[int], length: int) -> int:
    """How many of the last sizes make up this length."""
    count = 0
    for size in reversed(sizes):
        if length <= 0:
            break
        length -= size
        count += 1
    return count
