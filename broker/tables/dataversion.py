"""DataVersion: which state of a table this is. An immutable value; equal when all three parts are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataVersion:
    """`timestamp` in ms. `state_version` is 0 on a broker without replicas."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        return DataVersion(self.counter + 1, 0, now_ms)

    def to_object(self) -> dict[str, int]:
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @staticmethod
    def from_object(value: object) -> "DataVersion":
        """ValueError when a part is there and no number; missing parts are 0 (4.9 has no stateVersion)."""
        if not isinstance(value, dict):
            raise ValueError("dataVersion is not an object")
        parts = [value.get(name, 0) for name in ("counter", "stateVersion", "timestamp")]
        if not all(type(part) is int for part in parts):
            raise ValueError("dataVersion holds something that is no number")
        return DataVersion(*parts)
