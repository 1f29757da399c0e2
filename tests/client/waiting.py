"""Wait for an effect of a running broker or client."""

import asyncio
from collections.abc import Callable

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError, NoRoute


async def wait_until(predicate: Callable[[], object], seconds: float = 10) -> None:
    """Wait until it is true; AssertionError after `seconds`."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not predicate():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {seconds} s: {predicate}")
        await asyncio.sleep(0.01)


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
