class Waiting:
    """What waits for its turn's write."""

class Parked(Waiting):
    """One answer."""
