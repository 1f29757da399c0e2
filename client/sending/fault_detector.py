"""How a producer finds out whether a broker that failed can be reached again: it asks for the end of some queue."""

import asyncio

from firearrow.client.base.errors import RocketMQError, TransportError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ProducerOptions
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets
from firearrow.client.sending.latency_faults import LatencyFaultTolerance


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
