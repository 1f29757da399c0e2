"""TimerServices: builds the service of timer messages, its files and its handlers.

With timerWheelEnable=false the service is `DisabledTimers`, and timer messages are refused. Loop thread.
"""

from pathlib import Path

from firearrow.broker.append.appender import Appender
from firearrow.broker.base.message import Message
from firearrow.broker.base.peer import Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.handlers.timers import RecallHandler, TimersHandler
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
        self._handlers = (
            RecallHandler(appender, context.tables.topics, context.config, context.clock, context.stats),
            TimersHandler(self.service),
        )

    def routes(self) -> list[Routes]:
        return [handler.routes() for handler in self._handlers]

    def schedule(self, message: Message) -> None:
        """For the appender: a message with a timer property. Refusal."""
        rules.schedule(message, self._clock.now_ms(), self._config.options, self.service.slot_count)

    def recall_handle(self, message: Message) -> str | None:
        return recall_handle(message, self._config.options.broker_name)
