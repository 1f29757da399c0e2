"""A clock that stands still but for pauses: what was paced tells how long it would have taken."""

START = 100.0


class Clock:
    """Seconds. Give `pause` to what rests."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    @property
    def passed(self) -> float:
        return self.now - START

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
