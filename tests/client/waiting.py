"""Wait for a message in the index."""

import asyncio

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError, NoRoute


async def found_later(
    admin: Admin, topic: str, unique_id: str, *, topic_comes: bool = False
) -> ReceivedMessage:
    """The message, once the index has it; with `topic_comes` also a topic that is not there yet."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await admin.message_by_unique_id(topic, unique_id)
            except ClientError as error:
                if not (topic_comes and isinstance(error, NoRoute)) and error.code != ResponseCode.NO_MESSAGE:
                    raise
                await asyncio.sleep(0.02)
