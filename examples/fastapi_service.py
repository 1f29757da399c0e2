"""A web service that sends orders to a topic, and a worker in the same process that receives them.

    pip install 'firearrow[fastapi]' uvicorn
    NAMESRV_ADDR=127.0.0.1:9876 uvicorn --app-dir examples fastapi_service:app

Producer and consumer share the service's event loop and, as they have the same ClientOptions, their sockets. Run as a
script, the service sends three requests to itself and exits.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException

from firearrow.client import (
    ClientError,
    ClientOptions,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)
from firearrow.client.integrations.fastapi import RocketMQ

TOPIC = "example-web-orders"
client = ClientOptions()
received: list[str] = []
all_received = asyncio.Event()


def worker() -> PushConsumer:
    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer("example-web-worker", client=client, options=options)
    consumer.subscribe(TOPIC, receive)
    return consumer


async def receive(messages: Sequence[ReceivedMessage]) -> None:
    received.extend(message.body.decode() for message in messages)
    if len(received) >= 3:
        all_received.set()


rocketmq = RocketMQ(producer=lambda: Producer("example-web", client=client), consumers=[worker])
app = FastAPI(lifespan=rocketmq.lifespan)
app.include_router(rocketmq.router)


@app.post("/orders/{article}")
async def order(article: str, producer: Annotated[Producer, Depends(rocketmq.producer)]) -> dict[str, object]:
    try:
        result = await producer.send(Message(TOPIC, article.encode(), keys=[article]))
    except ClientError as error:
        raise HTTPException(503, str(error)) from error
    return {"id": result.message_id, "queue": result.queue.queue_id, "offset": result.queue_offset}


@app.get("/orders")
async def orders() -> list[str]:
    return sorted(received)


async def main() -> None:
    from httpx import ASGITransport, AsyncClient  # noqa: PLC0415 - only needed when run as a script

    async with (
        rocketmq.lifespan(app),
        AsyncClient(transport=ASGITransport(app), base_url="http://service") as web,
    ):
        print("ready:", (await web.get("/readyz")).json()["ready"])
        for article in ("book", "pen", "lamp"):
            print((await web.post(f"/orders/{article}")).json())
        async with asyncio.timeout(60):
            await all_received.wait()
        print("received:", (await web.get("/orders")).json())


if __name__ == "__main__":
    asyncio.run(main())
