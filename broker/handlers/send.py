"""Checks sent messages, creates their topics and stages them. Loop thread.

SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).
"""

from collections.abc import Callable

from firearrow._native.fastpath.request_times import PutCounts
from firearrow._native.protocol import name_rules
from firearrow._native.store.log.batch import items_of
from firearrow._native.store.message_store import InnerMessage, PutRefused, PutResult, PutStatus
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import TIMER_REQUESTS, TRANSACTION_BITS, Appender, delay_level
from firearrow.broker.append.lmq import NO_LITE_TOPICS, states_offsets
from firearrow.broker.append.retry_routing import RetryRouting, count_retry
from firearrow.broker.append.send_checks import SendChecks, SendRequest, queue_of
from firearrow.broker.base import property_rules
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import INNER_BATCH, Message, Property, properties_of
from firearrow.broker.base.message_ids import host_bytes, offset_id, unique_ids
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.tables.topics import TopicConfig

COMPRESSED, MULTI_TAGS, COMPRESSION_BITS = 0x1, 0x2, 0x700
SYS_FLAG_KEPT = COMPRESSED | MULTI_TAGS | COMPRESSION_BITS

NOT_IN_BATCH = frozenset((Property.DELAY, *TIMER_REQUESTS, Property.TRANSACTION_PREPARED))
"""A batch is stored unparsed: properties that need work for each message are refused."""

NOT_PLAIN = frozenset((Property.PRIORITY, Property.LITE_TOPIC, Property.MULTI_DISPATCH, *NOT_IN_BATCH))
"""A message without these properties is plain: it is stored as it comes."""
NOT_PRIORITY = frozenset(
    (Property.TRANSACTION_PREPARED, Property.DELAY, *TIMER_REQUESTS, Property.SHARDING_KEY)
)
"""Properties that give a message another type than PRIORITY (TopicMessageType)."""
PRIORITY_DIGITS_MAX = 9
UNCONFIRMED_MAX = 16_384
"""Messages without WAIT that are taken while too few copies are in sync."""
DELAYED = frozenset((Property.DELAY, Property.TIMER_OUT_MS, *TIMER_REQUESTS))


class SendHandler:
    """`prepare(message)` turns a message that begins a transaction into a half message.
    `recall_handle(message)` returns the handle of a timer message, None if it cannot be recalled.
    """

    def __init__(
        self,
        context: BrokerContext,
        appender: Appender,
        retries: RetryRouting,
        *,
        prepare: Callable[[Message], None],
        recall_handle: Callable[[Message], str | None],
    ) -> None:
        self._store = context.store
        self._write_batch = context.write_batch
        self._appender = appender
        self._send_checks = SendChecks(context.tables.topics, context.config, context.clock)
        self._retries = retries
        self._config = context.config
        self._clock = context.clock
        self._stats = context.stats
        self._prepare = prepare
        self._recall_handle = recall_handle
        self._unique_ids = unique_ids(appender.store_host)

    def routes(self) -> Routes:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, request: RemotingCommand, peer: Peer) -> None:
        if not request.body:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "the message has no body")
        send_request = SendRequest.of(request)
        options = self._config.options
        common_ext = {"MSG_REGION": options.region_id, "TRACE_ON": "true" if options.trace_on else "false"}
        try:
            topic = self._send_checks.topic(send_request, peer)
            queue_id = queue_of(send_request, topic)
            if send_request.batch:
                self._put_batch(request, peer, send_request, topic, queue_id, common_ext)
            else:
                self._put(request, peer, send_request, topic, queue_id, common_ext)
        except Refusal as refusal:
            refusal.ext = common_ext
            self._stats.put_failed += 1
            raise
        except PutRefused as refused:
            self._stats.put_failed += 1
            raise Refusal(*self._put_fault(refused), common_ext) from None

    def _put(
        self,
        request: RemotingCommand,
        peer: Peer,
        send_request: SendRequest,
        topic: TopicConfig,
        queue_id: int,
        common_ext: dict[str, str],
    ) -> None:
        message = self._message(request, peer, send_request, topic, queue_id, common_ext)
        properties = message.properties
        if topic.is_compacted:
            _check_key(properties)
        waits = properties.get(Property.WAIT, "true").lower() != "false"
        self._check_copies(waits)
        ext = common_ext | {"transactionId": properties[Property.UNIQUE_KEY], "queueId": str(queue_id)}
        plain = properties.keys().isdisjoint(NOT_PLAIN)
        if not plain:
            self._prepare_special(message, topic, ext)
        elif send_request.sys_flag & TRANSACTION_BITS:
            remark = "sysFlag states a transaction, but the property TRAN_MSG is missing"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        answer = None if request.is_oneway else request.answer()
        put = self._appender.put(message, plain=plain, peer=peer, answer=answer, waits=waits, is_send=True)
        if not plain and Property.TIMER_OUT_MS in properties and (handle := self._recall_handle(message)):
            ext["recallHandle"] = handle
        self._note(send_request, answer, ext, put, 1)
        self._count(send_request, message, put)

    def _message(
        self,
        request: RemotingCommand,
        peer: Peer,
        send_request: SendRequest,
        topic: TopicConfig,
        queue_id: int,
        common_ext: dict[str, str],
    ) -> Message:
        """The message to store, with the properties that the broker adds."""
        properties = properties_of(send_request.properties)
        property_rules.remove(properties, property_rules.NEVER_SENT)
        if not properties.get(Property.UNIQUE_KEY):
            properties[Property.UNIQUE_KEY] = self._unique_ids.at(self._clock.now_ms())
        message = Message(
            send_request.topic,
            queue_id,
            request.body,
            properties,
            send_request.flag,
            _sys_flag(send_request.sys_flag, topic),
            send_request.born_ms,
            host_bytes(*peer.remote),
            reconsume_times=send_request.reconsume_times,
        )
        if send_request.topic.startswith((name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX)):
            property_rules.remove(properties, property_rules.OF_DEAD_LETTERS)
        if send_request.topic.startswith(name_rules.RETRY_PREFIX):
            self._retries.redirect(message, send_request.retries_max)
        properties |= common_ext
        properties[Property.CLUSTER] = self._config.options.cluster_name
        return message

    def _prepare_special(self, message: Message, topic: TopicConfig, ext: dict[str, str]) -> None:
        """Choose the queue by priority, name the queue of the lite topic; turn a message that begins a transaction into
        a half message."""
        properties = message.properties
        if topic.is_lite and Property.LITE_TOPIC in properties:
            properties[Property.MULTI_DISPATCH] = self._lite_queue(
                topic.name, properties[Property.LITE_TOPIC]
            )
        if Property.PRIORITY in properties:
            priority = priority_of(properties)
            if priority is None:
                del properties[Property.PRIORITY]
            else:
                message.queue_id = min(priority, max(topic.write_queues - 1, 0))
                ext["queueId"] = str(message.queue_id)
        # Clients before 4.6.1 leave TRAN_MSG in messages that they send back.
        retried = message.reconsume_times > 0 and delay_level(properties) > 0
        if properties.get(Property.TRANSACTION_PREPARED, "").lower() == "true" and not retried:
            self._prepare(message)

    def _lite_queue(self, topic: str, lite_topic: str) -> str:
        """Refusal."""
        if not self._config.options.multi_dispatch:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, NO_LITE_TOPICS)
        fault = name_rules.lite_fault(lite_topic)
        if fault is not None:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, fault)
        return name_rules.lite_queue(topic, lite_topic)

    def _put_batch(
        self,
        request: RemotingCommand,
        peer: Peer,
        send_request: SendRequest,
        topic: TopicConfig,
        queue_id: int,
        ext: dict[str, str],
    ) -> None:
        properties = properties_of(send_request.properties)
        self._check_batch(send_request, properties)
        if states_offsets(request.body):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support {Property.MULTI_QUEUE_OFFSET}"
            )
        waits = properties.get(Property.WAIT, "true").lower() != "false"
        self._check_copies(waits)
        if topic.is_compacted:
            for _, _, item_properties in items_of(request.body):
                _check_key(properties_of(item_properties.decode("utf-8", "replace")))
        if topic.has_batch_queues and properties.get(Property.UNIQUE_KEY):
            return self._put_inner_batch(request, peer, send_request, topic, queue_id, ext, properties)
        put = self._store.put_batch(
            InnerMessage(
                send_request.topic,
                queue_id,
                request.body,
                b"",
                sys_flag=_sys_flag(send_request.sys_flag, topic),
                born_timestamp=send_request.born_ms,
                born_host=host_bytes(*peer.remote),
                store_host=self._appender.store_host,
                reconsume_times=send_request.reconsume_times,
            ),
            now_ms=self._clock.now_ms(),
        )
        if unique_id := properties.get(Property.UNIQUE_KEY):  # clients of 4.x send a batch without one
            ext["transactionId"] = unique_id
        ext["queueId"] = str(queue_id)
        answer = None if request.is_oneway else request.answer()
        self._write_batch.reply_after(
            put.end, (send_request.topic, queue_id), peer, answer, waits=waits, is_send=True
        )
        self._note_batch(send_request, properties, answer, ext, put, len(put.physical_offsets))

    def _put_inner_batch(
        self,
        request: RemotingCommand,
        peer: Peer,
        send_request: SendRequest,
        topic: TopicConfig,
        queue_id: int,
        ext: dict[str, str],
        properties: dict[str, str],
    ) -> None:
        """Store the batch as one message, which the consumers' clients take apart."""
        count = len(items_of(request.body))
        property_rules.remove(properties, (*property_rules.NEVER_SENT, Property.MULTI_DISPATCH))
        properties[Property.CLUSTER] = self._config.options.cluster_name
        properties[Property.INNER_NUM] = str(count)
        properties[Property.INNER_BASE] = str(max(self._store.next_offset(send_request.topic, queue_id), 0))
        message = Message(
            send_request.topic,
            queue_id,
            request.body,
            properties,
            send_request.flag,
            _sys_flag(send_request.sys_flag, topic) | INNER_BATCH,
            send_request.born_ms,
            host_bytes(*peer.remote),
            reconsume_times=send_request.reconsume_times,
        )
        unique_id = properties[Property.UNIQUE_KEY]
        ext |= {"transactionId": unique_id, "batchUniqId": unique_id, "queueId": str(queue_id)}
        answer = None if request.is_oneway else request.answer()
        waits = properties.get(Property.WAIT, "true").lower() != "false"
        put = self._appender.put(message, plain=True, peer=peer, answer=answer, waits=waits, is_send=True)
        self._note_batch(send_request, properties, answer, ext, put, count)

    def _note_batch(
        self,
        send_request: SendRequest,
        properties: dict[str, str],
        answer: RemotingCommand | None,
        ext: dict[str, str],
        put: PutResult,
        count: int,
    ) -> None:
        self._note(send_request, answer, ext, put, count)
        self._put_counts(send_request, _type_of(properties)).add(count, put.end - put.physical_offset)

    def _check_copies(self, waits: bool) -> None:
        """Messages that wait for no slave are taken, but no consumer sees them before a slave has them."""
        if not self._write_batch.refuses_sends:
            return
        if waits or self._write_batch.waiting >= UNCONFIRMED_MAX:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")

    def _check_batch(self, send_request: SendRequest, properties: dict[str, str]) -> None:
        if send_request.topic.startswith((name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX)):
            # the rights on what its items name are not checked
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group")
        for name in NOT_IN_BATCH & properties.keys():
            if properties[name] not in ("0", "false"):
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support {name}")
        if send_request.sys_flag & TRANSACTION_BITS:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support transactions")

    def _note(
        self,
        send_request: SendRequest,
        answer: RemotingCommand | None,
        ext: dict[str, str],
        put: PutResult,
        count: int,
    ) -> None:
        if answer is not None:
            host = self._appender.store_host
            ext["msgId"] = ",".join(offset_id(host, offset) for offset in put.physical_offsets)
            ext["queueOffset"] = str(put.queue_offset)
            answer.ext = ext
        self._stats.put(send_request.topic, count, put.end - put.physical_offset)

    def _count(self, send_request: SendRequest, message: Message, put: PutResult) -> None:
        """Count one message by its type; one of a retry topic as a retry or a dead letter of its group."""
        size = put.end - put.physical_offset
        if not send_request.topic.startswith(name_rules.RETRY_PREFIX):
            return self._put_counts(send_request, _type_of(message.properties)).add(1, size)
        group = name_rules.group_of_retry(send_request.topic)
        return count_retry(self._stats.events, message, group)

    def _put_counts(self, send_request: SendRequest, message_type: str) -> PutCounts:
        return self._stats.put_counts(send_request.topic, message_type)

    def _put_fault(self, refused: PutRefused) -> tuple[int, str]:
        if refused.status == PutStatus.SERVICE_NOT_AVAILABLE:
            remark = "service not available now. The store has stopped taking messages."
            if isinstance(refused.__cause__, OSError):  # no space for its queue or index entries
                why = refused.__cause__.strerror or refused.__cause__
                remark = f"service not available now. The message could not be written to the disk: {why}"
            if self._store.stopped is not None:
                remark = f"service not available now. {self._store.stopped}"
            elif self._store.full is not None:
                remark = (
                    "service not available now. It may be caused by one of the following reasons: "
                    f"the broker's disk is full [{self._store.full}], messages are put to the slave, "
                    "message store has been shut down, etc."
                )
            return ResponseCode.SERVICE_NOT_AVAILABLE, remark
        return ResponseCode.MESSAGE_ILLEGAL, (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._config.options.max_message_bytes}B, msg properties length limit 32KB."
        )


def _check_key(properties: dict[str, str]) -> None:
    """A message of a compaction topic must have a key. Refusal."""
    if not properties.get(Property.KEYS, "").strip():
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")


def _type_of(properties: dict[str, str]) -> str:
    """The message's type, as Apache's SendMessageProcessor finds it."""
    if properties.get(Property.TRANSACTION_PREPARED, "").lower() == "true":
        return "transaction"
    if Property.SHARDING_KEY in properties:
        return "fifo"
    if not properties.keys().isdisjoint(DELAYED):
        return "delay"
    return "priority" if Property.PRIORITY in properties else "normal"


def _sys_flag(sys_flag: int, topic: TopicConfig) -> int:
    multi = MULTI_TAGS if topic.filter_type == "MULTI_TAG" else 0
    return sys_flag & SYS_FLAG_KEPT | multi


def priority_of(properties: dict[str, str]) -> int | None:
    """The queue for a message of type PRIORITY; None if it is of another type, or has no valid priority."""
    text = properties[Property.PRIORITY]
    if (
        len(text) > PRIORITY_DIGITS_MAX
        or not text.isdecimal()
        or not properties.keys().isdisjoint(NOT_PRIORITY)
    ):
        return None
    return int(text)
