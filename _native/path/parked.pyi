class Pending:
    """A reply that waits for its turn's write."""

class PendingReply(Pending):
    """One answer."""
