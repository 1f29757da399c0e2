"""A web service that puts orders into a topic, and the worker in the same process that takes them.

    pip install fastapi uvicorn
    NAMESRV_ADDR=127.0.0.1:9876 uvicorn --app-dir examples fastapi_service:app

Producer and consumer share the service's event loop and, by the same ClientOptions, one set of sockets. Run as a script
it asks itself three times and ends.
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
taken: list[str] = []
three = asyncio.Event()


@worker.subscribe(TOPIC)
async def take(messages: Sequence[ReceivedMessage]) -> None:
    taken.extend(message.body.decode() for message in messages)
    if len(taken) >= 3:
        three.set()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with producer, worker:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{article}")
async def order(article: str) -> dict[str, object]:
    try:
        sent = await producer.send(Message(TOPIC, article.encode(), keys=[article]))
    except ClientError as error:
        raise HTTPException(503, str(error)) from error
    return {"id": sent.message_id, "queue": sent.queue.queue_id, "offset": sent.queue_offset}


@app.get("/orders")
async def orders() -> list[str]:
    return sorted(taken)


async def main() -> None:
    from httpx import ASGITransport, AsyncClient  # noqa: PLC0415 - only when it asks itself

    async with lifespan(app), AsyncClient(transport=ASGITransport(app), base_url="http://service") as web:
        for article in ("book", "pen", "lamp"):
            print((await web.post(f"/orders/{article}")).json())
        async with asyncio.timeout(60):
            await three.wait()
        print("taken:", (await web.get("/orders")).json())


if __name__ == "__main__":
    asyncio.run(main())
