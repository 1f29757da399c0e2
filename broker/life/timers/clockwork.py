"""Clockwork: wheel, log and check point of the timer with its two times, shared by intake and firing. Loop thread.

`read_ms` is the first slot that nobody has begun to fire; messages are only laid into slots at or behind `write_ms`,
which is never before it, so a slot that is being fired grows no more.
"""

import logging

from firearrow.broker.base.clock import Clock
from firearrow.broker.life.timers.check import TimerCheckpoint
from firearrow.broker.life.timers.log import TimerLog
from firearrow.broker.life.timers.wheel import BLANK_SLOTS, SLOTS, TimerWheel

log = logging.getLogger("firearrow.timers")

BACK_SLOTS_MAX = 36_000
"""A clock that is set back further is waited for: meanwhile new messages are due at once."""


class TimerFiles:
    def __init__(self, wheel: TimerWheel, timer_log: TimerLog, checkpoint: TimerCheckpoint, clock: Clock) -> None:
        self.wheel = wheel
        self.log = timer_log
        self.checkpoint = checkpoint
        self.read_ms = checkpoint.read_ms
        self.flushed_position = checkpoint.flushed
        """Position in the log up to which wheel and check point know all: what is saved as flushed."""
        self._clock = clock

    def current_slot_ms(self) -> int:
        """The slot of now."""
        return self._clock.now_ms() // self.wheel.step_ms * self.wheel.step_ms

    def write_ms(self) -> int:
        """The first slot that takes messages."""
        return max(self.current_slot_ms(), self.read_ms)

    def last_slot_ms(self) -> int:
        """The last slot that takes messages: behind it the wheel may still hold those that nobody has fired."""
        return self.read_ms + (SLOTS - BLANK_SLOTS) * self.wheel.step_ms

    def check_clock(self) -> None:
        """If the clock was set back, the slots since then are empty and to come again. OSError."""
        current_slot_ms, step_ms = self.current_slot_ms(), self.wheel.step_ms
        if current_slot_ms >= self.read_ms or self.read_ms - current_slot_ms > BACK_SLOTS_MAX * step_ms:
            return
        log.warning("the clock was set back by %d ms", self.read_ms - current_slot_ms)
        for time_ms in range(current_slot_ms, self.read_ms, step_ms):
            self.wheel.clear(time_ms)
        self.read_ms = self.checkpoint.read_ms = current_slot_ms
        self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Write the check point. OSError."""
        self.checkpoint.write_checkpoint(self._clock.now_ms())
        self.flushed_position = self.log.end
