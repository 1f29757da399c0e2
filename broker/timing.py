"""Timing: the composition of timer messages, a part of `living`: the service, its files, who asks of it.

With timerWheelEnable=false there is no service, and nothing is opened; messages for it are refused.
"""

from pathlib import Path

from firearrow._native.path.holds import Queue
from firearrow.broker.clock import Clock
from firearrow.broker.config import Config
from firearrow.broker.handlers.recall import RecallHandler
from firearrow.broker.handlers.timers import TimersHandler
from firearrow.broker.life.appender import Appender
from firearrow.broker.life.timers import rules
from firearrow.broker.life.timers.metrics import TimerMetrics
from firearrow.broker.life.timers.recall import recall_handle
from firearrow.broker.life.timers.service import TimerService
from firearrow.broker.messages import Message
from firearrow.broker.parts import Parts
from firearrow.broker.peer import Routes
from firearrow.broker.state import load

NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}


class Timing:
    """`appender` sends messages here with `schedule`, so it comes later, with `build`."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._service: TimerService | None = None

    def build(self, parts: Parts, appender: Appender) -> None:
        options, saver = self._config.options, parts.saver
        metrics = TimerMetrics(self._clock, lambda: saver.changed("timermetrics"))
        load(saver, "timermetrics", Path(options.store_root) / "config" / "timermetrics", metrics, make=False)
        if options.timer_topic:
            self._service = TimerService(
                parts.loop,
                parts.store,
                appender,
                parts.journal,
                metrics,
                options,
                self._clock,
                parts.stats,
                lambda: saver.changed("timers"),
                saver.settle,
            )
            saver.add("timers", self._service.save)
        self._handlers = (
            RecallHandler(appender, parts.state.topics, self._config, self._clock, parts.stats),
            TimersHandler(self._service, metrics),
        )

    def routes(self) -> list[Routes]:
        return [handler.routes() for handler in self._handlers]

    def schedule(self, message: Message) -> None:
        """For the appender: a message with a timer property. Refusal."""
        rules.schedule(message, self._clock.now_ms(), self._config.options, self._slot_count)

    def recall_handle(self, message: Message) -> str | None:
        return recall_handle(message, self._config.options.broker_name)

    def restore(self, name: str, number: int, value: int) -> None:
        if self._service is not None:
            self._service.restore(name, number, value)

    def start(self) -> None:
        if self._service is not None:
            self._service.start()

    def stop(self) -> None:
        if self._service is not None:
            self._service.stop()

    def close(self) -> None:
        """All that was put is written, and the files are saved. OSError."""
        if self._service is not None:
            self._service.close()

    def news(self, queues: set[Queue]) -> None:
        if self._service is not None:
            self._service.news(queues)

    def info(self) -> dict[str, str]:
        """What the runtime info says of the timer."""
        return dict(NO_TIMER) if self._service is None else self._service.runtime()

    def is_behind(self) -> bool:
        """Messages are due that are not delivered yet."""
        return self._service is not None and self._service.is_behind

    def _slot_count(self, time_ms: int) -> int:
        return 0 if self._service is None else self._service.slot_count(time_ms)
