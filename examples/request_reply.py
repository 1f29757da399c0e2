"""Request and reply: a producer sends a request, a consumer replies.

NAMESRV_ADDR=127.0.0.1:9876 python examples/request_reply.py
"""

import asyncio
from collections.abc import Sequence

from firearrow.client import (
    Admin,
    BrokerError,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)

TOPIC = "example-sums"


async def main() -> None:
    async with Admin() as admin:
        await admin.create_topic(TOPIC)
    async with Producer("example-adder") as replier, Producer("example-asker") as producer:
        adder = PushConsumer(
            "example-adder", options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        )

        @adder.subscribe(TOPIC)
        async def add(messages: Sequence[ReceivedMessage]) -> None:
            for request in messages:
                total = sum(int(number) for number in request.body.split(b"+"))
                try:
                    await replier.reply(request, str(total).encode())
                except BrokerError as error:  # its asker is gone: a retry would not find it either
                    print(f"no reply to {request.body.decode()}: {error.remark}")

        async with adder:
            for question in ("1+1", "20+22", "1+2+3+4"):
                reply = await producer.request(Message(TOPIC, question.encode()), timeout_s=20)
                print(f"{question} = {reply.body.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
