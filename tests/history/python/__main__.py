"""`python -m tests.history.python NAME NAME_SERVER SEED PACE_S`: commands on standard input, events on its output."""

import asyncio
import logging
import sys
from pathlib import Path

from tests.history.python.consumers import Consumers
from tests.history.python.emit import emit
from tests.history.python.senders import Senders


async def main(name: str, name_server: str, seed: str, pace_s: str) -> None:
    senders = Senders(name, name_server, int(seed), float(pace_s))
    consumers = Consumers(name, name_server, Path.cwd())
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await consumers.start()
    emit("done", what="start")
    while order := (await orders.readline()).decode().strip():
        if order == "load":
            await senders.load()
        elif order == "rest":
            await senders.rest()
        elif order == "rejoin":
            await consumers.close()
            await consumers.start()
        else:
            raise ValueError(f"unknown command {order!r}: use load, rest or rejoin")
        emit("done", what=order)
    await consumers.close()
    await senders.close()


logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
asyncio.run(main(*sys.argv[1:]))
