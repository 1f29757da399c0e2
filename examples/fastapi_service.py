"""A web service that sends orders to a topic, and a worker in the same process that receives them.

    pip install fastapi uvicorn
    NAMESRV_ADDR=127.0.0.1:9876 uvicorn --app-dir examples fastapi_service:app

Producer and consumer share the service's event loop and, as they have the same ClientOptions, their sockets. Run as a
script, the service sends three requests to itself and exits.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

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

TOPIC = "example-web-orders"
client = ClientOptions()
producer = Producer("example-web", client=client)
worker = PushConsumer(
    "example-web-worker",
    client=client,
    options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
)
received: list[str] = []
all_received = asyncio.Event()


@worker.subscribe(TOPIC)
async def receive(messages: Sequence[ReceivedMessage]) -> None:
    received.extend(message.body.decode() for message in messages)
    if len(received) >= 3:
        all_received.set()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with producer, worker:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{article}")
async def order(article: str) -> dict[str, object]:
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

    async with lifespan(app), AsyncClient(transport=ASGITransport(app), base_url="http://service") as web:
        for article in ("book", "pen", "lamp"):
            print((await web.post(f"/orders/{article}")).json())
        async with asyncio.timeout(60):
            await all_received.wait()
        print("received:", (await web.get("/orders")).json())


if __name__ == "__main__":
    asyncio.run(main())
