"""How far a stream is behind: messages between where it is and the end of its queues. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from firearrow.client.base.message import MessageQueue


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Messages. `least`, `most` and `mean` are of a queue."""

    behind: Mapping[MessageQueue, int]

    @classmethod
    def between(cls, read: Mapping[MessageQueue, int], newest: Mapping[MessageQueue, int]) -> Self:
        """Queues that the stream does not know yet are behind from their beginning."""
        return cls({queue: max(0, end - read.get(queue, 0)) for queue, end in newest.items()})

    @property
    def messages(self) -> int:
        return sum(self.behind.values())

    @property
    def least(self) -> int:
        return min(self.behind.values(), default=0)

    @property
    def most(self) -> int:
        return max(self.behind.values(), default=0)

    @property
    def mean(self) -> float:
        return self.messages / len(self.behind) if self.behind else 0.0

    def __str__(self) -> str:
        return f"{self.messages} messages behind in {len(self.behind)} queues, at most {self.most} in one"
