"""How far the timer came: GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61). Loop thread."""

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.timers.service import DisabledTimers, TimerService


class TimersHandler:
    def __init__(self, timers: TimerService | DisabledTimers) -> None:
        self._timers = timers

    def routes(self) -> Routes:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.check_point,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    def check_point(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=self._timers.check_point())

    def metrics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=self._timers.metrics())
