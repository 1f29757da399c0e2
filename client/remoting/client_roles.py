"""Protocols of the producers and consumers that share a client instance."""

from typing import Protocol


class ProducerRole(Protocol):
    @property
    def group(self) -> str:
        """The name as brokers know it, with its namespace."""
        ...

    def topics(self) -> set[str]:
        """Topics whose routes are refreshed regularly."""
        ...


class ConsumerRole(Protocol):
    @property
    def group(self) -> str: ...

    def topics(self) -> set[str]: ...

    def heartbeat_data(self) -> dict[str, object]:
        """Its element of consumerDataSet in a heartbeat."""
        ...

    @property
    def rebalances(self) -> bool:
        """Whether brokers know it and what it subscribes to, and its group shares queues: else there is nothing to
        rebalance."""
        ...

    async def rebalance(self) -> bool:
        """Rebalance all topics once. Returns whether this member now owns just its queues."""
        ...

    async def persist_offsets(self) -> None: ...
