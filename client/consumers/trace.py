"""ConsumeTracing: the message trace of a consumer, if it is enabled. Event loop only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from firearrow.client.base.hooks import ConsumeHook
from firearrow.client.base.names import Namespace
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.send.producer import Producer
from firearrow.client.trace.dispatcher import TraceDispatcher, TraceSide, trace_dispatcher
from firearrow.client.trace.hooks import ConsumeTrace


class TraceOptions(Protocol):
    @property
    def trace(self) -> bool: ...
    @property
    def trace_topic(self) -> str: ...
    @property
    def trace_batch(self) -> int: ...


class TracedConsumer(Protocol):
    """The part of a consumer's configuration that is needed here."""

    @property
    def group(self) -> str: ...
    @property
    def options(self) -> TraceOptions: ...
    @property
    def namespace(self) -> Namespace: ...
    @property
    def consume_hooks(self) -> Sequence[ConsumeHook]: ...


@dataclass(frozen=True, slots=True)
class TracedConsumerConfig:
    """A TracedConsumer."""

    group: str
    options: TraceOptions
    namespace: Namespace
    consume_hooks: Sequence[ConsumeHook]


class ConsumeTracing:
    """`hooks`: the user's hooks, followed by the one that records traces."""

    def __init__(self, config: TracedConsumer, instance: ClientInstance) -> None:
        options = config.options
        self.hooks: Sequence[ConsumeHook] = tuple(config.consume_hooks)
        self._dispatcher: TraceDispatcher | None = None
        if options.trace:
            self._dispatcher = trace_dispatcher(
                Producer,
                config.group,
                TraceSide.CONSUME,
                instance.options,
                options.trace_topic,
                options.trace_batch,
            )
            self.hooks = (*self.hooks, ConsumeTrace(self._dispatcher, config.namespace))

    async def start(self) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.start()

    async def close(self) -> None:
        """Send pending traces, within a time limit, and close."""
        if self._dispatcher is not None:
            await self._dispatcher.close()
