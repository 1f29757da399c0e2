KEPT_BYTES: int

class Shelf:
    """Rooms of large frames that connections of a thread leave to each other, KEPT_BYTES at most. One thread."""

    bytes: int
    def take(self, length: int) -> bytearray | None:
        """The smallest that holds so many bytes, with what was left in it."""
    def give(self, room: bytearray) -> None:
        """Nobody may look at it any more. Smaller ones go for it if there is no place."""
