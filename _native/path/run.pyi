from firearrow._native.path.parked import Waiting

class Run(Waiting):
    """Answers of one turn's fast path that wait for its write."""
