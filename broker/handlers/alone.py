"""What is asked of a broker as one of several: of a master without slaves, without a controller (908, 1007), and of
one that keeps pops and timers in Apache's files, not in RocksDB (200056, 5001). Changes nothing. Loop thread.
"""

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes

ENGINE, FILE_WHEEL, ROCKSDB = "E_T", "F", "R"


class SingleBrokerHandler:
    def __init__(self, config: Config) -> None:
        self._config = config

    def routes(self) -> Routes:
        return {
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.done,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.no_controller,
            RequestCode.POP_ROLLBACK: self.done,
            RequestCode.SWITCH_TIMER_ENGINE: self.switch_engine,
        }

    def done(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """A master takes no flush offset from outside, and pops that are in the log need no move to it."""
        return request.answer()

    def no_controller(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")

    def switch_engine(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """The wheel in files is the one engine; to switch to it is done before it is asked."""
        if not self._config.options.timer_topic:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "broker timerWheelEnable is false")
        engine = request.text_or(ENGINE, "")
        if engine == ROCKSDB:
            remark = "timerRocksDBEnable must be configured true when broker start"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if engine != FILE_WHEEL:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "param error")
        return request.answer(remark="switch timer engine success")
