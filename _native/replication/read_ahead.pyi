from firearrow._native.store.message_store import MessageStore

WARM_BYTES: int
TRIES: int
UNSEEN_BYTES: int

def will_need(view: memoryview) -> None:
    """Ask the disk for these bytes of a mapped file, without waiting for them."""

def bytes_in_memory(view: memoryview) -> int:
    """How many bytes of a mapped file, from the first on, can be read without waiting for the disk. Looks at most at
    4 MiB."""

class ReadAhead:
    """Of one slave."""

    def __init__(self, store: MessageStore) -> None: ...
    def ready(self, at: int, view: memoryview) -> int:
        """How many bytes of the log from `at` on, which are `view`, to send now. 0: the disk reads; ask again in a
        millisecond. OSError."""
