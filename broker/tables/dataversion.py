"""DataVersion: the version of a table's state. An immutable value; equal if all three numbers are equal."""

from typing import NamedTuple


class DataVersion(NamedTuple):
    """`timestamp` in ms. `state_version`: the epoch of a master that controllers made, else 0."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        return DataVersion(self.counter + 1, self.state_version, now_ms)

    def to_object(self) -> dict[str, int]:
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @staticmethod
    def from_object(value: object) -> "DataVersion":
        """ValueError when a member is not a number; a missing one is 0 (4.9 has no stateVersion)."""
        if not isinstance(value, dict):
            raise ValueError("dataVersion is not an object")
        numbers = [value.get(name, 0) for name in ("counter", "stateVersion", "timestamp")]
        if not all(type(number) is int for number in numbers):
            raise ValueError("dataVersion contains a value that is not a number")
        return DataVersion(*numbers)
