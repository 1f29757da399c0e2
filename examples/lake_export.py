"""Orders go to a topic, and then to a Delta table that has each of them once, although the export runs again and again.

NAMESRV_ADDR=127.0.0.1:9876 python examples/lake_export.py [FOLDER]      # needs firearrow[delta]
"""

import asyncio
import json
import os
import sys
import tempfile

from deltalake import DeltaTable

import firearrow
from firearrow.client import Admin, Message, Producer

TOPIC = "example-lake-orders"
NAME_SERVER = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def send(first: int, count: int) -> None:
    async with Admin() as admin:
        await admin.create_topic(TOPIC, 2)
    async with Producer("example-lake") as producer:
        for number in range(first, first + count):
            body = json.dumps({"id": number, "price": number * 1.5}).encode()
            await producer.send(Message(TOPIC, body, tags="new", keys=[str(number)]))


def main(folder: str) -> None:
    table = f"{folder}/orders"
    for run in range(3):
        asyncio.run(send(run * 10, 10))
        done = firearrow.to_delta(
            NAME_SERVER, TOPIC, table, columns=("queueId", "queueOffset", "keys", "body")
        )
        print(f"run {run + 1}: {done.rows} new rows in {done.commits} commits")
    keys = DeltaTable(table).to_pyarrow_table(columns=["keys"])["keys"].to_pylist()
    print(f"the table has {len(keys)} rows, {len(set(keys))} different orders")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
