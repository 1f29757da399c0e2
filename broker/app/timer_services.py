"""TimerServices: builds the service of timer messages and its files.

With timerWheelEnable=false the service is `DisabledTimers`, and timer messages are refused. Loop thread.
"""

from pathlib import Path

from firearrow.broker.append.appender import Appender
from firearrow.broker.base.message import Message
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.timers import rules
from firearrow.broker.timers.metrics import TimerMetrics
from firearrow.broker.timers.recall_handle import recall_handle
from firearrow.broker.timers.service import DisabledTimers, TimerService


class TimerServices:
    def __init__(self, context: BrokerContext, appender: Appender) -> None:
        self._config = context.config
        self._clock = context.clock
        options, saver = context.config.options, context.saver
        metrics = TimerMetrics(context.clock, lambda: saver.changed("timermetrics"), context.stats.events)
        file = ConfigFile(Path(options.store_root) / "config" / "timermetrics")
        saver.load("timermetrics", file, metrics, make=False, periodic=True)
        self.service = (
            TimerService(context, appender, metrics)
            if options.timer_topic
            else DisabledTimers(context.store, options)
        )

    def schedule(self, message: Message) -> None:
        """For the appender: a message with a timer property. Refusal."""
        rules.schedule(message, self._clock.now_ms(), self._config.options, self.service.slot_count)

    def recall_handle(self, message: Message) -> str | None:
        return recall_handle(message, self._config.options.broker_name)
