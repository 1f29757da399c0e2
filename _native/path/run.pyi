from firearrow._native.path.parked import Pending

class ReplyBatch(Pending):
    """Answers of one turn's fast path that wait for its write."""
