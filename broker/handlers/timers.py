"""Progress of timer and delay levels, and recalls of timer messages. Loop thread.

- `TimersHandler`: GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61).
- `DelaysHandler`: GET_ALL_DELAY_OFFSET (45), the offset up to which each delay level is delivered.
- `RecallHandler`: RECALL_MESSAGE (370) removes a timer message before it is delivered (store-and-broker
  §6.4).
"""

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps
from firearrow._native.store.message_store import PutRefused
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import Appender
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message_ids import host_bytes
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.tables.topics import TopicTable
from firearrow.broker.timers.recall_handle import InvalidRecallHandle, RecallHandle, recall_message
from firearrow.broker.timers.rules import parse_number
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


class DelaysHandler:
    def __init__(self, offsets: DelayOffsets) -> None:
        self._offsets = offsets

    def routes(self) -> Routes:
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.get_all}

    def get_all(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(body=dumps(self._offsets.to_object()))


NOT_SET = "not set any response code"
"""Apache's remark in the answer to a successful recall."""


class RecallHandler:
    def __init__(
        self, appender: Appender, topics: TopicTable, config: Config, clock: Clock, stats: Stats
    ) -> None:
        self._appender = appender
        self._topics = topics
        self._config = config
        self._clock = clock
        self._stats = stats

    def routes(self) -> Routes:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, request: RemotingCommand, peer: Peer) -> None:
        options = self._config.options
        region = {"MSG_REGION": options.region_id}
        try:
            self._put(request, peer, options, region)
        except Refusal as refusal:
            refusal.ext = region
            raise

    def _put(self, request: RemotingCommand, peer: Peer, options: Options, region: dict[str, str]) -> None:
        group = request.text_or("producerGroup", "")
        topic, text = request.text("topic"), request.text("recallHandle")
        self._check_broker(options)
        if self._topics.get(topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")
        handle = self._handle(topic, text, options)
        message = recall_message(
            handle,
            group,
            self._clock.now_ms(),
            host_bytes(*peer.remote),
            with_topic=options.recall_key_with_topic,
        )
        answer = request.answer(remark=NOT_SET, ext=region | {"msgId": handle.unique_key})
        try:
            put = self._appender.put(message, peer=peer, answer=None if request.is_oneway else answer)
        except (PutRefused, Refusal):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "recall failed, execute error") from None
        self._stats.put(message.topic, 1, put.end - put.physical_offset)

    def _check_broker(self, options: Options) -> None:
        if not options.recall:
            raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        writable = options.broker_permission & name_rules.PERM_WRITE or options.recall_unwritable
        if self._clock.now_ms() < options.accept_sends_from_ms or not writable:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")

    def _handle(self, topic: str, text: str, options: Options) -> RecallHandle:
        try:
            handle = RecallHandle.parse(text)
        except InvalidRecallHandle as error:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != topic:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker != options.broker_name:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        left_ms = (parse_number(handle.time) or -1) - self._clock.now_ms()
        if not 0 < left_ms < options.timer_max_delay_s * 1000:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle
