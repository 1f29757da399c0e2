"""Request and reply: pushes a reply to the client that sent the request (326), then stores it. Loop thread.

SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325). The answer states whether the push arrived; a reply
that cannot be stored is only logged, as with Apache.
"""

import logging
import socket

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import PutRefused, PutResult
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import Appender
from firearrow.broker.append.send_checks import SendChecks, SendRequest, queue_of
from firearrow.broker.base import property_rules
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.memory_limits import REPLY_BYTES_MAX, Shares
from firearrow.broker.base.message import Message, Property, properties_of, properties_text
from firearrow.broker.base.message_ids import host_bytes, offset_id
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.topics import TopicTable

log = logging.getLogger("firearrow.reply_messages")

PUSH_S = 10.0
COMPRESSION = 0x701
"""Bits of the system flag for the compression of the body."""


class RepliesHandler:
    def __init__(
        self,
        appender: Appender,
        topics: TopicTable,
        clients: ClientTable,
        config: Config,
        clock: Clock,
        stats: Stats,
    ) -> None:
        self._appender = appender
        self._clients = clients
        self._config = config
        self._clock = clock
        self._stats = stats
        self._send_checks = SendChecks(topics, config, clock)
        self._waiting_bytes = 0
        self.bytes_max = REPLY_BYTES_MAX

    def set_memory(self, shares: Shares) -> None:
        self.bytes_max = shares.replies

    def routes(self) -> Routes:
        return {RequestCode.SEND_REPLY_MESSAGE: self.reply, RequestCode.SEND_REPLY_MESSAGE_V2: self.reply}

    async def reply(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        send_request = SendRequest.of(request)
        options = self._config.options
        common_ext = {
            Property.REGION: options.region_id,
            Property.TRACE_ON: "true" if options.trace_on else "false",
        }
        try:
            topic = self._send_checks.topic(send_request, peer)
            self._check_memory(len(request.body))
        except Refusal as refusal:
            refusal.ext = common_ext
            raise
        queue_id = queue_of(send_request, topic)
        properties = properties_of(send_request.properties) | common_ext
        property_rules.remove(properties, property_rules.NEVER_SENT)
        if send_request.topic.startswith((name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX)):
            property_rules.remove(properties, property_rules.OF_DEAD_LETTERS)
        self._waiting_bytes += len(request.body)
        try:
            fault = await self._push(send_request, properties, request.body, peer)
        finally:
            self._waiting_bytes -= len(request.body)
        if fault is None:
            answer = request.answer(
                ext=common_ext | {"msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
            )
        else:
            answer = request.answer(ResponseCode.SYSTEM_ERROR, fault, common_ext)
        if not options.store_replies:
            return answer
        message = Message(
            send_request.topic,
            queue_id,
            request.body,
            properties,
            send_request.flag,
            send_request.sys_flag & COMPRESSION,
            send_request.born_ms,
            host_bytes(*peer.remote),
            reconsume_times=send_request.reconsume_times,
        )
        return self._store(message, answer, None if request.is_oneway else peer)

    def _check_memory(self, size: int) -> None:
        if self._waiting_bytes + size > self.bytes_max:
            remark = (
                f"replies of {self._waiting_bytes} bytes are waiting for their clients, "
                f"at most {self.bytes_max} bytes are allowed"
            )
            raise Refusal(ResponseCode.SYSTEM_BUSY, remark)

    # ---- the push ----

    async def _push(
        self, send_request: SendRequest, properties: dict[str, str], body: bytes, replier: Peer
    ) -> str | None:
        """Push the reply to its client; return the error, None if it arrived."""
        client = properties.get(Property.REPLY_TO_CLIENT)
        if client is None:
            return f"reply message properties[{Property.REPLY_TO_CLIENT}] is null"
        requester = self._clients.producer(client)
        if requester is None or requester.closed:
            return f"push reply message fail, channel of <{client}> not found."
        if requester.write_paused:
            return f"push reply message to {client}fail."
        push = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._header(send_request, properties, replier), body
        )
        try:
            answer = await requester.ask(push, PUSH_S)
        except (TimeoutError, ConnectionError) as error:
            log.info("client %s did not answer a pushed reply: %s", client, error or "timeout")
        else:
            if answer.code == ResponseCode.SUCCESS:
                return None
            log.info("client %s refused a pushed reply: code %d, %s", client, answer.code, answer.remark)
        return f"push reply message to {client}fail."

    def _header(self, send_request: SendRequest, properties: dict[str, str], replier: Peer) -> dict[str, str]:
        now = str(self._clock.now_ms())
        pushed = properties | {Property.PUSH_REPLY_TIME: now}
        return {
            "producerGroup": send_request.group,
            "topic": send_request.topic,
            "defaultTopic": send_request.default_topic,
            "defaultTopicQueueNums": str(send_request.default_queues),
            "queueId": str(send_request.queue_id),
            "sysFlag": str(send_request.sys_flag),
            "bornTimestamp": str(send_request.born_ms),
            "flag": str(send_request.flag),
            "properties": properties_text(pushed).decode(),
            "reconsumeTimes": str(send_request.reconsume_times),
            "unitMode": "true" if send_request.unit_mode else "false",
            "bornHost": f"{replier.remote[0]}:{replier.remote[1]}",
            "storeHost": _address(self._appender.store_host),
            "storeTimestamp": now,
        }

    # ---- the store ----

    def _store(self, message: Message, answer: RemotingCommand, peer: Peer | None) -> RemotingCommand | None:
        """Put the message; `answer` is sent, with its offsets, once it is stored.

        Returns `answer` if it cannot be put.
        """
        try:
            put = self._appender.put(
                message,
                on_stored=lambda stored: self._on_stored(stored, message, put, answer, peer),
            )
        except (PutRefused, Refusal) as error:
            log.info("a reply in topic %s cannot be stored: %s", message.topic, error)
            return answer
        return None

    def _on_stored(
        self, stored: bool, message: Message, put: PutResult, answer: RemotingCommand, peer: Peer | None
    ) -> None:
        if stored:
            self._stats.put(message.topic, 1, put.end - put.physical_offset)
            answer.ext |= {
                "msgId": offset_id(self._appender.store_host, put.physical_offset),
                "queueId": str(message.queue_id),
                "queueOffset": str(put.queue_offset),
            }
        else:
            log.info("a reply in topic %s cannot be stored", message.topic)
        if peer is not None and not peer.closed:
            peer.reply(answer)


def _address(host: bytes) -> str:
    """Format a record's host as `ip:port`."""
    family = socket.AF_INET if len(host) == 8 else socket.AF_INET6
    return f"{socket.inet_ntop(family, host[:-4])}:{int.from_bytes(host[-4:])}"
