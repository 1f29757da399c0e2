"""Request and reply: a message whose consumer sends an answer back. Loop thread.

A broker that knows the requester's client id pushes the reply to it; the correlation id identifies the
waiting request. Replies that no request waits for any more are dropped. `reply_of` makes a ReceivedMessage of
a pushed reply (any thread).
"""

import asyncio
import ipaddress
import logging
import struct
import uuid
import zlib
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.compression import COMPRESSED, KIND_BITS, BodyUnreadable, open_body
from firearrow.client.base.errors import ClientError, ConfigError, NoReplyAddress, RequestReplyTimeout
from firearrow.client.base.message import PROPERTIES_BYTES_MAX, Message, MessageQueue, Property, SendResult
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import ProducerOptions
from firearrow.client.base.service_state import now_ms
from firearrow.client.remoting.channels import host_port
from firearrow.client.remoting.client_instance import ClientInstance, FirstHeartbeat
from firearrow.client.send.queue_selection import Selector

log = logging.getLogger("firearrow.client")

MAGIC_V2 = -626843477
BORN_V6, STORE_V6 = 0x10, 0x20
TOPIC_BYTES_MAX = 32767


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """A message that comes without its record. Hosts: packed address and port."""

    topic: bytes
    properties: bytes
    body: bytes
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = bytes(8)
    store_ms: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0


def decoded(record: MessageRecord, broker_name: str) -> ReceivedMessage:
    """The message as consumers get it."""
    sys_flag = record.sys_flag | (BORN_V6 if len(record.born_host) > 8 else 0)
    sys_flag |= STORE_V6 if len(record.store_host) > 8 else 0
    body, topic, properties = record.body, record.topic, record.properties
    fields = b"".join((
        struct.pack(">iiqqi", record.queue_id, record.flag, 0, 0, sys_flag),
        struct.pack(">q", record.born_ms), record.born_host,
        struct.pack(">q", record.store_ms), record.store_host,
        struct.pack(">iqi", record.reconsume_times, 0, len(body)), body,
        struct.pack(">h", len(topic)), topic,
        struct.pack(">h", len(properties)), properties,
    ))  # fmt: skip
    head = struct.pack(">iii", 12 + len(fields), MAGIC_V2, zlib.crc32(body) & 0x7FFFFFFF)
    (message,) = decode_messages(head + fields, broker_name, open_body)
    return message


def reply_of(push: RemotingCommand, now_ms: int) -> ReceivedMessage:
    """Decode PUSH_REPLY_MESSAGE_TO_CLIENT. FieldError, ClientError (both name the field)."""
    sys_flag, body = _decompress(push.integer("sysFlag", 32), push.body)
    born, store = _host(push, "bornHost"), _host(push, "storeHost")
    record = MessageRecord(
        topic=_text(push, "topic", TOPIC_BYTES_MAX),
        properties=_text(push, "properties", PROPERTIES_BYTES_MAX),
        body=body,
        queue_id=push.integer("queueId", 32),
        flag=push.integer("flag", 32),
        sys_flag=sys_flag,
        born_ms=push.integer("bornTimestamp"),
        born_host=born,
        store_ms=push.integer("storeTimestamp"),
        store_host=store,
        reconsume_times=push.integer_or("reconsumeTimes", 0, 32),
    )
    message = decoded(record, push.text_or("bname", ""))
    message.put_property(Property.ARRIVE_TIME, str(now_ms))
    return message


def _decompress(sys_flag: int, body: bytes) -> tuple[int, bytes]:
    """Some clients flag replies as compressed that are not: such a body is passed on unchanged."""
    try:
        body = open_body(sys_flag, body)
    except BodyUnreadable as error:
        log.info("a reply's body cannot be decompressed and is passed on unchanged: %s", error)
    return sys_flag & ~(COMPRESSED | KIND_BITS | BORN_V6 | STORE_V6 | 0xC0), body


def _host(push: RemotingCommand, name: str) -> bytes:
    """Java writes `ip:port` or `/ip:port`."""
    text = push.text(name).removeprefix("/")
    try:
        host, port = host_port(text)
        return ipaddress.ip_address(host).packed + struct.pack(">i", port)
    except (ConfigError, ValueError) as error:
        raise ClientError(f"{name}: {text[:80]!r} is not an address") from error


def _text(push: RemotingCommand, name: str, bytes_max: int) -> bytes:
    encoded = push.text_or(name, "").encode("utf-8", "surrogatepass")
    if len(encoded) > bytes_max:
        raise ClientError(f"{name}: {len(encoded)} bytes, at most {bytes_max}")
    return encoded


REPLY = "reply"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"


class RequestSender(Protocol):
    """What requests need of a producer."""

    @property
    def instance(self) -> ClientInstance: ...
    @property
    def options(self) -> ProducerOptions: ...
    async def send(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> SendResult: ...


@runtime_checkable
class RequestingProducer(Protocol):
    """A producer that may wait for replies."""

    @property
    def requests(self) -> "Requests | None": ...


class Requests:
    """The requests of one producer that wait for replies."""

    def __init__(self, sender: RequestSender) -> None:
        instance = sender.instance
        self._sender = sender
        self._first_heartbeat = FirstHeartbeat(instance, sender.options)
        self._namespace = Namespace(instance.options.namespace)
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        instance.register_handler(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            lambda push, address: handle_pushed_reply(instance, push, address),
        )

    async def request(
        self,
        message: Message,
        timeout_s: float,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> ReceivedMessage:
        """Send and return the reply.

        RequestReplyTimeout: no reply within `timeout_s`; and the errors of a send.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await self._first_heartbeat.ensure_known(self._namespace.wrap(message.topic), timeout_s)
        correlation_id = str(uuid.uuid4())
        request = self._as_request(message, correlation_id, timeout_s)
        reply: asyncio.Future[ReceivedMessage] = loop.create_future()
        self._waiting[correlation_id] = reply
        try:
            left_s = max(deadline - loop.time(), 0.001)
            await self._sender.send(request, timeout_s=left_s, queue=queue, selector=selector)
            async with asyncio.timeout_at(deadline):
                return await reply
        except TimeoutError:
            raise RequestReplyTimeout(
                f"topic {message.topic}: the request was sent, but no reply came within {timeout_s} s"
            ) from None
        except ClientError:
            if reply.done():
                return reply.result()
            raise
        finally:
            message.unique_id = request.unique_id
            del self._waiting[correlation_id]

    def replied(self, correlation_id: str, reply: ReceivedMessage) -> bool:
        """Complete the request that waits for this reply; false: none does."""
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(reply)
        return True

    def _as_request(self, message: Message, correlation_id: str, ttl_s: float) -> Message:
        """A copy with the properties of a request, so that the user's message can be sent again."""
        request_properties = {
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO_CLIENT: self._sender.instance.client_id,
            Property.TTL: str(int(ttl_s * 1000)),
        }
        return replace(message, properties=message.properties | request_properties)


def reply_message(request: ReceivedMessage, body: bytes) -> Message:
    """The reply to a received message; any producer may send it. NoReplyAddress: it is not a request."""
    properties = {Property.MESSAGE_TYPE: REPLY}
    for name in (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL):
        value = request.get_property(name)
        if value is None:
            raise NoReplyAddress(f"message {request.message_id} is not a request: it has no property {name}")
        properties[name] = value
    cluster = request.get_property(Property.CLUSTER)
    if cluster is None:
        raise NoReplyAddress(f"message {request.message_id} has no property {Property.CLUSTER}")
    return Message(cluster + REPLY_TOPIC_SUFFIX, body, properties=properties)


def handle_pushed_reply(instance: ClientInstance, push: RemotingCommand, address: str) -> RemotingCommand:
    """Handle PUSH_REPLY_MESSAGE_TO_CLIENT for all producers of the instance. FieldError, ClientError."""
    reply = reply_of(push, now_ms())
    correlation_id = reply.get_property(Property.CORRELATION_ID)
    if correlation_id is None:
        raise ClientError(f"{address}: a reply without {Property.CORRELATION_ID}")
    for producer in instance.producers.values():
        requests = producer.requests if isinstance(producer, RequestingProducer) else None
        if requests is not None and requests.replied(correlation_id, reply):
            break
    else:
        log.info("%s: reply %s is dropped, its request does not wait any more", address, correlation_id)
    return push.answer()
