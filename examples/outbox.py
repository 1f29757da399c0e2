"""Orders in a database and messages about them: a message is delivered if, and only if, its order was committed.

    pip install 'firearrow[sqlalchemy]' aiosqlite
    NAMESRV_ADDR=127.0.0.1:9876 python examples/outbox.py

Order 2 fails in its block, order 3 by a constraint of the table. The decisions about all are printed.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from firearrow.client import (
    ConsumeFromWhere,
    EndTransactionContext,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)
from firearrow.client.integrations.outbox.sqlalchemy import AsyncOutbox

TOPIC = "example-outbox-orders"


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str] = mapped_column(unique=True)


class Decisions:
    """An EndTransactionHook."""

    def ended(self, context: EndTransactionContext) -> None:
        print(
            f"{context.message.body.decode()}: {context.state}, {'asked' if context.from_check else 'at once'}"
        )


async def main(folder: str) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder}/shop.db")
    outbox = AsyncOutbox(engine, metadata=Base.metadata)  # or a migration that creates the same table
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)

    mails: list[str] = []
    both = asyncio.Event()
    consumer = PushConsumer(
        "example-outbox-mail", options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    )

    @consumer.subscribe(TOPIC)
    async def send_mail(messages: Sequence[ReceivedMessage]) -> None:
        mails.extend(message.body.decode() for message in messages)
        if len(set(mails)) == 2:
            both.set()

    async with (
        Producer(
            "example-outbox-shop", checker=outbox.check, end_transaction_hooks=[Decisions()]
        ) as producer,
        consumer,
    ):
        for number, article in ((1, "book"), (2, "pen"), (3, "book"), (4, "lamp")):
            with suppress(ValueError, IntegrityError):
                async with outbox.begin(producer) as transaction:
                    transaction.session.add(Order(number=number, article=article))
                    await transaction.session.flush()
                    await transaction.send(Message(TOPIC, f"order {number}".encode()))
                    if number == 2:
                        raise ValueError("card declined")
        async with asyncio.timeout(80):
            await both.wait()
    await engine.dispose()
    print(f"mails about: {sorted(set(mails))}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
