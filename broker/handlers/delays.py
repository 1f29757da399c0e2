"""GET_ALL_DELAY_OFFSET (45): how far each delay level was delivered."""

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.fastjson import dumps
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.delay_offsets import DelayOffsets


class DelaysHandler:
    def __init__(self, offsets: DelayOffsets) -> None:
        self._offsets = offsets

    def routes(self) -> Routes:
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.get_all}

    def get_all(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=dumps(self._offsets.to_object()))
