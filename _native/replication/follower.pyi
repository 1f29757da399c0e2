class FollowError(Exception):
    """What a master sends cannot be followed; the text says why."""

class RecordDamaged(FollowError):
    """Bytes that are no valid record: they are not appended. `offset`: where they begin."""

    offset: int

class RecordDoubted(FollowError):
    """A valid record that does not continue its queue, seen for the first time: ask for it again."""

    offset: int

class Follower:
    """Appends a master's log to `store`, which takes no other messages (`store.follows`).

    A reader of the socket writes into `wire` and calls `received`, then `append` and a commit, until `append`
    returns False.
    """

    def __init__(self, store: object) -> None: ...
    wire: bytearray
    next_offset: int
    """Physical offset of the next byte that the master has to send."""
    pieces: int
    heartbeats: int
    records: int
    """How many were received, and how many records were staged."""
    skipped_lmqs: int
    """How many records have no entries in the LMQs that they name, because these do not continue there."""
    @property
    def is_empty(self) -> bool:
        """The log has no byte yet, also if it is known where it begins."""
    def begin(self, min_offset: int, end: int) -> int:
        """Forget unfinished bytes; returns the offset to ask for: the end of the log, of an empty one the
        master's `min_offset`, or 1 if that is 0 and the master has messages (`end` > 0), because a request for 0
        gets the last file only. FollowError: the master's files have another size."""
    def received(self, length: int) -> None:
        """Take `length` bytes of `wire`. FollowError: an offset or size that cannot be; close the connection."""
    def take(self, offset: int, data: bytes | memoryview) -> None:
        """Take bytes of the log that a frame of a pair brought, in the place of `received`. FollowError: they are not
        the next ones, or cross the end of a file."""
    def append(self) -> bool:
        """Stage the whole records that are here. True: commit, and call it again. FollowError, after which the
        records before are staged; OSError: no space for a queue's or the index's entry."""
    def drain_queues(self) -> list[tuple[str, int]]:
        """Topic and id of the queues that got entries since the last call."""
    def last_record(self) -> tuple[int, bytes] | None:
        """Offset and bytes of the newest record; None if the log has none."""
