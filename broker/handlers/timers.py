"""How far the timer came: GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61). Loop thread."""

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.errors import Refusal
from firearrow.broker.life.timers.metrics import TimerMetrics
from firearrow.broker.life.timers.service import TimerService
from firearrow.broker.peer import Peer, Routes


class TimersHandler:
    """`timers` is None when timerWheelEnable is false."""

    def __init__(self, timers: TimerService | None, metrics: TimerMetrics) -> None:
        self._timers = timers
        self._metrics = metrics

    def routes(self) -> Routes:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.check_point,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    def check_point(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return request.answer(body=self._timers.check_point())

    def metrics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return request.answer(body=self._metrics.to_json())
