"""PushConsumerConfig: the configuration of a push consumer; subscriptions may change while it runs.

Values only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from firearrow.client.base.hooks import ConsumeHook, FilterHook
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import PushConsumerOptions
from firearrow.client.base.reports import Reports
from firearrow.client.consume.message_loops import MessageLoops
from firearrow.client.consume.subscriptions import Subscriptions
from firearrow.client.rebalance.offset_store import OffsetStore
from firearrow.client.rebalance.rebalance import QueueListener


@dataclass(slots=True, kw_only=True)
class PushConsumerConfig:
    """`group` is the group's name at the brokers."""

    group: str
    options: PushConsumerOptions
    namespace: Namespace
    subscriptions: Subscriptions
    reports: Reports
    loops: MessageLoops
    offset_store: OffsetStore | None = None
    queue_listener: QueueListener | None = None
    consume_hooks: Sequence[ConsumeHook] = field(default=())
    filter_hooks: Sequence[FilterHook] = field(default=())

    @property
    def is_iterated(self) -> bool:
        """Whether `async for` gets the messages, not handlers."""
        return self.loops.handle in self.subscriptions.handlers
