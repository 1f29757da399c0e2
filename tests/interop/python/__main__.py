"""`python -m tests.interop.python HOST:PORT`: operations on standard input, events on standard output."""

import asyncio
import logging
import sys

from tests.interop.python.consumers import Consumers
from tests.interop.python.events import emit, failure
from tests.interop.python.namespaces import Namespaces
from tests.interop.python.parameters import Parameters
from tests.interop.python.producers import Producers
from tests.interop.python.readers import Readers
from tests.interop.python.requests import Requests
from tests.interop.python.transactions import Transactions

LINE_BYTES_MAX = 64 << 20


async def main(name_server: str) -> None:
    producers = Producers(name_server)
    operations = {
        name: operation
        for part in (
            producers,
            Consumers(name_server),
            Readers(name_server),
            Transactions(name_server),
            Requests(name_server, producers),
            Namespaces(name_server),
        )
        for name, operation in part.operations().items()
    }
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    emit("ready", version="python")
    while (line := (await lines.readline()).decode().strip()) and line != "quit":
        name, _, query = line.partition(" ")
        try:
            await operations[name](Parameters(query))
        except Exception as error:
            failure("failed", error)
        else:
            emit("done")


logging.basicConfig(level=logging.INFO, stream=sys.stderr)
asyncio.run(main(sys.argv[1]))
