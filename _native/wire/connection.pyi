import asyncio

from firearrow._native.wire.buffer_pool import MemoryBudget
from firearrow._native.wire.command import RemotingCommand

class RawTransport:
    """Sends a connection's bytes without a copy; for native code only."""

class FairQueue:
    """Connections of a loop with complete frames left over; each iteration of the loop gives them a slice of
    time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def run(self) -> None: ...

class Connection:
    """One peer on a transport: complete frames go to `received`; all frames passed to `send` in one pass
    leave as one write.

    Subclasses name asyncio.BufferedProtocol as their second base.
    """

    transport: asyncio.Transport
    closed: bool
    held: int
    received_frames: int
    last_seen: float
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        frame_bytes_max: int = ...,
        high_water: int = ...,
        reads_always: bool = False,
        budget: MemoryBudget | None = None,
    ) -> None:
        """`reads_always`: keep reading while the peer does not read (clients).

        `budget` counts what the connection holds for a peer that stopped in the middle (`held`).
        """
    @property
    def write_paused(self) -> bool:
        """The peer does not read its replies; its requests are not read either, unless `reads_always`. Or it is
        throttled, and many replies wait."""
    def received(self, command: RemotingCommand) -> None: ...
    def lost(self, reason: Exception | None) -> None: ...
    def broken(self, fault: str) -> None: ...
    def send(self, frame: bytes) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def stop_reading(self) -> None: ...
    def abort(self) -> None: ...
    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, reason: Exception | None) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, count: int) -> None: ...
