from firearrow._native.store.message_store import MessageStore

ZEROS_AHEAD_BYTES: int

class GroupCommit:
    """A thread that syncs the log whenever it is asked to; the log lays out zeros ahead from now on."""

    def __init__(self, store: MessageStore) -> None:
        """OSError: the process has no descriptor left."""
    def start(self) -> None: ...
    def ask(self) -> None:
        """All that is written is to be on the disk soon."""
    def fileno(self) -> int:
        """Readable when there is something to be heard."""
    def heard(self) -> int:
        """Up to where the log is on the disk. OSError: the disk refused, and the thread has ended."""
    def stop(self) -> None:
        """What was asked for is done, and the thread has ended, when this returns."""
