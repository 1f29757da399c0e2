"""ReadAhead: which bytes of the log can be sent to a slave without waiting for the disk.

A slave that is far behind gets what has long left the memory. The log is mapped: whoever touches such a page waits for
the disk, and all clients with it. So the disk is asked for the next bytes ahead, and only those are sent that are in
memory; meanwhile the loop goes on. Loop thread.
"""

from firearrow._native.replication.log_pages import bytes_in_memory, will_need
from firearrow._native.store.message_store import MessageStore

WARM_BYTES = 1 << 20
"""What was written last is in memory."""
AHEAD_BYTES = 4 << 20
AGAIN_S = 0.001
TRIES = 1000
"""After so many, little memory or a slow disk: a few bytes are sent all the same."""
UNSEEN_BYTES = 1 << 16


class ReadAhead:
    """Of one slave."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._asked = 0
        self._tries = 0

    def ready(self, at: int, view: memoryview) -> int:
        """How many bytes of the log from `at` on, which are `view`, to send now. 0: again in AGAIN_S. OSError."""
        if self._store.written - at <= WARM_BYTES:
            return len(view)
        if at + AHEAD_BYTES // 2 >= self._asked:
            begin = max(at, self._asked)
            ahead = self._store.log_bytes(begin, at + AHEAD_BYTES - begin)
            if ahead is not None:
                will_need(ahead)
                self._asked = begin + len(ahead)
        ready = bytes_in_memory(view)
        self._tries = 0 if ready else self._tries + 1
        if self._tries < TRIES:
            return ready
        self._tries = 0
        return min(len(view), UNSEEN_BYTES)
