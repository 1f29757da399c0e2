"""A transport of kombu, and so of Celery, for RocketMQ: `rocketmq://user:password@host:9876/namespace`.

The import makes the scheme `rocketmq`, and `rocketmqs` with TLS, known to kombu. Without it, name the class:
`broker_transport = "firearrow.client.integrations.kombu:Transport"`.

- `channel`: Channel, which sends, receives and acknowledges for kombu
- `envelope`: a message of kombu as a message of RocketMQ, and back
- `feeds`: QueueFeed, which pops a queue as far as the prefetch count allows
- `leases`: Leases, the messages that are not settled yet, and Window, which counts them
- `names`: names of exchanges as names of topics
- `revoked`: the recall of revoked tasks that wait for their ETA
- `session`: Session, the client that the connections of a process share
- `settings`: the meaning of URL and transport options
- `temporary_queues`: TemporaryQueue, for replies, events and remote control
- `transport`: Transport, and the inbox that wakes kombu
"""

from firearrow.client.integrations.kombu.names import dead_letter_topic
from firearrow.client.integrations.kombu.transport import TRANSPORT_ALIASES, TlsTransport, Transport
from firearrow.client.integrations.topic_names import queue_of, topic_of

__all__ = ["TlsTransport", "Transport", "dead_letter_topic", "queue_of", "topic_of"]
__dir__ = __all__.copy

TRANSPORT_ALIASES.setdefault("rocketmq", f"{__name__}:Transport")
TRANSPORT_ALIASES.setdefault("rocketmqs", f"{__name__}:TlsTransport")
