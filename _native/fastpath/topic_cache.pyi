class Count:
    """`value`: the sum; `times`: the number of additions."""

    value: int
    times: int

class PlainTopics:
    """The topics of the fast path; requests for others take the complete path."""

    def put(self, topic: str, *, queues: int, sendable: bool, multi_tags: bool = False) -> None:
        """Add the topic, or change its settings. Queue ids below `queues` are valid for a sender."""
    def drop(self, topic: str) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, topic: str) -> bool: ...
