"""TimerHarness: a Harness with a TimerService. A slot of its wheel is a second, unless an option says otherwise."""

import dataclasses
import struct
from pathlib import Path
from typing import Any

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base.message import Message
from firearrow.broker.base.options import Options
from firearrow.broker.timers import rules
from firearrow.broker.timers.metrics import TimerMetrics
from firearrow.broker.timers.recall_handle import RecallHandle, recall_handle, recall_message
from firearrow.broker.timers.service import TimerService
from tests.support.harness import HOST, Harness

TIMER = "rmq_sys_wheel_timer"
NOW = 1_700_000_000_000
DAY_MS = 86_400_000


OPEN: "list[TimerHarness]" = []
"""Harnesses whose timer files are to be closed after the test (conftest)."""


class TimerHarness(Harness):
    """`options` are the broker's."""

    def __init__(
        self,
        folder: Path,
        now_ms: int = NOW,
        store: MessageStore | None = None,
        slave_check: bytes = b"",
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(folder, now_ms=now_ms, store=store)
        (folder / "config").mkdir(exist_ok=True)
        self.folder = folder
        self.options = dataclasses.replace(Options(), timer_log_file_bytes=10_400, **options)
        self.appender = Appender(
            self.store, self.write_batch, self.clock, HOST, levels=2, schedule=self._schedule
        )
        self.metrics = TimerMetrics(self.clock, lambda: None)
        self.service = TimerService(self.context(self.options), self.appender, self.metrics)
        OPEN.append(self)
        self.listeners.append(self.service.messages_arrived)
        for entry in self.journal.recover_entries():
            assert entry.kind == Kind.TIMER
            self.service.restore(entry.name, entry.number, entry.value)
        if slave_check:
            assert self.service.take_over(slave_check)
        self.service.start()

    def _schedule(self, message: Message) -> None:
        rules.schedule(message, self.clock.now_ms(), self.options, self.service.slot_count)

    def send(self, body: bytes, delay_ms: int, **properties: str) -> Message:
        return self.put("T", body, TIMER_DELAY_MS=str(delay_ms), UNIQ_KEY=f"K{body.decode()}", **properties)

    def recall(self, message: Message, *, with_topic: bool = False) -> None:
        text = recall_handle(message, "b")
        assert text is not None
        handle = RecallHandle.parse(text)
        self.appender.put(recall_message(handle, "PG", self.clock.now_ms(), HOST, with_topic=with_topic))

    def found(self) -> list[int]:
        return [int(body) for body in self.bodies("T")]

    def run_to(self, for_ms: int) -> None:
        """As `timers.run(for_ms)`, which takes a step for each second: here the clock jumps to a second before the
        next pending slot."""
        until = self.clock.now_ms() + for_ms
        while (left := until - self.clock.now_ms()) > 0:
            due = self.service._timer_files.wheel.next(self.clock.now_ms())
            self.clock.advance(max(0, min(left, (due or until) - self.clock.now_ms()) - 1000))
            self.timers.run(min(until - self.clock.now_ms(), 2000))

    def check(self) -> tuple[int, ...]:
        return struct.unpack_from(">7q", (self.folder / "config" / "timercheck").read_bytes())

    def stop(self) -> None:
        self.service.stop()
        self.timers.run()
        OPEN.remove(self)
        self.service.close()
        self.close()

    def kill(self) -> None:
        super().kill()
        OPEN.remove(self)
        self.release()

    def release(self) -> None:
        """Close the timer's files, as the end of a process does."""
        files = self.service._timer_files
        for part in (files.checkpoint, files.wheel, files.log):
            part.close()

    def again(self, by_ms: int = 0, slave_check: bytes = b"", **options: Any) -> "TimerHarness":  # noqa: ANN401
        """The same store opened again, `by_ms` later, after a slave with this check point acted in its place."""
        return TimerHarness(self.folder, self.clock.now_ms() + by_ms, slave_check=slave_check, **options)
