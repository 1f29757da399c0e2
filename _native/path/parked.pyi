class Waiting:
    """What waits for its turn's write."""

    end: int
    since_ms: int

class Parked(Waiting):
    """One answer."""
