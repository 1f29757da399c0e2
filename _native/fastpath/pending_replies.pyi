class Pending:
    """Replies that wait for their write batch."""

class PendingReply(Pending):
    """One reply of a handler."""

class ReplyBatch(Pending):
    """Consecutive replies of the fast path in one write batch."""
