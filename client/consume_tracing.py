"""ConsumeTracing: a push consumer's traces, if its user wants any; it works without them, too. Event loop only."""

import logging
from collections.abc import Sequence

from firearrow.client.errors import RocketMQError
from firearrow.client.hooks import ConsumeHook
from firearrow.client.instance import Instance
from firearrow.client.producer import Producer
from firearrow.client.push_setting import PushSetting
from firearrow.client.trace import Side, trace_dispatcher
from firearrow.client.trace_hooks import ConsumeTrace

log = logging.getLogger("firearrow.client")


class ConsumeTracing:
    """`hooks`: the user's, and behind them the one that notes what becomes of messages."""

    def __init__(self, setting: PushSetting, instance: Instance) -> None:
        options = setting.options
        self.hooks: Sequence[ConsumeHook] = tuple(setting.consume_hooks)
        self._group = setting.group
        self._dispatcher = None
        if options.trace:
            self._dispatcher = trace_dispatcher(
                Producer,
                setting.group,
                Side.CONSUME,
                instance.options,
                options.trace_topic,
                options.trace_batch,
            )
            self.hooks = (*self.hooks, ConsumeTrace(self._dispatcher, setting.namespace))

    async def start(self) -> None:
        if self._dispatcher is not None:
            try:
                await self._dispatcher.start()
            except RocketMQError:
                log.exception("%s is not traced", self._group)

    async def close(self) -> None:
        """What waits is sent first, if that does not take too long."""
        if self._dispatcher is not None:
            await self._dispatcher.close()
