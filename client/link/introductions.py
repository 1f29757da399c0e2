"""Introductions: brokers that are to call us back must have heard of us before. Loop thread."""

from firearrow.client.base.options import ProducerOptions
from firearrow.client.link.instance import ClientInstance


class FirstHeartbeat:
    """Of the producers of one instance: whoever joins it later needs introductions of his own."""

    def __init__(self, instance: ClientInstance, options: ProducerOptions) -> None:
        self._instance = instance
        self._options = options
        self._known: set[str] = set()

    async def ensure_known(self, topic: str) -> None:
        """Tell each master that the topic (its name as brokers know it) can be sent to; those told before are not.

        A broker that cannot be told is tried again next time. NoRoute, TransportError of name servers.
        """
        options, routes = self._options, self._instance.routes
        info = await routes.publish_info(topic, options.template_topic, options.default_queues)
        for name in {routes.broker_name_of(queue) for queue in info.queues}:
            address = routes.master(name)
            if (
                address is not None
                and address not in self._known
                and await self._instance.heartbeats.beat(address)
            ):
                self._known.add(address)
