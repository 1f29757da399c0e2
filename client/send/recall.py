"""Recalls: a timer message that is not due yet is called back by the handle that its send gave. Loop thread."""

import base64
import binascii
from typing import NamedTuple

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import MessageRefused
from firearrow.client.base.names import DLQ, RETRY
from firearrow.client.remoting.client_instance import ClientInstance

HANDLE_CHARS_MAX = 1024


class RecallHandle(NamedTuple):
    """What is written in a handle. `topic` is by its name at the broker."""

    topic: str
    broker_name: str
    deliver_at_ms: int
    message_id: str

    @staticmethod
    def decode(text: str) -> "RecallHandle":
        """URL-safe base64 of `v1 topic broker time id`. MessageRefused: it is no handle."""
        try:
            if len(text) > HANDLE_CHARS_MAX:
                raise ValueError(f"{len(text)} characters")
            version, topic, broker_name, time, message_id = base64.urlsafe_b64decode(text).decode().split(" ")
            if version != "v1" or not time.isdigit():
                raise ValueError(f"version {version}, time {time}")
            return RecallHandle(topic, broker_name, int(time), message_id)
        except (binascii.Error, ValueError) as error:
            raise MessageRefused(f"{text[:80]!r} is no recall handle: {error}") from error


async def recall(
    instance: ClientInstance, group: str, topic: str, handle: RecallHandle, text: str, timeout_s: float
) -> RemotingCommand:
    """The broker's answer, whatever its code. Names as brokers know them. MessageRefused, TransportError."""
    if topic.startswith((RETRY, DLQ)):
        raise MessageRefused(f"topic {topic}: nothing of a retry or dead-letter topic can be called back")
    ext = {"producerGroup": group, "topic": topic, "recallHandle": text, "bname": handle.broker_name}
    request = RemotingCommand.request(RequestCode.RECALL_MESSAGE, ext)
    return await instance.call_master(handle.broker_name, request, timeout_s, topic=topic, any_code=True)
