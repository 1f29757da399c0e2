"""BrokerFaults: brokers that the name server lost, refused, or knew at two addresses at a time. In memory. Loop thread.

A name server forgets a broker as soon as its connection ends, as Apache's does: without this list no client could show
that one is missing. An entry ends when the broker registers or unregisters, and after KEPT_MS.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from firearrow.broker.base.clock import Clock

FAULTS_MAX = 1024
"""The oldest ones are dropped."""
KEPT_MS = 7 * 86_400_000


class Fault(StrEnum):
    """LOST: it disconnected, or was silent, and had not unregistered. REFUSED: its registration was not accepted.
    REPLACED: while it was alive, another one registered with its name and id."""

    LOST = "lost"
    REFUSED = "refused"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class BrokerFault:
    """`other`: of REPLACED, the address that it took the place of, which is its own if both advertise the same one.
    `at_ms`: monotonic: the clock of who asks may differ."""

    fault: Fault
    cluster: str
    broker: str
    broker_id: int
    address: str
    at_ms: int
    other: str = ""
    reason: str = ""


class BrokerFaults:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: dict[tuple[Fault, str, int, str], BrokerFault] = {}
        """One for each address, the latest last."""

    def add(
        self,
        fault: Fault,
        cluster: str,
        broker: str,
        broker_id: int,
        address: str,
        *,
        other: str = "",
        reason: str = "",
    ) -> None:
        key = fault, broker, broker_id, address
        self._faults.pop(key, None)
        while len(self._faults) >= FAULTS_MAX:
            del self._faults[next(iter(self._faults))]
        now_ms = self._clock.monotonic_ms()
        self._faults[key] = BrokerFault(fault, cluster, broker, broker_id, address, now_ms, other, reason)

    def registered(self, broker: str, broker_id: int, address: str) -> None:
        """It is there again; at another address it has moved."""
        lost = [key for key in self._faults if key[:3] == (Fault.LOST, broker, broker_id)]
        for key in [*lost, (Fault.REFUSED, broker, broker_id, address)]:
            self._faults.pop(key, None)

    def unregistered(self, address: str, *, cluster: str) -> None:
        """It was stopped, or an operator does not expect it any more."""
        for key, each in list(self._faults.items()):
            if each.cluster == cluster and address in (each.address, each.other):
                del self._faults[key]

    def to_objects(self) -> Iterator[dict[str, object]]:
        """The newest first."""
        now_ms = self._clock.monotonic_ms()
        for each in reversed(self._faults.values()):
            if now_ms - each.at_ms <= KEPT_MS:
                yield {
                    "fault": each.fault,
                    "cluster": each.cluster,
                    "broker": each.broker,
                    "brokerId": each.broker_id,
                    "address": each.address,
                    "other": each.other,
                    "ageMs": now_ms - each.at_ms,
                    "reason": each.reason,
                }
