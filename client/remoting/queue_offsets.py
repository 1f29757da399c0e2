"""QueueOffsets: asks the master of a queue for its first offset, its next offset and the offset at a time.

Keeps no state. Event loop only.
"""

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import MessageQueue
from firearrow.client.remoting.client_instance import ClientInstance

EXACT_VERSION = 433
"""V5_1_0: the first with boundaries of times (BoundaryType)."""


class QueueOffsets:
    """Each call sends one request. ClientError: no broker could answer."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._ask(RequestCode.GET_MAX_OFFSET, queue, {}, "offset")

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._ask(RequestCode.GET_MIN_OFFSET, queue, {}, "offset")

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at that time or later; the next offset if there is none."""
        return await self._ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, {"timestamp": str(time_ms)}, "offset"
        )

    async def offset_since(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at that time or later; from old brokers the next offset.

        Brokers before 5.1 return the last message instead of the next offset if there is none.
        """
        address = await self._instance.master_of(queue)
        if self._instance.broker_version(address) < EXACT_VERSION:
            return await self.max_offset(queue)
        return await self.offset_at(queue, time_ms)

    async def earliest_ms(self, queue: MessageQueue) -> int:
        """Store time of the first message, -1 if the queue is empty."""
        return await self._ask(RequestCode.GET_EARLIEST_MSG_STORETIME, queue, {}, "timestamp")

    async def _ask(self, code: RequestCode, queue: MessageQueue, extra: dict[str, str], field: str) -> int:
        ext = {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name} | extra
        request = RemotingCommand.request(code, ext)
        answer = await self._instance.call_holder(queue, request, self._instance.options.api_timeout_s)
        try:
            return answer.integer(field)
        except FieldError as error:
            raise ClientError(f"{queue.broker_name}: an answer that cannot be read: {error}") from error
