"""LatencyFaultTolerance: brokers that failed or answered slowly are avoided for a time. Loop thread.

The detector probes such brokers by asking for the maximum offset of a queue, so that a broker that is
reachable again is used at once.
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
    (0.05, 0.0),
    (0.1, 0.0),
    (0.55, 2.0),
    (1.8, 5.0),
    (3.0, 6.0),
    (5.0, 10.0),
    (15.0, 30.0),
)
"""(latency, pause): a broker that took at least `latency` seconds is avoided for `pause` seconds."""
ISOLATION_S = 10.0
"""The latency that is assumed for a failure."""
PROBE_EACH_S = 3.0


@dataclass(slots=True)
class _FaultItem:
    available_at_s: float
    reachable: bool
    check_at_s: float


class LatencyFaultTolerance:
    """`clock` in seconds.

    `probe(broker name)` returns whether the broker answered; None: it is not known any more.
    """

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
        """Record the outcome of an attempt. It never shortens the time for which the broker is avoided."""
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
        """Probe the brokers that are due, and forget those that are not known any more (None)."""
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
                log.info("broker %s is reachable again", broker)
                fault.reachable = True


def latency_faults(instance: ClientInstance, options: ProducerOptions) -> LatencyFaultTolerance:
    """The fault tolerance of a producer; it has a probe if `fault_detector` is on."""
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
