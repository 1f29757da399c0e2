"""Acks: what a consumer that pops tells the broker of a message afterwards: done with it, or hide it for another while.

Goes by receipts alone, to the broker that the receipt names; keeps nothing. Loop thread.
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
"""How far behind its pop's beginning a message may lie to be acknowledged together with others."""
UNCHANGED = 0

Popped = tuple[str, ReceiptHandle]
"""The topic that was asked for, by the broker's name, and what names the message."""


class Caller(Protocol):
    """The part of an instance that this needs."""

    async def call_master(
        self, broker_name: str, command: RemotingCommand, timeout_s: float, *, topic: str
    ) -> RemotingCommand: ...


class AckClient:
    """For one group. Each raises BrokerError with the broker's refusal, or TransportError."""

    def __init__(self, caller: Caller, group: str, timeout_s: float) -> None:
        self._caller = caller
        self._group = group
        self._timeout_s = timeout_s

    async def ack(self, topic: str, receipt: ReceiptHandle) -> None:
        """Done. A receipt whose time is over is accepted in silence: the message is out again already."""
        await self._call(topic, receipt, RequestCode.ACK_MESSAGE, self._ext(topic, receipt))

    async def ack_many(self, popped: Iterable[Popped]) -> None:
        """As few requests as brokers and distances allow."""
        together: dict[tuple[str, str], list[ReceiptHandle]] = {}
        for topic, receipt in popped:
            if 0 <= receipt.queue_offset - receipt.start_offset < BITS_MAX:
                together.setdefault((receipt.broker_name, topic), []).append(receipt)
            else:
                await self.ack(topic, receipt)
        for (broker_name, topic), receipts in together.items():
            if len(receipts) == 1:
                await self.ack(topic, receipts[0])
                continue
            command = RemotingCommand.request(
                RequestCode.BATCH_ACK_MESSAGE, body=batch_body(self._group, topic, broker_name, receipts)
            )
            await self._caller.call_master(broker_name, command, self._timeout_s, topic=topic)

    async def change_invisible(self, topic: str, receipt: ReceiptHandle, invisible_ms: int) -> ReceiptHandle:
        """Visible again in so many ms from now. The receipt that is good from here on; the old one is void.

        What was popped in order and is done already stays as it is.
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
    """The messages of one pop and queue are one entry: its beginning, and a bit for each."""
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
