"""AckClient: acknowledges popped messages or changes their invisible times.

It needs only receipt handles and calls the broker that a handle names; it keeps no state. Loop thread.
"""

import base64
import json
from collections.abc import Iterable
from typing import Protocol

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import ClientError
from firearrow.client.pop.receipt_handles import ReceiptHandle

BITS_MAX = 4096
"""A message can be acknowledged with others of its pop if it is less than this after the pop's start offset.
"""
UNCHANGED = 0

Popped = tuple[str, ReceiptHandle]
"""The popped topic as brokers know it, and the receipt handle of the message."""


class Caller(Protocol):
    """The part of ClientInstance that AckClient needs."""

    async def call_master(
        self, broker_name: str, command: RemotingCommand, timeout_s: float, *, topic: str
    ) -> RemotingCommand: ...


class AckClient:
    """Acknowledges for one group. BrokerError: the broker refused. TransportError."""

    def __init__(self, caller: Caller, group: str, timeout_s: float) -> None:
        self._caller = caller
        self._group = group
        self._timeout_s = timeout_s

    async def ack(self, topic: str, receipt: ReceiptHandle) -> None:
        """The message is done. An expired receipt is accepted silently: the message is visible again."""
        await self._call(topic, receipt, RequestCode.ACK_MESSAGE, self._ext(topic, receipt))

    async def ack_many(self, popped: Iterable[Popped]) -> None:
        """Acknowledge with as few requests as possible: one for each broker and topic, others singly."""
        batches: dict[tuple[str, str], list[ReceiptHandle]] = {}
        for topic, receipt in popped:
            if 0 <= receipt.queue_offset - receipt.start_offset < BITS_MAX:
                batches.setdefault((receipt.broker_name, topic), []).append(receipt)
            else:
                await self.ack(topic, receipt)
        for (broker_name, topic), receipts in batches.items():
            if len(receipts) == 1:
                await self.ack(topic, receipts[0])
                continue
            command = RemotingCommand.request(
                RequestCode.BATCH_ACK_MESSAGE, body=batch_body(self._group, topic, broker_name, receipts)
            )
            await self._caller.call_master(broker_name, command, self._timeout_s, topic=topic)

    async def change_invisible(self, topic: str, receipt: ReceiptHandle, invisible_ms: int) -> ReceiptHandle:
        """Make the message visible in `invisible_ms` from now. Returns the new receipt; the old one is void.

        A message that was popped in order and is done already does not change.
        """
        ext = self._ext(topic, receipt) | {"invisibleTime": str(invisible_ms), "suspend": "false"}
        answer = await self._call(topic, receipt, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext)
        try:
            pop_ms = answer.integer("popTime")
            hidden_ms, revive_queue = answer.integer("invisibleTime"), answer.integer("reviveQid", 32)
        except FieldError as error:
            raise ClientError(f"{receipt.broker_name}: an answer that cannot be read: {error}") from error
        if pop_ms == UNCHANGED:
            return receipt
        return receipt.hidden(pop_ms, hidden_ms, revive_queue)

    def _ext(self, topic: str, receipt: ReceiptHandle) -> dict[str, str]:
        return {
            "consumerGroup": self._group,
            "topic": receipt.topic(topic, self._group),
            "queueId": str(receipt.queue_id),
            "extraInfo": receipt.text,
            "offset": str(receipt.queue_offset),
            "bname": receipt.broker_name,
        }

    async def _call(
        self, topic: str, receipt: ReceiptHandle, code: RequestCode, ext: dict[str, str]
    ) -> RemotingCommand:
        command = RemotingCommand.request(code, ext)
        return await self._caller.call_master(receipt.broker_name, command, self._timeout_s, topic=topic)


def batch_body(group: str, topic: str, broker_name: str, receipts: Iterable[ReceiptHandle]) -> bytes:
    """The messages of one pop and queue are one entry: the start offset of the pop and a bit for each
    message.
    """
    entries: dict[ReceiptHandle, int] = {}
    for receipt in receipts:
        pop = receipt._replace(queue_offset=receipt.start_offset)
        entries[pop] = entries.get(pop, 0) | 1 << receipt.queue_offset - receipt.start_offset
    acks = [
        {
            "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
            "c": group,
            "it": pop.invisible_ms,
            "pt": pop.pop_ms,
            "q": pop.queue_id,
            "r": pop.kind,
            "rq": pop.revive_queue,
            "so": pop.start_offset,
            "t": topic,
        }
        for pop, bits in entries.items()
    ]
    return json.dumps({"acks": acks, "brokerName": broker_name}, separators=(",", ":")).encode()
