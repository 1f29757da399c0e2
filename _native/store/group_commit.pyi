from firearrow._native.base.histogram import Histogram
from firearrow._native.store.message_store import MessageStore

FLUSH_BOUNDS_US: tuple[int, ...]

class GroupCommit:
    """A thread that fsyncs the log on request."""

    def __init__(self, store: MessageStore, flushes: Histogram | None = None) -> None:
        """`flushes` gets the length of each sync, in microseconds. OSError: no descriptor left."""
    def start(self) -> None: ...
    def is_alive(self) -> bool:
        """False if the thread ended, neither by `stop` nor with an error that `collect_synced` raises."""
    def request_sync(self) -> None:
        """Sync everything written so far, soon."""
    def fileno(self) -> int:
        """Readable when a sync has ended: call `collect_synced`."""
    def collect_synced(self) -> int:
        """The offset up to which the log is durable. OSError: a sync failed, and the thread has ended."""
    def stop(self) -> None:
        """Serve the last request, then end the thread."""
