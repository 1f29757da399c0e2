"""Recalls a timer message that is not due yet, by the handle that its send returned. Loop thread."""

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
    """The content of a handle. `topic` is the topic's name at the broker."""

    topic: str
    broker_name: str
    deliver_at_ms: int
    message_id: str

    @staticmethod
    def decode(text: str) -> "RecallHandle":
        """Decode URL-safe base64 of `v1 topic broker time id`. MessageRefused: the text is not a handle."""
        try:
            if len(text) > HANDLE_CHARS_MAX:
                raise ValueError(f"{len(text)} characters")
            version, topic, broker_name, time, message_id = base64.urlsafe_b64decode(text).decode().split(" ")
            if version != "v1" or not time.isdigit():
                raise ValueError(f"version {version}, time {time}")
            return RecallHandle(topic, broker_name, int(time), message_id)
        except (binascii.Error, ValueError) as error:
            raise MessageRefused(f"{text[:80]!r} is not a recall handle: {error}") from error

    @property
    def text(self) -> str:
        fields = ("v1", self.topic, self.broker_name, str(self.deliver_at_ms), self.message_id)
        return base64.urlsafe_b64encode(" ".join(fields).encode()).decode()


async def recall(
    instance: ClientInstance, group: str, topic: str, handle: RecallHandle, text: str, timeout_s: float
) -> RemotingCommand:
    """The broker's answer with any code. Names as brokers know them. MessageRefused, TransportError."""
    if topic.startswith((RETRY, DLQ)):
        raise MessageRefused(f"topic {topic}: messages of retry and dead-letter topics cannot be recalled")
    ext = {"producerGroup": group, "topic": topic, "recallHandle": text, "bname": handle.broker_name}
    request = RemotingCommand.request(RequestCode.RECALL_MESSAGE, ext)
    return await instance.call_master(handle.broker_name, request, timeout_s, topic=topic, any_code=True)
