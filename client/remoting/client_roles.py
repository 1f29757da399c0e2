"""What an instance knows of the producers and consumers that share it. Only Protocols."""

from typing import Protocol


class ProducerRole(Protocol):
    @property
    def group(self) -> str:
        """As brokers know it, with its namespace."""
        ...

    def topics(self) -> set[str]:
        """Topics whose routes are to be kept fresh."""
        ...


class ConsumerRole(Protocol):
    @property
    def group(self) -> str: ...

    def topics(self) -> set[str]: ...

    def heartbeat_data(self) -> dict[str, object]:
        """Its element of consumerDataSet (wire-protocol 6.4)."""
        ...

    async def rebalance(self) -> bool:
        """One round over all topics; whether what was wanted is now held."""
        ...

    async def persist_offsets(self) -> None: ...
