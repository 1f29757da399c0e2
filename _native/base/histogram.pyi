class Histogram:
    """Counts of whole values by range. ValueError: no bounds, too many, or not rising."""

    total: int
    def __init__(self, bounds: tuple[int, ...]) -> None:
        """`bounds`: the inclusive upper bound of each range but the last."""
    def record(self, value: int, times: int = 1) -> None: ...
    def read(self) -> tuple[list[int], int]:
        """The count of each range, the last one above all bounds, and the sum of all values."""
