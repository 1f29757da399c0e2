"""Sends CHECK_TRANSACTION_STATE (39), one-way, to a connected producer of the half message's group.

Loop thread.
"""

import struct
from collections.abc import Mapping
from dataclasses import replace

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record
from firearrow._native.store.message_store import PutResult
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message, Property, properties_text
from firearrow.broker.base.message_ids import offset_id
from firearrow.broker.base.peer import HeldAccess, Peer
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.transactions.half_message import real_queue

MAGIC_V1, MAGIC_V2 = -626843481, -626843477
TOPIC_V1_BYTES_MAX = 127
TRIES = 64
"""Producers of a group that are tried for one check; the next check goes on after them."""


class CheckRequestSender:
    """`host`: the store's address, which its offset message ids contain. `access`: only producers that may send to the
    message's topic get it; others could not end its transaction either."""

    def __init__(self, clients: ClientTable, broker_name: str, host: bytes, access: HeldAccess) -> None:
        self._clients = clients
        self._access = access
        self._broker_name = broker_name
        self._host = host
        self._next = 0

    def send_check(self, half: Record, copy: Message, put: PutResult) -> bool:
        """Ask a producer for `half`, whose copy is at `put`; False if it was not sent to a producer."""
        peer = self._producer(copy.properties)
        self._next += 1
        if peer is None:
            return False
        try:
            topic, queue_id = real_queue(copy.properties)
        except Refusal:  # no broker makes such half messages: no producer could end it
            return False
        unique_id = copy.properties.get(Property.UNIQUE_KEY)
        ext = {
            "bname": self._broker_name,
            "topic": name_rules.HALF_TOPIC,
            "tranStateTableOffset": str(put.queue_offset),
            "commitLogOffset": str(put.physical_offset),
            "offsetMsgId": offset_id(self._host, put.physical_offset),
        }
        if unique_id is not None:
            ext |= {"msgId": unique_id, "transactionId": unique_id}
        properties = copy.properties | {Property.WAIT: "false"}
        body = encoded(
            replace(
                half,
                topic=topic,
                queue_id=queue_id,
                queue_offset=put.queue_offset,
                physical_offset=put.physical_offset,
                properties_bytes=properties_text(properties),
            )
        )
        request = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, ext, body, oneway=True)
        peer.oneway(request)
        return not peer.closed

    def can_ask(self, properties: Mapping[str, str]) -> bool:
        """Whether a producer of the half message's group can be sent a check now."""
        if self._producer(properties) is not None:
            return True
        self._next += TRIES
        return False

    def _producer(self, properties: Mapping[str, str]) -> Peer | None:
        """The next producer, round robin; those that do not read their sockets are skipped."""
        members = self._clients.producers(properties.get(Property.PRODUCER_GROUP, ""))
        topic = properties.get(Property.REAL_TOPIC, "")
        for step in range(min(TRIES, len(members))):
            member = members[(self._next + step) % len(members)]
            peer = member.peer
            if not peer.closed and not peer.write_paused and self._access.may_send(member.user, topic, peer):
                return peer
        return None


def encoded(record: Record) -> bytes:
    """Encode a record for a client (Apache: MessageDecoder.encode)."""
    topic = record.topic.encode()
    long_topic = len(topic) > TOPIC_V1_BYTES_MAX
    fields = [
        struct.pack(">iii", MAGIC_V2 if long_topic else MAGIC_V1, record.body_crc, record.queue_id),
        struct.pack(">iqqi", record.flag, record.queue_offset, record.physical_offset, record.sys_flag),
        struct.pack(">q", record.born_timestamp) + record.born_host,
        struct.pack(">q", record.store_timestamp) + record.store_host,
        struct.pack(">iqi", record.reconsume_times, record.prepared_offset, len(record.body)) + record.body,
        struct.pack(">h" if long_topic else ">b", len(topic)) + topic,
        struct.pack(">h", len(record.properties_bytes)) + record.properties_bytes,
    ]
    body = b"".join(fields)
    return struct.pack(">i", 4 + len(body)) + body
