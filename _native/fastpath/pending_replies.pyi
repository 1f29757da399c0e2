class Pending:
    """A reply that waits for its turn's write."""

class PendingReply(Pending):
    """One answer."""

class ReplyBatch(Pending):
    """Answers of one turn's fast path that wait for its write."""
