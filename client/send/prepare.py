"""MessagePreparer: validates, encodes and compresses a message or batch before it is sent. Knows no broker.

Also the unique ids of this process, in Java's form. Any thread.
"""

import functools
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.message_properties import batch_body, message_properties
from firearrow._native.wire.send_request import SendFields, SendFrames
from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.client.base.compression import pack
from firearrow.client.base.errors import ConfigError, MessageRefused
from firearrow.client.base.message import Message, Property
from firearrow.client.base.names import NOT_FOR_SENDING, RETRY, Namespace, check_topic
from firearrow.client.base.options import CompressionKind, ProducerOptions
from firearrow.client.remoting.client_id import local_ip
from firearrow.client.send.batch import check_batch

HALF = 0x4
COUNT_MAX = 0x7FFFFFFF
BATCH, REPLY = int(RequestCode.SEND_BATCH_MESSAGE), 325


@dataclass(frozen=True, slots=True)
class SendTopic:
    """One topic of a producer: `wrapped` is its name at the brokers, `frames` encodes the requests to it."""

    topic: str
    wrapped: str
    frames: SendFrames


@dataclass(slots=True)
class PreparedMessage:
    """A message or batch that can be sent.

    `size` counts for back-pressure; `kind` is shown to hooks and traces.
    """

    topic: SendTopic
    message: Message
    messages: Sequence[Message]
    body: bytes
    properties: bytes
    size: int
    fields: SendFields

    @property
    def kind(self) -> str:
        message = self.message
        if self.fields.sys_flag & HALF:
            return "half"
        if message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None:
            return "delay"
        return "normal"

    def frame(self, opaque: int, queue_id: int, broker_name: str, born_ms: int, oneway: bool) -> bytes:
        return self.topic.frames.frame(
            opaque,
            queue_id,
            born_ms,
            self.properties,
            self.body,
            self.fields,
            broker_name=broker_name,
            oneway=oneway,
        )


class MessagePreparer:
    """The preparer of one producer.

    `group` as brokers know it. ConfigError: the compression package is missing.
    """

    def __init__(
        self, group: str, options: ProducerOptions, namespace: Namespace, ids: UniqueIds, binary: bool
    ) -> None:
        pack(options.compression, options.compress_level, b"")
        self._group = group
        self._options = options
        self._namespace = namespace
        self.ids = ids
        self._binary = binary
        self._extra_properties = {Property.INSTANCE_ID: namespace.name} if namespace.name else None
        self.topics: dict[str, SendTopic] = {}

    def prepare(self, message: Message) -> PreparedMessage:
        """Prepare one message; it is not changed, except that it gets a unique id.

        MessageRefused: it is invalid.
        """
        topic = self.topics.get(message.topic) or self._topic(message.topic)
        body = message.body
        if len(body) > self._options.message_bytes_max:
            raise MessageRefused(f"body: {len(body)} bytes, at most {self._options.message_bytes_max}")
        if message.properties or topic.wrapped.startswith(RETRY):
            return self._with_properties(topic, message)
        fields = SendFields(flag=message.flag)
        prepared = PreparedMessage(
            topic,
            message,
            (message,),
            body,
            self._encode_properties(message, self._extra_properties),
            len(body),
            fields,
        )
        if len(body) >= self._options.compress_over_bytes or not body:
            self._compress(prepared)
        return prepared

    def prepare_batch(self, messages: Sequence[Message], anywhere: bool = True) -> PreparedMessage:
        """Prepare a batch.

        `anywhere`: no queue was given. MessageRefused: see check_batch; or the body is too large.
        """
        check_batch(messages, anywhere)
        first = messages[0]
        topic = self.topics.get(first.topic) or self._topic(first.topic)
        try:
            body = batch_body(messages, self.ids)
        except ValueError as error:
            raise MessageRefused(str(error)) from None
        if len(body) > self._options.message_bytes_max:
            raise MessageRefused(f"batch: {len(body)} bytes, at most {self._options.message_bytes_max}")
        whole = Message(first.topic, body, wait_store=first.wait_store, sharding_key=first.sharding_key)
        text, fields = (
            self._encode_properties(whole, self._extra_properties),
            SendFields(code=BATCH, flag=whole.flag),
        )
        return PreparedMessage(topic, whole, messages, body, text, len(body), fields)

    def _with_properties(self, topic: SendTopic, message: Message) -> PreparedMessage:
        """Prepare a message whose properties change its header."""
        properties, more = message.properties, dict(self._extra_properties or {})
        if "/" in properties.get(Property.MULTI_DISPATCH, ""):
            raise MessageRefused(f"property {Property.MULTI_DISPATCH}: `/` is not allowed")
        reconsumed, reconsume_max, sent = 0, -1, message
        if topic.wrapped.startswith(RETRY):
            sent, reconsumed, reconsume_max = _move_retry_counts(message)
        prepared = PreparedMessage(
            topic,
            message,
            (message,),
            message.body,
            self._encode_properties(sent, more),
            len(message.body),
            SendFields(flag=message.flag, reconsume_times=reconsumed, max_reconsume_times=reconsume_max),
        )
        message.unique_id = sent.unique_id
        if properties.get(Property.MESSAGE_TYPE) == "reply":
            prepared.fields.code = REPLY
        if len(message.body) >= self._options.compress_over_bytes or not message.body:
            self._compress(prepared)
        if properties.get(Property.TRANSACTION_PREPARED) == "true":
            prepared.fields.sys_flag |= HALF
        return prepared

    def _encode_properties(self, message: Message, more: dict[str, str] | None) -> bytes:
        try:
            return message_properties(message, self.ids, more)
        except ValueError as error:
            raise MessageRefused(str(error)) from None

    def _compress(self, prepared: PreparedMessage) -> None:
        """An empty body is compressed as well: brokers refuse an empty one, and every client can read zlib."""
        options = self._options
        kind = options.compression if prepared.body else CompressionKind.ZLIB
        prepared.fields.sys_flag, prepared.body = pack(kind, options.compress_level, prepared.body)

    def _topic(self, topic: str) -> SendTopic:
        try:
            check_topic(topic)
        except ConfigError as error:
            raise MessageRefused(str(error)) from None
        if topic in NOT_FOR_SENDING:
            raise MessageRefused(f"topic {topic} is reserved for the broker")
        wrapped = self._namespace.wrap(topic)
        frames = SendFrames(
            self._group,
            wrapped,
            default_topic=self._options.template_topic,
            default_queues=self._options.default_queues,
            binary=self._binary,
        )
        made = self.topics[topic] = SendTopic(topic, wrapped, frames)
        return made


def _move_retry_counts(message: Message) -> tuple[Message, int, int]:
    """For retry topics: move the retry counts from the properties to the header."""
    properties = dict(message.properties)
    times = _pop_count(properties, Property.RECONSUME_TIME, 0)
    times_max = _pop_count(properties, Property.MAX_RECONSUME_TIMES, -1)
    return replace(message, properties=properties), times, times_max


def _pop_count(properties: dict[str, str], name: str, default: int) -> int:
    """Take a number out of the properties. MessageRefused: it is not a number of 32 bits."""
    text = properties.pop(name, None)
    if text is None:
        return default
    try:
        count = int(text)
    except ValueError:
        raise MessageRefused(f"property {name}: {text[:40]!r} is not a number") from None
    if not -1 <= count <= COUNT_MAX:
        raise MessageRefused(f"property {name}: {count} is not within -1..{COUNT_MAX}")
    return count


@functools.cache
def unique_ids() -> UniqueIds:
    """The id generator of this process: two producers never make the same id."""
    ip = local_ip()
    family = socket.AF_INET6 if ip.startswith("[") else socket.AF_INET
    host = socket.inet_pton(family, ip.strip("[]"))
    return UniqueIds(host, os.getpid(), os.urandom(4))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=unique_ids.cache_clear)
