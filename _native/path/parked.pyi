class Waiting:
    """A reply that waits for its turn's write."""

class Parked(Waiting):
    """One answer."""
