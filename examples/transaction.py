"""Messages about work in a database: consumers see a message if, and only if, the work was committed.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/transaction.py

Order 2 fails in its block and is rolled back. Order 3 leaves its transaction undecided, as if the process had died
after the database's commit: after some seconds the broker asks the checker, and the checker looks into the database.
"""

import asyncio
import sqlite3
from collections.abc import Sequence

from firearrow.client import (
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
    TransactionState,
)

TOPIC = "example-payments"


async def main() -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table payments (number integer primary key)")
    paid: list[str] = []
    both = asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        number = int(message.body.split()[1])
        found = database.execute("select 1 from payments where number = ?", [number]).fetchone()
        print(f"the broker asks for order {number}: {'paid' if found else 'not paid'}")
        return TransactionState.COMMIT if found else TransactionState.ROLLBACK

    consumer = PushConsumer(
        "example-accounting", options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    )

    @consumer.subscribe(TOPIC)
    async def book(messages: Sequence[ReceivedMessage]) -> None:
        paid.extend(message.body.decode() for message in messages)
        if len(paid) == 2:
            both.set()

    async with Producer("example-till", checker=check) as producer, consumer:
        for number in (1, 2, 3):
            try:
                async with producer.transaction(Message(TOPIC, f"order {number}".encode())) as transaction:
                    database.execute("insert into payments values (?)", [number])
                    if number == 2:
                        raise ValueError("card declined")
                    if number == 3:
                        transaction.leave_unknown()
                    database.commit()
            except ValueError as error:
                database.rollback()
                print(f"order {number}: {error}")
        async with asyncio.timeout(80):
            await both.wait()
    print(f"paid: {sorted(paid)}")


if __name__ == "__main__":
    asyncio.run(main())
