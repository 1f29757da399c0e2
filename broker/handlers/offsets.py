"""Consumer offsets, and offsets and times of queues. Loop thread.

- `OffsetsHandler`: QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15), GET_ALL_CONSUMER_OFFSET (43).
- `QueuesHandler`: offset by time (29), maximum (30), minimum (31), time of the first message (32). It does
  not check that the topic exists: an unknown queue is empty.
"""

from collections.abc import Callable

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.lmq import lite_topic_of
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.deleted_topics import DeletedTopics
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.offsets import ConsumerOffsets, InvalidOffset, queue_id_fault
from firearrow.broker.tables.paging import too_large
from firearrow.broker.tables.topics import TopicTable


class OffsetsHandler:
    """`make_durable()` makes commits as durable as the flush mode promises."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        deleted: DeletedTopics,
        config: Config,
        make_durable: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._deleted = deleted
        self._config = config
        self._make_durable = make_durable

    def routes(self) -> Routes:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all,
        }

    def query(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        topic, queue_id = request.text("topic"), _queue_id(request)
        offset = self._offsets.query(request.text("consumerGroup"), topic, queue_id)
        if offset >= 0:
            return request.answer(ext={"offset": str(offset)})
        if not request.boolean_or("setZeroIfNotFound", True):
            remark = "Not found, do not set to zero, maybe this group boot first"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        if not self._begins_in_memory(topic, queue_id):
            remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.answer(ext={"offset": "0"})

    def update(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        if self._offsets.not_here:  # a code with which clients of all versions try another broker
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {self._offsets.not_here}"
            )
        group, topic = request.text("consumerGroup"), request.text("topic")
        if group not in self._groups:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        if topic not in self._topics:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if "queueId" not in request.ext:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if "commitOffset" not in request.ext:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        queue_id, queue_offset = _queue_id(request), request.integer("commitOffset")
        if queue_offset < 0:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"commitOffset must not be negative: {queue_offset}"
            )
        if self._config.options.server_side_reset and self._offsets.has_reset(group, topic, queue_id):
            return request.answer(remark="Offset has been previously reset")
        if self._deleted.is_old_commit(group, topic, queue_id, queue_offset, peer):
            return request.answer(remark="The offset is of a queue that was deleted")
        try:
            self._offsets.commit(group, topic, queue_id, queue_offset)
        except InvalidOffset as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if not request.is_oneway:
            self._make_durable()
        return request.answer()

    def get_all(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Keys of `pullOffsetTable` are quoted: the slaves of Apache 5.5.0 skip that member, and their parser
        cannot skip bare integer keys (Apache's issue 10284)."""
        body = dumps(self._offsets.to_object() | {"pullOffsetTable": self._offsets.pulls_quoted()})
        fault = too_large(body)
        if fault is not None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, fault)
        return request.answer(body=body)

    def _begins_in_memory(self, topic: str, queue_id: int) -> bool:
        """Whether a group without an offset may begin at 0: the first message exists and is recent."""
        if self._store.reader.min_offset(topic, queue_id) > 0:
            return False
        first = self._store.reader.entries(topic, queue_id, 0, 1)
        if not first or first[0].physical_offset < self._store.min_physical:
            return False
        return self._store.reader.is_near_end(first[0].physical_offset)


def _queue_id(request: RemotingCommand) -> int:
    queue_id = request.integer("queueId", 32)
    fault = queue_id_fault(queue_id)
    if fault is not None:
        raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
    return queue_id


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
        lite_topic = lite_topic_of(request)
        if lite_topic:
            topic = name_rules.lite_queue(topic, lite_topic)
        upper = request.text_or("boundaryType", "LOWER").upper() == "UPPER"
        found = self._store.reader.offset_by_time(topic, queue_id, request.integer("timestamp"), upper=upper)
        return request.answer(ext={"offset": str(found)})

    def max_offset(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(ext={"offset": str(self._store.reader.max_offset(*_queue(request)))})

    def min_offset(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Apache's remark is an empty string here, not null."""
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
