"""Positions: what the master of a queue's broker says about it: its first and next offset, and where a time lies.

Keeps nothing. Event loop only.
"""

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import MessageQueue
from firearrow.client.remoting.client_instance import ClientInstance


class QueueOffsets:
    """Each call asks once. ClientError: nobody could tell."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._ask(RequestCode.GET_MAX_OFFSET, queue, {}, "offset")

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._ask(RequestCode.GET_MIN_OFFSET, queue, {}, "offset")

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The first message stored at that time or later; behind the newest one, the next offset."""
        return await self._ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, {"timestamp": str(time_ms)}, "offset"
        )

    async def earliest_ms(self, queue: MessageQueue) -> int:
        """When the first message was stored, -1 if there is none."""
        return await self._ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue, {}, "timestamp")

    async def _ask(self, code: RequestCode, queue: MessageQueue, more: dict[str, str], field: str) -> int:
        ext = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name} | more
        request = RemotingCommand.request(code, ext)
        answer = await self._instance.call_holder(queue, request, self._instance.options.api_timeout_s)
        try:
            return answer.integer(field)
        except FieldError as error:
            raise ClientError(f"{queue.broker_name}: an answer that cannot be read: {error}") from error
