"""A question over the broker and its answer: one asks by `request`, a consumer replies.

NAMESRV_ADDR=127.0.0.1:9876 python examples/request_reply.py
"""

import asyncio
from collections.abc import Sequence

from firearrow.client import (
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)

TOPIC = "example-sums"


async def main() -> None:
    async with Producer("example-adder") as answers, Producer("example-asker") as producer:
        adder = PushConsumer(
            "example-adder", options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        )

        @adder.subscribe(TOPIC)
        async def add(messages: Sequence[ReceivedMessage]) -> None:
            for question in messages:
                total = sum(int(word) for word in question.body.split(b"+"))
                await answers.reply(question, str(total).encode())

        await producer.send(Message(TOPIC, b"0"))  # makes the topic
        async with adder:
            for question in ("1+1", "20+22", "1+2+3+4"):
                answer = await producer.request(Message(TOPIC, question.encode()), timeout_s=20)
                print(f"{question} = {answer.body.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
