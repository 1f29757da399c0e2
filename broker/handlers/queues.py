"""Where queues begin and end: offset by time (29), max (30), min (31), time of the first message (32).

None of them asks whether the topic exists: an unknown queue is an empty one.
"""

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.offsets import queue_id_fault


class QueuesHandler:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def routes(self) -> Routes:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_store_time,
        }

    def search_offset(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic, queue_id = _queue(request)
        upper = request.text_or("boundaryType", "LOWER").upper() == "UPPER"
        found = self._store.reader.offset_by_time(topic, queue_id, request.integer("timestamp"), upper=upper)
        return request.answer(ext={"offset": str(found)})

    def max_offset(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(ext={"offset": str(self._store.reader.max_offset(*_queue(request)))})

    def min_offset(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Apache's remark is an empty text here, not none."""
        return request.answer(remark="", ext={"offset": str(self._store.reader.min_offset(*_queue(request)))})

    def earliest_store_time(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic, queue_id = _queue(request)
        first = self._store.reader.min_offset(topic, queue_id)
        return request.answer(ext={"timestamp": str(self._store.reader.store_time(topic, queue_id, first))})


def _queue(request: RemotingCommand) -> tuple[str, int]:
    topic, queue_id = request.text("topic"), request.integer("queueId", 32)
    fault = queue_id_fault(queue_id)
    if fault is not None:
        raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
    return topic, queue_id
