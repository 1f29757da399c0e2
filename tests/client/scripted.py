"""A name server and brokers whose answers a test defines: for errors that real brokers return only in rare states."""

import asyncio
import functools
import json
from collections.abc import Callable
from types import TracebackType
from typing import Self

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand

Answer = RemotingCommand | None
"""None: silence."""


class ScriptedBroker:
    """`script` holds response codes for the next sends (None: silence), then all succeed. `sent` is what came.

    `silent`: nothing is answered.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.script: list[int | None] = []
        self.sent: list[RemotingCommand] = []
        self.address = ""
        self.silent = False

    def answer(self, request: RemotingCommand) -> Answer:
        if self.silent:
            return None
        if request.code == RequestCode.GET_MAX_OFFSET:
            return request.answer(ext={"offset": str(len(self.sent))})
        if request.code not in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            return request.answer()
        self.sent.append(request)
        code = self.script.pop(0) if self.script else 0
        if code is None:
            return None
        ext = {"msgId": "00" * 16, "queueId": request.ext["e"], "queueOffset": str(len(self.sent) - 1)}
        return request.answer(code, "as scripted" if code else None, ext)


def _ask(broker: ScriptedBroker, request: RemotingCommand) -> Answer:
    """Calls the `answer` that the test has set."""
    return broker.answer(request)


class Scripted:
    """`async with Scripted(names) as cluster`: `name_server`, `brokers[name]`. Each topic has 2 queues a broker.

    `mappings`: of static topics, as a route has them.
    """

    def __init__(self, *names: str) -> None:
        self.brokers = {name: ScriptedBroker(name) for name in names}
        self.known = True
        self.mappings: dict[str, dict[str, object]] = {}
        self.asked: list[str] = []
        self.name_server = ""
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self.name_server = await self._listen(self._route)
        for broker in self.brokers.values():
            broker.address = await self._listen(functools.partial(_ask, broker))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    def _route(self, request: RemotingCommand) -> Answer:
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return request.answer()
        self.asked.append(request.ext["topic"])
        if not self.known:
            return request.answer(17, "no route")
        route: dict[str, object] = {
            "brokerDatas": [
                {"brokerName": broker.name, "brokerAddrs": {"0": broker.address}, "cluster": "c"}
                for broker in self.brokers.values()
            ],
            "queueDatas": [
                {"brokerName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 0}
                for name in self.brokers
            ],
        }
        if self.mappings:
            route["topicQueueMappingByBroker"] = self.mappings
        return request.answer(body=json.dumps(route).encode())

    async def _listen(self, answer: Callable[[RemotingCommand], Answer]) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            try:
                while True:
                    head = await reader.readexactly(4)
                    request = RemotingCommand.decode(head + await reader.readexactly(int.from_bytes(head)))
                    response = answer(request)
                    if response is not None and not request.is_oneway:
                        writer.write(response.encode())
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
            finally:
                self._writers.discard(writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
