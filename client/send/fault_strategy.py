"""LatencyFaultTolerance: brokers that answered slowly or failed, and until when they are passed over. Loop thread.

The detector probes brokers in the table with a small question, so that one that is back is used again at once.

How a producer finds out whether a broker that failed can be reached again: it asks for the end of some queue.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from firearrow.client.base.errors import RocketMQError, TransportError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ProducerOptions
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets

log = logging.getLogger("firearrow.client")

LATENCY_STEPS_S = (
    (0.05, 0.0), (0.1, 0.0), (0.55, 2.0), (1.8, 5.0), (3.0, 6.0), (5.0, 10.0), (15.0, 30.0),
)  # fmt: skip
"""An answer that took at least the first is passed over for the second."""
ISOLATION_S = 10.0
"""A broker that failed is held to have taken this long."""
PROBE_EACH_S = 3.0


@dataclass(slots=True)
class _FaultItem:
    available_at_s: float
    reachable: bool
    check_at_s: float


class LatencyFaultTolerance:
    """`clock` in seconds. `probe(broker name)` asks the broker something small and says whether it answered."""

    def __init__(
        self,
        clock: Callable[[], float],
        probe: Callable[[str], Awaitable[bool | None]] | None = None,
        interval_s: float = 2,
    ) -> None:
        self._clock = clock
        self._probe = probe
        self._interval_s = interval_s
        self._faults: dict[str, _FaultItem] = {}

    @property
    def probes(self) -> bool:
        return self._probe is not None

    def update(self, broker: str, took_s: float, *, isolate: bool = False, reachable: bool = True) -> None:
        """What came of a try. The end of an availability is only ever moved later."""
        latency = ISOLATION_S if isolate else took_s
        pause = next((pause for least, pause in reversed(LATENCY_STEPS_S) if latency >= least), 0.0)
        now = self._clock()
        fault = self._faults.get(broker)
        if fault is None:
            self._faults[broker] = _FaultItem(now + pause, reachable, now + self._interval_s)
        else:
            fault.available_at_s = max(fault.available_at_s, now + pause)
            fault.reachable = reachable

    def available(self, broker: str) -> bool:
        fault = self._faults.get(broker)
        return fault is None or self._clock() >= fault.available_at_s

    def reachable(self, broker: str) -> bool:
        fault = self._faults.get(broker)
        return fault is None or fault.reachable

    async def detect(self) -> None:
        """Probe those whose time has come. One that nobody knows any more (None) is forgotten."""
        if self._probe is None:
            return
        now = self._clock()
        for broker, fault in list(self._faults.items()):
            if fault.check_at_s > now:
                continue
            fault.check_at_s = now + self._interval_s
            answered = await self._probe(broker)
            if answered is None:
                del self._faults[broker]
            elif answered and not fault.reachable:
                log.info("broker %s can be reached again", broker)
                fault.reachable = True


def latency_faults(instance: ClientInstance, options: ProducerOptions) -> LatencyFaultTolerance:
    """With a probe if `fault_detector` is on."""
    queue_offsets = QueueOffsets(instance)

    async def probe(broker_name: str) -> bool | None:
        topic = instance.routes.topic_of(broker_name)
        if topic is None or instance.routes.master(broker_name) is None:
            return None
        try:
            async with asyncio.timeout(options.detect_timeout_s):
                await queue_offsets.max_offset(MessageQueue(topic, broker_name, 0))
        except TimeoutError:
            return False
        except RocketMQError as error:
            return not isinstance(error, TransportError)
        return True

    return LatencyFaultTolerance(
        instance.loop.time, probe if options.fault_detector else None, options.detect_interval_s
    )
