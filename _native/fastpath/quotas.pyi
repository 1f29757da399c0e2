from collections.abc import Sequence

MESSAGES_IN: int
BYTES_IN: int
MESSAGES_OUT: int
BYTES_OUT: int
IN: int
OUT: int
USER: int
TOPIC: int
GROUP: int
BURST_S: float
DELAY_MAX_S: float
ENTITIES_MAX: int
NAME_CHARS_MAX: int

_Rates = tuple[float, float, float, float]
"""Messages in, bytes in, messages out, bytes out, per second; 0: no quota."""

class EntityQuota:
    """A user, topic or group with its rates. `by_default`: they are those of all others of its kind."""

    kind: int
    name: str
    by_default: bool
    delayed: int
    refused: int
    def rates(self) -> _Rates: ...
    def used(self, now: float) -> tuple[int, int, int, int]:
        """What was used in the last whole second."""

class Quotas:
    """The rates of users, topics and groups, and what they have used. Times are monotonic seconds."""

    def configure(self, kind: int, default: _Rates | None, named: dict[str, _Rates]) -> None:
        """Replace the rates of a kind. Who keeps its rates keeps its debt."""
    def limits(self, direction: int) -> bool:
        """Whether anything has a quota for IN or OUT."""
    def debt(self, direction: int, user: str | None, topic: str, group: str | None, now: float) -> float:
        """The seconds until the last of the three is within its quota; <= 0: they all are."""
    def charge(
        self,
        direction: int,
        user: str | None,
        topic: str,
        group: str | None,
        messages: int,
        size: int,
        now: float,
    ) -> float:
        """Use so much; returns the debt after it. A debt counts as delayed."""
    def refuse(
        self, direction: int, user: str | None, topic: str, group: str | None, now: float
    ) -> tuple[int, str, int, float]:
        """Count a refusal: the kind and name of who has the largest debt, which quota it is, and its rate."""
    def listed(self, kind: int) -> Sequence[EntityQuota]: ...
    def counts(self) -> list[tuple[int, int, int, int]]:
        """Kind, quota, how many requests were delayed, and refused; without zeros."""
